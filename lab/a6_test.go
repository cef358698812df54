package lab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
)

// bareEnv is what A6 needs of this machine: runc where it is, or gVisor.
func bareEnv(t *testing.T) Env {
	t.Helper()
	bin, err := filepath.Abs("../bin")
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	o := local.Options{Keep: filepath.Join(bin, "rein-keep"), Execd: filepath.Join(bin, "rein-execd"), Runtime: "runc", StateDir: state}
	if _, err := exec.LookPath("runc"); err != nil {
		o.Runtime, o.RuntimePath = "gvisor", filepath.Join(bin, "rein-runsc")
	}
	p, err := local.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(filepath.Join(state, "live")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
	return Env{Provider: p, StateDir: state, Probe: filepath.Join(bin, "rein")}
}

// TestA6 has every step pass, within its time.
func TestA6(t *testing.T) {
	r, err := A6(context.Background(), bareEnv(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Steps {
		if !s.Pass && !s.NotTried {
			t.Errorf("%s: tried %s: expected %s, got %s", s.Name, s.Tried, s.Expected, s.Got)
		}
	}
	if !r.Pass || r.DurationMS > A6Limit.Milliseconds() || len(r.Steps) < 500 {
		t.Errorf("pass %v, %d steps in %d ms", r.Pass, len(r.Steps), r.DurationMS)
	}
}

// A sandbox that has the key of a model makes A6 fail, and it says where the key is.
func TestA6FindsALeak(t *testing.T) {
	r, err := a6(context.Background(), bareEnv(t), func(spec *sandbox.Spec, keys map[string]string) {
		spec.Env = map[string]string{"LEFT_BEHIND": keys["openai"]}
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Pass {
		t.Error("it passes with a key inside")
	}
	seen := 0
	for _, s := range r.Steps {
		switch s.Name {
		case "search: the keys in environments and arguments":
			if seen++; s.Pass || !strings.Contains(s.Got, "the key openai, plain, in /proc/") {
				t.Errorf("%s: %v, %s", s.Name, s.Pass, s.Got)
			}
		case "search: control: in a file", "search: control: in an environment":
			if seen++; !s.Pass {
				t.Errorf("%s: %s", s.Name, s.Got)
			}
		}
	}
	if seen != 3 {
		t.Errorf("%d of the steps were there", seen)
	}
}
