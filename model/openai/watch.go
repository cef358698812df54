package openai

import (
	"context"
	"errors"
	"io"
	"time"
)

var (
	errStalled = errors.New("the server was silent for too long")
	errTooLong = errors.New("the response is too long")
)

// watch ends a request whose server is silent too long or says too much.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  time.Duration
	timer  *time.Timer
	left   int64

	body io.ReadCloser
	// broken is set when reading the body failed before its end.
	broken error
}

// newWatch starts the clock. stop must be called.
func newWatch(ctx context.Context, stall time.Duration, most int64) *watch {
	w := &watch{stall: stall, left: most}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(stall, func() { w.cancel(errStalled) })
	return w
}

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// over puts the response's body under watch. The clock runs while the reader
// waits for bytes, not while it works on them.
func (w *watch) over(body io.ReadCloser) io.ReadCloser {
	w.timer.Stop()
	w.body = body
	return w
}

func (w *watch) Read(p []byte) (int, error) {
	if w.left == 0 {
		w.broken = errTooLong
		return 0, errTooLong
	}
	if int64(len(p)) > w.left {
		p = p[:w.left]
	}
	w.timer.Reset(w.stall)
	n, err := w.body.Read(p)
	w.timer.Stop()
	w.left -= int64(n)
	if err != nil && err != io.EOF {
		w.broken = err
	}
	return n, err
}

func (w *watch) Close() error { return w.body.Close() }
