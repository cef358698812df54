package lab_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/lab"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// backend is a server as it is set up, with sandboxes in memory.
func backend(t *testing.T, name string, s *opensandboxtest.Server) lab.Backend {
	t.Helper()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	s.Machines = m
	h := httptest.NewServer(s)
	p, err := opensandbox.New(opensandbox.Options{URL: h.URL, StateDir: t.TempDir(), CreateTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		h.CloseClientConnections()
		h.Close()
		m.Close()
	})
	return lab.Backend{Name: name, Provider: p, Spec: sandbox.Spec{Image: "debian:12"}}
}

func TestA3(t *testing.T) {
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer m.Close()
	env := lab.Env{Provider: m, StateDir: t.TempDir(), Weak: []lab.Backend{
		backend(t, "names only", &opensandboxtest.Server{Enforcement: "dns"}), backend(t, "none", &opensandboxtest.Server{NoPolicy: true})}}
	r, err := lab.A3(context.Background(), env)
	if err != nil || !r.Pass || len(r.Steps) != 10 {
		t.Fatalf("%d steps: %+v, %v", len(r.Steps), r, err)
	}
	// A backend that can enforce it fails the experiment: the refusal is what is
	// tried.
	env.Weak = []lab.Backend{backend(t, "able", &opensandboxtest.Server{})}
	r, err = lab.A3(context.Background(), env)
	if err != nil || r.Pass || !strings.HasPrefix(r.Steps[len(r.Steps)-1].Got, "it was made") {
		t.Errorf("%+v, %v", r, err)
	}
}
