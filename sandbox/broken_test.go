package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// brittle is a provider of which the connection that carries the next command
// breaks, or falls silent, after so many bytes in both directions.
type brittle struct {
	sandbox.Provider
	mu     sync.Mutex
	armed  bool
	chosen *brittleConn // that carries the command
	left   int
	silent bool
	broke  bool
}

func (b *brittle) arm(bytes int, silent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed, b.left, b.silent, b.broke, b.chosen = true, bytes, silent, false, nil
}

// disarm leaves the connection as it is, and reports whether it broke.
func (b *brittle) disarm() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.broke {
		b.chosen = nil
	}
	return b.broke
}

func (b *brittle) Endpoint(ctx context.Context, id string, port int) (sandbox.Endpoint, error) {
	ep, err := b.Provider.Endpoint(ctx, id, port)
	dial := ep.DialContext
	ep.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &brittleConn{Conn: conn, b: b, closed: make(chan struct{})}, err
	}
	return ep, err
}

type brittleConn struct {
	net.Conn
	b      *brittle
	once   sync.Once
	closed chan struct{}
}

// take returns how many of n bytes may pass.
func (c *brittleConn) take(n int) (int, bool) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.b.chosen != c {
		return n, true
	}
	pass := min(n, c.b.left)
	c.b.left -= pass
	c.b.broke = c.b.broke || pass < n
	return pass, pass == n
}

// put takes back what did not pass after all.
func (c *brittleConn) put(n int) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.b.chosen == c {
		c.b.left += n
	}
}

func (c *brittleConn) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("POST /command ")) {
		c.b.mu.Lock()
		if c.b.armed {
			c.b.chosen, c.b.armed = c, false
		}
		c.b.mu.Unlock()
	}
	n, whole := c.take(len(p))
	if whole {
		return c.Conn.Write(p)
	}
	written, err := c.Conn.Write(p[:n])
	return written, errors.Join(err, c.end())
}

func (c *brittleConn) Read(p []byte) (int, error) {
	if _, whole := c.take(1); !whole { // of which nothing more comes
		return 0, c.end()
	}
	c.put(1)
	n, err := c.Conn.Read(p)
	pass, whole := c.take(n)
	if whole {
		return pass, err
	}
	if pass == 0 {
		return 0, c.end()
	}
	return pass, nil
}

// end breaks the connection, or waits until somebody gives it up.
func (c *brittleConn) end() error {
	if c.b.silent {
		<-c.closed
		return net.ErrClosed
	}
	c.Close()
	return errors.New("broken by the test")
}

func (c *brittleConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Wherever the connection breaks, a command runs at most once, and either its
// result is known or it is known never to have begun.
func TestBrokenEverywhere(t *testing.T) {
	t.Parallel()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	t.Cleanup(func() { m.Close() })
	const workers = 4
	var began, never sync.Map
	t.Run("at", func(t *testing.T) {
		for w := range workers {
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				b := &brittle{Provider: m}
				sb, err := sandbox.Create(t.Context(), b, sandbox.Spec{TTL: time.Minute}, sandbox.Options{Log: audit.New(&bytes.Buffer{}, audit.Options{})})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { sb.Close() })
				for at := w * 5; ; at += workers * 5 {
					id := fmt.Sprintf("c%d", at)
					b.arm(at, false)
					r, err := sb.Run(t.Context(), sandbox.Command{CallID: id, Shell: "echo ran >> " + id + "; echo out; exit 4"})
					broke := b.disarm()
					runs, missing := sb.ReadFile(t.Context(), id, sandbox.ReadOptions{})
					switch {
					case err == nil && r.ExitCode != nil && *r.ExitCode == 4 && out(r) == "out\n" && string(runs.Data) == "ran\n":
						began.Store(at, true)
					case sandbox.KindOf(err) == sandbox.KindUnavailable && strings.Contains(err.Error(), "never began") && sandbox.KindOf(missing) == sandbox.KindNotFound:
						never.Store(at, true)
					default:
						t.Errorf("broken after %d bytes: %+v, %v; it ran: %q", at, r.Outcome, err, runs.Data)
					}
					if !broke {
						return
					}
				}
			})
		}
	})
	count := func(m *sync.Map) (n int) {
		m.Range(func(any, any) bool { n++; return true })
		return n
	}
	if count(&began) < 10 || count(&never) < 10 {
		t.Errorf("%d began and %d did not: the connection was not broken everywhere", count(&began), count(&never))
	}
}

// A connection that falls silent without breaking is given up once the command
// must have ended, and its result is adopted.
func TestSilentConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		defer m.Close()
		b := &brittle{Provider: m}
		sb, err := sandbox.Create(t.Context(), b, sandbox.Spec{TTL: 10 * time.Minute}, sandbox.Options{Log: audit.New(&bytes.Buffer{}, audit.Options{})})
		if err != nil {
			t.Fatal(err)
		}
		defer sb.Close()
		b.arm(700, true) // in the middle of the answer
		start := time.Now()
		r, err := sb.Run(t.Context(), sandbox.Command{CallID: "c", Shell: "echo ran >> runs; exit 4", Timeout: 20 * time.Second})
		took := time.Since(start)
		if broke := b.disarm(); err != nil || r.ExitCode == nil || *r.ExitCode != 4 || !broke {
			t.Errorf("%+v, %v; silent: %v", r.Outcome, err, broke)
		}
		if took < 20*time.Second || took > time.Minute {
			t.Errorf("it took %v", took)
		}
		if c, err := sb.ReadFile(t.Context(), "runs", sandbox.ReadOptions{}); err != nil || string(c.Data) != "ran\n" {
			t.Errorf("runs %q, %v", c.Data, err)
		}
	})
}
