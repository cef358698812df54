package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
)

// after is how long a run may go on past its wall clock: the worker's grace,
// what it left running, saving, and twice the end of the sandbox.
const after = 30*time.Second + 20*time.Second + run.SaveTimeout + 2*sandbox.KillTimeout + time.Minute

// Judge says what is wrong with a run: nothing, if rein is right.
func Judge(x *Played) []string {
	j := &judge{Played: x, seen: x.Model.requests()}
	if x.Report == nil { // the next process could not go on, and the sandbox ends by itself
		j.check(x.Plan.NoTranscript || strings.Contains(x.Err.Error(), "it has ended"), "it could not be resumed: %v", x.Err)
		j.expired()
		return j.faults
	}
	j.read()
	j.limits()
	j.conversation()
	j.sandboxes()
	j.report()
	j.record()
	j.counts()
	j.timeouts()
	j.approvals()
	j.models()
	j.output()
	return j.faults
}

type judge struct {
	*Played
	seen   []Seen // of the model, by now: a worker left behind may still ask
	faults []string

	audit   []byte
	records []audit.Record
	said    []said // the transcript
}

// heard reports whether rein had the reply: it is on record, as one is unless
// the process was ended before.
func (j *judge) heard(s Seen) bool {
	if s.Reply == nil {
		return false
	}
	return !j.Crashed || slices.ContainsFunc(j.records, func(r audit.Record) bool {
		return r.Kind == audit.KindModelReply && note(r).Note.ID == s.Reply.ID
	})
}

func (j *judge) fault(format string, args ...any) {
	j.faults = append(j.faults, fmt.Sprintf(format, args...))
}

func (j *judge) check(ok bool, format string, args ...any) {
	if !ok {
		j.fault(format, args...)
	}
}

// limits holds the run to its limits.
func (j *judge) limits() {
	l, rep := j.Plan.most(), j.Report
	j.check(rep.Steps <= l.MaxSteps, "%d steps of %d", rep.Steps, l.MaxSteps)
	j.check(rep.Calls.Total <= l.MaxToolCalls, "%d calls of %d", rep.Calls.Total, l.MaxToolCalls)
	overrun := rep.Brake != nil && rep.Brake.Limit == string(budget.LimitProviderOverrun) ||
		strings.Contains(strings.Join(rep.Warnings, "\n"), string(budget.LimitProviderOverrun)) // by the last answer
	if !overrun {
		j.check(rep.Tokens.Total <= l.MaxTokens, "%d tokens of %d", rep.Tokens.Total, l.MaxTokens)
		j.check(budget.Dollars(rep.Tokens.CostUSD) <= l.MaxCost+1, "$%f of %s", rep.Tokens.CostUSD, l.MaxCost)
	}
	j.check(!overrun || j.overran(), "a provider overrun, and the newest reply cost what it could: %+v", rep.Brake)
	j.check(rep.Tokens.Input >= 0 && rep.Tokens.Output >= 0 && rep.Tokens.CostUSD >= 0, "tokens: %+v", rep.Tokens)
	most := l.MaxWallTime + after
	for _, c := range j.Plan.Accept {
		timeout := c.Timeout
		if timeout == 0 {
			timeout = run.DefaultCheckTimeout
		}
		most += timeout + sandbox.VerifyTimeout + sandbox.InterruptTimeout
	}
	if j.Plan.Fresh { // a sandbox of their own is made and destroyed
		most += run.SaveTimeout + sandbox.KillTimeout
	}
	words := 1
	if j.Crashed { // what the process that was ended did on its way out took time, too
		most, words = most+time.Duration(j.Crashes)*after, 1+j.Crashes
	}
	took := rep.EndedAt.Sub(j.Start)
	j.check(took <= most, "it took %s of %s, and at most %s with its end", took, l.MaxWallTime, most)
	j.check(rep.Time.TotalMS == rep.Time.WorkingMS+rep.Time.WaitingMS && rep.Time.WaitingMS >= 0, "times: %+v", rep.Time)
	withoutTools := 0
	for i, s := range j.seen {
		late := s.At.Sub(j.Start)
		j.check(late < l.MaxWallTime, "request %d was made after %s of %s", i, late, l.MaxWallTime)
		cap := s.Request.MaxOutputTokens
		j.check(cap >= 1 && (j.Plan.MaxOutput == 0 || cap <= j.Plan.MaxOutput), "request %d: output cap %d", i, cap)
		if len(s.Request.Tools) == 0 && !s.summary() && s.Reply != nil && s.Reply.Stop != "" {
			withoutTools++
		}
	}
	j.check(withoutTools <= words, "%d last words", withoutTools)
	absolute := j.Start.Add(l.MaxWallTime + budget.Margin + 5*time.Second)
	for i, end := range j.Provider.Ends {
		same := func(e End) bool { return e.ID == end.ID }
		born := !slices.ContainsFunc(j.Provider.Ends[:i], same)
		// A sandbox's first end may be too late where that was seen to, or could
		// not be, or where the sandbox was given up for it.
		moved := born && (end.ID != rep.SandboxID || slices.ContainsFunc(j.Provider.Ends[i+1:], same) || len(j.Plan.Provider.Renew) > 0)
		j.check(moved || !end.At.After(absolute), "the sandbox was to end at %s, later than %s", end.At.Sub(j.Start), absolute.Sub(j.Start))
	}
}

// overran reports whether the newest reply, and no other, said that it cost
// more than a reply can: after it nothing may be asked.
func (j *judge) overran() bool {
	for i, s := range slices.Backward(j.seen) {
		if j.heard(s) {
			return s.Usage > Missing && i == len(j.seen)-1
		}
	}
	return false
}

// conversation holds each request to what vendors ask: every call has exactly
// one result, in order.
func (j *judge) conversation() {
	for i, s := range j.seen {
		messages := s.Request.Messages
		j.check(len(messages) > 0 && messages[0].Role == model.RoleUser, "request %d does not begin with the user", i)
		for n, m := range messages {
			var want []model.ToolCall
			if n > 0 && messages[n-1].Role == model.RoleAssistant {
				want = messages[n-1].Calls
			}
			j.check(n == 0 || m.Role != model.RoleAssistant || messages[n-1].Role != model.RoleAssistant, "request %d: message %d follows another reply", i, n)
			if m.Role != model.RoleTool {
				j.check(len(want) == 0, "request %d: message %d answers none of %d calls", i, n, len(want))
				continue
			}
			ok := len(m.Results) == len(want) && len(want) > 0
			for k := range want {
				ok = ok && m.Results[k].ID == want[k].ID && m.Results[k].Name == want[k].Name && m.Results[k].Content != ""
			}
			j.check(ok, "request %d: message %d has %d results for %d calls, or not theirs", i, n, len(m.Results), len(want))
		}
	}
	talk := slices.DeleteFunc(slices.Clone(j.seen), Seen.summary)
	for i := 1; i < len(talk); i++ {
		j.answered(i, talk[i-1], talk[i].Request)
	}
}

// answered looks at the results that the request i of the conversation has of
// the reply before it.
func (j *judge) answered(i int, before Seen, request model.Request) {
	if !j.heard(before) || len(before.Reply.Message.Calls) == 0 || before.Reply.Stop == "" {
		return
	}
	if len(request.Tools) == 0 && len(request.Messages) == 1 {
		return // the last turn, of which only an outline could be paid for
	}
	at := slices.IndexFunc(request.Messages, func(m model.Message) bool { return m.Role == model.RoleTool })
	if at < 0 {
		j.fault("request %d: %d calls have no result", i, len(before.Reply.Message.Calls))
		return
	}
	for at = len(request.Messages) - 1; request.Messages[at].Role != model.RoleTool; at-- {
	}
	results := request.Messages[at].Results
	j.check(len(results) == len(before.Reply.Message.Calls), "request %d: %d results for %d calls", i, len(results), len(before.Reply.Message.Calls))
	ids := map[string]bool{}
	for _, r := range results {
		lines := strings.Split(r.Content, "\n")
		var res struct {
			CallID         string  `json:"call_id"`
			Reduced        *string // it was too large a part of the request, and is a reference to what that names
			Stdout, Stderr string
		}
		if len(lines) == 1 && strings.HasPrefix(r.Content, `{"reduced":`) {
			continue // a reference that quotes nothing
		}
		if len(lines) < 3 || json.Unmarshal([]byte(lines[1]), &res) != nil {
			j.fault("request %d: the result of %.20q is not marked JSON: %.200q", i, r.Name, r.Content)
			continue
		}
		j.check(res.Reduced != nil || res.CallID != "" && !ids[res.CallID], "request %d: the call id %q in %.300q", i, res.CallID, lines[1])
		ids[res.CallID] = true
		shown, lineCount := len(res.Stdout)+len(res.Stderr), strings.Count(res.Stdout, "\n")+strings.Count(res.Stderr, "\n")
		j.check(shown <= j.Plan.Limits.OutputBytes, "request %d: %d bytes are shown of %d", i, shown, j.Plan.Limits.OutputBytes)
		j.check(lineCount <= j.Plan.Limits.OutputLines, "request %d: %d lines are shown of %d", i, lineCount, j.Plan.Limits.OutputLines)
	}
}

// sandboxes wants none left.
func (j *judge) sandboxes() {
	left, err := j.Provider.Memory.List(context.Background(), nil)
	c := j.Report.Cleanup
	if !j.Provider.KillsFail() {
		j.check(err == nil && len(left) == 0, "left: %v, %v", left, err)
		return
	}
	j.check(!c.OK || len(left) == 0, "left: %d, and the report says %+v", len(left), c)
	j.check(c.OK || c.Error != "" && c.Remedy != "", "a sandbox may be left, and the report says %+v", c)
	j.expired()
}

// expired wants what is left gone once its own end has come.
func (j *judge) expired() {
	time.Sleep(j.Plan.most().MaxWallTime + budget.Margin + time.Minute)
	left, err := j.Provider.Memory.List(context.Background(), nil)
	j.check(err == nil && len(left) == 0, "left past the absolute end: %v, %v", left, err)
}

var reasons = []run.Reason{run.Done, run.Failed, run.Misused, run.Refused, run.OverBudget, run.Stuck, run.NoProgress,
	run.NeedsHuman, run.Lost, run.NoModel, run.Interrupted}

// report wants a complete one.
func (j *judge) report() {
	rep := j.Report
	data, err := os.ReadFile(filepath.Join(j.Dir, "report.json"))
	if err != nil {
		j.fault("report: %v", err)
		return
	}
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	var read run.Report
	if err := strict.Decode(&read); err != nil {
		j.fault("report.json: %v", err)
	}
	written, _ := json.Marshal(read)
	returned, _ := json.Marshal(rep)
	j.check(bytes.Equal(written, returned), "the report written is not the one returned")
	var members map[string]any
	if err := json.Unmarshal(data, &members); err != nil {
		j.fault("report.json: %v", err)
	}
	for _, name := range []string{"version", "run_id", "trace_id", "task", "target", "reason", "exit_code", "accepted", "conclusion", "started_at",
		"ended_at", "time", "steps", "calls", "tokens", "limits", "network_observed", "inputs", "cleanup", "provenance", "audit_head", "dir"} {
		j.check(members[name] != nil && members[name] != "", "the report has no %s", name)
	}
	j.check(slices.Contains(reasons, rep.Reason), "reason %q", rep.Reason)
	j.check(rep.ExitCode == rep.Reason.ExitCode(), "exit code %d of reason %s", rep.ExitCode, rep.Reason)
	j.check(len(rep.Limits) >= 10 && strings.HasSuffix(rep.Conclusion, "."), "limits %v, conclusion %q", rep.Limits, rep.Conclusion)
	gone := j.Crashed && rep.Reason == run.Lost // between a limit and the outputs, which are the greater loss
	j.check((rep.Reason == run.OverBudget) == (rep.Brake != nil) || j.panicked() || gone, "reason %s with the brake %+v", rep.Reason, rep.Brake)
	j.check(!strings.Contains(rep.Error, "panic") || j.panicked(), "rein panicked: %s", rep.Error)
	if md, err := os.ReadFile(filepath.Join(j.Dir, "report.md")); err != nil || len(md) < 200 {
		j.fault("report.md: %d bytes, %v", len(md), err)
	}
	counts := rep.Calls
	sum := 0
	for _, n := range counts.ByTool {
		sum += n
	}
	j.check(counts.Total == sum && counts.Succeeded+counts.Failed <= counts.Total, "calls: %+v", counts)
}

func (j *judge) panicked() bool {
	for i := range j.seen {
		if j.Plan.Replies[min(i, len(j.Plan.Replies)-1)].Panic {
			return true
		}
	}
	return false
}
