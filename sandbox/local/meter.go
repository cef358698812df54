package local

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/rein-sh/rein/egress/inference"
)

// The meter is the owner's, and the gateway is the keeper's: what a request to a
// model may come to is asked for, and what it came to is told, in lines of the
// protocol of owners (attachProtocol).
//
//	{"id":7,"begin":{…}}  may it go on        {"id":7,"grant":{…}}, or {"id":7,"failed":true}
//	{"id":7,"end":{…}}    what became of it
//
// Each begin is answered once, also when it has ended meanwhile. An end follows
// the answer that granted, or is for a begin that nobody waits for any more.
const (
	// maxBegins is how many begins may wait for an answer at one owner; more wait
	// for their turn.
	maxBegins = 64
	// maxMetered is how many requests may be begun and not ended at one owner.
	maxMetered = 4096
)

var (
	errNoMeter     = errors.New("no owner keeps the budget")
	errMeterGone   = errors.New("the owner that keeps the budget has gone")
	errMeterFailed = errors.New("the owner could not say whether the budget allows it")
)

var _ inference.Meter = (*owners)(nil)

// Begin asks the first owner that has a meter.
func (s *owners) Begin(ctx context.Context, ask inference.Ask) (g inference.Grant, end func(inference.Ended), err error) {
	o, id := s.first(func(o *owner) bool { return o.meters })
	if o == nil {
		return g, nil, errNoMeter
	}
	select {
	case o.begins <- struct{}{}:
	case <-o.gone:
		return g, nil, errMeterGone
	case <-ctx.Done():
		return g, nil, ctx.Err()
	}
	said, err := o.begin(id, ask)
	if err != nil {
		return g, nil, err
	}
	select {
	case a := <-said:
		switch {
		case a.Failed:
			return g, nil, errMeterFailed
		case a.Grant.Stop != nil:
			return *a.Grant, nil, nil
		}
		var once sync.Once
		return *a.Grant, func(e inference.Ended) { once.Do(func() { o.tell(attachAsk{ID: id, End: &e}) }) }, nil
	case <-o.gone:
		return g, nil, errMeterGone
	case <-ctx.Done(): // the answer that comes yet is read, and forgotten
		o.tell(attachAsk{ID: id, End: &inference.Ended{}})
		return g, nil, ctx.Err()
	}
}

// first is the first owner that is right, and a number for what it is asked.
func (s *owners) first(right func(*owner) bool) (*owner, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.live, right)
	if i < 0 {
		return nil, 0
	}
	s.lastID++
	return s.live[i], s.lastID
}

// begin asks, for one of begins, which the answer gives back.
func (o *owner) begin(id uint64, ask inference.Ask) (<-chan attachAnswer, error) {
	said := make(chan attachAnswer, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun[id] = said
	if !o.write(attachAsk{ID: id, Begin: &ask}) {
		delete(o.begun, id)
		<-o.begins
		return nil, errMeterGone
	}
	return said, nil
}

// tell says what needs no answer.
func (o *owner) tell(q attachAsk) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write(q) // who has gone has been told that it was cut
}

// granted passes the answer to a begin on. The caller holds o.mu.
func (o *owner) granted(a attachAnswer) bool {
	said := o.begun[a.ID]
	if said == nil || (a.Grant != nil) == a.Failed || a.Answer != "" {
		return false
	}
	if g := a.Grant; g != nil && g.Stop == nil && g.Output < 1 {
		return false
	}
	delete(o.begun, a.ID)
	<-o.begins
	said <- a
	return true
}

// metering is the owner's side: the requests that are begun.
type metering struct {
	o     *ownership
	meter inference.Meter
	lines chan attachAsk // of the meter, in order

	begins sync.WaitGroup
	mu     sync.Mutex
	asked  int // begins under way
	begun  map[uint64]*begunRequest
}

// begunRequest is one request that was asked for.
type begunRequest struct {
	cancel context.CancelFunc
	end    func(inference.Ended) // nil until it was granted
	ended  *inference.Ended      // before it was
}

func newMetering(o *ownership, m inference.Meter) *metering {
	return &metering{o: o, meter: m, lines: make(chan attachAsk, maxBegins), begun: map[uint64]*begunRequest{}}
}

// take has a line of the meter handled after those before it.
func (m *metering) take(q attachAsk) bool {
	if m.meter == nil || !sensible(q) {
		return false
	}
	select {
	case m.lines <- q:
		return true
	case <-m.o.ctx.Done():
		return false
	}
}

// sensible reports whether a line has numbers that can be.
func sensible(q attachAsk) bool {
	if a := q.Begin; a != nil {
		return q.End == nil && min(a.Input, a.Likely, a.Output, a.Least) >= 0
	}
	u := q.End.Usage
	return min(u.Input, u.Cached, u.Written, u.Output, u.Reasoning, q.End.DurationMS) >= 0
}

// serve handles lines until there are no more, and then ends what is left. What
// has ended is told to the meter before anything that came later is begun.
func (m *metering) serve() {
	for q := range m.lines {
		if q.Begin != nil && !m.begin(q.ID, *q.Begin) || q.End != nil && !m.end(q.ID, *q.End) {
			m.o.conn.Close() // the keeper says what it must not
			break
		}
	}
	m.o.cancel()
	for range m.lines { // what was said is said no more
	}
	m.begins.Wait()
	for _, r := range m.begun { // nobody else has them now
		r.end(inference.Ended{Sent: true, Cut: true, Error: "the gateway has gone"})
	}
}

func (m *metering) begin(id uint64, ask inference.Ask) bool {
	ctx, cancel := context.WithCancel(m.o.ctx)
	r := &begunRequest{cancel: cancel}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.begun[id] != nil || m.asked >= maxBegins || len(m.begun) >= maxMetered {
		cancel()
		return false
	}
	m.begun[id] = r
	m.asked++
	m.begins.Go(func() {
		defer cancel()
		g, end, err := m.meter.Begin(ctx, ask)
		m.o.answer(m.granted(id, r, g, end, err))
	})
	return true
}

// granted is what the keeper is answered.
func (m *metering) granted(id uint64, r *begunRequest, g inference.Grant, end func(inference.Ended), err error) attachAnswer {
	m.mu.Lock()
	m.asked--
	a := attachAnswer{ID: id, Grant: &g}
	early := r.ended
	switch {
	case err != nil:
		a.Grant, a.Failed = nil, true
		delete(m.begun, id)
	case g.Stop != nil || early != nil:
		delete(m.begun, id)
	default:
		r.end = end
	}
	m.mu.Unlock()
	if err == nil && g.Stop == nil && early != nil {
		end(*early)
	}
	return a
}

func (m *metering) end(id uint64, e inference.Ended) bool {
	m.mu.Lock()
	r := m.begun[id]
	if r == nil { // or one that was refused, and whose end has crossed that
		m.mu.Unlock()
		return true
	}
	if r.end == nil {
		again := r.ended != nil
		r.ended = &e
		r.cancel()
		m.mu.Unlock()
		return !again
	}
	delete(m.begun, id)
	m.mu.Unlock()
	r.end(e)
	return true
}
