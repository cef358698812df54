package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/run"
)

// progress shows a run as it happens, on stderr. Everywhere it prints one line
// for each thing that ended; on a terminal it keeps a status line beneath them.
// What is happening is told by the events, so it holds no state of the run but
// what the status line shows.
type progress struct {
	app   *app
	begun time.Time

	mu      sync.Mutex
	step    int
	calls   int
	tokens  int64
	doing   string
	last    string // the last call, and how it ended
	drawn   bool   // a status line is on the screen
	stopped bool
	paused  int               // questions on the screen
	title   func(text string) // of the terminal that an agent has; nil: none has

	stop chan struct{}
	done chan struct{}
}

// statusEvery is how often the status line's clock moves.
const statusEvery = time.Second

// newProgress begins to show a run. The caller must call end.
func (a *app) newProgress() *progress {
	p := &progress{app: a, begun: time.Now(), doing: "starting", stop: make(chan struct{}), done: make(chan struct{})}
	if !a.err.terminal {
		close(p.done)
		return p
	}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(statusEvery)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
				p.mu.Lock()
				p.draw()
				p.mu.Unlock()
			}
		}
	}()
	return p
}

// end removes the status line; nothing is shown after it.
func (p *progress) end() {
	close(p.stop)
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	p.stopped = true
}

// event shows one event. It is run.Options.Events.
func (p *progress) event(e run.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	if e.Step > 0 {
		p.step = e.Step
	}
	if e.Tokens > 0 {
		p.tokens = e.Tokens
	}
	if p.title != nil && e.Kind == run.EventModel {
		p.title(spentText(p.step, p.tokens, e.CostUSD))
	}
	line, st := p.line(e)
	if p.title != nil { // the screen is the agent's
		return
	}
	if line != "" {
		p.erase()
		fmt.Fprintln(p.app.err, p.app.style(line, st))
	}
	p.draw()
}

// line updates the status and returns what to print of an event, if anything.
func (p *progress) line(e run.Event) (string, style) {
	text := cleanLine(e.Text)
	switch e.Kind {
	case run.EventStep:
		p.doing = "asking the model"
	case run.EventText, run.EventReason:
		p.doing = "the model writes"
	case run.EventCall:
		if e.Call != nil {
			p.calls++
			p.doing = short(e.Call.Tool+" "+e.Call.Summary, 60)
		}
	case run.EventOutput:
		if e.Call != nil {
			p.doing = short(e.Call.Tool, 40) + ", " + bytesText(e.Call.Bytes)
		}
	case run.EventResult:
		return p.result(e)
	case run.EventWarning:
		return "warning: " + text, styleHint
	case run.EventBrake:
		p.doing = "stopping"
		return "limit: " + text, styleError
	case run.EventWait:
		p.doing = "waiting"
		return fmt.Sprintf("%-8s %s", "waiting", text), styleHint
	case run.EventEnd: // said after the report
	default:
		if text == "" {
			return "", stylePlain
		}
		p.doing = short(string(e.Kind)+": "+text, 60)
		return fmt.Sprintf("%-8s %s", e.Kind, text), stylePlain
	}
	return "", stylePlain
}

// result is the line of a call that has ended.
func (p *progress) result(e run.Event) (string, style) {
	c := e.Call
	if c == nil {
		return "", stylePlain
	}
	st, how := styleGood, "ok"
	switch {
	case c.Timeout:
		st, how = styleError, "timeout"
	case c.Code != "":
		st, how = styleError, cleanLine(c.Code)
	case c.ExitCode != nil && !c.OK:
		st, how = styleError, fmt.Sprintf("exit %d", *c.ExitCode)
	case !c.OK:
		st, how = styleError, "failed"
	}
	p.doing = "thinking"
	p.last = short(c.Tool, 24) + " " + how
	took := time.Duration(c.DurationMS) * time.Millisecond
	when := fmt.Sprintf("step %d", e.Step)
	if e.Step == 0 { // it is no step of rein's
		when = "ended"
	}
	return fmt.Sprintf("%-8s %s (%s, %s, %s)", when, short(c.Tool+" "+c.Summary, 100), how, took, bytesText(c.Bytes)), st
}

// draw puts the status line on the screen. The lock is held.
func (p *progress) draw() {
	if !p.app.err.terminal || p.stopped || p.paused > 0 {
		return
	}
	parts := []string{fmt.Sprintf("step %d", p.step), fmt.Sprintf("%d calls", p.calls), countText(p.tokens) + " tokens",
		config.Duration(time.Since(p.begun).Round(time.Second)).String(), p.doing}
	if p.last != "" {
		parts = append(parts, "last: "+p.last)
	}
	line := strings.Join(parts, " · ")
	if width := p.app.err.width; width > 1 && utf8.RuneCountInString(line) >= width {
		line = short(line, width-1)
	}
	fmt.Fprint(p.app.err, "\r\x1b[K"+p.app.style(line, styleDim))
	p.drawn = true
}

// erase takes the status line off the screen. The lock is held.
func (p *progress) erase() {
	if p.drawn {
		fmt.Fprint(p.app.err, "\r\x1b[K")
		p.drawn = false
	}
}

// pause takes the status line off the screen until resume is called.
func (p *progress) pause() (resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	p.paused++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.paused--
		p.draw()
	}
}

// bytesText is a number of bytes for people.
func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// countText is a number for people.
func countText(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprint(n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprintf("%.2fM", float64(n)/1e6)
}
