package lab_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/lab"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestA1(t *testing.T) {
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer m.Close()
	var steps int
	r, err := lab.A1(context.Background(), lab.Env{Provider: m, StateDir: t.TempDir(), Progress: func(lab.Step) { steps++ }})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Pass || len(r.Steps) != steps || steps < 12 || r.DurationMS > lab.Limit.Milliseconds() {
		t.Errorf("%d steps told: %+v", steps, r)
	}
	f, err := os.Open(r.AuditPath)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if v := audit.Verify(f, r.AuditHead); v.State != audit.Intact {
		t.Errorf("audit: %+v", v)
	}
}

// What cannot be created fails the experiment, and is no error of the machinery.
func TestA1WithoutSandbox(t *testing.T) {
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer m.Close()
	if r, err := lab.A1(context.Background(), lab.Env{Provider: m, StateDir: t.TempDir(), Spec: sandbox.Spec{Image: "no such image"}}); err != nil || r.Pass {
		t.Errorf("an image that cannot be: %+v, %v", r, err)
	}
}

// A panic fails the experiment, and its sandbox is ended all the same.
func TestA1Panics(t *testing.T) {
	for _, at := range []string{"create", "read", "verify"} {
		m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		defer m.Close()
		r, err := lab.A1(context.Background(), lab.Env{Provider: m, StateDir: t.TempDir(), Progress: func(s lab.Step) {
			if s.Name == at {
				panic("boom at " + at)
			}
		}})
		if err == nil || !strings.Contains(err.Error(), "boom at "+at) || r.Pass || r.SandboxID == "" {
			t.Errorf("%s: %+v, %v", at, r, err)
		}
		if left, err := m.List(context.Background(), nil); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", at, left, err)
		}
		data, err := os.ReadFile(r.AuditPath)
		if err != nil {
			t.Fatal(err)
		}
		if v := audit.Verify(bytes.NewReader(data), r.AuditHead); v.State != audit.Intact || !bytes.Contains(data, []byte(audit.KindKilled)) {
			t.Errorf("%s: audit %+v", at, v)
		}
	}
}
