package tool_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

// dropping is a provider of which the connections that carry the next requests
// beginning with want break: after the first byte of the request, or before that
// of the answer.
type dropping struct {
	sandbox.Provider
	want   string
	answer bool
	next   atomic.Int32
}

func (d *dropping) Endpoint(ctx context.Context, id string, port int) (sandbox.Endpoint, error) {
	ep, err := d.Provider.Endpoint(ctx, id, port)
	dial := ep.DialContext
	ep.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &droppingConn{Conn: conn, d: d}, err
	}
	return ep, err
}

type droppingConn struct {
	net.Conn
	d    *dropping
	deaf atomic.Bool
}

func (c *droppingConn) Write(p []byte) (int, error) {
	switch {
	case !bytes.HasPrefix(p, []byte(c.d.want)) || c.d.next.Add(-1) < 0:
	case c.d.answer:
		c.deaf.Store(true)
	default:
		n, _ := c.Conn.Write(p[:1]) // else the request may be sent again, since nothing of it was
		c.Close()
		return n, errors.New("dropped by the test")
	}
	return c.Conn.Write(p)
}

func (c *droppingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.deaf.Load() {
		c.Close()
		return 0, errors.New("dropped by the test")
	}
	return n, err
}

// A command that never began is run once more when it is known to change
// nothing, and only then.
func TestRepeated(t *testing.T) {
	t.Parallel()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer m.Close()
	d := &dropping{Provider: m, want: "POST /command "}
	b := over(t, d, sandbox.Spec{})
	b.call(tool.RunCommand, "command", "echo one > f")
	for _, c := range []struct {
		command string
		dropped int32
		ok      bool
		left    int32 // of dropped
	}{
		{"cat f", 1, true, -1},
		{"cat f", 3, false, 1}, // once more, not twice
		{"echo two >> f", 1, false, 0},
		{"cat f; touch g", 1, false, 0},
		{"cat $f", 1, false, 0}, // who knows of what
	} {
		d.next.Store(c.dropped)
		r := b.call(tool.RunCommand, "command", c.command)
		left := d.next.Swap(0)
		if r.OK != c.ok || left != c.left || !c.ok && (r.Err == nil || r.Err.Class != tool.Verify) {
			t.Errorf("%s, dropped %d times: %+v, %d left", c.command, c.dropped, r, left)
		}
	}
	if r := b.call(tool.RunCommand, "command", "cat f; ls"); r.Stdout != "one\nf\n" {
		t.Errorf("files: %+v", r)
	}
}

// A server that cannot be asked about a call: what it lost is reported as
// unknown, and repeated only when it is known to change nothing.
func TestRepeatedWithoutCallIDs(t *testing.T) {
	t.Parallel()
	b, s := foreign(t)
	for _, c := range []struct {
		command string
		ok      bool
	}{{"echo one >> f", false}, {"cat f", true}} {
		s.Once(opensandboxtest.Command, opensandboxtest.Lose)
		r := b.call(tool.RunCommand, "command", c.command)
		if r.OK != c.ok || !c.ok && (r.Err == nil || r.Err.Class != tool.Verify || r.Err.Code != tool.CodeOutcomeUnknown || r.ExitCode != nil) {
			t.Errorf("%s: %+v", c.command, r)
		}
	}
	if r := b.call(tool.RunCommand, "command", "cat f"); r.Stdout != "one\n" {
		t.Errorf("it ran more than once: %q", r.Stdout)
	}
}

// A file whose writing was lost is looked at: it holds the content, or it is not
// known what became of it. Reading changes nothing and is done once more.
func TestLostFiles(t *testing.T) {
	t.Parallel()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer m.Close()
	d := &dropping{Provider: m, want: "POST /files/upload"}
	b := over(t, d, sandbox.Spec{})
	b.call(tool.WriteFile, "path", "f", "content", "one")
	for _, c := range []struct {
		answer bool
		ok     bool
		holds  string
	}{{true, true, "two"}, {false, false, "one"}} {
		d.answer = c.answer
		b.call(tool.WriteFile, "path", "f", "content", "one")
		d.next.Store(1)
		r := b.call(tool.WriteFile, "path", "f", "content", "two")
		d.next.Store(0)
		if r.OK != c.ok || !c.ok && (r.Err == nil || r.Err.Class != tool.Verify) {
			t.Errorf("with the answer lost %v: %+v", c.answer, r)
		}
		if r := b.call(tool.ReadFile, "path", "f"); r.Stdout != c.holds {
			t.Errorf("with the answer lost %v it holds %q", c.answer, r.Stdout)
		}
	}
	d.want, d.answer = "GET /files/download", true
	for dropped, ok := range map[int32]bool{1: true, 9: false} {
		d.next.Store(dropped)
		if r := b.call(tool.ReadFile, "path", "f"); r.OK != ok || !ok && r.Err.Class != tool.Retryable {
			t.Errorf("dropped %d times: %+v", dropped, r)
		}
		d.next.Store(0)
	}
}
