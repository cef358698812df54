package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/wrap"
	"golang.org/x/term"
)

// hasScreen reports whether a program can be typed to and seen here.
func (a *app) hasScreen() bool {
	stdin, ok := a.in.(*os.File)
	return a.out.terminal && ok && term.IsTerminal(int(stdin.Fd()))
}

// agentAccess is how the terminal of an agent is recorded.
var agentAccess = sandbox.Access{Tool: "wrap"}

// agentTerminal runs an agent in a terminal of the sandbox that is connected with
// the user's, filtered as "rein sandbox shell" does. The run's progress is not
// shown meanwhile.
func (a *app) agentTerminal(ctx context.Context, sb *sandbox.Sandbox, o sandbox.TerminalOptions) (int, error) {
	defer a.shown.pause()()
	stdin, _ := a.in.(*os.File)
	out, _ := a.out.Writer.(*os.File)
	screen := &titled{w: out}
	defer a.shown.entitle(screen.title)()
	id, err := sb.OpenTerminal(ctx, o, agentAccess)
	if err != nil {
		return 0, err
	}
	at := execd.AttachOptions{Takeover: true}
	if cols, rows, err := term.GetSize(int(out.Fd())); err == nil {
		at.Cols, at.Rows = cols, rows
	}
	t, err := sb.AttachTerminal(ctx, id, at, agentAccess)
	if err != nil {
		_ = closeTerminal(ctx, sb, id) // nothing has run in it
		return 0, err
	}
	over := false
	code, err := onScreen(ctx, t, stdin, out, screen, false, func(ctx context.Context, t *sandbox.Terminal, in *keyboard, leave context.CancelCauseFunc) {
		over = typingAgent(ctx, t, in)
		if over {
			leave(wrap.ErrEnded)
		}
	})
	err = errors.Join(err, t.Close())
	if closed := closeTerminal(ctx, sb, id); err == nil {
		err = closed
	}
	if over {
		return code, wrap.ErrEnded
	}
	if err == nil && code < 0 {
		err = errors.New("the agent has ended, and the sandbox does not know how")
	}
	return code, err
}

// Ctrl-C twice within twice ends the run; the first is the agent's.
const (
	ctrlC = 'c' & 0x1f
	twice = 2 * time.Second
)

// typingAgent sends what is typed, and reports whether the user has typed ctrl-c
// twice.
func typingAgent(ctx context.Context, t *sandbox.Terminal, in *keyboard) bool {
	buf := make([]byte, 16<<10)
	var last time.Time
	for {
		n, err := in.read(buf, -1)
		if n > 0 && t.Write(ctx, buf[:n]) != nil {
			return false // Next says what became of the connection
		}
		if err != nil {
			return false
		}
		for range bytes.Count(buf[:n], []byte{ctrlC}) {
			now := time.Now()
			if now.Sub(last) < twice {
				return true
			}
			last = now
		}
	}
}

// titled is a screen whose title is rein's: what has been spent. Whole sequences are
// written to it, so that the title comes between them.
type titled struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *titled) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// title sets the terminal's title. A screen that takes nothing just now keeps the one
// it has: the run does not wait for it.
func (s *titled) title(text string) {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.w, "\x1b]2;"+cleanLine(text)+"\a") // what the agent writes next says whether it is gone
}

// spentText is what a title says of a run.
func spentText(step int, tokens int64, cost float64) string {
	text := fmt.Sprintf("rein: step %d, %s tokens", step, countText(tokens))
	if cost > 0 { // else it is free, or nobody knows
		text += fmt.Sprintf(", $%.4f", cost)
	}
	return text
}

// entitle has the title of a terminal say how far the run is, and nothing be printed
// on it, until the result is called.
func (p *progress) entitle(title func(string)) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.title = title
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.title("")
		p.title = nil
	}
}
