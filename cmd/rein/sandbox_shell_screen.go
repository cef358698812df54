package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/rein-sh/rein/sandbox"
	"golang.org/x/term"
)

// typist sends what is typed until it is to go on no more, which it says by leave.
type typist func(ctx context.Context, t *sandbox.Terminal, in *keyboard, leave context.CancelCauseFunc)

// onScreen connects the user's terminal with that of the program, whose output is
// written to to, which writes to stdout. Whatever happens, it leaves the user's
// terminal as it was.
func onScreen(ctx context.Context, t *sandbox.Terminal, stdin, stdout *os.File, to io.Writer, again bool, typing typist) (code int, err error) {
	before, err := term.MakeRaw(int(stdin.Fd()))
	if err != nil {
		return 0, fmt.Errorf("the terminal: %w", err)
	}
	var shown screen
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		cancel(nil)
		if !errors.Is(err, errStuck) {
			end := shown.reset()
			if err != nil {
				end += "\r\n" // wherever the cursor was left
			}
			err = errors.Join(err, deliver(ctx, to, []byte(end)))
		}
		discardInput(stdin) // an answer of the terminal's is not for the user's shell
		err = errors.Join(err, term.Restore(int(stdin.Fd()), before))
		if p, ok := errors.AsType[*panicked](context.Cause(ctx)); ok {
			panic(p)
		}
	}()
	in := newKeyboard(stdin)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer in.stop()
	defer cancel(nil)
	tasks.Go(func() { defer caught(cancel); typing(ctx, t, in, cancel) })
	tasks.Go(func() { defer caught(cancel); resizing(ctx, t, stdout, again) })
	for {
		e, err := t.Next(ctx)
		if err != nil {
			return 0, err
		}
		if e.ExitCode != nil {
			return *e.ExitCode, nil
		}
		if err := deliver(ctx, to, shown.filter(e.Data)); err != nil {
			return 0, err
		}
	}
}

// panicked is a panic of a goroutine. It would end the process there and then; it
// goes on once the terminal is as it was.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%v\n%s", p.value, p.stack) }

// caught, deferred, makes a panic the cause of the context's end.
func caught(cancel context.CancelCauseFunc) {
	if r := recover(); r != nil {
		cancel(&panicked{r, debug.Stack()})
	}
}

// Detaching: ctrl-p, and ctrl-q within detachWait.
const (
	detachFirst  = 'p' & 0x1f
	detachSecond = 'q' & 0x1f
	detachWait   = 500 * time.Millisecond
)

// typing sends what is typed until the user detaches.
func typing(ctx context.Context, t *sandbox.Terminal, in *keyboard, detach context.CancelCauseFunc) {
	buf := make([]byte, 16<<10)
	held := false
	for {
		wait := time.Duration(-1)
		if held {
			wait = detachWait
		}
		n, err := in.read(buf, wait)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			if err == io.EOF { // the terminal is gone
				detach(errDetached)
			}
			return
		}
		send, now := detachable(buf[:n], &held)
		if len(send) > 0 && t.Write(ctx, send) != nil {
			return // Next says what became of the connection
		}
		if now {
			detach(errDetached)
			return
		}
	}
}

// detachable returns what of the keys is to be sent, and whether they detach.
// held says that ctrl-p was typed last and is not sent yet; no keys mean that
// the time for ctrl-q is over.
func detachable(keys []byte, held *bool) (send []byte, detach bool) {
	if len(keys) == 0 {
		if *held {
			*held = false
			return []byte{detachFirst}, false
		}
		return nil, false
	}
	for _, k := range keys {
		if *held {
			*held = false
			if k == detachSecond {
				return send, true
			}
			send = append(send, detachFirst)
		}
		if k == detachFirst {
			*held = true
			continue
		}
		send = append(send, k)
	}
	return send, false
}

// resizing tells the program how large the terminal is. For a program that was
// there before, the size is changed and changed back, so that it draws anew.
func resizing(ctx context.Context, t *sandbox.Terminal, stdout *os.File, again bool) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	defer signal.Stop(changed)
	for {
		if cols, rows, err := term.GetSize(int(stdout.Fd())); err == nil && cols > 0 && rows > 0 {
			if again && rows > 1 && t.Resize(ctx, cols, rows-1) != nil {
				return
			}
			again = false
			if t.Resize(ctx, cols, rows) != nil {
				return
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
