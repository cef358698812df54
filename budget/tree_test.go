package budget_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/rein-sh/rein/budget"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manual is a clock that moves when told.
type manual struct{ ns atomic.Int64 }

func (c *manual) now() time.Time          { return time.Unix(1_800_000_000, c.ns.Load()) }
func (c *manual) advance(d time.Duration) { c.ns.Add(int64(d)) }

func newTree(t *testing.T, l budget.Limits, o budget.TreeOptions) *budget.Tree {
	t.Helper()
	tree, err := budget.NewTree(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// breached checks that err is the *Breach of that limit and says how to raise it.
func breached(t *testing.T, err error, limit budget.Limit, used, most int64) {
	t.Helper()
	b, ok := errors.AsType[*budget.Breach](err)
	if !ok {
		t.Fatalf("%v is no Breach of %s", err, limit)
	}
	if diff := cmp.Diff(&budget.Breach{Limit: limit, Used: used, Max: most, Flag: limit.Flag()}, b); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(b.Error(), string(limit)) || !strings.Contains(b.Hint(), limit.Flag()) {
		t.Errorf("%q, hint %q", b.Error(), b.Hint())
	}
}

func TestRound(t *testing.T) {
	tree := newTree(t, budget.Quick(), budget.TreeOptions{})
	for range 2 { // each round starts afresh
		r := tree.Round()
		for i := range 10 {
			if err := errors.Join(r.Step(), r.Call()); err != nil {
				t.Fatalf("%d: %v", i, err)
			}
		}
		breached(t, r.Step(), budget.LimitSteps, 10, 10)
		breached(t, r.Call(), budget.LimitToolCalls, 10, 10)
	}
	if u := tree.Usage(); u.Steps != 20 || u.ToolCalls != 20 {
		t.Errorf("%+v", u)
	}
}

func TestSpend(t *testing.T) {
	tree := newTree(t, budget.Quick(), budget.TreeOptions{})
	r := tree.Round()
	if err := tree.Spend(budget.Spent{Tokens: 199_999, Cost: budget.Dollars(0.5)}); err != nil {
		t.Fatal(err)
	}
	if err := tree.Spend(budget.Spent{Tokens: -5, Cost: -5}); err != nil || tree.Usage().Tokens != 199_999 {
		t.Errorf("a negative amount counted: %v, %+v", err, tree.Usage())
	}
	if err := errors.Join(tree.Check(), tree.Spend(budget.Spent{Tokens: 1})); err != nil {
		t.Fatalf("spending all there is is no breach: %v", err)
	}
	breached(t, tree.Check(), budget.LimitTokens, 200_000, 200_000)
	breached(t, r.Step(), budget.LimitTokens, 200_000, 200_000)
	breached(t, r.Call(), budget.LimitTokens, 200_000, 200_000)
	breached(t, tree.Spend(budget.Spent{Tokens: 7}), budget.LimitTokens, 200_007, 200_000)
	if err := tree.Spend(budget.Spent{Tokens: math.MaxInt64, Cost: math.MaxInt64}); err == nil || tree.Usage().Tokens != math.MaxInt64 || tree.Usage().Cost != math.MaxInt64 {
		t.Errorf("overflow: %v, %+v", err, tree.Usage())
	}
	if u := tree.Usage(); u.Steps != 0 || u.ToolCalls != 0 {
		t.Errorf("what was refused counted: %+v", u)
	}

	tree = newTree(t, budget.Quick(), budget.TreeOptions{})
	breached(t, tree.Spend(budget.Spent{Cost: 2 * budget.Dollar}), budget.LimitCost, int64(2*budget.Dollar), int64(budget.Dollar))
	breached(t, tree.Check(), budget.LimitCost, int64(2*budget.Dollar), int64(budget.Dollar))
}

func TestWallTime(t *testing.T) {
	var c manual
	tree := newTree(t, budget.Quick(), budget.TreeOptions{Now: c.now})
	r := tree.Round()
	if !tree.Deadline().Equal(c.now().Add(5 * time.Minute)) {
		t.Errorf("Deadline %v", tree.Deadline())
	}
	c.advance(5*time.Minute - 1)
	if err := r.Step(); err != nil || tree.Remaining() != 1 {
		t.Errorf("%v, %v left", err, tree.Remaining())
	}
	c.advance(1)
	breached(t, r.Step(), budget.LimitWallTime, int64(5*time.Minute), int64(5*time.Minute))
	c.advance(time.Second)
	breached(t, r.Call(), budget.LimitWallTime, int64(5*time.Minute+time.Second), int64(5*time.Minute))
	if tree.Remaining() != 0 {
		t.Errorf("%v left", tree.Remaining())
	}
}

func TestCallTimeout(t *testing.T) {
	var c manual
	tree := newTree(t, budget.Quick(), budget.TreeOptions{Now: c.now})
	check := func(asked, want time.Duration) {
		t.Helper()
		if got, err := tree.CallTimeout(asked); got != want || err != nil {
			t.Errorf("asked for %v: %v, %v, want %v", asked, got, err, want)
		}
	}
	check(0, time.Minute)
	check(-1, time.Minute)
	check(time.Second, time.Second)
	check(2*time.Minute, 2*time.Minute)
	_, err := tree.CallTimeout(2*time.Minute + 1)
	breached(t, err, budget.LimitMaxCallTimeout, int64(2*time.Minute+1), int64(2*time.Minute))
	c.advance(4*time.Minute + 30*time.Second)
	check(0, 30*time.Second)
	check(time.Second, time.Second)
	c.advance(30 * time.Second)
	_, err = tree.CallTimeout(time.Second)
	breached(t, err, budget.LimitWallTime, int64(5*time.Minute), int64(5*time.Minute))
}

func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := newTree(t, budget.Quick(), budget.TreeOptions{})
		ctx, cancel := tree.Context(t.Context())
		defer cancel()
		start := time.Now()
		<-ctx.Done()
		if took := time.Since(start); took != 5*time.Minute {
			t.Errorf("ended after %v", took)
		}
		breached(t, context.Cause(ctx), budget.LimitWallTime, int64(5*time.Minute), int64(5*time.Minute))
		breached(t, tree.Check(), budget.LimitWallTime, int64(5*time.Minute), int64(5*time.Minute))
	})
}

// Waits that overlap count once; the wall clock runs on.
func TestWaiting(t *testing.T) {
	var c manual
	tree := newTree(t, budget.Standard(), budget.TreeOptions{Now: c.now})
	c.advance(time.Second)
	a := tree.Waiting()
	c.advance(time.Second)
	b := tree.Waiting()
	c.advance(time.Second)
	a()
	a()
	c.advance(time.Second)
	if u := tree.Usage(); u.Waiting != 3*time.Second {
		t.Errorf("during a wait: %+v", u)
	}
	b()
	c.advance(time.Second)
	if u := tree.Usage(); u.Waiting != 3*time.Second || u.Wall != 5*time.Second {
		t.Errorf("%+v", u)
	}
}

func TestWarnings(t *testing.T) {
	var c manual
	var got []string
	var tree *budget.Tree
	warn := func(w budget.Warning) {
		tree.Usage() // must not deadlock
		got = append(got, w.String())
	}
	tree = newTree(t, budget.Quick(), budget.TreeOptions{Now: c.now, Warn: warn})
	expect := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		got = nil
	}
	r := tree.Round()
	for range 10 {
		if err := r.Step(); err != nil {
			t.Fatal(err)
		}
	}
	expect("80% of max_steps used: 8 of 10 (--max-steps raises it)", "95% of max_steps used: 10 of 10 (--max-steps raises it)")
	if err := tree.Spend(budget.Spent{Tokens: 159_999, Cost: budget.Dollars(0.96)}); err != nil {
		t.Fatal(err)
	}
	expect("95% of max_cost used: $0.96 of $1.00 (--max-cost raises it)") // the mark at 80 was passed in one go
	if err := tree.Spend(budget.Spent{Tokens: 1}); err != nil {
		t.Fatal(err)
	}
	expect("80% of max_tokens used: 160000 of 200000 (--max-tokens raises it)")
	c.advance(4 * time.Minute)
	if err := tree.Check(); err != nil {
		t.Fatal(err)
	}
	expect("80% of max_wall_time used: 4m of 5m (--max-wall-time raises it)")
	if err := tree.Check(); err != nil {
		t.Fatal(err)
	}
	expect()
	second := tree.Round()
	for range 8 {
		if err := second.Step(); err != nil {
			t.Fatal(err)
		}
	}
	expect("80% of max_steps used: 8 of 10 (--max-steps raises it)")
}

// Whatever the limits and however many goroutines ask, exactly the limit is
// granted, and each warning is given once.
func TestLimitsAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		l := budget.Standard()
		l.MaxSteps, l.MaxToolCalls, l.MaxTokens = 1+rng.IntN(100), 1+rng.IntN(100), int64(1+rng.IntN(1000))
		var mu sync.Mutex
		warned := map[string]int{}
		tree := newTree(t, l, budget.TreeOptions{Warn: func(w budget.Warning) {
			mu.Lock()
			defer mu.Unlock()
			warned[fmt.Sprint(w.Limit, w.Percent)]++
			if w.Used*100 < w.Max*int64(w.Percent) {
				t.Errorf("too early: %v", w)
			}
		}})
		r := tree.Round()
		var steps, calls, refused atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 60 {
					if r.Step() == nil {
						steps.Add(1)
					}
					if r.Call() == nil {
						calls.Add(1)
					}
				}
			})
		}
		wg.Wait()
		for range 4 {
			wg.Go(func() {
				for range 300 {
					if tree.Spend(budget.Spent{Tokens: 1}) != nil {
						refused.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if steps.Load() != int64(min(l.MaxSteps, 240)) || calls.Load() != int64(min(l.MaxToolCalls, 240)) || refused.Load() != 1200-l.MaxTokens {
			t.Fatalf("%+v: %d steps, %d calls, %d over", l, steps.Load(), calls.Load(), refused.Load())
		}
		if u := tree.Usage(); int64(u.Steps) != steps.Load() || int64(u.ToolCalls) != calls.Load() || u.Tokens != 1200 {
			t.Fatalf("%+v", u)
		}
		for key, n := range warned {
			if n != 1 {
				t.Fatalf("%s was given %d times", key, n)
			}
		}
		for _, limit := range []budget.Limit{budget.LimitSteps, budget.LimitToolCalls, budget.LimitTokens} {
			if warned[fmt.Sprint(limit, 95)] != 1 {
				t.Fatalf("no warning of %s at 95%%: %v", limit, warned)
			}
		}
	}
}

func BenchmarkStep(b *testing.B) {
	l := budget.Standard()
	l.MaxSteps = math.MaxInt
	tree, err := budget.NewTree(l, budget.TreeOptions{})
	if err != nil {
		b.Fatal(err)
	}
	r := tree.Round()
	for b.Loop() {
		if err := r.Step(); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleTree() {
	l := budget.Quick()
	l.MaxToolCalls = 2
	tree, err := budget.NewTree(l, budget.TreeOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	round := tree.Round()
	for _, command := range slices.Repeat([]string{"make"}, 3) {
		if err := round.Call(); err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println("run", command)
	}
	// Output:
	// run make
	// run make
	// stopped by max_tool_calls: 2 of 2
}
