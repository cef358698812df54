package budget_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rein-sh/rein/budget"
)

var born = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return born.Add(d) }

func limits(wall, ttl time.Duration) budget.Limits {
	l := budget.Standard()
	l.MaxWallTime, l.TTL = wall, ttl
	return l
}

func TestLease(t *testing.T) {
	const m = time.Minute
	for _, tc := range []struct {
		name               string
		wall, ttl, started time.Duration // the run started that long before the sandbox was born
		end, absolute      time.Duration
	}{
		{"quick", 5 * m, 0, 0, 8 * m, 8 * m},
		{"standard", 15 * m, 0, 0, 18 * m, 18 * m},
		{"long", 120 * m, 0, 0, 18 * m, 123 * m},
		{"born late", 15 * m, 0, 4 * m, 14 * m, 14 * m},
		{"long, born late", 120 * m, 0, 4 * m, 18 * m, 119 * m},
		{"a TTL of its own", 120 * m, 5 * m, 0, 5 * m, 123 * m},
		{"a TTL beyond the run", 5 * m, 60 * m, 0, 8 * m, 8 * m},
	} {
		l := budget.Terms{}.Lease(limits(tc.wall, tc.ttl), born, at(tc.wall-tc.started))
		if !l.End.Equal(at(tc.end)) || !l.Absolute.Equal(at(tc.absolute)) || l.TTL() != tc.end || !l.Born.Equal(born) ||
			l.Estimate != min(tc.wall, 15*m) || !l.DecideAt().Equal(at(tc.end-m)) {
			t.Errorf("%s: %+v", tc.name, l)
		}
	}
}

func TestDecide(t *testing.T) {
	const m = time.Minute
	long := budget.Terms{}.Lease(limits(120*m, 0), born, at(120*m)) // ends at 18, decides at 17
	check := func(name string, l budget.Lease, now time.Duration, progress bool, want budget.Decision, end time.Duration) budget.Lease {
		t.Helper()
		got, d := l.Decide(at(now), progress)
		if d != want || !got.End.Equal(at(end)) {
			t.Errorf("%s: %s, end %v; want %s, %v", name, d, got.End.Sub(born), want, end)
		}
		return got
	}
	check("too early", long, 17*m-1, true, budget.Keep, 18*m)
	check("too early", long, 0, false, budget.Keep, 18*m)
	check("stuck", long, 17*m, false, budget.ExpiredNoProgress, 18*m)
	check("stuck, asked late", long, 19*m, false, budget.ExpiredNoProgress, 18*m)
	l := check("progress", long, 17*m, true, budget.Renew, 33*m)
	check("right after", l, 17*m, true, budget.Keep, 33*m)
	for end := 48 * m; end <= 123*m; end += 15 * m {
		l = check("again", l, l.DecideAt().Sub(born), true, budget.Renew, end)
	}
	check("at the absolute end", l, 122*m, true, budget.Final, 123*m)
	check("at the absolute end", l, 122*m, false, budget.Final, 123*m)
	quick := budget.Terms{}.Lease(limits(5*m, 0), born, at(5*m))
	check("never renewed", quick, 7*m, true, budget.Final, 8*m)
}

// A time to live that was set later is what a renewal gives, from then on.
func TestRenewalOfItsOwn(t *testing.T) {
	const m = time.Minute
	long := budget.Terms{}.Lease(limits(120*m, 0), born, at(120*m)) // ends at 18, decides at 17
	for _, c := range []struct{ renewal, now, end time.Duration }{
		{5 * m, 17 * m, 22 * m}, {40 * m, 17 * m, 57 * m}, {5 * m, 17*m + 30*time.Second, 22*m + 30*time.Second},
		{30 * time.Second, 17 * m, 18 * m}, {300 * m, 17 * m, 123 * m},
	} {
		long.Renewal = c.renewal
		next, d := long.Decide(at(c.now), true)
		if d != budget.Renew || !next.End.Equal(at(c.end)) {
			t.Errorf("%+v: %s until %v", c, d, next.End.Sub(born))
		}
		if end := long.Expected(true); end.After(next.End) || end.Before(long.End) {
			t.Errorf("%+v: %v was expected", c, end.Sub(born))
		}
		if kept, d := long.Decide(at(c.now), false); d != budget.ExpiredNoProgress || !kept.End.Equal(long.End) || !long.Expected(false).Equal(long.End) {
			t.Errorf("%+v: without progress %s until %v", c, d, kept.End.Sub(born))
		}
	}
}

func TestShorten(t *testing.T) {
	l := budget.Terms{}.Lease(limits(2*time.Hour, 0), born, at(2*time.Hour))
	for ttl, want := range map[time.Duration]time.Duration{
		5 * time.Minute: 6 * time.Minute, 17 * time.Minute: 18 * time.Minute, 18 * time.Minute: 18 * time.Minute, time.Hour: 18 * time.Minute, -time.Hour: time.Minute,
	} {
		s := l.Shorten(at(time.Minute), ttl)
		if !s.End.Equal(at(want)) || !s.Absolute.Equal(l.Absolute) {
			t.Errorf("shortened by %v: ends %v", ttl, s.End.Sub(born))
		}
	}
}

// Whatever happens, a lease never outlives the run's deadline by more than
// Margin, only ends later by progress, and reaches an end.
func TestLeaseProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		wall := time.Duration(1 + rng.Int64N(int64(5*time.Hour)))
		deadline := at(wall - time.Duration(rng.Int64N(int64(wall))))
		var ttl time.Duration
		if rng.IntN(2) == 0 {
			ttl = budget.SaveBefore + time.Duration(1+rng.Int64N(int64(time.Hour)))
		}
		l := budget.Terms{}.Lease(limits(wall, ttl), born, deadline)
		if rng.IntN(2) == 0 {
			l.Renewal = budget.SaveBefore + time.Duration(1+rng.Int64N(int64(time.Hour)))
		}
		now, renewals := born, 0
		for {
			progress := rng.IntN(4) > 0
			next, d := l.Decide(now, progress)
			if next.End.After(deadline.Add(budget.Margin)) {
				t.Fatalf("outlives the run: %+v", next)
			}
			if next.End.After(l.End) != (d == budget.Renew) || d == budget.Renew && !progress || d == budget.ExpiredNoProgress && progress {
				t.Fatalf("%s with progress %v: %+v to %+v", d, progress, l, next)
			}
			if d == budget.Renew && next.End.Sub(l.End) > max(l.Estimate, l.Renewal) {
				t.Fatalf("renewed by %v", next.End.Sub(l.End))
			}
			if d == budget.Final || d == budget.ExpiredNoProgress {
				break
			}
			if l = next; d == budget.Renew {
				renewals++
			}
			if now = l.DecideAt(); renewals > 10_000 {
				t.Fatal("no end")
			}
		}
	}
}
