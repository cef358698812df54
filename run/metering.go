package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/price"
)

// Metered is for workers that ask models from inside the sandbox: their requests
// to Target.Spec.Models are counted against the run's limits, each as a step, before
// the gateway lets them through.
type Metered struct {
	// Rate is what a model costs. Where it is not known only tokens are counted, and
	// the report says so.
	Rate func(model string) (price.Price, bool)
	// MaxOutputTokens caps each answer, reasoning included; 0 means
	// DefaultMeteredOutput. A request that asks for less gets less.
	MaxOutputTokens int64
}

// Defaults of Metered.
const (
	DefaultMeteredOutput = 32_768
	// leastOutput is what an answer is capped at in the end: with less left, a
	// request is refused. Ask.Least may be more.
	leastOutput = 1024
)

// ModelUse is what was asked of one model, and refused.
type ModelUse struct {
	Model    string  `json:"model"`
	Host     string  `json:"host"`
	Requests int     `json:"requests"` // that were let through
	Failed   int     `json:"failed,omitempty"`
	Refused  int     `json:"refused,omitempty"`
	Input    int64   `json:"input"`
	Cached   int64   `json:"cached_input,omitempty"`
	Output   int64   `json:"output"`
	CostUSD  float64 `json:"cost_usd,omitempty"`
	// Estimated: some answer came without a count, and was taken for all that was set
	// aside for it.
	Estimated bool `json:"estimated,omitempty"`
}

// meter counts what a sandbox asks of models. It is the inference.Meter of the run.
type meter struct {
	r     *runner
	o     Metered
	round *budget.Round
	stop  context.CancelCauseFunc // ends the work
	// traced begins the span of a request; the function returned ends it.
	traced func(a inference.Ask, output int64) func(inference.Ended)

	deciding sync.Mutex // held while one is set aside, so that open is exact

	mu      sync.Mutex
	step    int
	open    int           // reservations
	moved   chan struct{} // closed when one is settled
	uses    []*ModelUse
	untold  map[string]bool // models whose price is not known, told of
	spent   chan struct{}   // closed at the first refusal for a limit
	refused sync.Once
	over    bool // the work has ended: nothing is asked any more
}

// newMeter makes that of a run, whose span ctx has.
func newMeter(ctx context.Context, r *runner, stop context.CancelCauseFunc) *meter {
	m := &meter{r: r, o: *r.o.Metered, round: r.tree.Round(), stop: stop, moved: make(chan struct{}), untold: map[string]bool{}, spent: make(chan struct{})}
	m.traced = func(a inference.Ask, output int64) func(inference.Ended) { return r.metered(ctx, a, output) }
	if m.o.MaxOutputTokens <= 0 {
		m.o.MaxOutputTokens = DefaultMeteredOutput
	}
	return m
}

// end has the meter grant nothing any more.
func (m *meter) end() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
}

// metering is what the sandbox's requests to models are counted by; nil: by nobody,
// and none passes.
func (r *runner) metering() inference.Meter {
	if r.meter == nil {
		return nil
	}
	return r.meter
}

// Metered is closed when a request of the sandbox to a model was refused for a limit.
// It is nil in a run without Options.Metered.
func (s *Session) Metered() <-chan struct{} {
	if s.r.meter == nil {
		return nil
	}
	return s.r.meter.spent
}

// metered is one request that was let through.
type metered struct {
	ask  inference.Ask
	step int
	cap  int64
	hold *budget.Reservation
	rate *price.Price
}

// modelAsked is the note of audit.KindModelRequest for a request of the sandbox.
type modelAsked struct {
	inference.Ask
	Cap     int64           `json:"output_cap,omitempty"` // that it was sent with
	Held    *Held           `json:"held,omitempty"`
	Refused *inference.Stop `json:"refused,omitempty"`
}

// modelAnswered is that of audit.KindModelReply.
type modelAnswered struct {
	Model string `json:"model"`
	Host  string `json:"host"`
	inference.Ended
	CostUSD float64 `json:"cost_usd,omitempty"`
	// Settled is what was counted where the vendor counted nothing.
	Settled int64 `json:"settled_tokens,omitempty"`
}

// Begin implements inference.Meter. Where what is left is held by requests under
// way, it waits until one of them has ended.
func (m *meter) Begin(ctx context.Context, a inference.Ask) (inference.Grant, func(inference.Ended), error) {
	rate := m.rate(a.Model)
	for {
		q, moved, alone, err := m.try(a, rate)
		if err == nil && q == nil {
			return inference.Grant{Stop: &inference.Stop{Code: inference.StopClosed, Reason: "the work has ended"}}, nil, nil
		}
		if err == nil {
			return m.granted(q)
		}
		if b, ok := errors.AsType[*budget.Breach](err); ok && (alone || b.Needed == 0) {
			return m.refuse(a, b)
		} else if !ok {
			return inference.Grant{}, nil, err
		}
		select {
		case <-ctx.Done():
			return inference.Grant{}, nil, context.Cause(ctx)
		case <-moved:
		}
	}
}

// try sets aside what a request can come to; nil when the work is over. Where that
// is not there: alone says that nothing else was set aside, and moved is closed when
// less is.
func (m *meter) try(a inference.Ask, rate *price.Price) (q *metered, moved <-chan struct{}, alone bool, err error) {
	m.deciding.Lock()
	defer m.deciding.Unlock()
	m.mu.Lock()
	moved, alone = m.moved, m.open == 0
	over := m.over
	m.mu.Unlock()
	if over {
		return nil, nil, false, nil
	}
	if q, err = m.reserve(a, rate); err != nil {
		return nil, moved, alone, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open++
	m.step++
	q.step = m.step
	m.use(a).Requests++
	return q, moved, alone, nil
}

// rate is what a model costs, nil when that is not known.
func (m *meter) rate(model string) *price.Price {
	if m.o.Rate != nil {
		if p, ok := m.o.Rate(model); ok {
			return &p
		}
	}
	m.mu.Lock()
	told := m.untold[model]
	m.untold[model] = true
	m.mu.Unlock()
	if !told {
		m.r.warn("the cost limit is not enforced for %s: what it costs is not known", model)
	}
	return nil
}

// reserve sets aside the most that a request can come to. Where that is more than
// is left, what it is likely to come to at most has to fit, and all that is left is
// set aside for it alone.
func (m *meter) reserve(a inference.Ask, rate *price.Price) (*metered, error) {
	tree, left := m.r.tree, m.r.tree.Left()
	want := m.o.MaxOutputTokens
	if a.Output > 0 {
		want = min(want, a.Output)
	}
	least := max(min(leastOutput, want), a.Least)
	want = max(want, least)
	// The largest cap that fits, or the least.
	fitting := func(input int64) int64 {
		return least + int64(sort.Search(int(want-least), func(i int) bool {
			need := most(rate, input, least+int64(i)+1)
			return need.Tokens > left.Tokens || need.Cost > left.Cost
		}))
	}
	q := &metered{ask: a, rate: rate, cap: fitting(a.Input)}
	hold, err := tree.Reserve(most(rate, a.Input, q.cap))
	if err != nil && a.Likely < a.Input {
		q.cap = fitting(a.Likely)
		need := most(rate, a.Likely, q.cap)
		if need.Tokens > left.Tokens || need.Cost > left.Cost {
			return nil, err
		}
		full := most(rate, a.Input, q.cap)
		hold, err = tree.Reserve(budget.Spent{Tokens: min(full.Tokens, left.Tokens), Cost: min(full.Cost, left.Cost)})
	}
	if err != nil {
		return nil, err
	}
	q.hold = hold
	if err := m.round.Step(); err != nil {
		hold.Release()
		return nil, err
	}
	return q, nil
}

// most is the most that a request can come to.
func most(rate *price.Price, input, output int64) budget.Spent {
	s := budget.Spent{Tokens: input + output}
	if rate != nil {
		s.Cost = budget.USD(rate.Most(input, output))
	}
	return s
}

// granted records a request that may go on.
func (m *meter) granted(q *metered) (inference.Grant, func(inference.Ended), error) {
	held := HeldFor(q.hold)
	if err := m.r.recordAside(audit.KindModelRequest, q.ask.CallID, saidNote{Step: q.step, Note: modelAsked{Ask: q.ask, Cap: q.cap, Held: &held}}); err != nil {
		m.settle(q, inference.Ended{Error: "it could not be recorded"})
		return inference.Grant{}, nil, err
	}
	m.r.emit(Event{Kind: EventStep, Step: q.step})
	var once sync.Once
	traced := m.traced(q.ask, q.cap)
	return inference.Grant{Output: q.cap}, func(e inference.Ended) {
		once.Do(func() {
			m.ended(q, e)
			traced(e)
		})
	}, nil
}

// refuse says which limit keeps a request from going on.
func (m *meter) refuse(a inference.Ask, b *budget.Breach) (inference.Grant, func(inference.Ended), error) {
	stop := &inference.Stop{Code: inference.StopBudget, Reason: strings.TrimPrefix(b.Error(), "stopped by ")}
	m.mu.Lock()
	m.use(a).Refused++
	step := m.step
	m.mu.Unlock()
	(&Session{m.r}).Stopped(b)
	err := m.r.recordAside(audit.KindModelRequest, a.CallID, saidNote{Step: step, Note: modelAsked{Ask: a, Refused: stop}})
	m.refused.Do(func() { close(m.spent) })
	return inference.Grant{Stop: stop}, nil, err
}

// use is the entry of a model. The caller holds mu.
func (m *meter) use(a inference.Ask) *ModelUse {
	i := slices.IndexFunc(m.uses, func(u *ModelUse) bool { return u.Model == a.Model && u.Host == a.Host })
	if i < 0 {
		m.uses = append(m.uses, &ModelUse{Model: a.Model, Host: a.Host})
		i = len(m.uses) - 1
	}
	return m.uses[i]
}

// list is what was asked of each model.
func (m *meter) list() []ModelUse {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []ModelUse
	for _, u := range m.uses {
		out = append(out, *u)
	}
	return out
}

// ended settles and records what became of a request. What was more than could have
// been ends the work.
func (m *meter) ended(q *metered, e inference.Ended) {
	cost, counted, err := m.settle(q, e)
	note := modelAnswered{Model: q.ask.Model, Host: q.ask.Host, Ended: e, CostUSD: cost}
	if !e.Usage.Known {
		note.Settled = counted.Total
	}
	if recorded := m.r.recordAside(audit.KindModelReply, q.ask.CallID, saidNote{Step: q.step, Note: note}); recorded != nil {
		m.stop(recorded)
	}
	if b, ok := errors.AsType[*budget.Breach](err); ok {
		m.stop(b)
	}
	if e.Usage.Known && !e.Cut {
		m.r.asked(q.ask.Turn)
	}
	m.r.emit(Event{Kind: EventModel, Step: q.step, Text: m.answered(q, e, counted)})
}

// answered is one line about a request that has ended.
func (m *meter) answered(q *metered, e inference.Ended, t Tokens) string {
	s := fmt.Sprintf("%s: %d in, %d out", q.ask.Model, t.Input, t.Output)
	if t.Cached > 0 {
		s = fmt.Sprintf("%s: %d in (%d cached), %d out", q.ask.Model, t.Input, t.Cached, t.Output)
	}
	if t.CostUSD > 0 {
		s += fmt.Sprintf(", $%.4f", t.CostUSD)
	}
	switch {
	case e.Status >= 400:
		s += fmt.Sprintf(" (answered %d)", e.Status)
	case e.Cut:
		s += " (cut short)"
	case e.Status == 0:
		s += " (no answer from " + m.server(q.ask.Host)
		if e.Error != "" {
			s += ": " + e.Error
		}
		s += ")"
	}
	return s + fmt.Sprintf(", %s", (time.Duration(e.DurationMS)*time.Millisecond).Round(time.Millisecond))
}

// server is where the requests to a host of models go.
func (m *meter) server(host string) string {
	for _, h := range m.r.o.Target.Spec.Models {
		if h.Name == host && h.Upstream != "" {
			return h.Upstream
		}
	}
	return host
}

// settle counts a request: as the vendor counted, as nothing where it was refused
// or never went out, and else as all that was set aside.
func (m *meter) settle(q *metered, e inference.Ended) (cost float64, t Tokens, err error) {
	t = tokensOf(q, e)
	var usd budget.USD
	switch {
	case e.Usage.Known && q.rate != nil:
		usd = budget.USD(q.rate.Cost(price.Tokens{Input: t.Input, Cached: t.Cached, Written: e.Usage.Written, Output: t.Output}))
	case t.Estimated:
		usd = q.hold.Amount().Cost
	}
	t.CostUSD = usd.Float()
	t.Total = t.Input + t.Output
	m.r.countTokens(t)
	err = q.hold.Settle(budget.Spent{Tokens: t.Total, Cost: usd})
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.use(q.ask)
	u.Input, u.Cached, u.Output, u.CostUSD = u.Input+t.Input, u.Cached+t.Cached, u.Output+t.Output, u.CostUSD+t.CostUSD
	u.Estimated = u.Estimated || t.Estimated
	if e.Status != 200 || e.Cut || e.Error != "" {
		u.Failed++
	}
	m.open--
	close(m.moved)
	m.moved = make(chan struct{})
	return t.CostUSD, t, err
}

// tokensOf is what a request is counted as.
func tokensOf(q *metered, e inference.Ended) Tokens {
	switch {
	case e.Usage.Known:
		return Tokens{Input: e.Usage.Input, Cached: e.Usage.Cached, Output: e.Usage.Output}
	case !e.Sent, e.Status >= 400:
		return Tokens{}
	}
	all := q.hold.Amount().Tokens
	output := min(q.cap, all)
	return Tokens{Input: all - output, Output: output, Estimated: true}
}

// asked tells the renewer of an exchange with a model: one that was not made before
// is progress.
func (r *runner) asked(turn string) {
	r.mu.Lock()
	k := r.renewing
	r.mu.Unlock()
	if k == nil {
		return
	}
	// In letters: that two hashes differ in digits alone must not make them one.
	k.progress.Call("model", []byte(turn), true, []byte(strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return c - '0' + 'g'
		}
		return c
	}, turn)))
}

// modelHosts are the requests that hosts of models take, a line each.
func modelHosts(hosts []inference.Host) (lines []string) {
	for _, h := range hosts {
		for _, c := range h.Calls {
			line := strings.Join(c.Methods, ",") + " https://" + h.Name + c.Path
			if h.Upstream != "" {
				line += ", sent to " + h.Upstream
			}
			lines = append(lines, line)
		}
	}
	return lines
}
