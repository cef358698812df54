package tool_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

func adder(t *testing.T) tool.Custom {
	t.Helper()
	c, err := tool.Program{Name: "add_line", Description: "Adds.", Argv: []string{"sh", "-c", "echo line >> f; echo done"}}.Tool()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The result of a command in a session that had begun is adopted, and the
// session goes on, although these tools have not opened it.
func TestBegunInSession(t *testing.T) {
	t.Parallel()
	b := newBench(t, withSessions(tool.Sessions{Max: 1}))
	id, err := b.box.OpenSession(t.Context(), sandbox.SessionOptions{}, sandbox.Access{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.box.Run(t.Context(), sandbox.Command{CallID: "call_old", Session: id, Shell: "mkdir sub; cd sub; echo once >> f; echo done"}); err != nil {
		t.Fatal(err)
	}
	r := b.begun("call_old", tool.SessionRun, `{"session_id":"`+id+`","command":"mkdir sub; cd sub; echo once >> f; echo done"}`)
	if !r.OK || r.Stdout != "done\n" || !r.Known {
		t.Errorf("%+v %v", r, r.Err)
	}
	if r := b.raw(tool.SessionRun, `{"session_id":"`+id+`","command":"cat f"}`); r.Stdout != "once\n" {
		t.Errorf("the next: %+v %v", r, r.Err)
	}
	// One whose session is gone never began.
	failed(t, b.begun("call_new", tool.SessionRun, `{"session_id":"gone","command":"true"}`), tool.Fixable, tool.CodeSessionGone)
}

// Under an execd that knows no ids, of nothing that had begun is anything done
// again.
func TestBegunWithoutIDs(t *testing.T) {
	t.Parallel()
	b, _ := foreign(t, func(o *tool.Options) {
		o.Sessions.Max = 1
		o.Custom = []tool.Custom{adder(t)}
	})
	id, err := b.box.OpenSession(t.Context(), sandbox.SessionOptions{}, sandbox.Access{})
	if err != nil {
		t.Fatal(err)
	}
	failed(t, b.begun("call_1", "add_line", `{}`), tool.Verify, tool.CodeOutcomeUnknown)
	failed(t, b.begun("call_2", tool.RunCommand, `{"command":"echo line >> f"}`), tool.Verify, tool.CodeOutcomeUnknown)
	failed(t, b.begun("call_3", tool.SessionRun, `{"session_id":"`+id+`","command":"echo line >> f"}`), tool.Verify, tool.CodeOutcomeUnknown)
	if r := b.call(tool.RunCommand, "command", "ls"); !r.OK || r.Stdout != "" {
		t.Errorf("it was run: %+v", r)
	}
}

// Nobody is asked about what had begun, since it had been allowed; about what
// had not, somebody is, and what a person had made of it is not taken for it.
func TestBegunIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	var asked []string
	b := newBench(t, func(o *tool.Options, _ *budget.Limits) {
		o.Sessions.Max = 1
		o.Custom = []tool.Custom{adder(t)}
		o.Approve = func(_ context.Context, c tool.Call) (tool.Call, *tool.Error) {
			asked = append(asked, c.ID)
			return c, &tool.Error{Class: tool.NeedsHuman, Code: "approval_no_channel", Message: "nobody is there"}
		}
	})
	ran := func(id, command string) {
		t.Helper()
		if _, err := b.box.Run(t.Context(), sandbox.Command{CallID: id, Shell: command}); err != nil {
			t.Fatal(err)
		}
	}
	ran("call_1", "echo of the person; touch one")
	r := b.set.Run(t.Context(), tool.Call{ID: "call_1", Name: tool.RunCommand, Arguments: []byte(`{"command":"echo of the model; touch two"}`), Begun: true, Edited: "echo of the person; touch one"})
	if !r.OK || r.Stdout != "of the person\n" || r.Edited != "echo of the person; touch one" {
		t.Errorf("%+v %v", r, r.Err)
	}
	ran("call_2", "echo line >> f; echo done")
	if r := b.begun("call_2", "add_line", `{}`); !r.OK || r.Stdout != "done\n" {
		t.Errorf("a narrow tool: %+v %v", r, r.Err)
	}
	failed(t, b.begun("call_3", "add_line", `{}`), tool.NeedsHuman, "approval_no_channel")
	failed(t, b.begun("call_4", tool.RunCommand, `{"command":"touch two"}`), tool.NeedsHuman, "approval_no_channel")
	if d := cmp.Diff([]string{"call_3", "call_4"}, asked); d != "" {
		t.Error(d)
	}
	out, err := b.box.Run(t.Context(), sandbox.Command{Shell: "cat f; ls"})
	if err != nil || string(out.Stdout.Head)+string(out.Stdout.Tail) != "line\nf\none\n" {
		t.Errorf("%q, %v", out.Stdout.Head, err)
	}
}

// A function is on record before it is called, and not called again when it had
// begun.
func TestBegunFunction(t *testing.T) {
	t.Parallel()
	var events []string
	f, err := tool.Func("pay", "Pays.", func(context.Context, struct{}) (string, error) {
		events = append(events, "called")
		return "paid", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var broken error
	b := newBench(t, func(o *tool.Options, _ *budget.Limits) {
		o.Custom = []tool.Custom{f}
		o.Begin = func(c tool.Call) (func(tool.Result) error, error) {
			events = append(events, "begin "+c.Name)
			return func(r tool.Result) error { events = append(events, "ended "+r.Stdout); return nil }, broken
		}
	})
	failed(t, b.begun("call_old", "pay", `{}`), tool.Verify, tool.CodeOutcomeUnknown)
	if r := b.call("pay"); !r.OK {
		t.Errorf("%+v %v", r, r.Err)
	}
	broken = errors.New("the disk is full")
	failed(t, b.call("pay"), tool.Fatal, tool.CodeHost)
	if d := cmp.Diff([]string{"begin pay", "called", "ended paid", "begin pay"}, events); d != "" {
		t.Error(d)
	}
}
