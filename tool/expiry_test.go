package tool_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/tool"
)

// Near the sandbox's end nothing is begun that would outlast it: neither a
// narrow tool, nor a function of the host's, nor a command in the background.
func TestNearTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, called, given := 5*time.Second, 0, time.Duration(0)
		function, err := tool.Func("look", "Looks.", func(ctx context.Context, _ struct{}) (string, error) {
			called++
			end, _ := ctx.Deadline()
			given = time.Until(end)
			return "seen", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var narrow []tool.Custom
		for name, timeout := range map[string]time.Duration{"unbounded": 0, "minute": time.Minute} {
			c, err := tool.Program{Name: name, Description: "Sleeps.", Argv: []string{"sleep", "100"}, Timeout: timeout}.Tool()
			if err != nil {
				t.Fatal(err)
			}
			narrow = append(narrow, c)
		}
		b := newBench(t, func(o *tool.Options, _ *budget.Limits) {
			o.Custom = append(narrow, function)
			o.Left = func() time.Duration { return left }
		})
		failed(t, b.call("minute"), tool.Fixable, tool.CodeExpiring)
		if r := b.call("unbounded"); !r.Timeout || r.DurationMS < 4900 || r.DurationMS > 5100 {
			t.Errorf("a narrow tool without a timeout of its own: %+v %v", r, r.Err)
		}
		if r := b.call("look"); !r.OK || given != left {
			t.Errorf("a function had %v: %+v", given, r)
		}
		failed(t, b.call(tool.RunCommand, "command", "sleep 100", "background", true), tool.Fixable, tool.CodeExpiring)
		failed(t, b.call(tool.RunCommand, "command", "sleep 100", "background", true, "timeout_seconds", 6), tool.Fixable, tool.CodeExpiring)
		if r := b.call(tool.RunCommand, "command", "true", "background", true, "timeout_seconds", 4); r.Err != nil || r.Background == nil {
			t.Errorf("a short command in the background: %+v %v", r, r.Err)
		}
		left = 0
		for _, name := range []string{"minute", "unbounded", "look"} {
			failed(t, b.call(name), tool.Fixable, tool.CodeExpiring)
		}
		failed(t, b.call(tool.RunCommand, "command", "true", "background", true), tool.Fixable, tool.CodeExpiring)
		if called != 1 {
			t.Errorf("the function was called %d times", called)
		}
		// The end is not near: what a command prints will move it.
		left = budget.Standard().CallTimeout
		if r := b.call(tool.RunCommand, "command", "true", "background", true); r.Err != nil {
			t.Errorf("in good time: %v", r.Err)
		}
	})
}

// What had begun when rein died is not refused because the end is near: it is
// only asked for.
func TestBegunNearTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *tool.Options, _ *budget.Limits) {
		o.Left = func() time.Duration { return 0 }
	})
	run := func(begun bool) tool.Result {
		return b.set.Run(t.Context(), tool.Call{ID: "call_x", Name: tool.RunCommand, Arguments: json.RawMessage(`{"command":"true"}`), Begun: begun})
	}
	failed(t, run(false), tool.Fixable, tool.CodeExpiring)
	if r := run(true); !r.OK {
		t.Errorf("%+v %v", r, r.Err)
	}
}
