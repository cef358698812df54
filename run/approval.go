package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// Approval says what a worker may do without asking, and who is asked about the
// rest.
type Approval struct {
	Policy *approval.Policy
	// Channels are asked at once; the first answer counts.
	Channels []approval.Channel
	// Resolvable lets other processes of the user answer, over the run's control
	// socket (Options.Control).
	Resolvable bool
	// Nobody says why there is no way to ask, when there is none; it may be empty.
	Nobody  string
	Timeout time.Duration // for an answer; 0 means approval.DefaultTimeout
	Grant   time.Duration // that an approval for the run holds; 0 means approval.DefaultGrant
}

// Approvals counts what was asked, and forbidden without asking.
type Approvals struct {
	Asked    int `json:"asked"` // questions, joined ones once
	Approved int `json:"approved"`
	Granted  int `json:"granted"` // by an approval for the run
	Denied   int `json:"denied"`  // by a person
	TimedOut int `json:"timed_out"`
	// NoChannel: nobody was there to ask, or too many questions waited.
	NoChannel int   `json:"no_channel"`
	ByRule    int   `json:"denied_by_rule"`
	Other     int   `json:"other,omitempty"` // interrupted, or changed again and again
	WaitedMS  int64 `json:"waited_ms"`
	// List has the first MaxApprovals of them.
	List []ApprovalInfo `json:"list,omitempty"`
}

// MaxApprovals is how many a report lists.
const MaxApprovals = 100

// ApprovalInfo is how one request ended.
type ApprovalInfo struct {
	CallID   string `json:"call_id,omitempty"`
	Text     string `json:"text"`
	Code     string `json:"code"`
	Rule     string `json:"rule,omitempty"`
	By       string `json:"by,omitempty"`
	Edited   string `json:"edited,omitempty"`
	WaitedMS int64  `json:"waited_ms,omitempty"`
}

// approvalRecord is the data of audit.KindApprovalAsked and KindApproval.
type approvalRecord struct {
	approval.Question
	Code     approval.Code `json:"code,omitempty"`
	By       string        `json:"by,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Edited   string        `json:"edited,omitempty"`
	WaitedMS int64         `json:"waited_ms,omitempty"`
}

// newGate returns the run's gate; nil when nothing is judged.
func (r *runner) newGate() (*approval.Gate, error) {
	a := r.o.Approval
	if a == nil {
		return nil, nil
	}
	resolvable := a.Resolvable && r.o.Control
	return approval.New(approval.Options{
		Policy: a.Policy, Channels: a.Channels, Resolvable: resolvable, Timeout: a.Timeout, Grant: a.Grant, Nobody: a.Nobody,
		RunID: r.o.ID, Masker: r.o.Masker, Files: r.executed, Record: r.recordApproval, Warn: r.warn,
		Waiting: func(q approval.Question) func() {
			why := "for a person to allow: " + firstLine(q.Text)
			if resolvable {
				why += "; rein runs approve " + r.o.ID + " " + q.ID + " answers"
			}
			r.emit(Event{Kind: EventWait, Text: why})
			return r.waited(q, r.tree.Waiting())
		},
	})
}

// firstLine is a text's first line, short.
func firstLine(s string) string {
	line, rest, _ := strings.Cut(s, "\n")
	if cut := []rune(line); len(cut) > 80 {
		return string(cut[:80]) + "…"
	}
	if rest != "" {
		return line + " …"
	}
	return line
}

// waited is done once q is answered. What asked about a host goes on then, and
// says so by nothing that it does.
func (r *runner) waited(q approval.Question, done func()) func() {
	if q.Kind != approval.Host {
		return done
	}
	return func() {
		done()
		r.desk.answered()
	}
}

// gate returns the hook that judges calls, and makes the gate the first time.
// Nil: none is judged.
func (s *Session) gate() (func(context.Context, tool.Call) (tool.Call, *tool.Error), error) {
	r := s.r
	g, err := r.gateOf()
	if g == nil || err != nil {
		return nil, err
	}
	return func(ctx context.Context, c tool.Call) (tool.Call, *tool.Error) { return r.approve(ctx, g, c) }, nil
}

// approve asks the gate about a call. What is returned is the call to execute.
func (r *runner) approve(ctx context.Context, g *approval.Gate, c tool.Call) (tool.Call, *tool.Error) {
	q, judged := r.request(c)
	if !judged {
		return c, nil
	}
	out, err := g.Check(ctx, q)
	if err != nil {
		return c, &tool.Error{Class: tool.Fatal, Code: tool.CodeHost, Message: "the approval could not be recorded: " + err.Error()}
	}
	if !out.Code.OK() {
		return c, &tool.Error{Class: tool.NeedsHuman, Code: string(out.Code), Message: notAllowed(out),
			Hint: "do not try it another way; say in your answer what it was for"}
	}
	if out.Command == "" {
		return c, nil
	}
	edited, err := withCommand(c.Arguments, out.Command)
	if err != nil {
		return c, &tool.Error{Class: tool.Unknown, Code: tool.CodeInternal, Message: "the edited command could not be used: " + err.Error()}
	}
	c.Arguments, c.Edited = edited, out.Command
	return c, nil
}

// notAllowed is a denial as the model reads it.
func notAllowed(o approval.Outcome) string {
	what := map[approval.Code]string{
		approval.DeniedByRule: "a rule of this run forbids it",
		approval.Denied:       "a person did not allow it",
		approval.TimedOut:     "it needs a person's approval, and nobody answered",
		approval.NoChannel:    "it needs a person's approval, and nobody can be asked",
		approval.TooMany:      "it needs a person's approval, and too many questions wait already",
		approval.Changed:      "what was approved is not what would run",
		approval.Interrupted:  "the run ended before a person answered",
	}[o.Code]
	if o.Reason != "" {
		what += ": " + o.Reason
	}
	return what
}

// request is what is judged of a call. Waiting for a command is not: it was
// judged when it began.
func (r *runner) request(c tool.Call) (approval.Request, bool) {
	q := approval.Request{Kind: approval.Tool, CallID: c.ID, Tool: c.Name, Arguments: c.Arguments, Cwd: r.box.Info().Cwd}
	if c.Name != tool.RunCommand && c.Name != tool.SessionRun {
		if i := slices.IndexFunc(r.o.Tools, func(t tool.Custom) bool { return t.Name == c.Name }); i >= 0 {
			q.Argv = r.o.Tools[i].Argv(c.Arguments)
			q.Cwd, q.Env = r.o.Tools[i].Place(q.Cwd)
		}
		return q, true
	}
	var args struct {
		Command   string `json:"command"`
		Cwd       string `json:"cwd"`
		SessionID string `json:"session_id"`
		Wait      string `json:"wait"`
	}
	if json.Unmarshal(c.Arguments, &args) != nil || args.Command == "" {
		return q, args.Wait == ""
	}
	q.Kind, q.Command, q.Arguments = approval.Command, args.Command, nil
	if args.Cwd != "" {
		q.Cwd = args.Cwd
		if !path.IsAbs(q.Cwd) {
			q.Cwd = path.Join(r.box.Info().Cwd, q.Cwd)
		}
	}
	if c.Name == tool.SessionRun {
		q.Cwd, q.Env = sessionState(args.SessionID, c.Place)
	}
	return q, true
}

// sessionState is where a command in a session would run, and in place of the
// variables, whose values nobody knows, what they may be: those of this session
// after so many commands.
func sessionState(id string, p *tool.Place) (cwd string, env map[string]string) {
	if p == nil { // it is not known
		return "", map[string]string{"session": id}
	}
	return p.Cwd, map[string]string{"session": fmt.Sprintf("%s after %d", id, p.Commands)}
}

// withCommand is a call's arguments with another command.
func withCommand(arguments json.RawMessage, command string) (json.RawMessage, error) {
	var args map[string]any
	if err := json.Unmarshal(arguments, &args); err != nil {
		return nil, err
	}
	args["command"] = command
	return json.Marshal(args)
}

// Bounds of the files an approval is bound to.
const (
	maxExecuted      = 128
	maxExecutedBytes = 64 << 20
)

// executed returns the hashes of files that a command reads as programs.
func (r *runner) executed(ctx context.Context, cwd string, paths []string) (map[string]string, error) {
	if len(paths) > maxExecuted {
		return nil, fmt.Errorf("it runs %d files, more than %d", len(paths), maxExecuted)
	}
	sums := map[string]string{}
	for _, p := range paths {
		if strings.ContainsRune(p, 0) {
			continue
		}
		full := p
		switch {
		case path.IsAbs(p):
		case cwd == "":
			return nil, fmt.Errorf("in which directory %s is looked for is not known: its session was not said where it is; give an absolute path", p)
		default:
			full = path.Join(cwd, p)
		}
		t, err := r.box.Download(ctx, full, &counted{left: maxExecutedBytes}, sandbox.Access{Tool: "approval"})
		switch sandbox.KindOf(err) {
		case sandbox.KindNotFound, sandbox.KindInvalid: // it is not there, or no file
			continue
		}
		if err != nil {
			return nil, err
		}
		sums[p] = t.SHA256
	}
	return sums, nil
}

// counted takes so many bytes and no more.
type counted struct{ left int }

func (b *counted) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errors.New("a file that it runs is too large to be looked at")
	}
	return len(p), nil
}

// recordApproval records a question and its outcome, and counts it.
func (r *runner) recordApproval(e approval.Event) error {
	rec := approvalRecord{Question: e.Question}
	if e.Outcome == nil {
		return r.recordAside(audit.KindApprovalAsked, e.Question.CallID, rec)
	}
	o := e.Outcome
	rec.Code, rec.By, rec.Reason, rec.Edited, rec.WaitedMS = o.Code, o.By, o.Reason, o.Command, o.Waited.Milliseconds()
	r.countApproval(e.Question, *o)
	return r.recordAside(audit.KindApproval, e.Question.CallID, rec)
}

func (r *runner) countApproval(q approval.Question, o approval.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.report.Approvals == nil {
		r.report.Approvals = &Approvals{}
	}
	a := r.report.Approvals
	if !q.Asked.IsZero() {
		a.Asked++
	}
	switch o.Code {
	case approval.Approved:
		a.Approved++
	case approval.Granted:
		a.Granted++
	case approval.Denied:
		a.Denied++
	case approval.TimedOut:
		a.TimedOut++
	case approval.NoChannel, approval.TooMany:
		a.NoChannel++
	case approval.DeniedByRule:
		a.ByRule++
	default:
		a.Other++
	}
	a.WaitedMS += o.Waited.Milliseconds()
	if len(a.List) < MaxApprovals {
		text := q.Text
		if q.Kind == approval.Host { // what follows it is about it
			text, _, _ = strings.Cut(text, "\n")
		}
		a.List = append(a.List, ApprovalInfo{CallID: q.CallID, Text: text, Code: string(o.Code), Rule: o.Rule, By: o.By,
			Edited: o.Command, WaitedMS: o.Waited.Milliseconds()})
	}
}

// isDenial reports whether a code says that a rule or a person kept a call from
// being executed.
func isDenial(code string) bool {
	return code == string(approval.DeniedByRule) || strings.HasPrefix(code, "approval_")
}

// checkApproval refuses what makes no sense.
func (o *Options) checkApproval() error {
	if o.Approval != nil && o.Approval.Policy == nil {
		return &UsageError{Field: "approval", Reason: "it has no policy"}
	}
	return nil
}
