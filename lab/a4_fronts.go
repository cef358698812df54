package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/lab/leak"
	"github.com/rein-sh/rein/sandbox"
)

// fronts tries every way where one name is allowed, which is a server on this
// host's loopback, and names beneath another that lead elsewhere.
func (d *drill) fronts(ctx context.Context) {
	const under = "one name allowed, "
	if d.env.Networked == nil {
		d.add(Step{Name: under + "every way", Expected: "a provider that takes a resolver of names", Got: "not tried: this one takes none", NotTried: true})
		return
	}
	server, err := leak.NewServer(d.sink)
	if err != nil {
		d.step(under+"server", "a server on loopback", func() (string, bool) { return err.Error(), false })
		return
	}
	defer server.Close()
	p, done, err := d.env.Networked(Network{Resolver: server.Resolver})
	if err != nil {
		d.step(under+"provider", "a provider with a resolver of its own", func() (string, bool) { return err.Error(), false })
		return
	}
	if done != nil {
		defer done()
	}
	spec := d.env.Spec
	spec.TTL, spec.Network = time.Minute, allowedDocument(server.Allowed, int(d.sink.Port))
	box, err := sandbox.Create(ctx, p, spec, sandbox.Options{Log: d.log, Masker: d.env.Masker})
	if err != nil {
		d.step(under+"create", "a sandbox with a policy", func() (string, bool) { return err.Error() + "; " + sandbox.HintOf(err), false })
		return
	}
	defer func() {
		if err := errors.Join(box.Kill(context.WithoutCancel(ctx)), box.Close()); err != nil {
			d.step(under+"clean up", "nothing is left", func() (string, bool) { return err.Error(), false })
		}
	}()
	d.ways(ctx, p, box, under, &server.Allowed)
	d.silent("after every way, where one name is allowed")
	d.judgeServer(server)
}

// allowedDocument allows the server's name, the names that lead elsewhere, and,
// as a second rule must, the loopback range: for the server's ports only.
func allowedDocument(a leak.Allowed, sink int) policy.Document {
	return policy.Document{Rules: []policy.Rule{
		{Host: a.Name, Ports: []int{a.HTTP}, Proto: "http"},
		{Host: a.Name, Ports: []int{a.TLS}, Proto: "tls"},
		{Host: a.Name, Ports: []int{a.TCP}, Proto: "tcp"},
		{Host: "*." + leak.TurnedSuffix, Ports: []int{sink}, Proto: "tcp"},
		{CIDR: "127.0.0.0/8", Ports: []int{a.HTTP}, Proto: "http"},
		{CIDR: "127.0.0.0/8", Ports: []int{a.TLS}, Proto: "tls"},
		{CIDR: "127.0.0.0/8", Ports: []int{a.TCP}, Proto: "tcp"},
	}}
}

// judgeServer asks the allowed server and its resolver what they saw.
func (d *drill) judgeServer(s *leak.Server) {
	got := s.Got()
	d.step("control: the allowed server", "it received the byte over HTTP, TLS and TCP, and was never told another name", func() (string, bool) {
		heard := map[string]bool{}
		for _, line := range got {
			for _, way := range []string{"allowed: http", "allowed: https", "allowed: tcp"} {
				if strings.HasSuffix(line, d.token+" "+way) {
					heard[way] = true
				}
			}
			kind, rest, _ := strings.Cut(line, " ")
			name, _, _ := strings.Cut(strings.TrimPrefix(rest, "name "), ":")
			if (kind == "host" || kind == "server") && name != s.Allowed.Name {
				return fmt.Sprintf("it was told: %.200s", line), false
			}
		}
		return fmt.Sprintf("%d lines; the byte came by %d ways", len(got), len(heard)), len(heard) == 3
	})
	asked := s.Asked()
	d.step("control: the resolver", "it was asked only for addresses of names that are allowed", func() (string, bool) {
		for _, q := range asked {
			name, kind, _ := strings.Cut(q, " ")
			below := strings.HasSuffix(name, "."+leak.TurnedSuffix) && slices.Contains(turnedNames(s.Allowed), name)
			if kind != "A" && kind != "AAAA" || name != s.Allowed.Name && !below {
				return "it was asked: " + q, false
			}
		}
		return fmt.Sprintf("%d questions", len(asked)), len(asked) > 0
	})
}

func turnedNames(a leak.Allowed) (names []string) {
	for _, name := range a.Turned {
		names = append(names, name)
	}
	return names
}
