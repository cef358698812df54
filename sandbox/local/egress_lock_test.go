package local

import (
	"errors"
	"flag"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/miekg/dns"

	"github.com/rein-sh/rein/egress"
)

// lockedArg makes a process of these tests the keeper of TestWayOutWhenLocked:
// what harden takes is not given back.
const lockedArg = "locked"

// A keeper that can open no file any more goes on looking up names, over UDP
// and TCP, dialling, and learning the host's addresses.
func TestWayOutWhenLocked(t *testing.T) {
	if args := flag.Args(); len(args) == 2 && args[0] == lockedArg {
		lockedKeeper(t, args[1])
		return
	}
	t.Parallel()
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 written.example\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestWayOutWhenLocked$", "-test.v", lockedArg, hosts)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

func lockedKeeper(t *testing.T, hosts string) {
	var server net.Listener
	var names net.PacketConn
	for tries := 20; names == nil; tries-- { // the port may be another's for UDP
		var err error
		if server, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if names, err = net.ListenPacket("udp", server.Addr().String()); err != nil {
			server.Close()
			if tries == 0 {
				t.Fatal(err)
			}
			names = nil
		}
	}
	at := netip.MustParseAddrPort(server.Addr().String())
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Truncated = w.LocalAddr().Network() == "udp"
		if rr, err := dns.NewRR("a.example. 60 IN A 127.0.0.1"); err == nil && !m.Truncated && q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{rr}
		}
		w.WriteMsg(m)
	})
	go dns.ActivateAndServe(server, nil, handler) // both end with the process
	go dns.ActivateAndServe(nil, names, handler)
	host, err := egress.NewHost(egress.HostOptions{Resolvers: []netip.AddrPort{at}, Hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}

	k := &keeper{}
	if os.Geteuid() == 0 {
		k.cfg.Info.IDBase = 1 << 20
	}
	if err := k.harden(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile("/etc/passwd"); !errors.Is(err, fs.ErrPermission) {
		t.Logf("this kernel locks no files: %v", err) // the rest must hold all the same
	}
	for _, name := range []string{"a.example", "written.example", "localhost"} {
		if got, err := host.Lookup(t.Context(), name); err != nil || got[0].String() != "127.0.0.1" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	c, err := host.Dial(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	// What Own reads again when it is old.
	if addrs, err := net.InterfaceAddrs(); err != nil || len(addrs) == 0 {
		t.Errorf("%v, %v", addrs, err)
	}
	if !host.Own(at.Addr()) || host.Own(netip.MustParseAddr("192.0.2.1")) {
		t.Error("the host does not know its addresses")
	}
}
