package sandboxtest

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rein-sh/rein/execd/daemon"
	"github.com/rein-sh/rein/sandbox"
)

// box is one sandbox of Memory.
type box struct {
	info  sandbox.Info // guarded by Memory.mu
	stop  func() bool  // the timer of its end; guarded by Memory.mu
	token string

	dir     string
	files   *files
	daemon  *daemon.Server
	server  *http.Server
	serving sync.WaitGroup // connections

	halted, ended once
	endErr        error
}

func newBox(parent string, clock Clock, info sandbox.Info, env map[string]string) (_ *box, err error) {
	b := &box{info: info, token: rand.Text(), halted: newOnce(), ended: newOnce()}
	if b.dir, err = os.MkdirTemp(parent, "rein-memory-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(b.dir))
		}
	}()
	for _, d := range []string{info.Cwd, "/tmp", "/home/user"} {
		if err := os.MkdirAll(filepath.Join(b.dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenRoot(b.dir)
	if err != nil {
		return nil, err
	}
	b.files = &files{root: root}
	b.daemon, err = daemon.New(daemon.Config{
		Token: b.token, Machine: newMachine(b.files, clock), Root: b.dir,
		Home: "/home/user", Cwd: info.Cwd, Env: env, Version: "memory",
	})
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	b.server = &http.Server{Handler: b.daemon.Handler(), ConnState: func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew: // by Serve itself, before its own end
			b.serving.Add(1)
		case http.StateClosed, http.StateHijacked:
			b.serving.Done()
		}
	}}
	return b, nil
}

// once is a sync.Once whose waiters wait on a channel, which lets the simulated
// time of a testing/synctest bubble go on.
type once struct {
	begun *atomic.Bool
	over  chan struct{}
}

func newOnce() once { return once{new(atomic.Bool), make(chan struct{})} }

// Do calls f the first time, and returns when that has returned.
func (o once) Do(f func()) {
	if !o.begun.CompareAndSwap(false, true) {
		<-o.over
		return
	}
	defer close(o.over)
	f()
}

// halt ends everything that runs in the sandbox and its connections.
func (b *box) halt() {
	b.halted.Do(func() {
		b.endErr = errors.Join(b.server.Close(), b.daemon.Close())
	})
}

// end leaves nothing of the sandbox.
func (b *box) end() error {
	b.halt()
	b.ended.Do(func() {
		b.serving.Wait()
		b.endErr = errors.Join(b.endErr, b.files.root.Close(), os.RemoveAll(b.dir))
	})
	return b.endErr
}

// dial connects to the sandbox's server. Nobody waits for connections: each is
// brought to the server, and a thousand idle sandboxes have no goroutine.
func (b *box) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	if ctx.Err() != nil {
		refused.Err = ctx.Err()
		return nil, refused
	}
	ours, theirs := net.Pipe()
	if err := b.server.Serve(&single{theirs}); errors.Is(err, http.ErrServerClosed) {
		theirs.Close() // which does not fail
		return nil, refused
	}
	return ours, nil
}

// single is a listener that accepts one connection.
type single struct{ conn net.Conn }

func (l *single) Accept() (net.Conn, error) {
	if l.conn == nil {
		return nil, io.EOF
	}
	c := l.conn
	l.conn = nil
	return c, nil
}

func (*single) Close() error   { return nil }
func (*single) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "memory"} }
