package sandboxtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// gone is the state of a sandbox that has ended, for pairs.
const gone sandbox.State = "gone"

// operation is one of a pair.
type operation struct {
	name string
	do   func(context.Context, *sandbox.Sandbox) error
	// from is the only state in which it succeeds, "" any but gone; to is the
	// state that it leaves, "" the one before.
	from, to sandbox.State
	inside   bool // asks execd, and waits where a pause overtakes it
}

// ended are the kinds of errors of a sandbox that is no more.
var ended = []sandbox.Kind{sandbox.KindNotFound, sandbox.KindLost}

// may reports whether an operation may say that in a state, "" being success, and
// the state that it leaves then.
func (o operation) may(s sandbox.State, kind sandbox.Kind) (after sandbox.State, ok bool) {
	switch {
	case s == gone && o.to != gone:
		return s, slices.Contains(ended, kind)
	case o.from != "" && s != o.from && s != gone:
		return s, kind == sandbox.KindConflict
	case o.to != "":
		return o.to, kind == ""
	}
	return s, kind == ""
}

// pairing is two operations at once, and what came of them.
type pairing struct {
	a, b       operation
	kindA      sandbox.Kind
	kindB      sandbox.Kind
	before     sandbox.State
	foreign    bool // the transitions are those of a server that takes them as they come
	possible   []sandbox.State
	expiresNow bool
}

// judge finds the states that the sandbox can be in: those after one operation
// and then the other, in the orders that explain both answers.
func (p *pairing) judge() {
	p.order(p.a, p.kindA, p.b, p.kindB, p.before)
	p.order(p.b, p.kindB, p.a, p.kindA, p.before)
	// A server that is ending a sandbox may say what it is just no more.
	overtaken := p.foreign && p.b.to != "" && p.kindB == sandbox.KindConflict
	if _, ok := p.b.may(gone, p.kindB); p.expiresNow && (ok || overtaken) {
		p.possible = append(p.possible, gone)
	}
	for _, o := range []struct {
		op, other         operation
		kind, kindOfOther sandbox.Kind
	}{{p.a, p.b, p.kindA, p.kindB}, {p.b, p.a, p.kindB, p.kindA}} {
		if after, ok := o.other.may(p.before, o.kindOfOther); ok && o.op.inside && after == sandbox.StatePaused && o.kind == sandbox.KindTimeout {
			p.possible = append(p.possible, after) // under way when everything stopped
		}
		if !p.foreign || o.op.to == "" || o.op.to == gone || o.other.to == "" || o.other.to == gone {
			continue
		}
		// Such a server answers two who pause at once as if each had done it, and
		// one who pauses while another resumes may never see what it asked for.
		if o.op.to == o.other.to && o.kind == "" && o.kindOfOther == "" && p.before == o.op.from {
			p.possible = append(p.possible, o.op.to)
		}
		if o.op.to != o.other.to && o.kind == sandbox.KindTimeout && o.kindOfOther == "" {
			p.possible = append(p.possible, sandbox.StateRunning, sandbox.StatePaused)
		}
	}
}

func (p *pairing) order(first operation, kindOfFirst sandbox.Kind, second operation, kindOfSecond sandbox.Kind, s sandbox.State) {
	s, ok := first.may(s, kindOfFirst)
	if !ok {
		return
	}
	if s, ok = second.may(s, kindOfSecond); ok && !slices.Contains(p.possible, s) {
		p.possible = append(p.possible, s)
	}
}

// transitions change a sandbox's state or end.
func transitions() []operation {
	return []operation{
		{name: "pause", from: sandbox.StateRunning, to: sandbox.StatePaused,
			do: func(ctx context.Context, s *sandbox.Sandbox) error { return s.Pause(ctx, sandbox.PauseOptions{}) }},
		{name: "hold", from: sandbox.StateRunning, to: sandbox.StatePaused,
			do: func(ctx context.Context, s *sandbox.Sandbox) error {
				return s.Pause(ctx, sandbox.PauseOptions{Hold: 200 * time.Millisecond})
			}},
		{name: "resume", from: sandbox.StatePaused, to: sandbox.StateRunning,
			do: func(ctx context.Context, s *sandbox.Sandbox) error { return s.Resume(ctx) }},
		{name: "kill", to: gone, do: func(ctx context.Context, s *sandbox.Sandbox) error { return s.Kill(ctx) }},
		{name: "renew", do: func(ctx context.Context, s *sandbox.Sandbox) error {
			_, err := s.Renew(ctx, time.Now().Add(5*time.Minute))
			return err
		}},
	}
}

// uses leave the state as it is.
func (e *env) uses() []operation {
	list := []operation{
		{name: "get", do: func(ctx context.Context, s *sandbox.Sandbox) error { _, err := s.Refresh(ctx); return err }},
		{name: "write", from: sandbox.StateRunning, inside: true, do: func(ctx context.Context, s *sandbox.Sandbox) error {
			_, err := s.WriteFile(ctx, "pair", []byte("x"), sandbox.WriteOptions{})
			return err
		}},
		{name: "run", from: sandbox.StateRunning, inside: true, do: func(ctx context.Context, s *sandbox.Sandbox) error {
			r, err := s.Run(ctx, sandbox.Command{Shell: "true"})
			if err == nil && !r.OK() {
				err = fmt.Errorf("it ended otherwise: %s", describe(r))
			}
			return err
		}},
	}
	if e.suite.report.Has(sandbox.CapSessions) {
		list = append(list, operation{name: "session", from: sandbox.StateRunning, inside: true, do: func(ctx context.Context, s *sandbox.Sandbox) error {
			_, err := s.OpenSession(ctx, sandbox.SessionOptions{}, sandbox.Access{})
			return err
		}})
	}
	if e.suite.report.Has(sandbox.CapPTY) {
		list = append(list, operation{name: "terminal", from: sandbox.StateRunning, inside: true, do: func(ctx context.Context, s *sandbox.Sandbox) error {
			_, err := s.OpenTerminal(ctx, sandbox.TerminalOptions{Command: "true"}, sandbox.Access{})
			return err
		}})
	}
	return list
}

// pausePairs runs every two operations at once of which one changes the state,
// on a running and on a paused sandbox, and each at the moment of its end. What
// they answer, and the state afterwards, are those of one after the other.
func pausePairs(e *env) {
	changes := transitions()
	e.Sandbox = e.create(nil)
	switch err := e.Pause(e.Context(), sandbox.PauseOptions{Hold: time.Second}); sandbox.KindOf(err) {
	case sandbox.KindUnsupported: // a case of its own shows that this is the answer
		changes = slices.DeleteFunc(changes, func(o operation) bool { return o.name == "hold" })
	default:
		e.must(err)
		e.resume()
	}
	e.together(pairs(changes, append(slices.Clone(changes), e.uses()...)))
}

// pairs are those of two operations of which one changes the state, and those of
// each and the sandbox's end.
func pairs(changes, all []operation) (list []*pairing) {
	states := []sandbox.State{sandbox.StateRunning, sandbox.StatePaused}
	for _, o := range all { // first, as they take the longest
		for _, s := range states {
			list = append(list, &pairing{a: operation{name: "expiry"}, b: o, before: s, expiresNow: true})
		}
	}
	for i, a := range changes {
		for _, b := range all[i:] {
			for _, s := range states {
				if a.name != "renew" || b.name == "renew" { // the others have been with each change of state
					list = append(list, &pairing{a: a, b: b, before: s})
				}
			}
		}
	}
	return list
}

// together runs the pairs in a few sandboxes at once: most of their time they
// wait.
func (e *env) together(list []*pairing) {
	next := make(chan *pairing, len(list))
	for _, p := range list {
		next <- p
	}
	close(next)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() { // not Parallel, which would wait for the other cases
			e.T.Run(fmt.Sprint(i), func(t *testing.T) {
				own := &env{T: t, suite: e.suite, dir: e.dir}
				own.Sandbox = own.create(nil)
				for p := range next {
					own.pair(p)
				}
			})
		})
	}
	all.Wait()
}

// pair runs one pair in the case's sandbox, and replaces the sandbox when it has
// ended. An operation inside that was under way when everything stopped waits
// for the end of the pause, so it is not waited for in vain.
func (e *env) pair(p *pairing) {
	e.Helper()
	p.foreign = enforcedBy(e.suite.report, sandbox.CapPause) == "server"
	what := fmt.Sprintf("%s and %s, %s", p.a.name, p.b.name, p.before)
	if p.before == sandbox.StatePaused {
		e.must(e.Pause(e.Context(), sandbox.PauseOptions{}))
	}
	limit := 3 * time.Second
	if p.foreign { // a container engine at work for others, too
		limit = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(e.Context(), e.scale(limit))
	defer cancel()
	if p.expiresNow {
		left := 300 * time.Millisecond
		if p.foreign {
			left = e.scale(time.Second)
		}
		end, err := e.Renew(ctx, time.Now().Add(left))
		e.must(err)
		e.wait(time.Until(end) - 5*time.Millisecond)
		p.a.do = func(context.Context, *sandbox.Sandbox) error { return nil }
		if p.foreign || p.b.inside { // it has a little longer than it was given
			ctx, cancel = context.WithTimeout(e.Context(), e.scale(10*time.Second))
			defer cancel()
		}
	}
	var errA, errB error
	var wg sync.WaitGroup
	wg.Go(func() { errA = p.a.do(ctx, e.Sandbox) })
	wg.Go(func() { errB = p.b.do(ctx, e.Sandbox) })
	wg.Wait()
	p.kindA, p.kindB = sandbox.KindOf(errA), sandbox.KindOf(errB)
	for _, o := range []struct {
		kind *sandbox.Kind
		err  error
	}{{&p.kindA, errA}, {&p.kindB, errB}} {
		if o.err != nil && *o.kind == "" {
			*o.kind = sandbox.KindInternal
		}
	}
	p.judge()
	if len(p.possible) == 0 {
		e.Errorf("%s: no order explains %s: %v; %s: %v", what, p.a.name, errA, p.b.name, errB)
	}
	e.after(p, what)
}

// after checks the state that a pair has left, and makes it a running sandbox.
func (e *env) after(p *pairing, what string) {
	e.Helper()
	if p.expiresNow && (p.b.name != "renew" || p.kindB != "") {
		e.eventually(20*time.Second, what+": the sandbox is gone", func() bool { return e.gone(e.ID()) })
		e.Sandbox = e.create(nil)
		return
	}
	state := gone
	if !e.gone(e.ID()) {
		info, err := e.Refresh(e.Context())
		e.must(err)
		state = info.State
	}
	if len(p.possible) > 0 && !slices.Contains(p.possible, state) {
		e.Errorf("%s: it is %s, not %v (%q, %q)", what, state, p.possible, p.kindA, p.kindB)
	}
	switch state {
	case gone:
		e.Sandbox = e.create(nil)
		return
	case sandbox.StatePaused:
		e.must(e.Resume(e.Context()))
	}
	r, err := e.Sandbox.Run(e.Context(), sandbox.Command{Shell: "true"})
	e.must(err)
	e.equal(what+": a command runs afterwards", r.OK(), true)
}

func enforcedBy(r sandbox.Report, c sandbox.Capability) string {
	for _, a := range r.Abilities {
		if a.Capability == c {
			return a.EnforcedBy
		}
	}
	return ""
}
