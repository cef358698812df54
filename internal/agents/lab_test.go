package agents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/lab"
)

// boundary tries the key boundary beside the agent.
func (p *place) boundary(t *testing.T, a agent, runtime string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*lab.A6AgentLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.bin, "lab", "a6", "--agent", a.name, "--config", p.config, "--runtime", runtime, "--json")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "XDG_STATE_HOME=" + t.TempDir(), "XDG_CACHE_HOME=" + p.cache}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var r lab.Result
	if e := json.Unmarshal(stdout.Bytes(), &r); e != nil {
		t.Fatalf("%v, %v: %s%s", err, e, stdout.String(), stderr.String())
	}
	tried, controls := 0, 0
	for _, s := range r.Steps {
		switch {
		case s.NotTried:
			t.Logf("%-9s %-7s %s: %s", a.name, runtime, s.Name, s.Got)
			continue
		case !s.Pass:
			t.Errorf("%s: tried %s: expected %s, got %s", s.Name, s.Tried, s.Expected, s.Got)
		case strings.HasPrefix(s.Name, "search: control: "):
			controls++
		}
		tried++
	}
	if err != nil || !r.Pass || !strings.HasPrefix(r.Agent, a.name+" ") || tried < 450 || controls < 6 {
		t.Errorf("%v: pass %v beside %q, %d steps tried, %d controls", err, r.Pass, r.Agent, tried, controls)
	}
	t.Logf("%-9s %-7s %-22s %5.1f s, %d steps; %s", a.name, runtime, "key boundary", float64(r.DurationMS)/1000, tried, r.Agent)
}
