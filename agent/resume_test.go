package agent_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

func story() []answer {
	write := `{"path":"sub/file.txt","content":"line-4\n"}`
	one := func(n int) (string, string) { return cmd(fmt.Sprintf("echo line-%d >> log; sleep 2; echo %d", n, n)) }
	a, b := one(1)
	c, d := one(2)
	e, f := one(3)
	return []answer{
		calls(a, b, c, d),
		calls(tool.ReadFile, `{"path":"log"}`, tool.WriteFile, write),
		calls(e, f, tool.RunCommand, `{"command":"exit 3"}`, "no_such_tool", "{}"),
		calls(tool.RunCommand, `{"command":"sleep 20; echo line-5 >> log","background":true}`),
		calls(tool.SandboxKill, "{}"),
		text("all done"),
	}
}

// However often a run's process dies, and wherever, the run is one run: every
// call has one result, nothing is done twice, everything is counted, the record
// is one chain, and nothing is left.
func TestResumeAnywhere(t *testing.T) {
	t.Parallel()
	seeds := 60
	if testing.Short() {
		seeds = 15
	}
	var want *run.Report
	points := 0
	for seed := range seeds + 1 {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 7))
			mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
			defer mem.Close()
			l := &life{t: t, outside: mem, model: &plot{failed: map[int]bool{}, answers: story()}, rng: rng}
			ws := t.TempDir()
			if err := os.WriteFile(filepath.Join(ws, "given"), []byte("x\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			l.o = run.Options{ID: run.NewID(), Task: "the task", Limits: budget.Long(), Workspace: run.Workspace{Dir: ws},
				Accept: []run.Check{{Shell: "test -e log"}}, Artifacts: []string{"log"}}
			if seed == 0 { // nobody dies
				_, want, points = l.live(t.TempDir(), 0, false)
				check(t, want, want)
				return
			}
			state, deaths := t.TempDir(), 0
			var rep *run.Report
			for resume := false; rep == nil; deaths++ {
				at := 0
				if deaths < 3 {
					at = 1 + rng.IntN(points)
				}
				state, rep, _ = l.live(state, at, resume)
				resume = logged(state)
			}
			t.Logf("seed %d: %d deaths, %s", seed, deaths-1, rep.Conclusion)
			check(t, rep, want)
			if left, err := mem.List(t.Context(), nil); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// check compares a run that died with one that did not.
func check(t *testing.T, rep, want *run.Report) {
	t.Helper()
	if rep.Reason != run.Done || rep.Accepted != run.Yes || !rep.Cleanup.OK {
		t.Errorf("%s %s: %s; %s; cleanup %+v", rep.Reason, rep.Accepted, rep.Conclusion, rep.Error, rep.Cleanup)
	}
	if rep.Calls.Total != want.Calls.Total || rep.Calls.ByTool[tool.RunCommand] != 5 || !rep.Composed && rep.Tokens.Total < want.Tokens.Total {
		t.Errorf("calls %+v, tokens %+v; want %+v, %+v", rep.Calls, rep.Tokens, want.Calls, want.Tokens)
	}
	if rep.Composed != (rep.Answer != "all done") || !strings.Contains(rep.Answer, "all done") && !strings.Contains(rep.Answer, "9 tool calls") {
		t.Errorf("answer %q, composed %v", rep.Answer, rep.Composed)
	}
	if rep.Patch == nil || len(rep.Artifacts) != 1 {
		t.Fatalf("patch %+v, artifacts %+v", rep.Patch, rep.Artifacts)
	}
	dir := rep.Dir
	text, err := os.ReadFile(filepath.Join(dir, "patch"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if got := strings.Count(string(text), fmt.Sprintf("+line-%d\n", n+1)); got != 1 {
			t.Errorf("command %d was executed %d times:\n%s", n+1, got, text)
		}
	}
	f, err := os.Open(filepath.Join(dir, run.AuditFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if v := audit.Verify(f, rep.AuditHead.String()); v.State != audit.Intact {
		t.Errorf("%+v", v)
	}
	results := map[string]int{}
	if _, err := f.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	for r, err := range audit.Records(f) {
		if err == nil && r.Kind == audit.KindTool {
			results[r.CallID]++
		}
	}
	for id, n := range results {
		if n != 1 {
			t.Errorf("call %s has %d results", id, n)
		}
	}
	if len(results) != 9 {
		t.Errorf("%d calls have results", len(results))
	}
}
