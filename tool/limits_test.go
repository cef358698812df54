package tool_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/tool"
)

// Whatever shows output or takes its time goes by the limits that are in force
// when a call begins; what describes the tools never changes.
func TestLimitsInForce(t *testing.T) {
	t.Parallel()
	var o *tool.Options
	long := strings.Repeat("a line of it\n", 500)
	fn, err := tool.Func("told", "Tells.", func(ctx context.Context, _ struct{}) (string, error) {
		deadline, _ := ctx.Deadline()
		return time.Until(deadline).Round(time.Second).String() + "\n" + long, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	narrow, err := tool.Program{Name: "count", Description: "Counts.", Argv: []string{"seq", "500"}}.Tool()
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(opt *tool.Options, _ *budget.Limits) {
		o = opt
		opt.Search, opt.Custom = true, []tool.Custom{fn, narrow}
		opt.Sessions = tool.Sessions{Max: 1, Calls: 9, Age: time.Hour}
	})
	b.sh("seq 500 > long; seq 9000 > longer")
	session := strings.TrimSpace(b.call(tool.SessionCreate).Stdout)
	all := map[string]func() tool.Result{
		"command": func() tool.Result { return b.call(tool.RunCommand, "command", "seq 500") },
		"tail": func() tool.Result {
			return b.call(tool.RunCommand, "command", "seq 500", "output", "tail", "lines", 1000)
		},
		"session": func() tool.Result {
			return b.call(tool.SessionRun, "session_id", session, "command", "seq 500")
		},
		"read":     func() tool.Result { return b.call(tool.ReadFile, "path", "longer") },
		"search":   func() tool.Result { return b.call(tool.Search, "path", "longer", "pattern", ".", "limit", 200) },
		"function": func() tool.Result { return b.call("told") },
		"narrow":   func() tool.Result { return b.call("count") },
	}
	lines := func() map[string]int {
		n := map[string]int{}
		for name, call := range all {
			r := call()
			if !r.OK {
				t.Errorf("%s: %+v %v", name, r, r.Err)
			}
			n[name] = strings.Count(r.Stdout, "\n")
		}
		return n
	}
	described := slices.Clone(b.set.Definitions())
	before := lines()
	set := func(limit budget.Limit, amount int64) {
		if _, err := o.Budget.SetLimit(limit, amount); err != nil {
			t.Fatal(err)
		}
	}
	kept := b.call(tool.RunCommand, "command", "seq 300")
	set(budget.LimitOutputBytes, 1024)
	set(budget.LimitOutputLines, 100)
	set(budget.LimitCallTimeout, int64(7*time.Second))
	for name, n := range lines() {
		most := 110
		if name == "search" { // that has bytes alone
			most = 199
		}
		if n > most || n >= before[name] {
			t.Errorf("%s: %d lines, %d before", name, n, before[name])
		}
	}
	if r := b.call("told"); !strings.HasPrefix(r.Stdout, "7s\n") {
		t.Errorf("the function had %q", r.Stdout[:10])
	}
	if r := kept.Shortened(1100); strings.Count(r.Stdout, "\n") < 150 {
		t.Errorf("a result of before is shortened to %d lines", strings.Count(r.Stdout, "\n"))
	}
	set(budget.LimitOutputBytes, 64<<10)
	set(budget.LimitOutputLines, 5000)
	for name, n := range lines() {
		if n < before[name] || name == "read" && n != 5000 || name == "tail" && n != 500 {
			t.Errorf("%s: %d lines, %d before", name, n, before[name])
		}
	}
	failed(t, b.call(tool.RunCommand, "command", "true", "timeout_seconds", 200), tool.Fixable, tool.CodeTimeoutTooLong)
	set(budget.LimitMaxCallTimeout, int64(5*time.Minute))
	if r := b.call(tool.RunCommand, "command", "true", "timeout_seconds", 200); !r.OK {
		t.Errorf("%+v %v", r, r.Err)
	}
	failed(t, b.raw(tool.RunCommand, `{"command":"true","timeout_seconds":1e300}`), tool.Fixable, tool.CodeTimeoutTooLong)
	if diff := cmp.Diff(described, b.set.Definitions()); diff != "" {
		t.Error(diff)
	}
}
