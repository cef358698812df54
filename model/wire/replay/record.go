package replay

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rein-sh/rein/model/wire"
	"github.com/rein-sh/rein/secret"
)

// Recorder is a transport that keeps each response in Dir, as Run reads them:
// NAME-1.http, NAME-2.http. Of the headers only those are kept that a client
// looks at, and Key is taken out wherever it stands. A response that still holds
// what looks like a secret is not kept, and its request fails.
type Recorder struct {
	Dir, Name string
	Key       secret.Value
	Next      http.RoundTripper

	mu sync.Mutex
	n  int
}

// kept are the headers that clients look at.
var kept = []string{"Content-Type", "Retry-After", "Retry-After-Ms", "X-Should-Retry"}

// RoundTrip reads the whole response before it returns.
func (r *Recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := r.Next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if err := r.keep(res, body); err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

func (r *Recorder) keep(res *http.Response, body []byte) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\n", res.StatusCode, http.StatusText(res.StatusCode))
	for _, name := range kept {
		if v := res.Header.Get(name); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	b.WriteString("\n")
	b.Write(body)
	text := b.Bytes()
	if !r.Key.IsZero() {
		text = bytes.ReplaceAll(text, []byte(r.Key.Reveal()), []byte("KEY"))
	}
	for line := range bytes.Lines(text) {
		if Secret.Match(line) {
			return fmt.Errorf("the response is not kept: it holds what looks like a secret: %.40q", Secret.Find(line))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	return os.WriteFile(filepath.Join(r.Dir, fmt.Sprintf("%s-%d.http", r.Name, r.n)), text, 0o644)
}

// Record has a short conversation with a vendor, or the server at baseURL, and
// keeps the responses in dir: one with calls, and the answer to their results.
// It skips the test when no model is given; keyFile holds the vendor's key.
func Record(t *testing.T, dir, model, keyFile, baseURL string, open Open) {
	if model == "" {
		t.Skip("only with -record MODEL -key-file FILE: it asks the vendor, and costs a little")
	}
	text, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatalf("-key-file: %v", err)
	}
	key := secret.New("key", strings.TrimSpace(string(text)))
	network := http.DefaultTransport.(*http.Transport).Clone()
	defer network.CloseIdleConnections()
	o := wire.Options{BaseURL: baseURL, Model: model, Key: key, Transport: &Recorder{Dir: dir, Name: "recorded", Key: key, Next: network}}
	m, err := open(o)
	if err != nil {
		t.Fatal(err)
	}
	req := Request()
	req.Messages[0].Text = "Run `go test ./...` and, in the same reply, read the file go.mod. Then say in one sentence what you saw."
	for range 2 {
		reply, err := m.Generate(t.Context(), req, nil)
		if err != nil {
			t.Fatal(err)
		}
		Answer(req, reply)
	}
}
