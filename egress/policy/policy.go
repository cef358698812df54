// Package policy decides, without doing anything, whether a sandbox may reach
// a network target. A Document is what is written; Compile makes a Policy of
// it, which answers the gateway's questions. The zero Document, the zero
// Policy, a nil *Policy and whatever no rule speaks of are denied.
package policy

import (
	"net/netip"
	"slices"
)

// Proto is the kind of a request. Rules know TLS, HTTP, HTTPS and TCP.
type Proto string

// The kinds. They are written in records: append only.
const (
	TCP   Proto = "tcp"
	UDP   Proto = "udp"
	ICMP  Proto = "icmp"
	DNS   Proto = "dns"   // the question about a name, whatever carried it
	Other Proto = "other" // any other protocol above IP
	TLS   Proto = "tls"   // TCP whose server name is checked
	HTTP  Proto = "http"  // TCP whose Host is checked
	HTTPS Proto = "https" // TLS that ends in the gateway, which sees every request
)

// Action is what a Verdict says. The zero Action denies.
type Action uint8

// The actions, from the strictest.
const (
	Deny Action = iota
	Ask         // nothing passes until a person grants it
	Allow
)

// String returns deny, ask or allow.
func (a Action) String() string {
	switch a {
	case Allow:
		return ActionAllow
	case Ask:
		return ActionAsk
	}
	return ActionDeny
}

// MarshalText returns String.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Stage is what the gateway knows when it asks.
type Stage uint8

// The stages, in the order in which a connection goes through them.
const (
	AtConnect Stage = iota // to Name and Port, or to Addr and Port when there is no name
	AtName                 // Name in a DNS question: may it have an address
	AtAddress              // Addr is what Name resolved to
	AtServer               // TLS: the client named ServerName
	AtHTTP                 // HTTP, in TLS or without: the client sent Host, Method and Path
)

// Request is one target a sandbox wants to reach.
type Request struct {
	Stage     Stage
	SandboxID string // this and the next two say who asks; no rule speaks of them
	Run       string
	Calls     []string // in flight
	Name      string   // in any spelling; empty when there is none
	Addr      netip.Addr
	Port      uint16 // 0 where the protocol has none
	Proto     Proto  // how it was sent: TCP, UDP, ICMP, DNS or Other; empty is TCP

	Own Ranges // the host's own addresses, for AtAddress and for addresses without a name

	ServerName string // AtServer; empty when the client named none
	Host       string // AtHTTP, with or without a port
	Method     string
	Path       string
	Secure     bool // AtHTTP: it came within TLS that ended in the gateway

	// AtHTTP, for rules of bundles, which let nothing but reading through.
	Query   string // as it was sent
	Body    bool   // it has one
	Upgrade bool   // it asks to become a WebSocket
}

// Ranges tells the host's own addresses. A nil one knows none.
type Ranges func(netip.Addr) bool

// Verdict is the answer to a Request, with what decided and why. The zero
// Verdict denies.
type Verdict struct {
	Action   Action `json:"action"`
	Proto    Proto  `json:"proto,omitempty"`    // how an allowed connection is handled: TLS, HTTP or TCP
	Rule     string `json:"rule"`               // what decided, such as rules[2], bundles.pypi or address.private; RuleDefault when no rule matched
	Reason   string `json:"reason"`             // for people
	Reported bool   `json:"reported,omitempty"` // Action is Allow only because the policy is report_only; Rule and Reason say what would have refused it
	Reads    bool   `json:"reads,omitempty"`    // AtHTTP: a bundle's rule allows the request, for reading: without credentials
}

// Allowed reports whether the connection may be made without asking.
func (v Verdict) Allowed() bool { return v.Action == Allow }

// RuleDefault is the Rule of a verdict that no rule of the policy decided.
const RuleDefault = "default"

// Name judges a question about a name: whether any rule allows it, or asks, on
// any port.
func (p *Policy) Name(name string) Verdict {
	return p.Decide(Request{Stage: AtName, Name: name, Proto: DNS})
}

// Connect judges a connection to a name.
func (p *Policy) Connect(name string, port uint16) Verdict {
	return p.Decide(Request{Stage: AtConnect, Name: name, Port: port, Proto: TCP})
}

// Literal judges a connection to an address that no name stands for.
func (p *Policy) Literal(addr netip.Addr, port uint16, own Ranges) Verdict {
	return p.Decide(Request{Stage: AtConnect, Addr: addr, Port: port, Proto: TCP, Own: own})
}

// Address judges one address that a name resolved to. Of several, all must be
// allowed: see Addresses.
func (p *Policy) Address(name string, addr netip.Addr, port uint16, own Ranges) Verdict {
	return p.Decide(Request{Stage: AtAddress, Name: name, Addr: addr, Port: port, Proto: TCP, Own: own})
}

// Server judges the server name of a TLS client's first message. target is the
// name that was connected to, or an address in text.
func (p *Policy) Server(target string, port uint16, serverName string) Verdict {
	r := Request{Stage: AtServer, Port: port, Proto: TCP, ServerName: serverName}
	r.Name, r.Addr = split(target)
	return p.Decide(r)
}

// HTTP judges the head of a request without TLS. target is the name that was
// connected to, or an address in text.
func (p *Policy) HTTP(target string, port uint16, host, method, path string) Verdict {
	return p.head(target, Request{Port: port, Host: host, Method: method, Path: path})
}

// HTTPS is HTTP for a request that came within TLS which ended in the gateway.
func (p *Policy) HTTPS(target string, port uint16, host, method, path string) Verdict {
	return p.head(target, Request{Port: port, Host: host, Method: method, Path: path, Secure: true})
}

func (p *Policy) head(target string, r Request) Verdict {
	r.Stage, r.Proto = AtHTTP, TCP
	r.Name, r.Addr = split(target)
	return p.Decide(r)
}

// EndsTLS reports whether TLS ends in the gateway for any rule: the sandbox then
// has to trust the gateway's certificates.
func (p *Policy) EndsTLS() bool {
	return p != nil && slices.ContainsFunc(p.rules, func(r *rule) bool {
		return slices.ContainsFunc(r.ports, func(of portOf) bool { return of.proto == HTTPS })
	})
}
