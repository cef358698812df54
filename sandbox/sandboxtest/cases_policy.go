package sandboxtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// policyCases are about what a policy lets out. The servers are of this process,
// on loopback; Harness.Loopback is their name.
func policyCases() []Case {
	allow := caps(sandbox.CapExec, sandbox.CapProcesses, sandbox.CapNetworkAllow)
	live := append(caps(sandbox.CapNetworkLive, sandbox.CapBackground, sandbox.CapFiles), allow...)
	ask := append(caps(sandbox.CapNetworkAsk), allow...)
	owner := append(caps(sandbox.CapBackground, sandbox.CapFiles), ask...)
	tools := []string{"bash", "head"}
	return []Case{
		{Name: "policy/refused where it is not kept", run: policyRefused},
		{Name: "policy/allowed name reached", Needs: allow, Programs: tools, loopback: true, run: allowedReached},
		{Name: "policy/others not reached", Needs: allow, Programs: tools, loopback: true, run: othersNotReached},
		{Name: "policy/narrowing closes", Needs: live, Programs: tools, loopback: true, run: narrowingCloses},
		{Name: "policy/invalid changes nothing", Needs: live, Programs: tools, loopback: true, run: invalidChangesNothing},
		{Name: "policy/asked", Needs: ask, Programs: tools, loopback: true, run: ownerAsked},
		{Name: "policy/owner gone closes", Needs: owner, Programs: tools, loopback: true, run: ownerGone},
	}
}

// policyRefused: what a provider cannot keep it does not take.
func policyRefused(e *env) {
	for c, d := range map[sandbox.Capability]policy.Document{
		sandbox.CapNetworkAllow: {Rules: []policy.Rule{{Host: "allowed.example"}}},
		sandbox.CapNetworkAsk:   {Default: policy.ActionAsk},
	} {
		if e.suite.report.Has(c) {
			continue
		}
		spec := e.suite.spec()
		spec.Network = d
		sb, err := sandbox.Create(e.Context(), e.suite.provider, spec, sandbox.Options{Log: record()})
		if err == nil {
			e.must(sb.Kill(e.Context()))
		}
		e.wantKind(err, sandbox.KindUnsupported)
	}
	if !e.suite.report.Has(sandbox.CapNetworkLive) {
		box := e.Sandbox
		if e.suite.report.Has(sandbox.CapNetworkAllow) { // widened perhaps, but not narrowed
			box = e.create(func(s *sandbox.Spec) { s.Network = policy.Document{Rules: []policy.Rule{{Host: "allowed.example"}}} })
		}
		_, err := box.SetNetwork(e.Context(), policy.Document{})
		e.wantKind(err, sandbox.KindUnsupported)
	}
	spec := e.suite.spec()
	spec.Network = policy.Document{Rules: []policy.Rule{{Host: "*.com"}}} // over a public suffix
	_, err := sandbox.Create(e.Context(), e.suite.provider, spec, sandbox.Options{Log: record()})
	e.wantKind(err, sandbox.KindInvalid)
}

// toServer allows the server, and does with its name what action says.
func (e *env) toServer(port int, action string) policy.Document {
	return policy.Document{Rules: []policy.Rule{
		{CIDR: "127.0.0.1", Ports: []int{port}, Proto: "tcp"},
		{Host: e.suite.Loopback, Ports: []int{port}, Proto: "tcp", Action: action},
	}}
}

// connected is a sandbox with a policy, whose owner answers with ask.
func (e *env) connected(d policy.Document, ask func(context.Context, sandbox.Question) policy.Answer) {
	e.Helper()
	spec := e.suite.spec()
	spec.Network = d
	sb, err := sandbox.Create(e.Context(), e.suite.provider, spec, sandbox.Options{Log: record(), Ask: ask})
	e.must(err)
	e.Sandbox = sb
	e.Cleanup(func() {
		defer sb.Close()
		if err := sb.Kill(context.Background()); err != nil {
			e.Errorf("kill %s: %v", sb.ID(), err)
		}
	})
}

// greet is a shell text that prints what a server says first.
func greet(host string, port int) string { return dial(host, port) + " && head -n 1 <&3" }

// greeted reports whether the server can be talked to.
func (e *env) greeted(port int) bool {
	e.Helper()
	return stdout(e.run(greet(e.suite.Loopback, port))) == "hello\n"
}

func allowedReached(e *env) {
	port := Greeter(e)
	e.connected(e.toServer(port, policy.ActionAllow), nil)
	if !e.greeted(port) {
		e.Fatal("the server that is allowed was not reached")
	}
	if !e.suite.report.Has(sandbox.CapNetworkRecord) {
		return
	}
	e.eventually(10*time.Second, "the connection is recorded", func() bool { // when it has ended
		log, err := sandbox.NetworkRecords(e.Context(), e.suite.provider, e.ID(), 0)
		e.must(err)
		return slices.ContainsFunc(log.Records, func(n sandbox.NetworkRecord) bool {
			return n.Verdict == "allow" && n.Name == e.suite.Loopback && n.Port == port && n.BytesIn == 6 && n.Rule != "" && n.Generation == 1
		})
	})
}

func othersNotReached(e *env) {
	port, other := Greeter(e), Greeter(e)
	e.connected(e.toServer(port, policy.ActionAllow), nil)
	for _, target := range []string{greet(e.suite.Loopback, other), greet("other."+e.suite.Loopback, port), greet("192.0.2.1", port), greet("169.254.169.254", 80)} {
		if r := e.command(sandbox.Command{Shell: target, Timeout: e.scale(5 * time.Second)}); r.OK() {
			e.Errorf("%s: %s", target, describe(r))
		}
	}
	if !e.greeted(port) {
		e.Error("the server that is allowed was not reached")
	}
}

// hold has the sandbox hold a connection in the background; it writes its end
// into a file.
func (e *env) hold(port int) {
	e.Helper()
	_, err := e.Sandbox.Run(e.Context(), sandbox.Command{Background: true, Timeout: time.Minute,
		Shell: "rm -f /tmp/held /tmp/over; " + dial(e.suite.Loopback, port) + "; while read -r line <&3; do echo $line > /tmp/held; done; echo over > /tmp/over"})
	e.must(err)
	e.written(e.Sandbox, "/tmp/held", "hello\n")
}

func (e *env) written(sb *sandbox.Sandbox, name, content string) {
	e.Helper()
	e.eventually(10*time.Second, name+" is written", func() bool {
		c, err := sb.ReadFile(e.Context(), name, sandbox.ReadOptions{Max: 100})
		return err == nil && string(c.Data) == content
	})
}

func narrowingCloses(e *env) {
	port := Greeter(e)
	e.connected(e.toServer(port, policy.ActionAllow), nil)
	e.hold(port)
	generation, err := e.SetNetwork(e.Context(), policy.Document{})
	e.must(err)
	e.equal("generation", generation, uint64(2))
	e.written(e.Sandbox, "/tmp/over", "over\n")
	if e.greeted(port) {
		e.Error("what is no longer allowed is reached")
	}
	generation, err = e.SetNetwork(e.Context(), e.toServer(port, policy.ActionAllow))
	e.must(err)
	e.equal("generation", generation, uint64(3))
	if !e.greeted(port) {
		e.Error("what is allowed again is not reached")
	}
}

func invalidChangesNothing(e *env) {
	port := Greeter(e)
	e.connected(e.toServer(port, policy.ActionAllow), nil)
	for _, d := range []policy.Document{
		{Rules: []policy.Rule{{Host: "*.com"}}}, {Rules: []policy.Rule{{CIDR: "198.18.0.0/15"}}}, {Default: "perhaps"}, {Bundles: []string{"none"}},
	} {
		_, err := e.SetNetwork(e.Context(), d)
		e.wantKind(err, sandbox.KindInvalid)
		// Not by a client's word alone.
		_, err = e.suite.provider.(sandbox.Networker).SetNetwork(e.Context(), e.ID(), d)
		e.wantKind(err, sandbox.KindInvalid)
	}
	if !e.greeted(port) {
		e.Error("an invalid policy has changed something")
	}
}

func ownerAsked(e *env) {
	yes, no := Greeter(e), Greeter(e)
	d := e.toServer(yes, policy.ActionAsk)
	d.Rules = append(d.Rules, e.toServer(no, policy.ActionAsk).Rules...)
	var mu sync.Mutex
	asked := map[int]int{}
	e.connected(d, func(_ context.Context, q sandbox.Question) policy.Answer {
		mu.Lock()
		defer mu.Unlock()
		if q.Name != e.suite.Loopback || q.Rule == "" {
			e.Errorf("asked: %+v", q)
		}
		asked[q.Port]++
		if q.Port == yes {
			return policy.Granted
		}
		return policy.Denied
	})
	for range 2 {
		if !e.greeted(yes) {
			e.Error("what the owner granted is not reached")
		}
		r := e.command(sandbox.Command{Shell: greet(e.suite.Loopback, no), Timeout: e.scale(20 * time.Second)})
		if r.OK() {
			e.Error("what the owner refused is reached")
		}
		if !e.suite.report.Has(sandbox.CapNetworkRecord) {
			continue
		}
		n := e.tried(r, "what was refused", func(n sandbox.NetworkRecord) bool { return n.Name == e.suite.Loopback && n.Port == no })
		e.equal("the reason", n.Reason, policy.Denied.Reason())
	}
	mu.Lock()
	defer mu.Unlock()
	if asked[yes] != 1 || asked[no] != 1 {
		e.Errorf("asked by port %v times, want once for each", asked)
	}
}

func ownerGone(e *env) {
	port := Greeter(e)
	e.connected(e.toServer(port, policy.ActionAllow), nil)
	second := e.attach(e.suite.provider)
	e.hold(port)
	e.must(e.Close())
	r, err := second.Run(e.Context(), sandbox.Command{Shell: greet(e.suite.Loopback, port), Timeout: e.scale(20 * time.Second)})
	e.must(err)
	e.equal("with one owner of two", stdout(r), "hello\n")
	e.must(second.Close())
	if said := e.alone(greet(e.suite.Loopback, port)); strings.Contains(said, "hello") || !strings.Contains(said, "done") {
		e.Errorf("without an owner: %q", said)
	}
	third := e.attach(e.suite.provider)
	e.written(third, "/tmp/over", "over\n")
	r, err = third.Run(e.Context(), sandbox.Command{Shell: greet(e.suite.Loopback, port), Timeout: e.scale(20 * time.Second)})
	e.must(err)
	e.equal("with an owner again", stdout(r), "hello\n")
}

// alone runs a shell text through execd without owning the sandbox.
func (e *env) alone(shell string) string {
	e.Helper()
	ep, err := e.suite.provider.Endpoint(e.Context(), e.ID(), execd.Port)
	e.must(err)
	c := execd.NewClient(execd.Options{BaseURL: ep.BaseURL, Header: ep.Header, DialContext: ep.DialContext})
	defer c.Close()
	var said strings.Builder
	_, err = c.Run(e.Context(), execd.RunRequest{Command: fmt.Sprintf("(%s); echo done", shell), Timeout: 10_000},
		func(ev execd.Event) { said.WriteString(ev.Text) })
	e.must(err)
	return said.String()
}
