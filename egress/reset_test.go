package egress_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

// What still comes of a connection that was reset before the sandbox had
// acknowledged it is no attempt of its own.
func TestStrayAfterReset(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.serve(t, "", far4+":22", func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	w, rec := newWireWith(t, egress.Options{Host: out,
		Policy: compile(t, policy.Document{Rules: []policy.Rule{{CIDR: far4, Ports: []int{22}, Proto: "tcp"}}})})
	w.g.Open(true)
	flags := func() header.TCPFlags { return header.TCP(header.IPv4(w.recv()[14:]).Payload()).Flags() }
	segment := func(f header.TCPFlags, from uint16) []byte {
		b := header.TCP(synFrom(from, 22))
		b.SetFlags(uint8(f))
		return ip4(s4, far4, header.TCPProtocolNumber, b)
	}
	w.send(segment(header.TCPFlagSyn, 6000))
	if f := flags(); f != header.TCPFlagSyn|header.TCPFlagAck {
		t.Fatalf("answered with %v", f)
	}
	w.g.Open(false)
	rec.wait(t, verdictOf("deny", ""))
	w.send(segment(header.TCPFlagAck|header.TCPFlagPsh, 6000))
	for flags()&header.TCPFlagRst == 0 {
	}
	w.g.Flush()
	if list := rec.all(); len(list) != 1 || list[0].Count != 1 {
		t.Errorf("recorded %+v", list)
	}
	w.send(segment(header.TCPFlagAck|header.TCPFlagPsh, 6001)) // of no connection
	for flags()&header.TCPFlagRst == 0 {
	}
	w.g.Flush()
	if list := rec.all(); len(list) != 2 {
		t.Errorf("recorded %+v", list)
	}
}

// A record says whose reset ended a connection.
func TestResetBy(t *testing.T) {
	t.Parallel()
	out := newAway()
	out.serve(t, "a.example.org", "93.184.215.14:22", func(c *net.TCPConn) {
		if b := make([]byte, 1); c.SetLinger(0) == nil {
			io.ReadFull(c, b)
			if b[0] == 's' { // the sandbox is to reset it
				io.Copy(io.Discard, c)
			}
		}
	})
	ns, _, rec := owned(t, egress.Options{Host: out, Policy: compile(t, policy.Document{Rules: []policy.Rule{tcpTo("a.example.org", 22)}})})
	for who, word := range map[string]string{"the sandbox": "s", "the host's side": "h"} {
		c := mustReach(t, ns, "a.example.org", 22)
		io.WriteString(c, word)
		if word == "h" {
			io.Copy(io.Discard, c)
		} else if err := c.SetLinger(0); err != nil {
			t.Fatal(err)
		}
		c.Close()
		rec.wait(t, func(a egress.Attempt) bool {
			if strings.Contains(a.Reason, "by peer") {
				t.Errorf("recorded %+v", a)
			}
			return a.Verdict == "allow" && strings.HasSuffix(a.Reason, "; reset by "+who)
		})
	}
}
