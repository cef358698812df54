package main

import (
	"net/http/httptest"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// openSandbox starts an OpenSandbox server whose sandboxes are in memory, sets
// OPENSANDBOX_KEY to its key, and makes a file the user's configuration, with
// the server's address in place of OPENSANDBOX_URL. With "weak" its network policy
// stops names only.
func openSandbox(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: opensandbox CONFIG [weak]")
	}
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{})
	s := &opensandboxtest.Server{Machines: m, Key: "key-of-the-scripted-server"}
	if len(args) == 2 {
		s.Enforcement = "dns"
	}
	h := httptest.NewServer(s)
	ts.Defer(func() {
		h.CloseClientConnections()
		h.Close()
		ts.Check(m.Close())
		if leaked := s.Leaked(); len(leaked) > 0 {
			ts.Fatalf("the key went towards sandboxes: %q", leaked)
		}
	})
	config := strings.ReplaceAll(ts.ReadFile(args[0]), "OPENSANDBOX_URL", h.URL)
	ts.Check(os.MkdirAll(ts.MkAbs("home/.config/rein"), 0o700))
	ts.Check(os.WriteFile(ts.MkAbs("home/.config/rein/config.yaml"), []byte(config), 0o600))
	ts.Setenv("OPENSANDBOX_KEY", s.Key)
}
