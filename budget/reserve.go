package budget

import (
	"sync"
	"time"
)

// Kept is what work leaves for the last turn: the reply, without tools, with
// which a stopped run says how far it got. What is kept of a limit is at most a
// tenth of it, and never the only step.
type Kept struct {
	Steps int
	Time  time.Duration
	Spent
}

// Keep sets aside what the last turn needs. Round.Step, Round.Call, CallTimeout,
// Reserve and WorkContext leave it; Round.LastStep, ReserveLast and Context do not.
func (t *Tree) Keep(k Kept) {
	t.mu.Lock()
	t.kept = Kept{Steps: max(0, k.Steps), Time: max(0, k.Time), Spent: k.Spent.positive()}
	t.mu.Unlock()
	t.changed()
}

// keeps is what is kept of the limits in force. The caller holds mu.
func (t *Tree) keeps() Kept {
	k, l := t.kept, t.limits
	k.Steps = min(k.Steps, (l.MaxSteps+8)/10, l.MaxSteps-1)
	k.Time = min(k.Time, l.MaxWallTime/10)
	k.Tokens = min(k.Tokens, l.MaxTokens/10)
	k.Cost = min(k.Cost, l.MaxCost/10)
	return k
}

func (s Spent) positive() Spent { return Spent{Tokens: max(0, s.Tokens), Cost: max(0, s.Cost)} }

// Left is what work may still reserve: without what has been used, what is
// reserved, and what is kept for the last turn. It is never negative.
func (t *Tree) Left() Spent {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left(t.keeps().Spent)
}

// LeftLast is what the last turn may reserve: Left and what is kept.
func (t *Tree) LeftLast() Spent {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left(Spent{})
}

// left is what is left beside kept. The caller holds mu.
func (t *Tree) left(kept Spent) Spent {
	return Spent{
		Tokens: t.limits.MaxTokens - add(add(t.used.Tokens, t.held.Tokens), kept.Tokens),
		Cost:   t.limits.MaxCost - USD(add(add(int64(t.used.Cost), int64(t.held.Cost)), int64(kept.Cost))),
	}.positive()
}

// Reserve sets aside, before a request to a model, the most it can cost. What
// is not there cannot be reserved: the *Breach says of which limit. Settle or
// Release the reservation in any case. Whatever the interleaving, reservations
// and use together never pass a limit.
func (t *Tree) Reserve(s Spent) (*Reservation, error) { return t.reserve(s, true) }

// ReserveLast is Reserve for the last turn, which may take what is kept for it.
func (t *Tree) ReserveLast(s Spent) (*Reservation, error) { return t.reserve(s, false) }

func (t *Tree) reserve(s Spent, work bool) (*Reservation, error) {
	s = s.positive()
	err := t.act(func(time.Time) error {
		var kept Spent
		if work {
			kept = t.keeps().Spent
		}
		switch left := t.left(kept); {
		case s.Tokens > left.Tokens:
			b := breach(LimitTokens, add(t.used.Tokens, t.held.Tokens), t.limits.MaxTokens)
			b.Kept, b.Needed = kept.Tokens, s.Tokens
			return b
		case s.Cost > left.Cost:
			b := breach(LimitCost, add(int64(t.used.Cost), int64(t.held.Cost)), int64(t.limits.MaxCost))
			b.Kept, b.Needed = int64(kept.Cost), int64(s.Cost)
			return b
		}
		t.held = Spent{Tokens: add(t.held.Tokens, s.Tokens), Cost: USD(add(int64(t.held.Cost), int64(s.Cost)))}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &Reservation{tree: t, amount: s}, nil
}

// Reservation is what is set aside for one request. Its methods may be called
// concurrently; the first settles it, and later ones change nothing.
type Reservation struct {
	tree   *Tree
	amount Spent
	once   sync.Once
}

// Amount is what is set aside.
func (r *Reservation) Amount() Spent { return r.amount }

// Settle counts what the request cost instead of what was set aside. All of it
// is counted; when it is more than was set aside, the *Breach of
// LimitProviderOverrun says so.
func (r *Reservation) Settle(actual Spent) error {
	var err error
	r.once.Do(func() {
		actual = actual.positive()
		t := r.tree
		t.mu.Lock()
		t.held.Tokens -= r.amount.Tokens
		t.held.Cost -= r.amount.Cost
		t.used.Tokens = add(t.used.Tokens, actual.Tokens)
		t.used.Cost = USD(add(int64(t.used.Cost), int64(actual.Cost)))
		warnings := t.marked(t.now())
		t.mu.Unlock()
		t.tell(warnings)
		switch {
		case actual.Tokens > r.amount.Tokens:
			err = &Breach{Limit: LimitProviderOverrun, Of: LimitTokens, Used: actual.Tokens, Max: r.amount.Tokens}
		case actual.Cost > r.amount.Cost:
			err = &Breach{Limit: LimitProviderOverrun, Of: LimitCost, Used: int64(actual.Cost), Max: int64(r.amount.Cost)}
		}
	})
	return err
}

// Release sets nothing aside any more: the request cost nothing.
func (r *Reservation) Release() { _ = r.Settle(Spent{}) } // cannot go over
