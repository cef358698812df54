package egress_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/coder/websocket"
)

// raw sends what is given over TLS to api.example.com, as HTTP/1.1, and returns
// all that is answered.
func (e *ended) raw(t testing.TB, request string) string {
	t.Helper()
	c := tls.Client(mustReach(t, e.ns, "api.example.com", 443), &tls.Config{RootCAs: e.trust.RootCAs, ServerName: "api.example.com"})
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(c) // also what ends in a reset
	return string(b)
}

// plainly puts a server that speaks HTTP/1.1 alone behind api.example.com.
func (e *ended) plainly(t testing.TB, h http.HandlerFunc) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	e.behind("", "93.184.215.14:443", s.Listener.Addr().String())
}

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func deflated(s string) string {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	io.WriteString(z, s)
	z.Close()
	return b.String()
}

func wide(s string) string {
	b := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(s)) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return string(b)
}

// However a server repeats what it was sent, the sandbox does not see the secret.
func TestVaultEchoes(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\nConnection: close\r\n"
	for name, answer := range map[string]string{
		"early hints":             "HTTP/1.1 103 Early Hints\r\nLink: <KEY>\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n",
		"processing":              "HTTP/1.1 102 Processing\r\nX-Echo: KEY\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n",
		"status":                  "HTTP/1.1 KEY\r\n\r\n",
		"reason":                  "HTTP/1.1 400 bad KEY\r\nContent-Length: 0\r\n\r\n",
		"malformed field":         "HTTP/1.1 200 OK\r\nKEY\r\n\r\n",
		"malformed length":        "HTTP/1.1 200 OK\r\nContent-Length: KEY\r\n\r\n",
		"transfer coding":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: KEY\r\n\r\n",
		"name of a field":         ok + "Content-Length: 0\r\nX-KEY: 1\r\n\r\n",
		"another protocol":        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: KEY\r\n\r\n",
		"type twice":              ok + "Content-Type: application/octet-stream\r\nContent-Type: text/plain\r\n\r\nKEY",
		"parameter twice":         ok + "Content-Type: text/plain; charset=utf-8; charset=utf-8\r\n\r\nKEY",
		"malformed parameter":     ok + "Content-Type: text/plain; =\r\n\r\nKEY",
		"types in one field":      ok + "Content-Type: text/plain, text/plain\r\n\r\nKEY",
		"trace":                   ok + "Content-Type: message/http\r\n\r\nTRACE / HTTP/1.1\r\nAuthorization: KEY\r\n",
		"multipart":               ok + "Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\r\nKEY\r\n--x--\r\n",
		"utf-16":                  ok + "Content-Type: text/plain; charset=utf-16\r\n\r\nWIDE",
		"coding":                  ok + "Content-Encoding: KEY\r\nContent-Type: text/plain\r\n\r\nx",
		"two codings":             ok + "Content-Encoding: identity\r\nContent-Encoding: identity\r\nContent-Type: text/plain\r\n\r\nKEY",
		"trailer":                 ok + "Transfer-Encoding: chunked\r\nTrailer: X-Echo\r\n\r\n" + chunk("x") + "0\r\nX-Echo: KEY\r\n\r\n",
		"trailer of a part":       "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-0/9\r\nTransfer-Encoding: chunked\r\nTrailer: X-Echo\r\n\r\n" + chunk("x") + "0\r\nX-Echo: KEY\r\n\r\n",
		"trailer not announced":   ok + "Transfer-Encoding: chunked\r\n\r\n" + chunk("x") + "0\r\nX-Echo: KEY\r\n\r\n",
		"trailer after deflate":   ok + "Transfer-Encoding: chunked\r\nContent-Encoding: deflate\r\nTrailer: X-Echo\r\n\r\n" + chunk(deflated("x")) + "0\r\nX-Echo: KEY\r\n\r\n",
		"after deflate":           ok + "Content-Type: text/plain\r\nContent-Encoding: deflate\r\n\r\n" + deflated("x") + "KEY",
		"a cut body":              "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\nKEY",
		"a body that ends within": "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nKEY",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := endsTo(t, httpsTo("api.example.com"), true, nil)
			e.plainly(t, func(w http.ResponseWriter, r *http.Request) {
				c, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
				if key != apiKey {
					t.Errorf("Authorization %q", key)
				}
				io.WriteString(c, strings.NewReplacer("KEY", key, "WIDE", wide(key)).Replace(answer))
			})
			got := e.raw(t, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
			if got == "" && name != "a cut body" {
				t.Error("nothing was answered")
			}
			narrow := strings.ReplaceAll(got, "\x00", "")
			if strings.Contains(strings.ToLower(narrow), strings.ToLower(apiKey)) {
				t.Errorf("the sandbox is told: %q", got)
			}
		})
	}
}

// What HTTP/2 has after an answer without a body is masked as well.
func TestVaultEchoesInTrailers(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "HEAD", "POST"} {
		e := endsTo(t, httpsTo("api.example.com"), true, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(200)
			http.NewResponseController(w).Flush()
			w.Header().Set(http.TrailerPrefix+"X-Echo", r.Header.Get("Authorization"))
		})
		r, _ := http.NewRequest(method, "https://api.example.com/", nil)
		res, err := e.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body(t, res, nil)
		if echo := res.Trailer.Get("X-Echo"); strings.Contains(echo, apiKey) {
			t.Errorf("%s: %v", method, res.Trailer)
		}
	}
}

// A secret in a server's messages is covered.
func TestVaultEchoesInWebSocket(t *testing.T) {
	t.Parallel()
	e := endsTo(t, httpsTo("api.example.com"), true, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		c.Write(r.Context(), websocket.MessageText, []byte("you are "+r.Header.Get("Authorization")))
		c.Close(websocket.StatusNormalClosure, r.Header.Get("Authorization"))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := e.webSocket(ctx, t)
	stars := "Bearer " + strings.Repeat("*", len(apiKey))
	if _, b, err := c.Read(ctx); err != nil || string(b) != "you are "+stars {
		t.Errorf("%q, %v", b, err)
	}
	var closed websocket.CloseError
	if _, _, err := c.Read(ctx); !errors.As(err, &closed) || closed.Reason != stars {
		t.Errorf("%v", err)
	}
}
