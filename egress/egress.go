// Package egress is the host's end of a sandbox's only network link: a TCP/IP
// stack in user space (gVisor's) over a descriptor of Ethernet frames.
//
// The host reaches the sandbox by dialling through the stack. Whatever the
// sandbox sends to anyone arrives here. Only TCP goes further, where the policy
// allows it: the name that was connected to (DNS gives each allowed name an
// address of its own) or the literal address is judged, the host's side is
// resolved once, every address is judged, one of them is dialled, and only then
// is the sandbox's SYN answered. All else is refused at once, in the way its
// protocol knows, and recorded:
//
//	TCP                       reset
//	DNS, UDP and TCP port 53  NXDOMAIN, the name is recorded
//	other UDP                 ICMP port unreachable
//	ICMP echo                 ICMP administratively prohibited
//	other IP protocols        ICMP protocol unreachable (IPv6: parameter problem)
//
// Multicast and broadcast are recorded and dropped, because no error may be
// sent about them (RFC 1122 3.2.2, RFC 4443 2.4). Frames whose IP source is
// not the sandbox's address are recorded and dropped. The link's own
// housekeeping (ARP, neighbour and router discovery, group membership) is
// neither: it reaches nobody but the gateway.
package egress

import (
	"context"
	"crypto/x509"
	"net/netip"
	"time"

	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
)

// The link, the same in every sandbox because no two share one. The interface
// inside must be given SandboxMAC, both sandbox addresses, MTU, and default
// routes via the gateway's addresses. The gateway answers ARP and neighbour
// solicitations for every address but the sandbox's own, so that nothing
// on-link is left to a timeout.
const (
	Gateway4 = "10.88.0.1"
	Sandbox4 = "10.88.0.2"
	Bits4    = 24 // prefix length of both

	Gateway6 = "fd72:6569:6e00::1" // a unique local prefix (RFC 4193): "rein" in ASCII
	Sandbox6 = "fd72:6569:6e00::2"
	Bits6    = 64

	GatewayMAC = "02:72:65:69:6e:01" // locally administered, unicast
	SandboxMAC = "02:72:65:69:6e:02"

	// MTU in bytes, without the Ethernet header. The largest a tap takes is
	// 65521; 65520 is a multiple of 8 and carries 3.5 times what 1500 does.
	MTU = 65520
)

// Options of a Gateway.
type Options struct {
	// FD carries one Ethernet frame per read and write, without a prefix: a
	// tap opened with IFF_NO_PI, or an AF_PACKET socket bound to the host side
	// of a veth pair. Required; 0 counts as unset. The gateway owns it from New
	// on, and New closes it when it fails.
	FD int

	// SandboxID is given to the policy with every request.
	SandboxID string

	// Policy decides what may pass. Nil denies everything. SetPolicy puts
	// another in its place.
	Policy *policy.Policy

	// Host is the way out: it resolves names and dials. Nil: nothing leaves,
	// whatever the policy says.
	Host Host

	// Authority signs what the sandbox is shown where TLS ends in the gateway:
	// of rules that say https, and of hosts to which Vault binds a secret. Nil:
	// such connections are refused.
	Authority *Authority
	// Roots are what certificates of servers are verified by where TLS ends in
	// the gateway. Nil is the host's, read when they are first needed.
	Roots *x509.CertPool
	// Vault gives requests the credentials that the sandbox does not have. Nil:
	// there are none.
	Vault *vault.Vault

	// Models are hosts of models' vendors: only their calls pass, to port 443 over
	// TLS that ends in the gateway, and through ModelPort. They need no rule of the
	// policy; one that denies holds. Where Vault binds nothing to one, what its
	// requests have of credentials is taken out.
	Models []inference.Host
	// Meter is asked about each request that a model would answer. Nil: none passes.
	Meter inference.Meter

	// Ask is called when the policy says ask. What it grants is granted for
	// the gateway's life; it may take ten minutes, though no connection is
	// held longer than 30 seconds. Any other answer holds for the same
	// question for a minute, and is the reason in the record. Its context ends
	// with the gateway; Ask must return soon after. It is called concurrently,
	// at most Limits.Questions times, and once for any number of connections
	// to one target. Nil is nobody to ask.
	Ask func(context.Context, Question) policy.Answer

	// Owner names the command that holds a socket of the sandbox, empty when it
	// cannot tell. It is called concurrently, while the connection is held,
	// with a context of at most a second; a connection that is ready waits for
	// it 100 ms at most. Nil: nobody can tell.
	Owner func(context.Context, Socket) string

	// OwnerLasts says that Owner can tell who made a connection, for a second
	// after that, also when both have ended: then none that is admitted waits
	// for it, but requests to the proxy do. It is called for each. Nil: it
	// cannot.
	OwnerLasts func() bool

	// Limits of everything the sandbox sends out and is sent. The zero value
	// is DefaultLimits().
	Limits Limits

	// HostMeter counts what this gateway takes together with others. It must
	// stay open until Close has returned. Nil: nothing is shared.
	HostMeter *HostMeter

	// Record is called with what was refused or has ended, in order, never concurrently,
	// from a goroutine of the gateway. Required. While it is slow, attempts
	// are folded (see Attempt), and no packet waits for it. Close returns
	// after its last call.
	Record func(Attempt)

	// MaxConns bounds the connections into the sandbox that are open or being
	// opened. 0 means 128.
	MaxConns int
}

// Attempt is one target a sandbox reached or tried to reach, or many tries of
// one. What was let through comes when it has ended.
//
// The first 20 identical attempts of a minute come singly, at once. Further
// ones are counted and come as one Attempt when the minute, counted from the
// first, ends or the gateway closes. At most 256 different targets a minute
// are told apart; attempts at further ones are counted in one Attempt per
// protocol that has no name, address or port and says so in Reason.
type Attempt struct {
	Time    time.Time // of the first
	Until   time.Time // of the last; zero when Count is 1
	Count   int       // at least 1
	Proto   policy.Proto
	Name    string     // of a DNS question: lower case, no final dot, odd bytes escaped as \DDD
	Address netip.Addr // where the packet was sent: for DNS, the server
	Port    uint16
	Verdict string // "allow", "deny", or "report": allowed only because the policy is report_only
	Rule    string // of the policy, or "link" or "limit:…"
	Reason  string

	Generation uint64 // of the policy that judged it, from 1

	// Of connections; of several, sums and what they share.
	LocalPort uint16        // the sandbox's
	Owner     string        // what Options.Owner said of that port
	BytesOut  int64         // from the sandbox to the host's side
	BytesIn   int64         // and back
	Duration  time.Duration // from the first packet to the end
}

// Question is what Options.Ask is to decide.
type Question struct {
	SandboxID string
	Name      string     // in canonical form; empty for a literal address
	Address   netip.Addr // the literal address; invalid for a name
	Port      uint16
	Proto     policy.Proto
	Rule      string // of the policy, that says ask
	Reason    string
	Socket    Socket // the sandbox's
	Owner     string // what Options.Owner said of it
}

// Kind classifies an Error.
type Kind string

// The kinds of errors.
const (
	KindInvalid Kind = "invalid" // the options or arguments make no sense
	KindHost    Kind = "host"    // the descriptor cannot be used
	KindClosed  Kind = "closed"  // the gateway is closed
	KindLimit   Kind = "limit"   // MaxConns are open
	KindRefused Kind = "refused" // nothing listens on that port in the sandbox
	KindTimeout Kind = "timeout" // the context ended, or the sandbox never answered
)

// Error is what New and DialContext return.
type Error struct {
	Kind    Kind
	Op      string // "open", "dial"
	Subject string // "fd 7", "10.88.0.2:44772"
	Err     error  // the cause; syscall.ECONNREFUSED, context.Canceled and such are found by errors.Is
	Hint    string // what the reader can do; may be empty
}

func (e *Error) Error() string { return e.Op + " " + e.Subject + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
