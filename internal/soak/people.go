package soak

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// Approval is what is asked, and how people answer.
type Approval struct {
	Default approval.Action
	Rules   []approval.Rule
	Timeout time.Duration
	// Answers are those of the one who is asked; the last one repeats. None:
	// nobody can be asked.
	Answers []Answer
}

// Answer is how a person answers one question.
type Answer struct {
	Delay time.Duration
	approval.Decision
	// Fails: the way to the person does not work.
	Fails bool
}

// asking has some plans ask before some calls.
func (g dice) asking(p *Plan) {
	if !g.one(4) || p.Approval != nil {
		return
	}
	a := &Approval{Default: pick(g, approval.Allow, approval.Allow, approval.Allow, approval.Ask, approval.Deny), Timeout: pick(g, 0, time.Second, time.Minute)}
	rules := []approval.Rule{
		{Action: approval.Ask, Command: "echo"}, {Action: approval.Ask, Command: "cat"}, {Action: approval.Ask, Command: "seq"}, {Action: approval.Deny, Command: "rm"},
		{Action: approval.Ask, Command: "sleep"}, {Action: approval.Deny, Form: "redirect"}, {Action: approval.Ask, Form: approval.FormUnresolved},
		{Action: approval.Deny, Form: approval.FormUnparsed}, {Action: approval.Allow, Command: "ls"}, {Action: approval.Ask, Tool: tool.WriteFile},
		{Action: approval.Deny, Tool: tool.ReadFile}, {Action: approval.Ask, Tool: "wish"}, {Action: approval.Ask, Tool: tool.SandboxKill}, {Action: approval.Ask, Tool: "*"},
	}
	for range g.IntN(5) {
		a.Rules = append(a.Rules, pick(g, rules...))
	}
	for range g.IntN(6) {
		a.Answers = append(a.Answers, Answer{Delay: pick(g, 0, 0, time.Second, 30*time.Second, time.Hour), Fails: g.one(6),
			Decision: approval.Decision{Approve: !g.one(3), ForRun: g.one(3), Command: pick(g, "", "", "", "", "echo edited", "rm -rf f1"), By: "somebody"}})
	}
	p.Approval = a
}

// person is who is asked by one process.
type person struct {
	*people
	answers []Answer
	moment  func() bool
}

// people counts the questions of all processes.
type people struct {
	mu    sync.Mutex
	asked int
}

func (p *person) Name() string { return "person" }

// Ask answers as the plan says.
func (p *person) Ask(ctx context.Context, _ approval.Question) (approval.Decision, error) {
	if p.moment() {
		return approval.Decision{}, errors.New("the process was ended")
	}
	defer p.moment()
	p.mu.Lock()
	a := p.answers[min(p.asked, len(p.answers)-1)]
	p.asked++
	p.mu.Unlock()
	select {
	case <-time.After(a.Delay):
	case <-ctx.Done():
		return approval.Decision{}, context.Cause(ctx)
	}
	if a.Fails {
		return approval.Decision{}, errors.New("there is no way to them")
	}
	return a.Decision, nil
}

// approval is what a process asks; nil: nothing. moment is as in tools.
func (x *Played) approval(moment func() bool) (*run.Approval, error) {
	a := x.Plan.Approval
	if a == nil {
		return nil, nil
	}
	policy, err := a.policy()
	o := &run.Approval{Policy: policy, Timeout: a.Timeout}
	if len(a.Answers) > 0 {
		o.Channels = []approval.Channel{&person{people: &x.People, answers: a.Answers, moment: moment}}
	}
	return o, err
}

func (a *Approval) policy() (*approval.Policy, error) {
	return approval.NewPolicy(a.Default, a.Rules...)
}

// approvals wants nothing begun that was not allowed: by the policy, or by the
// newest answer about that call. What had begun before a process was ended had
// been allowed.
func (j *judge) approvals() {
	if j.Plan.Approval == nil {
		j.check(j.Report.Approvals == nil, "nothing was to be asked, and %+v", j.Report.Approvals)
		return
	}
	policy, err := j.Plan.Approval.policy()
	if err != nil {
		j.fault("the policy: %v", err)
		return
	}
	answers, waits := map[string]approval.Code{}, map[string]bool{}
	asked := 0
	for _, r := range j.records {
		var v struct {
			sandbox.CallIntent
			Code  approval.Code `json:"code"`
			Asked time.Time     `json:"asked"`
		}
		if json.Unmarshal(r.Data, &v) != nil {
			continue // it is of another kind
		}
		switch r.Kind {
		case audit.KindRunResumed:
			clear(waits)
		case audit.KindApprovalAsked:
			waits[r.CallID] = true
			asked++
		case audit.KindApproval:
			delete(waits, r.CallID)
			answers[r.CallID] = v.Code
		case audit.KindCallIntent, audit.KindFileIntent:
			if !strings.HasPrefix(r.CallID, "call_") || v.Tool == "approval" {
				continue
			}
			code, had := answers[r.CallID]
			j.check(!waits[r.CallID], "the call %s was begun while it was asked about", r.CallID)
			j.check(!had || code.OK(), "the call %s was begun although it was %s", r.CallID, code)
			q := approval.Request{Kind: approval.Tool, Tool: v.Tool}
			if v.Tool == tool.RunCommand && r.Kind == audit.KindCallIntent {
				q.Kind, q.Command = approval.Command, v.Command
			}
			switch action := policy.Judge(q).Action; {
			case q.Kind == approval.Tool && v.Tool != tool.WriteFile && v.Tool != tool.ReadFile && v.Tool != "wish":
			case q.Kind == approval.Command && len(v.Command) < v.Bytes: // not all of it is on record
			default:
				j.check(action == approval.Allow || action == approval.Ask && had, "the call %s was begun, nobody was asked, and the policy says %s", r.CallID, action)
			}
		}
	}
	for id := range waits {
		j.check(j.leftBehind(), "the question about the call %s has no end", id)
	}
	if rep := j.Report.Approvals; rep != nil && !j.Crashed && !j.leftBehind() {
		sum := rep.Approved + rep.Granted + rep.Denied + rep.TimedOut + rep.NoChannel + rep.ByRule + rep.Other
		j.check(sum >= len(answers) && rep.Asked >= asked, "%d calls were asked about %d times, and the report says %+v", len(answers), asked, rep)
	}
}
