package budget_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/budget"
)

func TestReserve(t *testing.T) {
	tree := newTree(t, budget.Quick(), budget.TreeOptions{}) // 200,000 tokens, $1
	tree.Keep(budget.Kept{Steps: 1, Time: time.Minute, Spent: budget.Spent{Tokens: 10_000, Cost: budget.Dollars(0.05)}})
	if left := tree.Left(); left != (budget.Spent{Tokens: 190_000, Cost: budget.Dollars(0.95)}) {
		t.Fatalf("left %+v", left)
	}
	hold, err := tree.Reserve(budget.Spent{Tokens: 150_000, Cost: budget.Dollars(0.2)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tree.Reserve(budget.Spent{Tokens: 40_001})
	b, ok := errors.AsType[*budget.Breach](err)
	if !ok || b.Limit != budget.LimitTokens || b.Used != 150_000 || b.Kept != 10_000 || b.Needed != 40_001 {
		t.Fatalf("%+v, %v", b, err)
	}
	if want := "stopped by max_tokens: 150000 of 200000, 10000 kept for the last turn, and the next request may need 40001"; b.Error() != want {
		t.Errorf("%q, want %q", b.Error(), want)
	}
	if _, err = tree.Reserve(budget.Spent{Cost: budget.Dollars(0.76)}); err == nil {
		t.Error("more money than there is was reserved")
	}
	last, err := tree.ReserveLast(budget.Spent{Tokens: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	last.Release()
	if err := hold.Settle(budget.Spent{Tokens: 100, Cost: budget.Dollars(0.01)}); err != nil {
		t.Error(err)
	}
	if err := hold.Settle(budget.Spent{Tokens: 1 << 40}); err != nil {
		t.Errorf("settled twice: %v", err)
	}
	if err := hold.Settle(hold.Amount()); err != nil {
		t.Fatal(err)
	}
	if u := tree.Usage(); u.Tokens != 100 || u.Cost != budget.Dollars(0.01) || tree.LeftLast().Tokens != 199_900 {
		t.Errorf("%+v, left %+v", u, tree.LeftLast())
	}
}

func TestOverrun(t *testing.T) {
	for _, c := range []struct {
		actual budget.Spent
		of     budget.Limit
		want   string
	}{
		{budget.Spent{Tokens: 1001, Cost: 1}, budget.LimitTokens, "stopped by provider_overrun: a reply used 1001 tokens, and at most 1000 tokens were set aside for it"},
		{budget.Spent{Tokens: 10, Cost: budget.Dollars(0.2)}, budget.LimitCost, "stopped by provider_overrun: a reply used $0.20, and at most $0.10 were set aside for it"},
	} {
		tree := newTree(t, budget.Quick(), budget.TreeOptions{})
		hold, err := tree.Reserve(budget.Spent{Tokens: 1000, Cost: budget.Dollars(0.1)})
		if err != nil {
			t.Fatal(err)
		}
		b, ok := errors.AsType[*budget.Breach](hold.Settle(c.actual))
		if !ok || b.Limit != budget.LimitProviderOverrun || b.Of != c.of || b.Flag != "" || b.Error() != c.want || b.Hint() == "" {
			t.Errorf("%+v: %+v", c.actual, b)
		}
		if u := tree.Usage(); u.Tokens != c.actual.Tokens || u.Cost != c.actual.Cost {
			t.Errorf("what was used is not counted: %+v", u)
		}
	}
}

// Whatever is reserved, settled and released at once, by how many, and while
// limits move: use and reservations never pass the highest limit there was, and
// in the end all that is set aside was given back.
func TestReservationsAreExact(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := budget.Standard()
		l.MaxTokens, l.MaxCost = 1+rng.Int64N(10_000), budget.USD(1+rng.Int64N(10_000))
		highest := l
		tree := newTree(t, l, budget.TreeOptions{})
		tree.Keep(budget.Kept{Spent: budget.Spent{Tokens: rng.Int64N(2000), Cost: budget.USD(rng.Int64N(2000))}})
		var wg sync.WaitGroup
		for worker := range uint64(4) {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, worker))
				for range 200 {
					ask := budget.Spent{Tokens: rng.Int64N(500), Cost: budget.USD(rng.Int64N(500))}
					reserve := tree.Reserve
					if rng.IntN(4) == 0 {
						reserve = tree.ReserveLast
					}
					hold, err := reserve(ask)
					if err != nil {
						continue
					}
					switch rng.IntN(4) {
					case 0:
						hold.Release()
					case 1:
						_ = hold.Settle(hold.Amount()) // cannot go over itself
					default:
						if err := hold.Settle(budget.Spent{Tokens: rng.Int64N(ask.Tokens + 1), Cost: budget.USD(rng.Int64N(int64(ask.Cost) + 1))}); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		u := tree.Usage()
		if u.Tokens > highest.MaxTokens || u.Cost > highest.MaxCost {
			t.Fatalf("seed %d: %+v of %+v", seed, u, highest)
		}
		if left := tree.LeftLast(); left.Tokens != highest.MaxTokens-u.Tokens || left.Cost != highest.MaxCost-u.Cost {
			t.Fatalf("seed %d: something is still set aside: %+v left of %+v after %+v", seed, left, highest, u)
		}
	}
}

// At any moment, not only in the end: what was granted at once fits.
func TestReservationsFitTogether(t *testing.T) {
	l := budget.Standard()
	l.MaxTokens = 1000
	tree := newTree(t, l, budget.TreeOptions{})
	var mu sync.Mutex
	var granted int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if hold, err := tree.Reserve(budget.Spent{Tokens: 70}); err == nil {
				mu.Lock()
				granted += hold.Amount().Tokens
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if granted != 980 {
		t.Errorf("%d of 1000 were granted in pieces of 70", granted)
	}
}

func TestKept(t *testing.T) {
	var c manual
	l := budget.Quick()
	tree := newTree(t, l, budget.TreeOptions{Now: c.now})
	tree.Keep(budget.Kept{Steps: 5, Time: time.Hour, Spent: budget.Spent{Tokens: math.MaxInt64, Cost: math.MaxInt64}})
	if left := tree.Left(); left.Tokens != 180_000 || left.Cost != budget.Dollars(0.9) || tree.WorkRemaining() != 270*time.Second {
		t.Errorf("more than a tenth is kept: %+v, %v", left, tree.WorkRemaining())
	}
	r := tree.Round()
	for range 9 {
		if err := r.Step(); err != nil {
			t.Fatal(err)
		}
	}
	if steps, calls := r.Left(); steps != 0 || calls != 10 {
		t.Errorf("%d steps, %d calls left", steps, calls)
	}
	if b, ok := errors.AsType[*budget.Breach](r.Step()); !ok || b.Used != 9 || b.Kept != 1 {
		t.Errorf("%+v", b)
	}
	if err := errors.Join(r.LastStep(), r.Call()); err != nil {
		t.Error(err)
	}
	breached(t, r.LastStep(), budget.LimitSteps, 10, 10)
	c.advance(270 * time.Second)
	if b, ok := errors.AsType[*budget.Breach](r.Call()); !ok || b.Limit != budget.LimitWallTime || b.Kept != int64(30*time.Second) {
		t.Errorf("%+v", b)
	}
	if _, err := tree.CallTimeout(0); err == nil {
		t.Error("a call was given the time that is kept")
	}

	l.MaxSteps = 1
	tree = newTree(t, l, budget.TreeOptions{})
	tree.Keep(budget.Kept{Steps: 1})
	if err := tree.Round().Step(); err != nil {
		t.Errorf("the only step is kept: %v", err)
	}
}

func TestSetLimit(t *testing.T) {
	tree := newTree(t, budget.Quick(), budget.TreeOptions{})
	r := tree.Round()
	for _, c := range []struct {
		limit    budget.Limit
		to, from int64
	}{
		{budget.LimitSteps, 3, 10}, {budget.LimitToolCalls, 2, 10}, {budget.LimitTokens, 100, 200_000},
		{budget.LimitCost, 5, int64(budget.Dollar)}, {budget.LimitWallTime, int64(time.Hour), int64(5 * time.Minute)},
		{budget.LimitMaxCallTimeout, int64(10 * time.Minute), int64(2 * time.Minute)}, {budget.LimitCallTimeout, int64(5 * time.Minute), int64(time.Minute)},
		{budget.LimitOutputBytes, 4096, 16 << 10}, {budget.LimitOutputLines, 8, 400}, {budget.LimitTTL, int64(2 * time.Minute), 0},
	} {
		changed := tree.Changed()
		if old, err := tree.SetLimit(c.limit, c.to); err != nil || old != c.from {
			t.Errorf("%s: was %d, %v", c.limit, old, err)
		}
		select {
		case <-changed:
		default:
			t.Errorf("%s: nobody was told", c.limit)
		}
	}
	for range 2 {
		if err := errors.Join(r.Step(), r.Call()); err != nil {
			t.Fatal(err)
		}
	}
	breached(t, r.Call(), budget.LimitToolCalls, 2, 2)
	if _, err := tree.SetLimit(budget.LimitToolCalls, 1); err != nil {
		t.Fatal(err)
	}
	breached(t, r.Call(), budget.LimitToolCalls, 2, 1)
	if _, err := tree.SetLimit(budget.LimitToolCalls, 3); err != nil || r.Call() != nil {
		t.Errorf("raised again: %v", err)
	}
	if _, err := tree.Reserve(budget.Spent{Tokens: 101}); err == nil {
		t.Error("the lowered limit of tokens is not kept")
	}

	if tree.Renewal() != 2*time.Minute || tree.Began() != budget.Quick() {
		t.Errorf("renewed by %v; it began with %+v", tree.Renewal(), tree.Began())
	}
	before := tree.Limits()
	if _, err := tree.SetLimit(budget.LimitSteps, 0); err == nil {
		t.Error("a limit was switched off")
	}
	for limit, amount := range map[budget.Limit]int64{budget.LimitMaxCallTimeout: int64(time.Second), budget.LimitCallTimeout: int64(time.Hour),
		budget.LimitOutputBytes: 5, budget.LimitOutputLines: 7, budget.LimitTTL: int64(time.Minute)} {
		if _, ok := errors.AsType[*budget.InvalidError](func() error { _, err := tree.SetLimit(limit, amount); return err }()); !ok {
			t.Errorf("%s was set to %d", limit, amount)
		}
	}
	for _, limit := range []budget.Limit{"max_luck", budget.LimitProviderOverrun} {
		_, err := tree.SetLimit(limit, 7)
		if e, ok := errors.AsType[*budget.UnknownError](err); !ok || !strings.Contains(e.Hint(), "max_call_timeout") {
			t.Errorf("%s: %v", limit, err)
		}
	}
	if tree.Limits() != before {
		t.Errorf("%+v, then %+v", before, tree.Limits())
	}
}

// Contexts follow a deadline that is moved, both ways.
func TestContextFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newTree(t, budget.Quick(), budget.TreeOptions{})
		tree.Keep(budget.Kept{Time: 10 * time.Second})
		start := time.Now()
		whole, done := tree.Context(t.Context())
		work, end := tree.WorkContext(whole)
		other, cancel := tree.Context(t.Context())
		cancel()
		time.Sleep(time.Minute)
		set := func(d time.Duration) {
			if _, err := tree.SetLimit(budget.LimitWallTime, int64(d)); err != nil {
				t.Fatal(err)
			}
		}
		set(time.Hour)
		time.Sleep(30 * time.Minute)
		if work.Err() != nil {
			t.Fatal("it ended at the old deadline")
		}
		set(40 * time.Minute)
		<-work.Done()
		if took := time.Since(start); took != 40*time.Minute-10*time.Second || whole.Err() != nil {
			t.Errorf("work ended after %v", took)
		}
		if b, ok := errors.AsType[*budget.Breach](context.Cause(work)); !ok || b.Kept != int64(10*time.Second) {
			t.Errorf("%+v", b)
		}
		<-whole.Done()
		if took := time.Since(start); took != 40*time.Minute {
			t.Errorf("ended after %v", took)
		}
		if !errors.Is(context.Cause(other), context.Canceled) {
			t.Errorf("%v", context.Cause(other))
		}
		done()
		end()

		late, stop := tree.Context(t.Context()) // its time is over already
		defer stop()
		<-late.Done()
	})
}

// A limit that was raised is warned of anew.
func TestRaisedLimitsAreWarnedOf(t *testing.T) {
	var got []string
	tree := newTree(t, budget.Quick(), budget.TreeOptions{Warn: func(w budget.Warning) { got = append(got, w.String()) }})
	spend := func(n int64) {
		if err := tree.Spend(budget.Spent{Tokens: n}); err != nil {
			t.Fatal(err)
		}
	}
	spend(190_000)
	if _, err := tree.SetLimit(budget.LimitTokens, 1_000_000); err != nil {
		t.Fatal(err)
	}
	spend(610_000)
	want := []string{"95% of max_tokens used: 190000 of 200000 (--max-tokens raises it)", "80% of max_tokens used: 800000 of 1000000 (--max-tokens raises it)"}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%q", got)
	}
}
