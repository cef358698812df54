package approval

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// pending is one question and who waits for its answer.
type pending struct {
	r       Request
	q       Question
	v       Verdict
	resolve chan Decision // Resolve's, at most one
	done    chan struct{} // closed when outcome and err are set
	outcome Outcome
	err     error
}

// grant is an answer for the run.
type grant struct {
	until   time.Time // zero: to the end of the run
	outcome Outcome
}

func (g *Gate) granted(hash string) (Outcome, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	had, ok := g.grants[hash]
	if !ok {
		return Outcome{}, false
	}
	if !had.until.IsZero() && !time.Now().Before(had.until) {
		delete(g.grants, hash)
		return Outcome{}, false
	}
	return had.outcome, true
}

// ask puts a question, or joins the same one that is pending.
func (g *Gate) ask(ctx context.Context, r Request, q Question, v Verdict) (Outcome, error) {
	start := time.Now()
	for {
		p, first := g.enqueue(r, q, v)
		switch {
		case p == nil:
			out := Outcome{Code: TooMany, Rule: v.Rule, Hash: q.Hash, Reason: fmt.Sprintf("%d other questions wait for a person", MaxPending)}
			return out, g.o.Record(Event{Question: q, Outcome: &out})
		case first:
			g.put(ctx, p)
		default:
			select {
			case <-p.done:
			case <-ctx.Done():
				out := interrupted(v, q)
				return out, g.o.Record(Event{Question: q, Outcome: &out})
			}
		}
		if p.err == nil && p.outcome.Code == Interrupted && ctx.Err() == nil {
			continue // who asked first has left
		}
		out := p.outcome
		out.Waited = time.Since(start)
		if p.err != nil || first {
			return out, p.err
		}
		return out, g.o.Record(Event{Question: q, Outcome: &out})
	}
}

func interrupted(v Verdict, q Question) Outcome {
	return Outcome{Code: Interrupted, Rule: v.Rule, Hash: q.Hash, Reason: "the run ended before it was answered"}
}

// enqueue adds a question, or finds the same one. Nil: there are too many.
func (g *Gate) enqueue(r Request, q Question, v Verdict) (p *pending, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.pending {
		if p.q.Hash == q.Hash {
			return p, false
		}
	}
	if len(g.pending) >= MaxPending {
		return nil, false
	}
	q.ID = newID()
	q.Asked = time.Now().UTC()
	q.Expires = q.Asked.Add(g.o.Timeout)
	p = &pending{r: r, q: q, v: v, resolve: make(chan Decision, 1), done: make(chan struct{})}
	g.pending = append(g.pending, p)
	return p, true
}

// newID names a question so that no other, of this process or of one that takes
// the run up after it, is answered by what was meant for it.
func newID() string { return "ask-" + strings.ToLower(rand.Text()[:12]) }

// put asks through every channel, and settles the question.
func (g *Gate) put(ctx context.Context, p *pending) {
	defer close(p.done)
	out, decision := g.answer(ctx, p)
	out.Rule, out.Hash, out.Waited = p.v.Rule, p.q.Hash, time.Since(p.q.Asked)
	g.mu.Lock()
	g.pending = slices.DeleteFunc(g.pending, func(o *pending) bool { return o == p })
	g.mu.Unlock()
	p.outcome = out
	if p.err == nil {
		p.err = g.o.Record(Event{Question: p.q, Outcome: &out})
	}
	host := p.r.Kind == Host && out.Code == Approved // the gateway holds it open, too
	if p.err == nil && (decision.ForRun || host) && out.Command == "" && (out.Code == Approved || out.Code == Denied) {
		kept := out
		if kept.Waited = 0; kept.Code == Approved {
			kept.Code = Granted
		}
		until := time.Now().Add(g.o.Grant)
		if host {
			until = time.Time{}
		}
		g.mu.Lock()
		g.grants[p.q.Hash] = grant{until: until, outcome: kept}
		g.mu.Unlock()
	}
}

// answer gets a decision, from whoever gives the first.
func (g *Gate) answer(ctx context.Context, p *pending) (Outcome, Decision) {
	if len(g.o.Channels) == 0 && !g.o.Resolvable {
		return Outcome{Code: NoChannel, Reason: cmp.Or(g.o.Nobody, "there is nobody to ask")}, Decision{}
	}
	if p.err = g.o.Record(Event{Question: p.q}); p.err != nil {
		return Outcome{Code: NoChannel, Reason: "the question could not be recorded"}, Decision{}
	}
	defer g.o.Waiting(p.q)()
	asking, stop := context.WithDeadline(ctx, p.q.Expires)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	answers := make(chan answer, len(g.o.Channels))
	for _, c := range g.o.Channels {
		wg.Go(func() {
			d, err := g.deliver(asking, c, p.q)
			answers <- answer{c.Name(), d, err}
		})
	}
	var failures []string
	for len(failures) < len(g.o.Channels) || g.o.Resolvable {
		select {
		case a := <-answers:
			if a.err == nil {
				if a.d.By == "" {
					a.d.By = a.from
				}
				return g.decided(p, a.d), a.d
			}
			if asking.Err() != nil { // it is too late, and they are counted below
				answers <- a
				break
			}
			failures = append(failures, a.failure())
			g.o.Warn("nobody could be asked by %s", a.failure())
		case d := <-p.resolve:
			return g.decided(p, d), d
		case <-asking.Done():
			if ctx.Err() != nil {
				return interrupted(p.v, p.q), Decision{}
			}
			wg.Wait()
			return g.unanswered(failures, answers), Decision{}
		}
	}
	return Outcome{Code: NoChannel, Reason: noWay(failures)}, Decision{}
}

// unanswered is the outcome of a question whose time is over. Failures are of
// the channels that ended before, answers of those that ended now: one that
// still could not deliver it has failed, too.
func (g *Gate) unanswered(failures []string, answers chan answer) Outcome {
	for len(answers) > 0 {
		a := <-answers
		if _, ok := errors.AsType[*UndeliveredError](a.err); ok {
			failures = append(failures, a.failure())
		}
	}
	if len(failures) == len(g.o.Channels) && !g.o.Resolvable {
		return Outcome{Code: NoChannel, Reason: noWay(failures)}
	}
	out := Outcome{Code: TimedOut, Reason: fmt.Sprintf("nobody answered within %s", g.o.Timeout)}
	if len(failures) > 0 {
		out.Reason += "; " + noWay(failures)
	}
	return out
}

func noWay(failures []string) string {
	return "the question could not be delivered by " + strings.Join(failures, ", nor by ")
}

type answer struct {
	from string
	d    Decision
	err  error
}

// failure names the channel and what is wrong with it.
func (a answer) failure() string { return a.from + ": " + a.err.Error() }

// decided is what a decision comes to.
func (g *Gate) decided(p *pending, d Decision) Outcome {
	out := Outcome{By: g.show(d.By), Reason: g.show(d.Reason)}
	if !d.Approve {
		out.Code = Denied
		if out.Reason == "" {
			out.Reason = "a person said no"
		}
		return out
	}
	out.Code = Approved
	if d.Command == "" || d.Command == p.r.Command {
		return out
	}
	if p.r.Command == "" || p.q.Cut {
		return Outcome{Code: Denied, By: out.By, Reason: "it was answered with a command where none can be given"}
	}
	edited := p.r
	edited.Command = d.Command
	if v := g.o.Policy.Judge(edited); v.Action != Allow && v.Action != Ask {
		return Outcome{Code: DeniedByRule, By: out.By, Reason: "the edited command: " + v.Reason}
	}
	out.Command = d.Command
	return out
}

// Pending lists the questions that wait, oldest first.
func (g *Gate) Pending() []Question {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]Question, len(g.pending))
	for i, p := range g.pending {
		list[i] = p.q
	}
	return list
}

// Resolve answers the question of that id and hash, which says what was read by
// who answers. The error is ErrNotPending, or ErrAnother.
func (g *Gate) Resolve(id, hash string, d Decision) error {
	if !g.o.Resolvable {
		return errors.New("approval: questions of this run are not answered from outside")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.pending {
		if p.q.ID != id {
			continue
		}
		if p.q.Hash != hash {
			return ErrAnother
		}
		select {
		case p.resolve <- d:
			return nil
		default:
			return ErrNotPending // answered, and about to be settled
		}
	}
	return ErrNotPending
}
