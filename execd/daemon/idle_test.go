package daemon

import (
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func TestIdle(t *testing.T) {
	r, w := pipe(t)
	if !idle(r) {
		t.Error("nothing was written, and it is not idle")
	}
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if idle(r) {
		t.Error("idle though there is something to be read")
	}
	if _, err := r.Read(make([]byte, 1)); err != nil || !idle(r) {
		t.Errorf("it was read, and it is not idle: %v", err)
	}
	w.Close()
	if idle(r) {
		t.Error("idle though its end is there")
	}
	r.Close()
	if !idle(r) || !idle(strings.NewReader("x")) {
		t.Error("of what is closed, or no file, nothing is known")
	}
}

// late is a stream whose reader does not run until another stream was closed.
type late struct {
	*os.File
	other *closing
}

func (l late) Read(p []byte) (int, error) {
	<-l.other.closed
	return l.File.Read(p)
}

type closing struct {
	*os.File
	once   sync.Once
	closed chan struct{}
}

func (c *closing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.File.Close()
}

// over is a process that has ended.
type over struct {
	Process
	stdout, stderr io.ReadCloser
	done           chan struct{}
}

func (o *over) Stdout() io.ReadCloser       { return o.stdout }
func (o *over) Stderr() io.ReadCloser       { return o.stderr }
func (o *over) Done() <-chan struct{}       { return o.done }
func (o *over) Gone() <-chan struct{}       { return o.done }
func (o *over) Exit() Exit                  { return Exit{} }
func (o *over) Signal(syscall.Signal) error { return syscall.ESRCH }

// A stream that is held open from outside is given up, and costs nothing of the
// other, whose reader is late.
func TestHeldOpenLosesNothing(t *testing.T) {
	out, outEnd := pipe(t)
	errs, _ := pipe(t)
	const text = "all that was printed\n"
	if _, err := outEnd.WriteString(text); err != nil {
		t.Fatal(err)
	}
	outEnd.Close()
	held := &closing{File: errs, closed: make(chan struct{})}
	p := &over{stdout: late{out, held}, stderr: held, done: make(chan struct{})}
	close(p.done)
	j := &job{proc: p, stop: make(chan string, 1), finished: make(chan struct{}), stdout: newCapture(1 << 10), stderr: newCapture(1 << 10)}
	stored := false
	j.supervise(func() { stored = true })
	if !stored || j.stdout.bytes != int64(len(text)) || !j.outcome.HeldOpen {
		t.Errorf("%d bytes of %d, held open: %v", j.stdout.bytes, len(text), j.outcome.HeldOpen)
	}
}
