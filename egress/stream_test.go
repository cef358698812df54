package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/rein-sh/rein/egress"
)

func TestWebSocket(t *testing.T) {
	t.Parallel()
	ns, _, _ := webTo(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			http.Error(w, "not here", http.StatusNotFound)
			return
		}
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(1 << 20)
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if c.Write(r.Context(), kind, bytes.ToUpper(b)) != nil {
				return
			}
		}
	})
	ctx, client, c := webSocket(t, ns)
	c.SetReadLimit(1 << 20)
	for _, text := range []string{"a", strings.Repeat("b", 200_000)} {
		if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, b, err := c.Read(ctx); err != nil || string(b) != strings.ToUpper(text) {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	}
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	if _, res, err := websocket.Dial(ctx, "ws://web.example.com/no", &websocket.DialOptions{HTTPClient: client}); err == nil || res == nil || res.StatusCode != 404 || !res.Close {
		t.Errorf("%v, %+v; want 404, and the connection closed", err, res)
	}
}

// webSocket is one to web.example.com from inside, its client, and the time that
// both have.
func webSocket(t *testing.T, ns *netns) (context.Context, *http.Client, *websocket.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	client := inside(t, ns, nil)
	client.Timeout = 0
	c, _, err := websocket.Dial(ctx, "ws://web.example.com/", &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return ctx, client, c
}

// A policy that does not allow its host any more ends a WebSocket at once.
func TestWebSocketEnds(t *testing.T) {
	t.Parallel()
	out := newAway()
	ns, g, rec := owned(t, egress.Options{Host: out, Policy: compile(t, httpTo("web.example.com"))})
	gone := make(chan error, 1)
	out.plain(t, "web.example.com", "93.184.215.14:80", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		_, _, err = c.Read(context.Background())
		gone <- err
	})
	ctx, _, c := webSocket(t, ns)
	g.SetPolicy(compile(t, httpTo("other.example.com")))
	if _, _, err := c.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("inside: %v", err)
	}
	if err := <-gone; err == nil {
		t.Error("outside it goes on")
	}
	rec.wait(t, verdictOf("deny", "web.example.com"))
}

// Events, the answer to an expectation, and what comes before an answer arrive
// when they are sent.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	ns, _, _ := webTo(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			for i := range 3 {
				<-next
				fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
			}
		case "/hints":
			w.Header().Set("Link", "</a>")
			w.WriteHeader(http.StatusEarlyHints)
			io.WriteString(w, "done")
		case "/take":
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%d", len(b))
		default:
			http.Error(w, "too much", http.StatusExpectationFailed)
		}
	})
	client := inside(t, ns, nil)
	r, err := client.Get("http://web.example.com/events")
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(r.Body)
	for i := range 3 {
		next <- struct{}{}
		line, err := in.ReadString('\n')
		if want := fmt.Sprintf("data: %d\n", i); line != want || err != nil {
			t.Errorf("%q, %v", line, err)
		}
		in.ReadString('\n')
	}
	r.Body.Close()

	c := mustReach(t, ns, "web.example.com", 80)
	b := bufio.NewReader(c)
	head := "POST /take HTTP/1.1\r\nHost: web.example.com\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
	if res, _ := ask(t, c, b, "POST", head); res.StatusCode != 100 {
		t.Errorf("status %d before the body", res.StatusCode)
	}
	if res, text := ask(t, c, b, "POST", "abcde"); res.StatusCode != 200 || text != "5" {
		t.Errorf("status %d, %q", res.StatusCode, text)
	}
	if res, _ := ask(t, c, b, "POST", strings.Replace(head, "take", "no", 1)); res.StatusCode != 417 {
		t.Errorf("status %d instead of the body", res.StatusCode)
	}
	c = mustReach(t, ns, "web.example.com", 80)
	b = bufio.NewReader(c)
	if res, _ := ask(t, c, b, "GET", "GET /hints HTTP/1.1\r\nHost: web.example.com\r\n\r\n"); res.StatusCode != 103 || res.Header.Get("Link") != "</a>" {
		t.Errorf("status %d, %v", res.StatusCode, res.Header)
	}
	if res, text := ask(t, c, b, "GET", ""); res.StatusCode != 200 || text != "done" {
		t.Errorf("status %d, %q", res.StatusCode, text)
	}
}

func TestTrailers(t *testing.T) {
	t.Parallel()
	ns, _, _ := webTo(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "X-Back")
		io.WriteString(w, "x")
		w.Header().Set("X-Back", r.Trailer.Get("X-Sum")+r.Header.Get("Te"))
	})
	c := mustReach(t, ns, "web.example.com", 80)
	res, _ := ask(t, c, bufio.NewReader(c), "POST", "POST / HTTP/1.1\r\nHost: web.example.com\r\nTE: trailers\r\nTrailer: X-Sum\r\n"+
		"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 7\r\n\r\n")
	if got := res.Trailer.Get("X-Back"); got != "7trailers" {
		t.Errorf("trailer %q", got)
	}
}

// An upload takes no more memory than what is on its way. Not parallel: it
// looks at the memory of all tests.
func TestUploadInConstantMemory(t *testing.T) {
	const size = 64 << 20
	var peak uint64
	ns, _, _ := webTo(t, func(w http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 1<<20)
		for total := 0; ; {
			n, err := io.ReadFull(r.Body, buf)
			if total += n; err != nil {
				fmt.Fprint(w, total)
				return
			}
			if total%(16<<20) == 0 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
		}
	})
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r, err := inside(t, ns, nil).Post("http://web.example.com/", "x/y", io.LimitReader(zeros{}, size))
	if got := body(t, r, err); got != fmt.Sprint(size) {
		t.Errorf("the server received %s bytes", got)
	}
	if grown := int64(peak) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
