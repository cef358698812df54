package egress_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
)

// What a server answers that cannot be passed on is given back: the connection,
// and the place of a decoder.
func TestAnswersThatCannotBePassedOn(t *testing.T) {
	t.Parallel()
	e := endsTo(t, httpsTo("api.example.com"), true, nil)
	var packed bytes.Buffer
	w := brotli.NewWriter(&packed)
	io.WriteString(w, "hello")
	w.Close()
	head := "099 X"
	ended := make(chan error, 1)
	e.plainly(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Encoding: br\r\nContent-Length: %d\r\n\r\n%s", head, packed.Len(), packed.Bytes())
		if strings.HasPrefix(head, "101") {
			_, err = c.Read(make([]byte, 1))
			ended <- err
		}
	})
	for range 40 { // more than there are places
		if res, text := e.get(t, "https://api.example.com/"); res.StatusCode != 502 || !strings.Contains(text, "no status") {
			t.Fatalf("%d %q", res.StatusCode, text)
		}
	}
	head = "101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other"
	if res, text := e.get(t, "https://api.example.com/"); res.StatusCode != 502 {
		t.Fatalf("%d %q", res.StatusCode, text)
	}
	if err := <-ended; err != io.EOF {
		t.Errorf("the connection of an answer nobody asked for: %v", err)
	}
	head = "200 OK"
	if res, text := e.get(t, "https://api.example.com/", "Accept-Encoding", "br"); res.StatusCode != 200 || text != "hello" {
		t.Errorf("%d %q", res.StatusCode, text)
	}
}
