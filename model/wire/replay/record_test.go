package replay_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/model/wire/replay"
	"github.com/rein-sh/rein/secret"
)

// What is kept of a response is what Run reads, and nothing of the account.
func TestRecorder(t *testing.T) {
	const key = "a-key-of-a-test"
	answers := []string{
		"data: {\"text\":\"hi\"}\n\ndata: [DONE]\n\n",
		`{"error":{"message":"the key ` + key + ` is wrong"}}`,
		`{"echo":"sk-anotherkey123456"}`,
	}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Set-Cookie", "session=1")
		h.Set("Openai-Organization", "org-1")
		h.Set("Retry-After", "3")
		_, _ = io.WriteString(w, answers[len(r.URL.Path)-1])
	}))
	defer ts.Close()
	dir := t.TempDir()
	client := http.Client{Transport: &replay.Recorder{Dir: dir, Name: "made", Key: secret.New("key", key), Next: ts.Client().Transport}}
	for i, want := range []string{
		"HTTP/1.1 200 OK\nContent-Type: text/event-stream\nRetry-After: 3\n\n" + answers[0],
		"HTTP/1.1 200 OK\nContent-Type: text/event-stream\nRetry-After: 3\n\n" + `{"error":{"message":"the key KEY is wrong"}}`,
	} {
		res, err := client.Get(ts.URL + strings.Repeat("/", i+1))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(body) != answers[i] {
			t.Errorf("the caller got %q, %v", body, err)
		}
		got, err := os.ReadFile(filepath.Join(dir, []string{"made-1.http", "made-2.http"}[i]))
		if err != nil || string(got) != want {
			t.Errorf("kept %q, %v, want %q", got, err, want)
		}
	}
	if _, err := client.Get(ts.URL + "///"); err == nil || !strings.Contains(err.Error(), "looks like a secret") {
		t.Errorf("a response with another key: %v", err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 2 {
		t.Errorf("kept %v", names)
	}
}
