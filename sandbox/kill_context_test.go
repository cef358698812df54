package sandbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// A kill goes on without whoever asked for it: for long where they had gone
// before, for a grace where they go meanwhile.
func TestKillContext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ leave, want time.Duration }{
		"gone before":    {0, sandbox.KillTimeout},
		"goes meanwhile": {5 * time.Second, 5*time.Second + sandbox.KillGrace},
		"goes late":      {sandbox.KillTimeout - time.Second, sandbox.KillTimeout},
		"stays":          {time.Hour, sandbox.KillTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if c.leave == 0 {
					cancel()
				}
				left := time.AfterFunc(c.leave, cancel)
				defer left.Stop()
				s := silentSandbox(t, silent{})
				defer s.Close()
				start := time.Now()
				if err := s.Kill(ctx); sandbox.KindOf(err) != sandbox.KindTimeout {
					t.Errorf("error %v", err)
				}
				if took := time.Since(start); took != c.want {
					t.Errorf("it took %v, want %v", took, c.want)
				}
			})
		})
	}
}
