package lab_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/rein-sh/rein/lab"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

func TestA5(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		defer m.Close()
		r, err := lab.A5(context.Background(), lab.Env{Provider: m, StateDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Steps {
			t.Logf("%v %s: %s", s.Pass, s.Name, s.Got)
		}
		if !r.Pass || len(r.Steps) != 6 {
			t.Errorf("%+v", r)
		}
	})
}
