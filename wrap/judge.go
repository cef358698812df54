package wrap

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
)

// silent is the reader of an agent that is read in no other way: its exit code says
// all, and the end of its output is its answer.
type silent struct{}

func (silent) Stdout([]byte) []Activity { return nil }
func (silent) Stderr([]byte) []Activity { return nil }
func (silent) End(code int, _ time.Duration) Reading {
	return Reading{Finished: code == 0}
}

// ended judges an agent by its exit code, what it said and its stderr together.
func (w *worker) ended(ctx context.Context, r sandbox.Result, reading Reading, l *listener) (run.Outcome, error) {
	info := w.agent()
	info.Finished, info.ExitCode, info.Signal = reading.Finished, r.ExitCode, r.Signal
	info.Turns, info.Tools, info.Unknown = reading.Turns, reading.Tools, reading.Unknown
	if f := reading.Failure; f != nil {
		if f.Kind == Spent && !w.spent() {
			f.Kind = Quota // rein has refused nothing: the budget is the vendor's
		}
		info.Failure, info.Message = string(f.Kind), evidence.Cut(w.shown(f.Message), 500)
	}
	info.Stdout, info.Stderr = w.end(l.ends[0]), w.end(l.ends[1])
	answer := reading.Answer
	if w.Recipe.Results == "" {
		answer = info.Stdout
	}
	out, flagged := w.judge(r, reading, info, w.why(l.ends[1]))
	info.Flagged = flagged
	if flagged != "" {
		w.s.Warn("%s: %s", w.Recipe.Name, flagged)
	}
	w.s.Worked(info)
	out.Answer = w.shown(answer)
	if ctx.Err() != nil && out.Reason != run.Done {
		cut, err := w.cut(ctx)
		cut.Answer = out.Answer
		return cut, err
	}
	return out, nil
}

// shown is a text of the agent's for people.
func (w *worker) shown(s string) string { return w.s.Masker().String(s) }

// end is the end of a stream for the report.
func (w *worker) end(t tail) string {
	return evidence.CutFront(evidence.Visible(strings.TrimSpace(w.shown(string(t.b)))), shownEnd)
}

// mostWhy is how much of an agent's stderr is in an outcome, in bytes.
const mostWhy = 200

// why is the last line of stderr, with the one before it where both are short: the
// reason of an agent that gave none otherwise.
func (w *worker) why(t tail) string {
	var all []string
	for line := range strings.Lines(w.shown(string(t.b))) {
		if line = oneLine(evidence.Visible(string(plain([]byte(line))))); line != "" {
			all = append(all, line)
		}
	}
	if len(all) == 0 {
		return ""
	}
	out := all[len(all)-1]
	if len(all) > 1 {
		if both := all[len(all)-2] + "; " + out; len(both) <= mostWhy {
			out = both
		}
	}
	return evidence.Cut(w.shown(out), mostWhy) // masked again: an escape sequence may have parted it
}

// cut is the outcome of an agent that was ended.
func (w *worker) cut(ctx context.Context) (run.Outcome, error) {
	cause := context.Cause(ctx)
	if cause == errSpent {
		return run.Outcome{Reason: run.OverBudget, Detail: cause.Error()}, nil
	}
	return run.Outcome{}, cause
}

// judge is how the agent ended, and what about it does not fit together. why is the end
// of its stderr.
func (w *worker) judge(r sandbox.Result, reading Reading, info run.AgentInfo, why string) (out run.Outcome, flagged string) {
	name := w.Recipe.Name
	exited := fmt.Sprintf("%s ended with exit code %d", name, value(r.ExitCode))
	switch {
	case r.Signal != "":
		exited = fmt.Sprintf("%s was ended by %s", name, r.Signal)
	case r.TimedOut():
		exited = name + " was ended by the run's wall clock"
	case r.ExitCode == nil:
		exited = "how " + name + " ended is not known"
	}
	if r.OOMKilled {
		exited += ", out of memory"
	}
	switch {
	case w.spent():
		return run.Outcome{Reason: run.OverBudget, Detail: "the budget is used up; " + exited}, ""
	case r.TimedOut():
		return run.Outcome{Reason: run.OverBudget, Detail: exited}, ""
	case reading.Finished && reading.Failure == nil && r.OK():
		return run.Outcome{Reason: run.Done}, ""
	case reading.Finished && reading.Failure == nil:
		return run.Outcome{Reason: run.Done}, "it said that it had finished, and yet " + exited
	case reading.Failure != nil:
		reason, hint := endings[reading.Failure.Kind].reason, endings[reading.Failure.Kind].hint
		if reason == "" {
			reason = run.Failed
		}
		detail := fmt.Sprintf("%s: %s (%s)", reading.Failure.Kind, cmp.Or(info.Message, why, "it said no more"), exited)
		if r.OK() {
			flagged = "its exit code is 0, and yet it said that it had failed"
		}
		return run.Outcome{Reason: reason, Detail: detail, Hint: hint}, flagged
	case r.OK():
		return run.Outcome{Reason: run.Failed, Detail: because(exited+" without a finished result", why),
			Hint: "its last output is in the report; exit code 0 alone is no success"}, "exit code 0 without a finished result"
	}
	return run.Outcome{Reason: run.Failed, Detail: because(exited, why)}, ""
}

// because adds a reason where there is one.
func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

func value(code *int) int {
	if code == nil {
		return -1
	}
	return *code
}

// endings are the reasons of failures that agents tell of, and what can be done.
var endings = map[FailureKind]struct {
	reason run.Reason
	hint   string
}{
	BadKey:     {run.NoModel, "check the key on this host: --key-env names its variable"},
	NotAllowed: {run.NeedsHuman, "rein wrap AGENT --explain says what may be reached; the agent's own permissions are its flags"},
	Spent:      {run.OverBudget, ""},
	Quota:      {run.NeedsHuman, "the quota is the vendor's, no limit of this run: raise it there, or use another key (--key-env) or vendor (--vendor)"},
	TimedOut:   {run.Failed, "the agent waited too long for something: --max-wall-time bounds the run, its own flags its requests"},
	Refusal:    {run.Failed, "the model declined: say otherwise what is to be done"},
	TooLong:    {run.Failed, "give a smaller task, or a model that takes more"},
	OutOfTurns: {run.Failed, "the agent's own limit of turns was reached; its flags raise it"},
	NoVendor:   {run.NoModel, "run it again later"},
	NoModel:    {run.NoModel, "--model NAME names another; --allow-model NAME lets a further one be asked"},
}
