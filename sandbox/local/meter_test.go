package local

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
)

// counting is a Meter that answers by the model's name, and notes what it is told.
type counting struct {
	begun chan string // of slow ones

	mu   sync.Mutex
	told []string
	ends []inference.Ended
	over chan struct{} // holds one for each end
}

func newCounting() *counting {
	return &counting{begun: make(chan string, 8), over: make(chan struct{}, 64)}
}

func (c *counting) Begin(ctx context.Context, a inference.Ask) (inference.Grant, func(inference.Ended), error) {
	c.mu.Lock()
	c.told = append(c.told, "begin "+a.Model)
	c.mu.Unlock()
	switch a.Model {
	case "stop":
		return inference.Grant{Stop: &inference.Stop{Code: inference.StopBudget, Reason: "spent"}}, nil, nil
	case "fail":
		return inference.Grant{}, nil, errors.New("it cannot say")
	case "slow":
		c.begun <- a.Model
		<-ctx.Done()
	}
	return inference.Grant{Output: 7}, func(e inference.Ended) {
		c.mu.Lock()
		c.told, c.ends = append(c.told, "end "+a.Model), append(c.ends, e)
		c.mu.Unlock()
		c.over <- struct{}{}
	}, nil
}

func (c *counting) said() ([]string, []inference.Ended) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.told), slices.Clone(c.ends)
}

// metered are owners of which one keeps the budget.
func meteredBy(t *testing.T, c *counting) (s *owners, leave func(), cut *int) {
	t.Helper()
	var n network
	cut = new(int)
	s = &owners{open: n.open, cut: func() { *cut++ }}
	_, leave = joinedAs(t, s, sandbox.Owner{Meter: c, Ask: func(context.Context, sandbox.Question) policy.Answer { return policy.Granted }})
	return s, leave, cut
}

func TestMeterIsAsked(t *testing.T) {
	defer goleak.VerifyNone(t)
	c := newCounting()
	s, leave, cut := meteredBy(t, c)
	if g, end, err := s.Begin(t.Context(), inference.Ask{Model: "stop"}); err != nil || g.Stop == nil || g.Stop.Reason != "spent" || end != nil {
		t.Errorf("a stop became %+v, %v", g, err)
	}
	if _, _, err := s.Begin(t.Context(), inference.Ask{Model: "fail"}); !errors.Is(err, errMeterFailed) {
		t.Errorf("a failure became %v", err)
	}
	want := inference.Ended{Usage: inference.Usage{Known: true, Input: 5, Output: 3}, Status: 200, Sent: true, DurationMS: 9}
	for range 20 { // what has ended is told before what begins next
		g, end, err := s.Begin(t.Context(), inference.Ask{Model: "go"})
		if err != nil || g.Output != 7 {
			t.Fatalf("%+v, %v", g, err)
		}
		end(want)
		end(want) // once
	}
	leave()
	told, ends := c.said()
	for i := 2; i < len(told); i += 2 {
		if !slices.Equal(told[i:i+2], []string{"begin go", "end go"}) {
			t.Fatalf("the meter was told %v", told)
		}
	}
	if len(ends) != 20 || ends[0] != want {
		t.Errorf("%d ends: %+v", len(ends), ends)
	}
	if *cut != 1 {
		t.Errorf("what was under way was cut %d times", *cut)
	}
	if _, _, err := s.Begin(t.Context(), inference.Ask{}); !errors.Is(err, errNoMeter) {
		t.Errorf("nobody said %v", err)
	}
}

// A begin that takes long holds up neither questions nor others, and ends with who
// has asked, whose end is told.
func TestMeterIsSlow(t *testing.T) {
	defer goleak.VerifyNone(t)
	c := newCounting()
	s, leave, _ := meteredBy(t, c)
	defer leave()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, _, err := s.Begin(ctx, inference.Ask{Model: "slow"})
		failed <- err
	}()
	<-c.begun
	if a := s.ask(t.Context(), sandbox.Question{Name: "a.test"}); a != policy.Granted {
		t.Errorf("a question beside it is answered %q", a)
	}
	if _, end, err := s.Begin(t.Context(), inference.Ask{Model: "go"}); err != nil {
		t.Error(err)
	} else {
		end(inference.Ended{Sent: true})
		<-c.over
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("it came to %v", err)
	}
	<-c.over
	if told, ends := c.said(); len(ends) != 2 || ends[1] != (inference.Ended{}) {
		t.Errorf("%v: %+v", told, ends)
	}
}

// When the connection ends, what was begun ends with it on both sides.
func TestMeterGoes(t *testing.T) {
	defer goleak.VerifyNone(t)
	c := newCounting()
	s, leave, _ := meteredBy(t, c)
	if _, _, err := s.Begin(t.Context(), inference.Ask{Model: "go"}); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, _, err := s.Begin(t.Context(), inference.Ask{Model: "slow"})
		failed <- err
	}()
	<-c.begun
	leave()
	if err := <-failed; err == nil {
		t.Error("what waited for an answer was granted")
	}
	_, ends := c.said()
	for _, e := range ends {
		if !e.Cut || !e.Sent {
			t.Errorf("an end is %+v", e)
		}
	}
	if len(ends) < 1 || len(ends) > 2 {
		t.Errorf("%d ends", len(ends))
	}
}

// Lines that cannot be end the connection, from either side.
func TestMeterSaysNonsense(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, line := range map[string]string{
		"a grant of nothing asked": `{"id":7,"grant":{"output":1}}`, "both": `{"id":1,"grant":{"output":1},"failed":true}`, "an answer to a begin": `{"id":1,"answer":"granted"}`,
		"a grant of no tokens": `{"id":1,"grant":{}}`,
	} {
		t.Run("owner "+name, func(t *testing.T) {
			var n network
			s := &owners{open: n.open}
			end, leave := joinedAs(t, s, sandbox.Owner{Meter: newSilent()})
			failed := make(chan error, 1)
			go func() {
				_, _, err := s.Begin(t.Context(), inference.Ask{Model: "go"})
				failed <- err
			}()
			<-end.metering.meter.(silent).asked
			_, _ = io.WriteString(end.conn, line+"\n") // cut when the other end has had enough
			if err := <-failed; err == nil {
				t.Error("it was granted")
			}
			leave()
		})
	}
	for name, line := range map[string]string{
		"nothing": `{"id":1}`, "two things": `{"id":1,"begin":{},"question":{}}`, "less than none": `{"id":1,"begin":{"input":-1}}`, "twice": `{"id":1,"begin":{}}` + "\n" + `{"id":1,"begin":{}}`,
		"an end of less than nothing": `{"id":1,"end":{"usage":{"known":true,"input":-5},"sent":true,"duration_ms":0}}`,
	} {
		t.Run("keeper "+name, func(t *testing.T) {
			var n network
			s := &owners{open: n.open}
			end, leave := joinedAs(t, s, sandbox.Owner{Meter: newSilent()})
			s.mu.Lock()
			o := s.live[0]
			s.mu.Unlock()
			_, _ = io.WriteString(o.conn, line+"\n") // cut when the other end has had enough
			<-end.ctx.Done()
			leave()
		})
	}
}

// silent is a Meter that does not answer.
type silent struct{ asked chan struct{} }

func newSilent() silent { return silent{make(chan struct{}, 8)} }

func (s silent) Begin(ctx context.Context, _ inference.Ask) (inference.Grant, func(inference.Ended), error) {
	s.asked <- struct{}{}
	<-ctx.Done()
	return inference.Grant{}, nil, ctx.Err()
}
