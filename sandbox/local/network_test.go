package local_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// names is a DNS server on loopback that knows every name below test: it is
// 127.0.0.1.
func names(t *testing.T) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if answer, err := resolve(b[:n]); err == nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	})
	t.Cleanup(func() { conn.Close(); wg.Wait() })
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

func resolve(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	m.Response = true
	m.Additionals = nil
	for _, q := range m.Questions {
		if !strings.HasSuffix(q.Name.String(), ".test.") {
			m.RCode = dnsmessage.RCodeNameError
		} else if q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}})
		}
	}
	return m.Pack()
}

// networked is a provider whose sandboxes can resolve names below test.
func networked(t *testing.T, runtime string) *local.Provider {
	t.Helper()
	return providerWith(t, runtime, func(o *local.Options) { o.Egress.Resolvers = []netip.AddrPort{names(t)} })
}

// echo is a server on loopback that greets and repeats.
func echo(t *testing.T) (port int) { return sandboxtest.Greeter(t) }

// to allows names, on a port of this machine.
func to(port int, hosts ...string) policy.Document {
	d := policy.Document{Rules: []policy.Rule{{CIDR: "127.0.0.1", Ports: []int{port}, Proto: "tcp"}}}
	for _, h := range hosts {
		d.Rules = append(d.Rules, policy.Rule{Host: h, Ports: []int{port}, Proto: "tcp"})
	}
	return d
}

// greet is a shell text that says the first line a server sends.
func greet(name string, port int) string {
	return fmt.Sprintf("exec 3<> /dev/tcp/%s/%d && head -n 1 <&3", name, port)
}

// connected is a sandbox with a policy.
func connected(t *testing.T, p *local.Provider, d policy.Document, ask func(context.Context, sandbox.Question) policy.Answer) *sandbox.Sandbox {
	t.Helper()
	return connectedTo(t, p, sandbox.Spec{TTL: 5 * time.Minute, Network: d}, ask)
}

func connectedTo(t *testing.T, p *local.Provider, spec sandbox.Spec, ask func(context.Context, sandbox.Question) policy.Answer) *sandbox.Sandbox {
	t.Helper()
	s, err := sandbox.Create(t.Context(), p, spec, sandbox.Options{Log: discard(), Ask: ask})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func run(t *testing.T, s *sandbox.Sandbox, shell string) sandbox.Result {
	t.Helper()
	r, err := s.Run(t.Context(), sandbox.Command{Shell: shell, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What a policy allows is reached by its name, and recorded; other names and
// ports are not.
func TestAllowed(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			p, port := networked(t, runtime), echo(t)
			s := connected(t, p, to(port, "yes.test"), nil)
			// Long enough to be seen by execd.
			r := run(t, s, greet("yes.test", port)+"; read -t 1 -u 3 line; true")
			if string(r.Stdout.Head) != "hello\n" {
				t.Fatalf("said %q, %q; tried %+v", r.Stdout.Head, r.Stderr.Head, r.Network)
			}
			call := r.CallID
			r = run(t, s, greet("no.test", port))
			if r.OK() || !tried(r.Network, "deny", "no.test", r.CallID) {
				t.Errorf("another name: %+v %q", r.Network, r.Stderr.Head)
			}
			// A connection is recorded when it ends, which may be after its command.
			seen := ended(t, p, s, "yes.test")
			if seen.Port != port || seen.BytesIn != 6 || seen.BytesOut != 0 || seen.DurationMS < 900 || seen.Generation != 1 || seen.Rule != "rules[1]" {
				t.Errorf("recorded: %+v", seen)
			}
			if seen.How != sandbox.ByPort || seen.CallID != call {
				t.Errorf("attributed: %+v, not to %s", seen.Attribution, call)
			}
			r = run(t, s, greet("yes.test", port+1))
			if r.OK() || !tried(r.Network, "deny", "yes.test", r.CallID) {
				t.Errorf("another port: %+v %q", r.Network, r.Stdout.Head)
			}
			if err := s.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// ended waits for the record of a connection.
func ended(t *testing.T, p *local.Provider, s *sandbox.Sandbox, name string) (seen sandbox.NetworkRecord) {
	t.Helper()
	eventually(t, "the connection is recorded", func() bool {
		log, err := p.NetworkRecords(t.Context(), s.ID(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range log.Records {
			if n.Verdict == "allow" && n.Name == name {
				seen = n
			}
		}
		return seen.Seq != 0
	})
	return seen
}

// held has a sandbox hold a connection, in the background: it writes what it is
// told into /tmp/said, and its end into /tmp/over.
func held(t *testing.T, s *sandbox.Sandbox, name string, port int) {
	t.Helper()
	_, err := s.Run(t.Context(), sandbox.Command{Background: true, Timeout: time.Minute,
		Shell: fmt.Sprintf("rm -f /tmp/said /tmp/over; exec 3<> /dev/tcp/%s/%d; while read -r line <&3; do echo $line > /tmp/said; done; echo over > /tmp/over", name, port)})
	if err != nil {
		t.Fatal(err)
	}
	wrote(t, s, "/tmp/said", "hello\n")
}

// wrote waits until a file has been written.
func wrote(t *testing.T, s *sandbox.Sandbox, file, content string) {
	t.Helper()
	eventually(t, file+" is written", func() bool {
		c, err := s.ReadFile(t.Context(), file, sandbox.ReadOptions{Max: 100})
		return err == nil && string(c.Data) == content
	})
}

// A narrower policy ends what it does not allow at once; an invalid one changes
// nothing; names keep their addresses, also over a pause.
func TestPolicyOfALiveSandbox(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			p, port := networked(t, runtime), echo(t)
			s := connected(t, p, to(port, "yes.test", "also.test"), nil)
			held(t, s, "yes.test", port)
			before := string(run(t, s, "getent ahostsv4 also.test | head -n 1").Stdout.Head)

			_, err := s.SetNetwork(t.Context(), policy.Document{Rules: []policy.Rule{{Host: "*.com"}}})
			if sandbox.KindOf(err) != sandbox.KindInvalid {
				t.Errorf("a policy that means nothing: %v", err)
			}
			if r := run(t, s, greet("yes.test", port)); !r.OK() {
				t.Errorf("an invalid policy has changed something: %+v %q", r.Network, r.Stderr.Head)
			}
			generation, err := s.SetNetwork(t.Context(), to(port, "also.test"))
			if err != nil || generation != 2 {
				t.Errorf("the narrower policy is generation %d: %v", generation, err)
			}
			wrote(t, s, "/tmp/over", "over\n")
			if r := run(t, s, greet("yes.test", port)); r.OK() {
				t.Errorf("what is no longer allowed is reached: %q", r.Stdout.Head)
			}
			if err := s.Pause(t.Context(), sandbox.PauseOptions{}); err != nil {
				t.Fatal(err)
			}
			if generation, err = p.SetNetwork(t.Context(), s.ID(), to(port, "also.test", "new.test")); err != nil || generation != 3 {
				t.Errorf("while it is paused: generation %d, %v", generation, err)
			}
			if err := s.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"also.test", "new.test"} {
				if r := run(t, s, greet(name, port)); !r.OK() {
					t.Errorf("%s after a pause: %+v %q", name, r.Network, r.Stderr.Head)
				}
			}
			if after := string(run(t, s, "getent ahostsv4 also.test | head -n 1").Stdout.Head); before == "" || after != before {
				t.Errorf("the name's address was %q, and is %q", before, after)
			}
			if err := s.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// tried reports whether a name was tried by a call, as far as that is known.
func tried(records []sandbox.NetworkRecord, verdict, name, call string) bool {
	return slices.ContainsFunc(records, func(n sandbox.NetworkRecord) bool {
		return n.Verdict == verdict && n.Name == name && n.Of(call)
	})
}

// eventually waits for what has no event to wait for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}
