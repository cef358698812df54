package lab_test

import (
	"context"
	"testing"

	"github.com/rein-sh/rein/lab"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

func TestA2(t *testing.T) {
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer m.Close()
	r, err := lab.A2(context.Background(), lab.Env{Provider: m, StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Pass || len(r.Figures) != 3 || r.AuditHead == "" || r.SandboxID == "" {
		t.Errorf("%+v", r)
	}
	if f := r.Figures[0]; f.Produced != 200_000 || f.Returned > 16<<10 || f.Calls != 1 {
		t.Errorf("%+v", f)
	}
}
