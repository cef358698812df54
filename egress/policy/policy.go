// Package policy decides, without doing anything, whether a sandbox may reach
// a network target. The zero Policy denies everything, and so does every case
// a policy does not mention.
package policy

import "net/netip"

// Proto is the kind of a request.
type Proto string

// The kinds. They are written in records: append only.
const (
	TCP   Proto = "tcp"
	UDP   Proto = "udp"
	ICMP  Proto = "icmp"
	DNS   Proto = "dns"   // the question about a name, whatever carried it
	Other Proto = "other" // any other protocol above IP
)

// Request is one target a sandbox wants to reach.
type Request struct {
	SandboxID string
	Name      string     // the name asked for, lower case, no final dot; empty when there is none
	Addr      netip.Addr // the address of the packet
	Port      uint16     // 0 where the protocol has none
	Proto     Proto
}

// Verdict is the answer to a Request, with what decided and why. The zero
// Verdict denies.
type Verdict struct {
	Allow  bool
	Rule   string // what decided; RuleDefault when no rule matched
	Reason string // for people
}

// RuleDefault is the Rule of a verdict that no rule of the policy decided.
const RuleDefault = "default"

// Policy is immutable and safe for concurrent use. Its zero value, the only
// one there is, denies everything.
type Policy struct{}

// Decide returns the verdict on r. It is a pure function of p and r.
func (Policy) Decide(Request) Verdict {
	return Verdict{Rule: RuleDefault, Reason: "no rule allows it"}
}
