package run_test

import (
	"context"
	"strings"
	"testing"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// Work that is not accepted goes back, as often as is asked for, and what is
// protected is put back each time.
func TestRetry(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"check.sh": "test -e made\n"})
	o.Accept, o.Protect, o.Retry = []run.Check{{Name: "made", Shell: "sh check.sh"}, {File: &run.FileCheck{Path: "check.sh", Contains: []string{"made"}}}}, []string{"check.sh"}, 2
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		shell(t, ctx, s, "echo exit 0 > check.sh")
		v, err := s.Judge(ctx, 1)
		if err != nil || v == nil || v.Round != 1 || v.Left != 1 || len(v.Restored) != 1 || v.Checks[0].Passed || !v.Checks[1].Passed {
			t.Fatalf("%+v, %v", v, err)
		}
		if !strings.Contains(v.Why(), "1 of 2 acceptance checks failed: made; 1 protected file") || !strings.Contains(v.Details(), "check made exited with 1") {
			t.Errorf("%s\n%s", v.Why(), v.Details())
		}
		if res := shell(t, ctx, s, "cat check.sh"); res.Stdout != "test -e made\n" {
			t.Errorf("the check is %q", res.Stdout)
		}
		if v, err := s.Judge(ctx, 2); err != nil || v == nil || v.Left != 0 || len(v.Restored) != 0 {
			t.Errorf("%+v, %v", v, err)
		}
		shell(t, ctx, s, "echo > made")
		if v, err := s.Judge(ctx, 3); err != nil || v != nil {
			t.Errorf("a third time: %+v, %v", v, err)
		}
		return done("made")
	})
	if rep.Accepted != run.Yes || len(rep.Checks) != 2 {
		t.Errorf("%s, %+v", rep.Conclusion, rep.Checks)
	}
	if n := strings.Count(recorded(t, rep), `"kind":"`+string(audit.KindRound)+`"`); n != 2 {
		t.Errorf("%d rounds are recorded", n)
	}
}

// Work that passes is judged once.
func TestRetryNotNeeded(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Accept, o.Retry = []run.Check{{Shell: "echo x >> /tmp/judged; test $(wc -l < /tmp/judged) = 1"}}, 3
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		if v, err := s.Judge(ctx, 1); err != nil || v != nil {
			t.Errorf("%+v, %v", v, err)
		}
		return done("made")
	})
	if rep.Accepted != run.Yes {
		t.Errorf("%s, %+v", rep.Conclusion, rep.Checks)
	}
}

// The tool that ends the work tells of failed checks, too, and works again.
func TestRetryByTheTool(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Accept, o.Retry = []run.Check{{Name: "made", Shell: "test -e made"}}, 1
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		res := call(t, ctx, s, tool.SandboxKill, map[string]any{})
		if res.OK || res.Err == nil || res.Err.Code != tool.CodeNotAccepted || res.Err.Class != tool.Fixable || !strings.Contains(res.Stdout, "check made exited with 1") {
			t.Errorf("%+v", res)
		}
		shell(t, ctx, s, "echo > made")
		if res := call(t, ctx, s, tool.SandboxKill, map[string]any{}); !res.OK || !strings.Contains(res.Stdout, "accepted: yes") {
			t.Errorf("%+v", res)
		}
		return done("made")
	})
	if rep.Accepted != run.Yes || rep.Reason != run.Done {
		t.Errorf("%s", rep.Conclusion)
	}
}
