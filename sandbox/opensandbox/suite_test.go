package opensandbox_test

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/secret"
)

const key = "the-api-key-of-the-tests"

// serve starts a server whose sandboxes are in memory.
func serve(t *testing.T, s *opensandboxtest.Server) *httptest.Server {
	t.Helper()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	s.Machines, s.Key = m, key
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if leaked := s.Leaked(); len(leaked) > 0 {
			t.Errorf("the API key went towards sandboxes: %q", leaked)
		}
	})
	return h
}

// open makes a provider for a server.
func open(t *testing.T, h *httptest.Server, change func(*opensandbox.Options)) *opensandbox.Provider {
	t.Helper()
	return providerOf(t, opensandbox.Options{URL: h.URL, Key: secret.New("key", key), CreateTimeout: 20 * time.Second}, change)
}

func providerOf(t *testing.T, o opensandbox.Options, change func(*opensandbox.Options)) *opensandbox.Provider {
	t.Helper()
	o.StateDir = t.TempDir()
	if change != nil {
		change(&o)
	}
	p, err := opensandbox.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// program is the least that passes for a static program for amd64.
func program(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Phentsize: 56, Shentsize: 64}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	if err := binary.Write(&b, binary.LittleEndian, h); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rein-execd")
	if err := os.WriteFile(path, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// without is a provider whose server's machines cannot do what a real one's
// can.
type without struct {
	sandbox.Provider // and not a sandbox.Pauser
	lacks            []sandbox.Capability
}

func (w without) Probe(ctx context.Context) (sandbox.Report, error) {
	r, err := w.Provider.Probe(ctx)
	for i, a := range r.Abilities {
		if slices.Contains(w.lacks, a.Capability) {
			r.Abilities[i] = sandbox.Ability{Capability: a.Capability, Reason: "not with machines in memory"}
		}
	}
	return r, err
}

func (w without) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	for _, c := range spec.Require {
		if slices.Contains(w.lacks, c) {
			return sandbox.Info{}, &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "create", Subject: string(c)}
		}
	}
	if spec.Image == "" {
		spec.Image = "example.com/image:1"
	}
	return w.Provider.Create(ctx, spec)
}

// inMemory is what an interpreter has of none of.
var inMemory = []sandbox.Capability{sandbox.CapProcesses, sandbox.CapPipeStatus, sandbox.CapPause, sandbox.CapPTY, sandbox.CapNetworkDeny}

func TestSuiteWithServersExecd(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Harness{
		Life: 3 * time.Second, // its machines are made in memory
		New: func(t *testing.T) sandbox.Provider {
			h := serve(t, &opensandboxtest.Server{NoPause: true, Tail: time.Second})
			return without{open(t, h, nil), inMemory}
		},
		Summary: sandboxtest.SaveSummary(t, os.Getenv("REIN_VERIFIED"), "opensandbox-fake", ""),
		Must:    []sandbox.Capability{sandbox.CapExec, sandbox.CapFiles, sandbox.CapBackground, sandbox.CapLabels, sandbox.CapRenew},
	})
}

func TestSuiteWithOwnExecd(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Harness{
		Life: 3 * time.Second, // its machines are made in memory
		New: func(t *testing.T) sandbox.Provider {
			h := serve(t, &opensandboxtest.Server{NoPause: true, Tail: time.Second, Prefix: "sandboxes"})
			return without{open(t, h, func(o *opensandbox.Options) { o.Execd = program(t) }), inMemory}
		},
		Summary: sandboxtest.SaveSummary(t, os.Getenv("REIN_VERIFIED"), "opensandbox-fake-own", ""),
		Must: []sandbox.Capability{sandbox.CapExec, sandbox.CapFiles, sandbox.CapBackground, sandbox.CapLabels, sandbox.CapRenew,
			sandbox.CapCallIDs, sandbox.CapCaps, sandbox.CapSpill, sandbox.CapConfine},
	})
}
