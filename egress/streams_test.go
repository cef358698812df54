package egress_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/rein-sh/rein/egress"
)

// h2 is a connection of HTTP/2 to api.example.com on which anything can be sent.
type h2 struct {
	c      *tls.Conn
	framer *http2.Framer
	head   bytes.Buffer
	enc    *hpack.Encoder
	next   uint32
}

func (e *ended) h2(t testing.TB, settings ...http2.Setting) *h2 {
	t.Helper()
	c := tls.Client(mustReach(t, e.ns, "api.example.com", 443), &tls.Config{RootCAs: e.trust.RootCAs, ServerName: "api.example.com", NextProtos: []string{"h2"}})
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(hung))
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	h := &h2{c: c, framer: http2.NewFramer(c, c), next: 1}
	h.enc = hpack.NewEncoder(&h.head)
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := h.framer.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return h
}

// hung is how long nothing may come of a request until it is taken to hang.
const hung = 20 * time.Second

// send sends a request with these fields, and no others.
func (h *h2) send(t testing.TB, end bool, fields ...string) uint32 {
	t.Helper()
	h.c.SetDeadline(time.Now().Add(hung))
	h.head.Reset()
	for i := 0; i < len(fields); i += 2 {
		h.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	id := h.next
	h.next += 2
	if err := h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.head.Bytes(), EndStream: end, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	return id
}

// status is what a stream is answered: "reset" when it is.
func (h *h2) status(t testing.TB, id uint32) string {
	t.Helper()
	for {
		f, err := h.framer.ReadFrame()
		if err != nil {
			return "closed"
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == id {
				return f.PseudoValue("status")
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return "reset"
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				h.framer.WriteSettingsAck()
			}
		}
	}
}

func heads(more ...string) []string {
	return append([]string{":method", "GET", ":scheme", "https", ":authority", "api.example.com", ":path", "/simple/x"}, more...)
}

func with(name, value string) []string {
	list := heads()
	for i := 0; i < len(list); i += 2 {
		if list[i] == name {
			list[i+1] = value
		}
	}
	return list
}

// What HTTP/2 can say and a request of HTTP/1.1 cannot is not passed on to a
// server of HTTP/1.1, which could read it as something else.
func TestStreamsAreFramed(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	e := endsTo(t, httpsTo("api.example.com"), true, nil)
	e.plainly(t, func(w http.ResponseWriter, r *http.Request) { asked.Store(r.Host + " " + r.RequestURI) })
	for name, fields := range map[string][]string{
		"space in the path":       with(":path", "/simple/x HTTP/1.1 /"),
		"space in the query":      with(":path", "/simple/x?a HTTP/1.1"),
		"not ASCII":               with(":path", "/simple/\xff"),
		"line in the path":        with(":path", "/simple/x\r\nX-A: b"),
		"an absolute path":        with(":path", "https://other.example.com/"),
		"no slash":                with(":path", "simple"),
		"another authority":       with(":authority", "other.example.com"),
		"a user":                  with(":authority", "api.example.com@other.example.com"),
		"another port":            with(":authority", "api.example.com:80"),
		"no authority":            {":method", "GET", ":scheme", "https", ":path", "/"},
		"another Host alone":      {":method", "GET", ":scheme", "https", ":path", "/", "host", "other.example.com"},
		"CONNECT":                 {":method", "CONNECT", ":authority", "api.example.com"},
		"CONNECT with a protocol": {":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "api.example.com", ":path", "/"},
		"a method":                with(":method", "GET /x HTTP/1.1"),
		"a field's line":          heads("x-a", "b\r\nc: d"),
		"a field's name":          heads("x a", "b"),
		"transfer coding":         heads("transfer-encoding", "chunked"),
		"a length":                heads("content_length", "5"),
		"a coding":                heads("transfer_encoding", "chunked"),
		"upgrade":                 heads("connection", "upgrade", "upgrade", "websocket"),
		"authority twice":         heads(":authority", "other.example.com"),
	} {
		h := e.h2(t)
		if got := h.status(t, h.send(t, true, fields...)); !strings.HasPrefix(got, "4") && got != "reset" && got != "closed" {
			t.Errorf("%s: %s, the server was asked %v", name, got, asked.Load())
		}
	}
	h := e.h2(t) // what says two hosts goes to the one that was judged
	if got := h.status(t, h.send(t, true, heads("host", "other.example.com")...)); got == "200" && asked.Load() != "api.example.com /simple/x" {
		t.Errorf("the server was asked %v", asked.Load())
	}
}

// A client that reads nothing has no more than a little of each answer wait for it.
func TestStreamsWaitBounded(t *testing.T) {
	t.Parallel()
	const streams = 40
	var sent, asked atomic.Int64
	moved := make(chan struct{}, 1)
	e := endsTo(t, httpsTo("api.example.com"), false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		b := make([]byte, 32<<10)
		asked.Add(1)
		for r.Context().Err() == nil {
			n, err := w.Write(b)
			if err != nil {
				return
			}
			sent.Add(int64(n))
			select {
			case moved <- struct{}{}:
			default:
			}
		}
	})
	h := e.h2(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for range streams {
		h.send(t, true, heads()...)
	}
	for quiet, begun := false, time.Now(); !quiet && time.Since(begun) < hung; { // until nothing is sent any more
		select {
		case <-moved:
		case <-time.After(300 * time.Millisecond):
			quiet = asked.Load() == streams && sent.Load() > 0 // else the machine is slow
		}
	}
	if got := sent.Load(); got == 0 || got > streams<<20 {
		t.Errorf("%d bytes wait for a client that reads nothing", got)
	}
}

// Requests that are taken back at once leave nothing behind.
func TestStreamsTakenBack(t *testing.T) {
	t.Parallel()
	e := endsTo(t, httpsTo("api.example.com"), true, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	h := e.h2(t)
	go io.Copy(io.Discard, h.c)
	for range 3000 {
		id := h.next
		h.send(t, true, heads("authorization", "Bearer "+e.placeholder)...)
		if err := h.framer.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
			return // the gateway has had enough
		}
	}
	h.c.Close()
	e.rec.wait(t, verdictOf("allow", "api.example.com"))
}

// A sandbox has no more than some requests carried at once, however many
// connections it makes.
func TestStreamsLimited(t *testing.T) {
	t.Parallel()
	const most = 1024
	came := make(chan struct{}, most)
	e := endsTo(t, httpsTo("api.example.com"), false, func(w http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		<-r.Context().Done()
	})
	var h *h2
	for sent := range most {
		if sent%200 == 0 {
			h = e.h2(t)
		}
		h.send(t, true, heads()...)
	}
	for range most {
		select {
		case <-came:
		case <-time.After(20 * time.Second):
			t.Fatal("the server was not asked as often as it may be")
		}
	}
	if got := h.status(t, h.send(t, true, heads()...)); got != "403" {
		t.Errorf("one more: %s", got)
	}
	e.rec.wait(t, func(a egress.Attempt) bool { return a.Rule == "limit:streams" })
}
