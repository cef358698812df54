package egress

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/egress/policy"
)

func attempt(port int) Attempt {
	return Attempt{Proto: policy.TCP, Address: netip.AddrFrom4([4]byte{1, 1, byte(port >> 16), 1}), Port: uint16(port),
		Verdict: verdictDeny, Rule: policy.RuleDefault, Reason: "because"}
}

func total(list []Attempt) (n int) {
	for _, a := range list {
		n += a.Count
	}
	return n
}

// emitted is what a recorder emitted.
type emitted struct {
	mu   sync.Mutex
	list []Attempt
}

func (e *emitted) add(a Attempt) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, a)
}

// get waits until the bubble is idle.
func (e *emitted) get() []Attempt {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

func collect() (*recorder, *emitted) {
	e := &emitted{}
	return newRecorder(e.add), e
}

func TestFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := collect()
		begin := time.Now()
		for range 25 {
			r.add(attempt(80))
			r.add(Attempt{Proto: policy.DNS, Name: "example.com", Verdict: verdictDeny})
			time.Sleep(time.Second)
		}
		r.add(attempt(81))
		single := e.get()
		if len(single) != 20+20+1 {
			t.Fatalf("%d singly, want 20 of each and the other", len(single))
		}
		for _, a := range single {
			if a.Count != 1 || !a.Until.IsZero() || a.Time.Before(begin) {
				t.Errorf("single attempt %+v", a)
			}
		}
		time.Sleep(time.Until(begin.Add(foldWindow)))
		folded := e.get()[len(single):]
		if len(folded) != 2 {
			t.Fatalf("at the minute's end: %+v, want two folded", folded)
		}
		for _, a := range folded {
			if a.Count != 5 || a.Time != begin.Add(20*time.Second) || a.Until != begin.Add(24*time.Second) {
				t.Errorf("folded %+v", a)
			}
		}

		// A new minute begins with the next attempt.
		before := len(e.get())
		time.Sleep(time.Hour)
		for range 22 {
			r.add(attempt(80))
		}
		if n := len(e.get()) - before; n != 20 {
			t.Errorf("%d singly in the second minute, want 20", n)
		}
		r.close()
		last := e.get()[before:]
		if len(last) != 21 || last[20].Count != 2 || last[20].Port != 80 {
			t.Errorf("at close: %+v", last)
		}
		r.add(attempt(80)) // too late, and harmless
	})
}

// Windows that began at different moments end at different moments.
func TestFoldWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := collect()
		defer r.close()
		begin := time.Now()
		for port := range 3 {
			for range 21 {
				r.add(attempt(port))
			}
			time.Sleep(15 * time.Second)
		}
		for port, end := range []time.Duration{60, 75, 90} {
			time.Sleep(time.Until(begin.Add(end*time.Second - 1)))
			if n := total(e.get()); n != 60+port {
				t.Errorf("just before %vs: %d recorded, want %d", int(end), n, 60+port)
			}
			time.Sleep(time.Nanosecond)
			got := e.get()
			if last := got[len(got)-1]; int(last.Port) != port || total(got) != 60+port+1 {
				t.Errorf("at %vs the last is %+v of %d", int(end), last, total(got))
			}
		}
	})
}

func TestFoldFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := collect()
		const flood = 100_000
		for i := range flood {
			r.add(attempt(i))
			if i%100 == 0 {
				synctest.Wait() // as a consumer that keeps up
			}
		}
		r.mu.Lock()
		tracked := len(r.seen)
		r.mu.Unlock()
		if tracked > foldTargets+1 {
			t.Errorf("%d targets are kept, want at most %d", tracked, foldTargets+1)
		}
		time.Sleep(foldWindow)
		got := e.get()
		if n := total(got); n != flood {
			t.Errorf("%d attempts recorded of %d", n, flood)
		}
		last := got[len(got)-1]
		if len(got) != foldTargets+1 || last.Count != flood-foldTargets || last.Address.IsValid() || last.Reason != reasonOverflow {
			t.Errorf("%d records, the last %+v", len(got), last)
		}
		r.close()
	})
}

// A consumer that hangs delays records and loses none.
func TestFoldSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e emitted
		e.mu.Lock() // add hangs
		r := newRecorder(e.add)
		const targets = 100
		for i := range targets {
			for range 20 {
				r.add(attempt(i))
			}
		}
		e.mu.Unlock()
		r.close()
		got := e.get()
		if n := total(got); n != 20*targets {
			t.Errorf("%d attempts recorded of %d", n, 20*targets)
		}
		if len(got) > foldQueue+1+targets {
			t.Errorf("%d records, more than queue and targets", len(got))
		}
	})
}

func TestSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e := collect()
		for range 3 { // what comes after a sync in the same minute is folded again
			for range 100 {
				r.add(attempt(80))
			}
			r.sync()
		}
		list := e.get()
		if got := total(list); got != 300 {
			t.Errorf("%d attempts were emitted before the minute ended, want 300", got)
		}
		if len(list) != foldAfter+3 {
			t.Errorf("%d records, want %d single ones and one for each sync", len(list), foldAfter)
		}
		r.close()
		r.sync() // does not wait for ever
		if got := total(e.get()); got != 300 {
			t.Errorf("%d attempts after closing, want 300", got)
		}
	})
}
