package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/execd"
)

func TestDeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("told to end")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		r, w := io.Pipe()
		start := time.Now()
		go func() {
			time.Sleep(time.Hour)
			cancel(why)
		}()
		err := deliver(ctx, w, []byte("nobody reads this"))
		if took := time.Since(start); !errors.Is(err, errStuck) || !errors.Is(err, why) || took != time.Hour+patience {
			t.Errorf("given up after %v: %v", took, err)
		}
		r.Close() // which ends the write

		// What only takes its time arrives, ctx or not.
		r, w = io.Pipe()
		got := make(chan []byte)
		go func() {
			time.Sleep(patience / 2)
			b, _ := io.ReadAll(r)
			got <- b
		}()
		if err := deliver(ctx, w, []byte("late")); err != nil {
			t.Error(err)
		}
		w.Close()
		if b := <-got; string(b) != "late" {
			t.Errorf("got %q", b)
		}
		r.CloseWithError(io.ErrClosedPipe)
		if err := deliver(t.Context(), w, []byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("of a closed pipe: %v", err)
		}
	})
}

func TestStartHint(t *testing.T) {
	for message, want := range map[string]bool{
		"no shell at /bin/sh: no such file or directory":                                  true,
		"/x/y cannot be started, and there is no shell: no such file or directory":        true,
		"a command for a terminal has at most 65536 bytes, and this one has more of them": false,
	} {
		e := &execd.Error{Code: execd.CodeStartFailed, Message: message}
		err := fmt.Errorf("terminal: %w", e)
		hint := hintOf(startHint(err, e, "sb-x"))
		if got := strings.Contains(hint, "rein sandbox shell sb-x -- /"); got != want {
			t.Errorf("%q: hint %q", message, hint)
		}
	}
}

// A panic waits, with its stack, until the terminal is as it was.
func TestCaught(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	func() { defer caught(cancel) }()
	if ctx.Err() != nil {
		t.Error("nothing had panicked")
	}
	func() { defer caught(cancel); _ = bytes.Repeat(nil, -1) }()
	p, ok := errors.AsType[*panicked](context.Cause(ctx))
	if !ok || !strings.Contains(p.Error(), "Repeat") || !strings.Contains(p.Error(), "TestCaught") {
		t.Errorf("the cause is %v", context.Cause(ctx))
	}
}
