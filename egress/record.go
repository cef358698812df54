package egress

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rein-sh/rein/egress/policy"
)

const (
	foldWindow  = time.Minute
	foldAfter   = 20  // identical attempts of a window that are emitted singly
	foldTargets = 256 // different targets of a window that are told apart
	foldQueue   = 256 // attempts waiting for Options.Record

	reasonOverflow = "more targets in a minute than are told apart; these are counted together"
)

// foldKey is what makes attempts identical.
type foldKey struct {
	proto        policy.Proto
	name         string
	to           netip.AddrPort
	verdict      string
	rule, reason string
	generation   uint64
}

// tally counts one target's attempts in its window.
type tally struct {
	start   time.Time
	emitted int
	folded  Attempt // Count is 0 while nothing is
}

// recorder hands attempts to Options.Record one after the other and folds what
// comes too often, too fast or too varied. Its memory is bounded: foldTargets
// tallies, one more for each protocol, and foldQueue attempts.
type recorder struct {
	emit  func(Attempt)
	queue chan Attempt
	ask   chan chan struct{} // to be closed when what is counted has been emitted
	stop  chan struct{}
	done  chan struct{}

	timer *time.Timer // fires when the oldest window ends

	mu     sync.Mutex
	closed bool
	sealed bool
	last   Attempt // what came after seal; Count is 0 while nothing did
	seen   map[foldKey]*tally
}

func newRecorder(emit func(Attempt)) *recorder {
	r := &recorder{emit: emit, queue: make(chan Attempt, foldQueue),
		ask: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
		timer: time.NewTimer(foldWindow), seen: map[foldKey]*tally{}}
	go r.run()
	return r
}

// add never waits. What is added after close is lost.
func (r *recorder) add(a Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if a.Time.IsZero() {
		a.Time = time.Now()
	}
	a.Count = 1
	if r.sealed {
		r.unkept(a)
		return
	}
	if a.Verdict != verdictDeny {
		select {
		case r.queue <- a: // never folded while there is room
			return
		default:
		}
	}
	t, overflow := r.tally(a)
	if !overflow && t.emitted < foldAfter {
		select {
		case r.queue <- a:
			t.emitted++
			return
		default: // Record is slow: count it
		}
	}
	if overflow {
		a.Name, a.Address, a.Port, a.Reason = "", netip.Addr{}, 0, reasonOverflow
	}
	if t.folded.Count == 0 {
		t.folded = a
		return
	}
	t.folded.merge(a)
}

// merge counts b in a.
func (a *Attempt) merge(b Attempt) {
	a.Count++
	a.Until = b.Time
	a.BytesOut += b.BytesOut
	a.BytesIn += b.BytesIn
	a.Duration += b.Duration
	a.LocalPort = 0
	if a.Owner != b.Owner {
		a.Owner = ""
	}
}

// seal ends the keeping of records: what comes is counted in one attempt,
// which close emits.
func (r *recorder) seal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealed = true
}

// unkept counts an attempt that comes after seal.
func (r *recorder) unkept(a Attempt) {
	if r.last.Count == 0 {
		r.last = Attempt{Time: a.Time, Count: 1, Proto: policy.Other, Verdict: verdictDeny, Rule: ruleSealed, Reason: reasonSealed,
			BytesOut: a.BytesOut, BytesIn: a.BytesIn}
		return
	}
	r.last.merge(a)
}

// tally returns where a is counted, and whether that is not a's own place.
func (r *recorder) tally(a Attempt) (t *tally, overflow bool) {
	k := foldKey{a.Proto, a.Name, netip.AddrPortFrom(a.Address, a.Port), a.Verdict, a.Rule, a.Reason, a.Generation}
	if t := r.seen[k]; t != nil {
		return t, false
	}
	// Protocols and verdicts are few, so that this stays near foldTargets.
	if len(r.seen) >= foldTargets {
		k, overflow = foldKey{proto: a.Proto, verdict: a.Verdict, reason: reasonOverflow}, true
	}
	if t = r.seen[k]; t == nil {
		if len(r.seen) == 0 {
			r.timer.Reset(foldWindow)
		}
		t = &tally{start: a.Time}
		r.seen[k] = t
	}
	return t, overflow
}

// run emits queued attempts, and folded ones when their window ends.
func (r *recorder) run() {
	defer close(r.done)
	defer r.timer.Stop()
	for {
		select {
		case a := <-r.queue:
			r.emit(a)
		case <-r.timer.C:
			r.flush(false)
		case flushed := <-r.ask:
			r.emitCounted()
			close(flushed)
		case <-r.stop:
			r.flush(true)
			return
		}
	}
}

// flush emits what is queued, and then what was folded in the windows that
// have ended, or in all.
func (r *recorder) flush(all bool) {
	var folded []Attempt
	r.mu.Lock()
	now := time.Now()
	next := foldWindow
	for k, t := range r.seen {
		if left := foldWindow - now.Sub(t.start); left > 0 && !all {
			next = min(next, left)
			continue
		}
		delete(r.seen, k)
		if t.folded.Count > 0 {
			folded = append(folded, t.folded)
		}
	}
	if len(r.seen) > 0 {
		r.timer.Reset(next)
	}
	r.mu.Unlock()
	r.emitAll(folded)
}

// emitAll emits what is queued, and then folded, in order of time.
func (r *recorder) emitAll(folded []Attempt) {
	for len(r.queue) > 0 { // this goroutine is the only reader
		r.emit(<-r.queue)
	}
	slices.SortFunc(folded, func(a, b Attempt) int { return a.Time.Compare(b.Time) })
	for _, a := range folded {
		r.emit(a)
	}
}

// emitCounted emits what is queued and what was folded so far, and leaves the
// windows as they are: more of the same in them is folded again.
func (r *recorder) emitCounted() {
	var folded []Attempt
	r.mu.Lock()
	for _, t := range r.seen {
		if t.folded.Count > 0 {
			folded = append(folded, t.folded)
			t.folded = Attempt{}
		}
	}
	r.mu.Unlock()
	r.emitAll(folded)
}

// sync returns when everything added before it has been emitted.
func (r *recorder) sync() {
	flushed := make(chan struct{})
	select {
	case r.ask <- flushed:
		<-flushed
	case <-r.done: // closing emitted it
	}
}

// close emits everything that was added and returns after the last emission.
func (r *recorder) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	close(r.stop)
	<-r.done
	if r.last.Count > 0 {
		r.emit(r.last)
	}
}
