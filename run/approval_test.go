package run_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/run/control"
	"github.com/rein-sh/rein/tool"
)

// asker is a channel made of a function.
type asker func(context.Context, approval.Question) (approval.Decision, error)

func (asker) Name() string { return "terminal" }

func (a asker) Ask(ctx context.Context, q approval.Question) (approval.Decision, error) {
	return a(ctx, q)
}

func judged(t *testing.T, channels []approval.Channel, rules ...approval.Rule) *run.Approval {
	t.Helper()
	p, err := approval.NewPolicy("", rules...)
	if err != nil {
		t.Fatal(err)
	}
	return &run.Approval{Policy: p, Channels: channels}
}

func refused(t *testing.T, res tool.Result, code approval.Code) {
	t.Helper()
	if res.OK || res.Err == nil || res.Err.Class != tool.NeedsHuman || res.Err.Code != string(code) || res.Err.Message == "" {
		t.Errorf("%+v %v, want %s", res, res.Err, code)
	}
}

// However many surfaces take the tools at once, there is one gate: what a person
// allowed for the run is not asked again by another.
func TestOneGate(t *testing.T) {
	t.Parallel()
	o := options(t)
	var asked atomic.Int32
	o.Approval = judged(t, []approval.Channel{asker(func(context.Context, approval.Question) (approval.Decision, error) {
		asked.Add(1)
		return approval.Decision{Approve: true, ForRun: true}, nil
	})}, approval.Rule{Action: approval.Ask, Command: "touch"})
	do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		var sets [16]*tool.Set
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for i := range sets {
			wg.Go(func() {
				<-begin
				var err error
				if sets[i], err = s.Tools(); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		wg.Wait()
		for _, set := range sets {
			c := tool.Call{ID: s.NewCallID(), ModelID: "m", Name: tool.RunCommand, Arguments: []byte(`{"command":"touch it"}`)}
			res := set.Run(ctx, c)
			if !res.OK {
				t.Errorf("%+v", res.Err)
			}
			if err := s.Called(c, 1, res); err != nil {
				return run.Outcome{}, err
			}
		}
		return run.Outcome{Reason: run.Done}, nil
	})
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestApproval(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"a": "1"})
	answers := map[string]approval.Decision{
		"touch yes":  {Approve: true},
		"touch no":   {Reason: "not this one"},
		"touch edit": {Approve: true, Command: "touch edited"},
		"touch run":  {Approve: true, ForRun: true},
	}
	o.Approval = judged(t, []approval.Channel{asker(func(_ context.Context, q approval.Question) (approval.Decision, error) {
		return answers[q.Text], nil
	})},
		approval.Rule{Action: approval.Ask, Command: "touch"},
		approval.Rule{Action: approval.Deny, Command: "rm"},
		approval.Rule{Action: approval.Deny, Tool: tool.WriteFile})
	var ended []string
	o.Events = func(e run.Event) {
		if e.Kind == run.EventResult {
			ended = append(ended, e.Call.Summary)
		}
	}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		if r := shell(t, ctx, s, "touch yes"); !r.OK {
			t.Errorf("%+v", r.Err)
		}
		r := shell(t, ctx, s, "touch no")
		refused(t, r, approval.Denied)
		if !strings.Contains(r.Err.Message, "not this one") {
			t.Error(r.Err.Message)
		}
		if r := shell(t, ctx, s, "touch edit"); !r.OK || r.Edited != "touch edited" {
			t.Errorf("%+v", r)
		}
		for range 3 {
			if r := shell(t, ctx, s, "touch run"); !r.OK {
				t.Errorf("%+v", r.Err)
			}
		}
		refused(t, shell(t, ctx, s, "ls; rm a"), approval.DeniedByRule)
		refused(t, call(t, ctx, s, tool.WriteFile, map[string]any{"path": "x", "content": "y"}), approval.DeniedByRule)
		if r := shell(t, ctx, s, "ls"); !r.OK || r.Stdout != "a\nedited\nrun\nyes\n" {
			t.Errorf("%q %v", r.Stdout, r.Err)
		}
		return done("done")
	})
	a := rep.Approvals
	if a == nil || a.Asked != 4 || a.Approved != 3 || a.Granted != 2 || a.Denied != 1 || a.ByRule != 2 || len(a.List) != 8 || rep.Calls.Denied != 3 {
		t.Errorf("%+v, %d calls denied", a, rep.Calls.Denied)
	}
	log := recorded(t, rep)
	if n := strings.Count(log, `"kind":"`+string(audit.KindApprovalAsked)+`"`); n != 4 {
		t.Errorf("%d questions are recorded", n)
	}
	if n := strings.Count(log, `"kind":"`+string(audit.KindApproval)+`"`); n != 8 {
		t.Errorf("%d outcomes are recorded", n)
	}
	if !strings.Contains(log, `"edited":"touch edited"`) {
		t.Error("the edit is not recorded")
	}
	if !slices.Contains(ended, "edited to: touch edited") || slices.Contains(ended, "touch edit") {
		t.Errorf("the run shows that it did %q", ended)
	}
}

// A script that is changed while a person looks at it is asked about again.
func TestApprovalOfAScript(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"x.sh": "echo one"})
	var session *run.Session
	var asked []approval.Question
	o.Approval = judged(t, []approval.Channel{asker(func(ctx context.Context, q approval.Question) (approval.Decision, error) {
		if asked = append(asked, q); len(asked) == 1 {
			if r := shell(t, ctx, session, "echo echo two > x.sh"); !r.OK {
				t.Error(r.Err)
			}
		}
		return approval.Decision{Approve: true, ForRun: true}, nil
	})}, approval.Rule{Action: approval.Ask, Form: "shell"})
	do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		session = s
		if r := shell(t, ctx, s, "sh x.sh"); !r.OK || r.Stdout != "two\n" {
			t.Errorf("%+v", r)
		}
		if r := shell(t, ctx, s, "sh x.sh"); !r.OK { // granted
			t.Error(r.Err)
		}
		return done("done")
	})
	if len(asked) != 2 || !asked[1].Again || asked[0].Files["x.sh"] == asked[1].Files["x.sh"] || len(asked[0].Files["x.sh"]) != 64 {
		t.Errorf("%+v", asked)
	}
}

// answering has answer take, over the control socket, what waits for a person once
// something does. The channel is closed when it has.
func answering(ctx context.Context, t *testing.T, s *run.Session, answer func(*control.Client, control.Pending) error) <-chan struct{} {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		c, err := control.Dial(ctx, s.Dir())
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		var list []control.Pending
		for len(list) == 0 && ctx.Err() == nil && err == nil {
			list, err = c.Pending(ctx)
		}
		if err != nil || len(list) != 1 {
			t.Errorf("%+v, %v", list, err)
			return
		}
		if err := answer(c, list[0]); err != nil {
			t.Error(err)
		}
	}()
	return answered
}

// Another process answers over the control socket.
func TestApprovalSocket(t *testing.T) {
	t.Parallel()
	for _, decision := range []control.Decision{control.Approve, control.Deny} {
		o := options(t)
		o.Control = true
		o.Approval = judged(t, nil, approval.Rule{Action: approval.Ask, Command: "touch"})
		o.Approval.Resolvable = true
		rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
			answered := answering(ctx, t, s, func(c *control.Client, q control.Pending) error {
				if q.Text != "touch x" || q.Kind != string(approval.Command) {
					t.Errorf("%+v", q)
				}
				answer := control.Answer{ID: q.ID, Hash: strings.Repeat("0", 64), Decision: decision, Reason: "because"}
				err := c.Approve(ctx, answer)
				if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodeChanged || e.Hint() == "" {
					t.Errorf("what was not asked is answered: %v", err)
				}
				answer.Hash = q.Hash
				return c.Approve(ctx, answer)
			})
			r := shell(t, ctx, s, "touch x")
			<-answered
			if decision == control.Deny {
				refused(t, r, approval.Denied)
			} else if !r.OK {
				t.Error(r.Err)
			}
			return done("done")
		})
		if rep.Approvals == nil || len(rep.Approvals.List) != 1 || !strings.HasPrefix(rep.Approvals.List[0].By, "uid ") {
			t.Errorf("%+v", rep.Approvals)
		}
	}
}

// A narrow tool is judged by the program it starts, and waiting for a command
// in the background is not judged at all.
func TestApprovalOfTools(t *testing.T) {
	t.Parallel()
	o := options(t)
	narrow, err := tool.Program{Name: "remove", Description: "Removes.", Argv: []string{"rm", "{{name}}"},
		Parameters: []tool.Parameter{{Name: "name", Type: "string", Required: true}}}.Tool()
	if err != nil {
		t.Fatal(err)
	}
	o.Tools = []tool.Custom{narrow}
	o.Approval = judged(t, nil, approval.Rule{Action: approval.Ask, Command: "rm"}, approval.Rule{Action: approval.Allow, Tool: tool.RunCommand})
	do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		refused(t, call(t, ctx, s, "remove", map[string]any{"name": "x"}), approval.NoChannel)
		r := call(t, ctx, s, tool.RunCommand, map[string]any{"command": "echo there", "background": true})
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if r := call(t, ctx, s, tool.RunCommand, map[string]any{"wait": r.Background.ID}); !r.OK {
			t.Errorf("%+v %v", r, r.Err)
		}
		return done("done")
	})
}

func TestApprovalUsage(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Approval = &run.Approval{Timeout: time.Second}
	if _, err := run.Do(t.Context(), o, worker(func(context.Context, *run.Session) (run.Outcome, error) { return done("") })); err == nil {
		t.Error("an approval without a policy")
	}
}
