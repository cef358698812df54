package opensandbox_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
)

type ctx = context.Context

// discard is a record that nobody reads.
func discard() *audit.Log { return audit.New(io.Discard, audit.Options{}) }

// create makes a sandbox that ends with the test.
func create(t *testing.T, p sandbox.Provider, spec sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	sb, err := sandbox.Create(t.Context(), p, spec, sandbox.Options{Log: discard()})
	if err != nil {
		t.Fatalf("create: %v (hint: %s)", err, sandbox.HintOf(err))
	}
	t.Cleanup(func() {
		defer sb.Close()
		if err := sb.Kill(context.Background()); err != nil {
			t.Errorf("kill: %v", err)
		}
	})
	return sb
}

// wantRefusal fails unless err is of a kind and has a hint with a text.
func wantRefusal(t *testing.T, err error, kind sandbox.Kind, hint string) {
	t.Helper()
	if err == nil || sandbox.KindOf(err) != kind || !strings.Contains(sandbox.HintOf(err), hint) {
		t.Errorf("error %v of kind %q with hint %q, want kind %q and %q in the hint", err, sandbox.KindOf(err), sandbox.HintOf(err), kind, hint)
	}
}

// nowhere takes an answer that nobody gets.
type nowhere struct{}

func (nowhere) Header() http.Header         { return http.Header{} }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}

// copyBody returns what gives the body of a request again and again.
func copyBody(t *testing.T, r *http.Request) func() io.ReadCloser {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return func() io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }
}
