package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/execd/daemon"
)

func TestPortOwner(t *testing.T) {
	r := serve(t, bestUser())
	port := opened(t, r, "server")
	for range 3 { // younger, and hold nothing
		if _, err := r.Run(t.Context(), execd.RunRequest{Command: "sleep 60", Background: true}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if id, err := r.PortOwner(t.Context(), onPort(port)); err != nil || id != "server" {
		t.Errorf("owner of port %d: %q %v", port, id, err)
	}
	if id, err := r.PortOwner(t.Context(), onPort(1)); err != nil || id != "" {
		t.Errorf("owner of port 1: %q %v", id, err)
	}
	// The daemon itself holds one, and is no command.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if id, err := r.PortOwner(t.Context(), onPort(l.Addr().(*net.TCPAddr).Port)); err != nil || id != "" {
		t.Errorf("owner of a port of the daemon's: %q %v", id, err)
	}
}

// What commands hold is read for as long as somebody waits for the answer.
func TestPortOwnerEndsWithWhoAsks(t *testing.T) {
	opts := bestUser()
	var m daemon.PortOwner
	r := serve(t, opts, func(c *daemon.Config) { m = c.Machine.(daemon.PortOwner) })
	port := opened(t, r, "server")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if id, err := m.PortOwner(ctx, onPort(port)); id != "" || !errors.Is(err, context.Canceled) {
		t.Errorf("owner of port %d for nobody: %q %v", port, id, err)
	}
}

func onPort(port int) execd.Socket {
	return execd.Socket{Local: netip.AddrPortFrom(netip.Addr{}, uint16(port))}
}

// Both ends of a connection tell whose it is, in both families. A connection
// that is not there is nobody's.
func TestConnectionOwner(t *testing.T) {
	r := serve(t, bestUser())
	for _, at := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(at, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		id := strings.NewReplacer(":", "-", ".", "-").Replace("at-" + at)
		connect := fmt.Sprintf("import socket,time\nc=socket.create_connection(('%s',%d))\ntime.sleep(600)", at, l.Addr().(*net.TCPAddr).Port)
		_, err = r.Run(t.Context(), execd.RunRequest{Command: `python3 -c "$P"`, Background: true, Envs: map[string]string{"P": connect}, Rein: &execd.RunOptions{ID: id}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s := execd.Socket{Local: c.RemoteAddr().(*net.TCPAddr).AddrPort(), Remote: c.LocalAddr().(*net.TCPAddr).AddrPort()}
		if got, err := r.PortOwner(t.Context(), s); err != nil || got != id {
			t.Errorf("owner of %v: %q %v", s, got, err)
		}
		s.Remote = netip.AddrPortFrom(s.Remote.Addr(), 1)
		if got, err := r.PortOwner(t.Context(), s); err != nil || got != "" {
			t.Errorf("owner of %v: %q %v", s, got, err)
		}
	}
	for _, bad := range []execd.Socket{{}, {Local: netip.MustParseAddrPort("127.0.0.1:5"), Remote: netip.MustParseAddrPort("[::1]:5")}} {
		if _, err := r.PortOwner(t.Context(), bad); err == nil {
			t.Errorf("%v has an owner", bad)
		}
	}
}

// opened is a port that a process of the command id listens on, which has left
// the command's session.
func opened(t testing.TB, r *rig, id string) (port int) {
	t.Helper()
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		missing(t, "needs python3 to open a port")
	}
	const listen = "import socket,time\ns=socket.socket()\ns.bind(('127.0.0.1',0))\ns.listen()\nprint(s.getsockname()[1],flush=True)\ntime.sleep(600)"
	_, err := r.Run(t.Context(), execd.RunRequest{Command: `(setsid python3 -c "$P" &)`, Background: true, Envs: map[string]string{"P": listen}, Rein: &execd.RunOptions{ID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); port == 0; time.Sleep(10 * time.Millisecond) {
		b, _, err := r.Logs(t.Context(), id, 0)
		if err != nil || time.Now().After(end) {
			t.Fatalf("log %q, %v", b, err)
		}
		fmt.Sscan(string(b), &port)
	}
	return port
}

// On one connection any number of sockets are asked about. It ends when the daemon
// is paused, by what is no question, and with the daemon.
func TestPortOwners(t *testing.T) {
	r := serve(t, bestUser())
	ask := func() (*execd.PortOwners, net.Conn) {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		p, err := execd.NewPortOwners(conn, testToken)
		if err != nil {
			t.Fatal(err)
		}
		return p, conn
	}
	p, _ := ask()
	all := map[string]execd.Socket{}
	for _, id := range []string{"first", "second", "third"} {
		all[id] = connected(t, r, id)
	}
	for _, id := range []string{"first", "first", "third", "second", "first"} { // also who was asked about last
		s := all[id]
		if got, err := p.Ask(s); err != nil || got.ID != id || got.Port != int(s.Local.Port()) {
			t.Errorf("owner of %v: %+v %v", s, got, err)
		}
		s.Remote = netip.AddrPortFrom(s.Remote.Addr(), 1)
		if got, err := p.Ask(s); err != nil || got.ID != "" {
			t.Errorf("owner of what is not there: %+v %v", got, err)
		}
	}
	bad, conn := ask()
	if owner, err := bad.Ask(execd.Socket{}); err == nil {
		t.Errorf("no socket has the owner %+v", owner)
	}
	conn.Close()
	if conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://")); err != nil {
		t.Error(err)
	} else if _, err := execd.NewPortOwners(conn, "another token"); err == nil {
		t.Error("it answers who has no token")
	} else {
		conn.Close()
	}
	pause(t, r)
	if owner, err := p.Ask(connectedTo); err == nil {
		t.Errorf("a paused daemon says %+v", owner)
	}
	resume(t, r)
	ask() // and is asked nothing while the daemon ends
}

// connectedTo is a connection that need not be there.
var connectedTo = execd.Socket{Local: netip.MustParseAddrPort("127.0.0.1:1"), Remote: netip.MustParseAddrPort("127.0.0.1:2")}

// connected is a connection that the command id makes and holds.
func connected(t testing.TB, r *rig, id string) execd.Socket {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connect := fmt.Sprintf("import socket,time\nc=socket.create_connection(('127.0.0.1',%d))\ntime.sleep(600)", l.Addr().(*net.TCPAddr).Port)
	_, err = r.Run(t.Context(), execd.RunRequest{Command: `python3 -c "$P"`, Background: true, Envs: map[string]string{"P": connect}, Rein: &execd.RunOptions{ID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return execd.Socket{Local: c.RemoteAddr().(*net.TCPAddr).AddrPort(), Remote: c.LocalAddr().(*net.TCPAddr).AddrPort()}
}
