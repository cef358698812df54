package sandboxtest

import (
	"context"
	"crypto/rand"
	"errors"
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
	conns   *pipeListener
	serving sync.WaitGroup // the server and its connections

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
	b.conns = &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	b.server = &http.Server{Handler: b.daemon.Handler(), ConnState: func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew: // by Serve itself, before its own end
			b.serving.Add(1)
		case http.StateClosed, http.StateHijacked:
			b.serving.Done()
		}
	}}
	b.serving.Go(func() { _ = b.server.Serve(b.conns) }) // always ErrServerClosed
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

// pipeListener accepts in-process connections.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: ctx.Err()}
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "memory"} }
