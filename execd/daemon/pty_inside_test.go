package daemon

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/execd"
)

// closedTerminal is a program whose terminal has been closed.
type closedTerminal struct {
	InteractiveProcess
	done chan struct{}
}

func (p closedTerminal) Done() <-chan struct{} { return p.done }
func (p closedTerminal) Resize(Size) error     { return errors.New("use of closed file") }

// What is asked of a terminal whose program has just ended is no failure: the
// end follows.
func TestTerminalAskedAtItsEnd(t *testing.T) {
	for _, ended := range []bool{false, true} {
		proc := closedTerminal{done: make(chan struct{})}
		if ended {
			close(proc.done)
		}
		c := &ptyConn{p: &pty{proc: proc, ended: make(chan struct{})}, ready: make(chan struct{}, 1)}
		b, err := json.Marshal(execd.TerminalMessage{Type: "resize", Cols: 80, Rows: 25})
		if err != nil {
			t.Fatal(err)
		}
		c.p.conn = c
		if !c.take(t.Context(), true, b) || (len(c.queue) == 0) != ended {
			t.Errorf("ended %v: answered %v", ended, c.queue)
		}
	}
}

func TestTerminalsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		close(ended)
		proc := closedTerminal{}
		var l ptys
		for id, p := range map[string]*pty{
			"never begun": {ended: make(chan struct{})},
			"ended":       {ended: ended, proc: proc},
			"runs":        {ended: make(chan struct{}), proc: proc},
			"attached":    {ended: ended, proc: proc, conn: &ptyConn{}},
		} {
			p.id, p.used = id, time.Now()
			if err := l.add(p); err != nil {
				t.Fatal(err)
			}
		}
		has := func(id string, want bool) {
			t.Helper()
			if _, err := l.get(id); (err == nil) != want {
				t.Errorf("%s: %v", id, err)
			}
		}
		time.Sleep(execd.TerminalIdle)
		has("ended", true) // which is a look at it
		time.Sleep(execd.TerminalIdle)
		has("ended", true)
		has("never begun", false)
		time.Sleep(execd.TerminalIdle + 1)
		has("ended", false)
		has("runs", true)
		has("attached", true)
		for range execd.MaxTerminals - 2 {
			if err := l.add(&pty{id: randomID(), used: time.Now(), ended: ended}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.add(&pty{id: randomID(), ended: ended}); err == nil {
			t.Error("one too many")
		}
		time.Sleep(execd.TerminalIdle + 1)
		if err := l.add(&pty{id: randomID(), used: time.Now(), ended: ended}); err != nil {
			t.Errorf("the old ones keep the room: %v", err)
		}
	})
}

// What is answered to a client that never reads takes no memory without end, and
// leaves room for what it has to know.
func TestTerminalAnswersAreBounded(t *testing.T) {
	c := &ptyConn{ready: make(chan struct{}, 1)}
	for range 100_000 {
		c.take(t.Context(), true, []byte("{"))
	}
	if len(c.queue) > maxAnswers {
		t.Errorf("%d frames wait", len(c.queue))
	}
	c.finish(0)
	if last := c.queue[len(c.queue)-1]; !strings.Contains(string(last.data), `"exit"`) {
		t.Errorf("the last is %s", last.data)
	}
	// Small frames cost what they take.
	c = &ptyConn{ready: make(chan struct{}, 1)}
	for i := range 1000 {
		c.output(i%2, []byte("x"))
	}
	if c.queued() < 1000*frameCost {
		t.Errorf("%d frames are said to take %d bytes", len(c.queue), c.queued())
	}
}
