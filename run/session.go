package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/tool"
)

// Session is a run in progress, as its Worker sees it. Its methods may be
// called concurrently.
type Session struct{ r *runner }

// RunID is the run's id.
func (s *Session) RunID() string { return s.r.o.ID }

// Task is what is to be done.
func (s *Session) Task() string { return s.r.o.Task }

// Workspace reports whether a directory was copied in.
func (s *Session) Workspace() bool { return s.r.inputs != nil || s.r.had }

// Sandbox is the run's sandbox.
func (s *Session) Sandbox() *sandbox.Sandbox { return s.r.box }

// Budget counts the run's use of its limits.
func (s *Session) Budget() *budget.Tree { return s.r.tree }

// WorkContext is budget.Tree.WorkContext: it ends before ctx does, by the time
// that is kept for the last turn.
func (s *Session) WorkContext(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := s.r.tree.WorkContext(ctx)
	if s.r.past == nil {
		return inner, cancel
	}
	work, end := s.r.past.work(inner)
	return work, func() { end(); cancel() }
}

// Masker masks known values; it may be nil.
func (s *Session) Masker() *secret.Masker { return s.r.o.Masker }

// Emit tells the watcher of an event; its Time is set here.
func (s *Session) Emit(e Event) {
	if s.r.past.Driving() {
		return
	}
	if e.Kind == EventCall && e.Call != nil {
		s.r.began(*e.Call)
	}
	s.r.emit(e)
}

// Warn puts a sentence into the report and tells the watcher.
func (s *Session) Warn(format string, args ...any) { s.r.warn(format, args...) }

// Tools returns the built-in tools bound to this run, which closes them.
func (s *Session) Tools() (*tool.Set, error) {
	approve, err := s.gate()
	if err != nil {
		return nil, err
	}
	r, o := s.r, &s.r.o
	set, err := tool.Builtin(tool.Options{
		Sandbox: r.box, Budget: r.tree, Masker: o.Masker, Target: o.Target.Name, ReadPrefixes: o.Target.ReadPrefixes,
		NoShell: o.NoShell, Search: o.Search, Sessions: o.Sessions, Custom: o.Tools,
		Approve: approve, Judge: r.judgeCall, Finish: s.Finish, Begin: r.beginFunction,
		Left: r.renewer.left, Shorten: r.renewer.shorten,
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tools = append(r.tools, set)
	return set, nil
}

// NewCallID returns an id for a call.
func (s *Session) NewCallID() string {
	if id := s.r.past.callID(); id != "" {
		return id
	}
	return callPrefix + NewID()
}

// callPrefix begins the id of every call of a worker.
const callPrefix = "call_"

// Finish ends the work: the outputs are saved, the acceptance checks run and
// the sandbox destroyed. It goes on when ctx has ended. What came of it is said
// in a sentence; a second call waits for the first and says the same.
func (s *Session) Finish(ctx context.Context) (string, error) {
	return s.r.close(ctx, SaveTimeout, s.r.o.Accept)
}

// Said is one entry of the transcript: what a model was sent or answered.
type Said struct {
	// Kind is audit.KindModelRequest or audit.KindModelReply.
	Kind audit.Kind
	Step int
	// Data is what was said, exactly; it is masked.
	Data any
	// Note is recorded in the audit log beside the entry's hash: counts, never
	// content.
	Note any
}

// Say writes an entry of the transcript and records its hash.
func (s *Session) Say(e Said) error {
	if old, err := s.r.past.follow(e.Kind, e.Step, saying{kind: e.Kind}.what()); old || err != nil {
		return err
	}
	note := saidNote{Step: e.Step, Note: e.Note}
	if s.r.talk != nil {
		var err error
		if note.Entry, note.Hash, err = s.r.talk.append(e); err != nil {
			return err
		}
	}
	return s.r.record(e.Kind, "", note)
}

// saidNote is the data of audit.KindModelRequest and KindModelReply.
type saidNote struct {
	Step  int    `json:"step"`
	Entry int    `json:"transcript_entry,omitempty"`
	Hash  string `json:"transcript_sha256,omitempty"`
	Note  any    `json:"note,omitempty"`
}

// Spent counts what a reply cost for which nothing was set aside. The
// *budget.Breach says that it was too much.
func (s *Session) Spent(t Tokens) error {
	s.r.countTokens(t)
	return s.r.tree.Spend(budget.Spent{Tokens: t.Input + t.Output, Cost: budget.Dollars(t.CostUSD)})
}

// Settled counts what a reply cost for which hold was set aside; t.CostUSD is
// that of cost. The *budget.Breach says that it was more.
func (s *Session) Settled(hold *budget.Reservation, t Tokens, cost budget.USD) error {
	t.CostUSD = cost.Float()
	s.r.countTokens(t)
	return hold.Settle(budget.Spent{Tokens: t.Input + t.Output, Cost: cost})
}

// Held is what was set aside for a request, for the note of it.
type Held struct {
	Tokens  int64   `json:"reserved_tokens"`
	CostUSD float64 `json:"reserved_usd,omitempty"`
}

// HeldFor is what hold sets aside.
func HeldFor(hold *budget.Reservation) Held {
	a := hold.Amount()
	return Held{Tokens: a.Tokens, CostUSD: a.Cost.Float()}
}

func (r *runner) countTokens(t Tokens) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := &r.report.Tokens
	sum.Input += t.Input
	sum.Cached += t.Cached
	sum.Output += t.Output
	sum.Total += t.Input + t.Output
	sum.CostUSD += t.CostUSD
	sum.Estimated = sum.Estimated || t.Estimated
}

// Called records a call that has ended: in the audit log, in the report's
// counts, and as progress, if it was any.
func (s *Session) Called(c tool.Call, step int, res tool.Result) error {
	r := s.r
	r.ended(c.ID)
	r.count(c, res)
	r.progress(c, res)
	code := ""
	if res.Err != nil {
		code = res.Err.Code
	}
	was, driven := r.past.next()
	if old, err := r.followCall(c, step, res, true); old || err != nil {
		if old && driven && err == nil {
			r.recall(c, res, was.time)
		}
		return err
	}
	r.mirror.after(c)
	parameters := r.parameters(c)
	summary := parameters
	if res.Edited != "" {
		summary = evidence.Cut("edited to: "+res.Edited, summaryBytes)
	}
	r.emit(Event{Kind: EventResult, Step: step, Call: &CallEvent{ID: c.ID, Tool: c.Name, Summary: summary, OK: res.OK,
		ExitCode: res.ExitCode, Timeout: res.Timeout, Code: code, Bytes: res.OutputBytes, DurationMS: res.DurationMS}})
	return r.recordCall(c, parameters, step, res, true)
}

// recall has the tools know a call that is on record.
func (r *runner) recall(c tool.Call, res tool.Result, at time.Time) {
	r.mu.Lock()
	tools := slices.Clone(r.tools)
	r.mu.Unlock()
	for _, set := range tools {
		set.Recall(c, res, at)
	}
}

// NotCalled records a call that was not executed, and why. It counts as none.
func (s *Session) NotCalled(c tool.Call, step int, res tool.Result) error {
	if old, err := s.r.followCall(c, step, res, false); old || err != nil {
		return err
	}
	return s.r.recordCall(c, Summarize(c, s.r.o.Masker), step, res, false)
}

// recordCall writes what a call with the parameters, in one line, returned to the
// transcript, and all about it but its output to the audit log.
func (r *runner) recordCall(c tool.Call, parameters string, step int, res tool.Result, executed bool) error {
	var note saidNote
	if r.talk != nil {
		var err error
		told := toldResult{CallID: c.ID, ModelCallID: c.ModelID, Tool: c.Name, Result: res, Kept: res.Kept}
		if note.Entry, note.Hash, err = r.talk.append(Said{Kind: audit.KindTool, Step: step, Data: told}); err != nil {
			return err
		}
	}
	return r.record(audit.KindTool, c.ID, toolRecord{
		Entry: note.Entry, Hash: note.Hash, Executed: executed, Step: step, Tool: c.Name, ModelCallID: c.ModelID, Parameters: parameters, ParametersHash: hash(c.Arguments),
		OK: res.OK, ExitCode: res.ExitCode, Timeout: res.Timeout, DurationMS: res.DurationMS,
		OutputBytes: res.OutputBytes, Truncated: res.Truncated, Network: res.Network, Error: res.Err, Why: why(res),
		Closed: r.past != nil && r.past.closing != nil,
	})
}

// toolRecord is the data of audit.KindTool: everything about one call but its
// output.
type toolRecord struct {
	Entry          int                     `json:"transcript_entry,omitempty"`
	Hash           string                  `json:"transcript_sha256,omitempty"`
	Executed       bool                    `json:"executed"` // else it was answered without
	Step           int                     `json:"step"`
	Tool           string                  `json:"tool"`
	ModelCallID    string                  `json:"model_call_id,omitempty"`
	Parameters     string                  `json:"parameters"`
	ParametersHash string                  `json:"parameters_sha256"`
	OK             bool                    `json:"ok"`
	ExitCode       *int                    `json:"exit_code"`
	Timeout        bool                    `json:"timeout"`
	DurationMS     int64                   `json:"duration_ms"`
	OutputBytes    int64                   `json:"output_bytes"`
	Truncated      bool                    `json:"truncated"`
	Network        []sandbox.NetworkRecord `json:"network,omitempty"`
	Error          *tool.Error             `json:"error,omitempty"`
	Why            string                  `json:"why,omitempty"`
	// Closed: the sandbox was gone, and what the call came to was made up by who
	// resumed the run, however long that was afterwards.
	Closed bool `json:"closed,omitempty"`
}

func why(res tool.Result) string {
	switch {
	case res.OK:
		return ""
	case res.Err != nil:
		return string(res.Err.Class) + " " + res.Err.Code
	case res.Timeout:
		return "timeout"
	case res.Signal != "":
		return res.Signal
	case res.ExitCode != nil:
		return "exit code"
	case res.Background != nil && res.Background.Running:
		return "running in the background"
	}
	return "the exit code is not known"
}

func (r *runner) count(c tool.Call, res tool.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed = nil
	n := &r.report.Calls
	n.Total++
	n.ByTool[c.Name]++
	running := res.Background != nil && res.Background.Running
	switch {
	case res.OK:
		n.Succeeded++
	case !running || res.Err != nil:
		n.Failed++
	}
	if res.Timeout {
		n.TimedOut++
	}
	if e := res.Err; e != nil {
		switch {
		case slices.Contains([]string{tool.CodePathDenied, tool.CodeSecretPath, tool.CodeNetworkDenied, tool.CodeDenied}, e.Code), isDenial(e.Code):
			n.Denied++
		case e.Code == tool.CodeSandboxLost:
			r.lost = e
		}
	}
	if id := mayRun(c, res); id != "" && !slices.Contains(r.background, id) {
		r.background = append(r.background, id)
	}
	if res.Spill != nil {
		r.spills = append(r.spills, *res.Spill)
	}
}

// mayRun is the id of a command of which something may run on after its call,
// or "". A command in the background may have left processes behind that
// outlive it, so that it does not matter whether it has ended.
func mayRun(c tool.Call, res tool.Result) string {
	if res.Background != nil {
		return res.Background.ID
	}
	if c.Name == tool.RunCommand && res.Err != nil {
		switch res.Err.Code {
		case tool.CodeUnavailable, tool.CodeOutcomeUnknown, tool.CodeInterrupted:
			return c.ID
		}
	}
	return ""
}

// progress tells the renewer of a result, without what differs between two runs
// of the same call. A command in the background counts by how much it has
// printed, and once, when it has ended, by its result, however often it was
// waited for.
func (r *runner) progress(c tool.Call, res tool.Result) {
	name, args := c.Name, []byte(c.Arguments)
	if bg := res.Background; bg != nil {
		r.renewer.progress.Background(bg.ID, bg.Bytes)
		if bg.Running {
			return
		}
		name, args = "background", []byte(bg.ID)
	}
	seen := make([]byte, 0, len(res.Stdout)+len(res.Stderr)+1)
	seen = append(append(append(seen, res.Stdout...), 0), res.Stderr...)
	if f := res.File; f != nil {
		seen = fmt.Appendf(seen, "\x00%s %d %s %d", f.Path, f.Bytes, f.SHA256, f.NextOffset)
	}
	r.renewer.progress.Call(name, args, res.OK, seen)
}

// Agent is what is known of the program that works.
func (s *Session) Agent() AgentInfo {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.r.report.Agent == nil {
		return AgentInfo{}
	}
	return *s.r.report.Agent
}

// Worked has the report say how the program that worked has ended.
func (s *Session) Worked(a AgentInfo) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.report.Agent = &a
}

// Printed tells that a program has printed so much: more than ever is progress.
func (s *Session) Printed(id string, bytes int64) {
	s.r.renewer.progress.Background(id, bytes)
}

// Sync brings Options.Output up to date, if there is one.
func (s *Session) Sync() {
	if s.r.mirror != nil {
		s.r.mirror.update()
	}
}

// Waiting tells the watcher why the run waits, and counts the time apart until
// done is called.
func (s *Session) Waiting(why string) (done func()) {
	s.r.emit(Event{Kind: EventWait, Text: why})
	return s.r.tree.Waiting()
}

// Parameters is Summarize of a call of this run, worked out once for each.
func (s *Session) Parameters(c tool.Call) string { return s.r.parameters(c) }

// summed is the summary of the last call that was asked about.
type summed struct{ id, arguments, text string }

func (r *runner) parameters(c tool.Call) string {
	if s := r.summed.Load(); s != nil && s.id == c.ID && s.arguments == string(c.Arguments) {
		return r.o.Masker.String(s.text) // of what is shown of it, a value may have become a secret
	}
	s := &summed{c.ID, string(c.Arguments), Summarize(c, r.o.Masker)}
	r.summed.Store(s)
	return s.text
}

// summaryBytes bounds a parameter summary.
const summaryBytes = 300

// Summarize is a call's parameters in one masked line, without contents.
func Summarize(c tool.Call, m *secret.Masker) string {
	var args map[string]any
	if json.Unmarshal(c.Arguments, &args) != nil {
		return evidence.Cut(m.String(string(c.Arguments)), summaryBytes)
	}
	if text, ok := args["content"].(string); ok {
		args["content"] = map[string]any{"bytes": len(text), "sha256": hash([]byte(text))[:12]}
	}
	if command, ok := args["command"].(string); ok && len(args) == 1 {
		return evidence.Cut(m.String(command), summaryBytes)
	}
	b, _ := json.Marshal(args) // it came from JSON
	return evidence.Cut(string(m.JSON(b)), summaryBytes)
}
