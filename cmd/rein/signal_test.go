package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// The first signal ends the work, which cleans up; the same interrupt may come
// twice, and a second one leaves the work where it is.
func TestSignals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signals []os.Signal
		apart   time.Duration
		forced  bool
	}{
		"none":                {},
		"an interrupt":        {[]os.Signal{syscall.SIGINT}, 0, false},
		"one that came twice": {[]os.Signal{syscall.SIGINT, syscall.SIGINT}, echo, false},
		"two":                 {[]os.Signal{syscall.SIGINT, syscall.SIGINT}, echo + 1, true},
		"others":              {[]os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGTERM}, time.Second, false},
		"another, then one":   {[]os.Signal{syscall.SIGTERM, syscall.SIGINT}, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				signals, done := make(chan os.Signal), make(chan int, 1)
				var sender sync.WaitGroup
				defer sender.Wait()
				sender.Go(func() {
					for _, s := range c.signals {
						signals <- s
						time.Sleep(c.apart)
					}
					done <- 7
				})
				var stderr bytes.Buffer
				code := obey(signals, done, cancel, &stderr)
				if c.forced != (code == exitInterrupted) || !c.forced && code != 7 {
					t.Errorf("exit code %d", code)
				}
				if c.forced != strings.Contains(stderr.String(), "stopped without clean-up") {
					t.Errorf("it says %q", &stderr)
				}
				if err := context.Cause(ctx); errors.Is(err, errInterrupted) != (len(c.signals) > 0) {
					t.Errorf("the work was ended by %v", err)
				}
			})
		})
	}
}
