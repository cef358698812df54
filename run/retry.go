package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
)

// Verdict is what the checks say of work that is said to be done, while there
// is time to mend it.
type Verdict struct {
	Round  int           `json:"round"` // from 1
	Left   int           `json:"left"`  // further rounds
	Checks []CheckResult `json:"checks"`
	// Restored are protected files that had been changed, and are as they were.
	Restored []string `json:"restored,omitempty"`
}

// Why is the verdict in a sentence. Its words are rein's own, but for the names
// of checks, which are the host's.
func (v *Verdict) Why() string {
	var failed []string
	for _, c := range v.Checks {
		if !c.Passed {
			failed = append(failed, c.Name)
		}
	}
	s := fmt.Sprintf("%d of %d acceptance checks failed", len(failed), len(v.Checks))
	if len(failed) > 0 {
		s += ": " + list(failed)
	}
	if n := len(v.Restored); n > 0 {
		s += fmt.Sprintf("; %d protected files were changed and have been put back", n)
	}
	return s
}

// Details are what failed checks printed: the sandbox's words, and no instructions.
func (v *Verdict) Details() string {
	var b strings.Builder
	for _, c := range v.Checks {
		if c.Passed {
			continue
		}
		fmt.Fprintf(&b, "check %s", c.Name)
		switch {
		case c.Timeout:
			b.WriteString(" timed out")
		case c.ExitCode != nil:
			fmt.Fprintf(&b, " exited with %d", *c.ExitCode)
		default:
			b.WriteString(" failed")
		}
		b.WriteString("\n")
		for _, out := range []string{c.Stdout, c.Stderr} {
			if out != "" {
				b.WriteString(strings.TrimSuffix(out, "\n") + "\n")
			}
		}
	}
	for _, name := range v.Restored {
		fmt.Fprintf(&b, "put back: %s\n", name)
	}
	return b.String()
}

// roundFile is the patch of one round, which is judged and thrown away.
const roundFile = "round.patch"

// Judge runs the checks of a worker that is about to say it is done. A verdict
// means that it is to go on: the checks have failed, and rounds (Options.Retry),
// time and the other limits are left. Otherwise there is none, and the run goes
// to its end as ever.
func (s *Session) Judge(ctx context.Context, step int) (*Verdict, error) {
	r := s.r
	if r.o.Retry == 0 {
		return nil, nil
	}
	if old, ok := r.past.verdict(step); ok {
		r.retries = old.Round
		return old, s.Say(Said{Kind: audit.KindVerdict, Step: step})
	}
	if r.past.Binding() {
		return nil, nil
	}
	v := r.round(ctx)
	if v == nil {
		return nil, nil
	}
	return v, s.Say(Said{Kind: audit.KindVerdict, Step: step, Data: v})
}

// verdict is the one on record that comes next.
func (p *Past) verdict(step int) (*Verdict, bool) {
	s, ok := p.next()
	if !ok || s.kind != audit.KindVerdict || s.step != step {
		return nil, false
	}
	v := &Verdict{}
	return v, json.Unmarshal(s.data, v) == nil
}

// judgeCall is Judge for a worker that is done by a call.
func (r *runner) judgeCall(ctx context.Context) (why, details, hint string, again bool) {
	v := r.round(ctx)
	if v == nil {
		return "", "", "", false
	}
	return v.Why(), v.Details(), v.Hint(), true
}

// Hint says what to do about it.
func (v *Verdict) Hint() string {
	if v.Left == 0 {
		return "mend what failed, then say again that you are done; the checks that follow are the last"
	}
	return fmt.Sprintf("mend what failed, then say again that you are done; you will be told %d more time(s)", v.Left)
}

// awaitedVerdict is verdict, which is waited for also when the work's time is over.
func (r *runner) awaitedVerdict(ctx context.Context) (*Verdict, error) {
	judged := make(chan struct{})
	r.rounding.Store(&judged)
	defer func() {
		r.rounding.Store(nil)
		close(judged)
	}()
	return r.verdict(ctx)
}

// round judges the work as it is now. It returns nil when the work is accepted,
// could not be judged, or must not go on.
func (r *runner) round(ctx context.Context) *Verdict {
	r.passed = nil
	if r.retries >= r.o.Retry || len(r.o.Accept) == 0 || !r.hasFiles() || ctx.Err() != nil || r.tree.Check() != nil ||
		time.Until(r.renewer.current().End) < checksTime(nil)+budget.SaveBefore {
		return nil
	}
	v, err := r.awaitedVerdict(ctx)
	if err != nil {
		r.warn("the work could not be judged before its end: %v", err)
		return nil
	}
	failed := len(v.Restored) > 0
	for _, c := range v.Checks {
		failed = failed || !c.Passed
	}
	if !failed {
		r.passed = v.Checks
		return nil
	}
	r.retries++
	v.Round, v.Left = r.retries, r.o.Retry-r.retries
	if err := r.record(audit.KindRound, "", v); err != nil {
		r.warn("%v", err)
		return nil
	}
	r.emit(Event{Kind: EventCheck, Text: "not accepted yet: " + v.Why()})
	return v
}

// verdict runs the checks on the work as it is now.
func (r *runner) verdict(ctx context.Context) (*Verdict, error) {
	r.quiet(ctx)
	if r.noisy != nil {
		return nil, r.noisy
	}
	name := filepath.Join(r.dir, roundFile)
	p, err := r.makePatch(ctx, name)
	defer os.Remove(name)
	if err != nil {
		return nil, err
	}
	v := &Verdict{}
	for _, g := range p.protected {
		if !g.Unchanged {
			v.Restored = append(v.Restored, g.Path)
			r.warn("in a round before the last it %s; it was put back", g.breach())
		}
	}
	r.breached = p.breached
	if err := r.restore(ctx, r.box, p.breached, ""); err != nil {
		return nil, err
	}
	results, err := r.judge(ctx, r.o.Accept, name)
	if len(results) < len(r.o.Accept) {
		err = errors.Join(err, errors.New("not every check was run"))
	}
	v.Checks = results
	return v, err
}
