package egress

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/rein-sh/rein/egress/policy"
)

const (
	dnsPort   = 53
	dnsHeader = 12 // RFC 1035 4.1.1

	// The bounds of DNS over TCP. A connection beyond them is reset.
	maxDNSConns   = 32
	maxDNSQueries = 64 // a connection
	maxDNSMessage = 4096
	dnsTimeout    = 5 * time.Second // for all of a connection
	dnsWindow     = 16 << 10
)

// The answers hold for as long as the names do, but the policy may change: what
// is denied now is asked again soon.
const (
	positiveTTL = 300 // seconds
	negativeTTL = 5
)

// answerDNS answers a DNS message that the sandbox sent to an address, or
// returns nil when it must not be answered: a message that is no query, or is
// too short to have an id. The policy says whether a name has an address, and
// the address is made up here: only for HTTPS records of an allowed name is
// anybody asked. What is denied is recorded.
func (g *Gateway) answerDNS(msg []byte, to netip.AddrPort, udp bool) []byte {
	q, reply, look := g.judgeDNS(msg, to)
	if look {
		g.addServices(q, reply)
	}
	return q.pack(reply, q.limit(udp))
}

// answerUDP is answerDNS for a datagram: what takes time is done beside the
// stack. It returns false when there is no answer.
func (g *Gateway) answerUDP(id stack.TransportEndpointID, msg []byte) bool {
	q, reply, look := g.judgeDNS(msg, destination(id))
	if reply == nil {
		return false
	}
	send := func() { g.writeUDP(id, q.pack(reply, q.limit(true))) }
	if !look || len(g.lookups) == cap(g.lookups) || !g.use() {
		send()
		return true
	}
	go func() {
		defer g.users.Done()
		g.addServices(q, reply)
		send()
	}()
	return true
}

// judgeDNS reads a message and answers it as far as that can be done here. It
// returns a nil reply for none, and whether HTTPS records are to be looked up.
func (g *Gateway) judgeDNS(msg []byte, to netip.AddrPort) (q dnsQuestion, reply *dns.Msg, look bool) {
	p, generation := g.inForce()
	q = readQuestion(msg)
	allowed := false
	judge := func(name string) policy.Verdict {
		v, model := g.models.name(p, name)
		allowed = v.Action == policy.Allow && !v.Reported && !model
		return v
	}
	reply, v := q.answer(judge, g.names)
	if v != nil {
		verdict := verdictDeny
		if v.Reported {
			verdict = verdictReport
		}
		g.log.add(Attempt{Proto: policy.DNS, Name: q.name, Address: to.Addr(), Port: to.Port(),
			Verdict: verdict, Rule: v.Rule, Reason: v.Reason, Generation: generation})
	}
	look = allowed && v == nil && q.about[0].Qtype == dns.TypeHTTPS
	return q, reply, look
}

// limit is how long the answer may be.
func (q dnsQuestion) limit(udp bool) int {
	switch {
	case !udp:
		return dns.MaxMsgSize
	case q.opt == nil:
		return dns.MinMsgSize
	}
	return min(int(q.opt.UDPSize()), udpSize) // Truncate takes less than 512 for 512
}

// dnsQuestion is a DNS message of the sandbox, as far as it can be read.
type dnsQuestion struct {
	name  string // lower case, no final dot, odd bytes escaped; empty when there is none
	fault string // why it is no question that has an answer
	rcode int    // for a fault
	quiet bool   // it must not be answered
	head  dns.MsgHdr
	about []dns.Question // as it was asked: one, or none
	opt   *dns.OPT
}

// readQuestion reads a message. A name that can be read is there whatever else
// is wrong with the message: it is what a record needs.
func readQuestion(msg []byte) dnsQuestion {
	q := dnsQuestion{rcode: dns.RcodeFormatError}
	if len(msg) < dnsHeader {
		q.fault, q.quiet = "shorter than a DNS message", true
		return q
	}
	q.head = dns.MsgHdr{
		Id:               binary.BigEndian.Uint16(msg),
		Response:         msg[2]&0x80 != 0,
		Opcode:           int(msg[2]>>3) & 0xf,
		RecursionDesired: msg[2]&1 != 0,
		CheckingDisabled: msg[3]&0x10 != 0,
	}
	questions := binary.BigEndian.Uint16(msg[4:])
	raw, end, err := dns.UnpackDomainName(msg, dnsHeader)
	if err == nil && questions > 0 {
		q.name = strings.ToLower(strings.TrimSuffix(raw, "."))
		if questions == 1 && len(msg) >= end+4 {
			q.about = []dns.Question{{Name: raw,
				Qtype: binary.BigEndian.Uint16(msg[end:]), Qclass: binary.BigEndian.Uint16(msg[end+2:])}}
		}
	}
	switch {
	case q.head.Response:
		q.fault, q.quiet = "a DNS answer to nobody's question", true
	case q.head.Opcode != dns.OpcodeQuery:
		q.fault, q.rcode = "a DNS operation other than a question", dns.RcodeNotImplemented
	case q.about == nil, len(msg) > maxDNSMessage:
		q.fault = "a malformed DNS message"
	default:
		q.readRest(msg)
	}
	return q
}

// readRest reads what follows the question.
func (q *dnsQuestion) readRest(msg []byte) {
	var m dns.Msg
	if err := m.Unpack(msg); err != nil {
		q.fault = "a malformed DNS message"
		return
	}
	q.opt = m.IsEdns0()
	class := q.about[0].Qclass
	switch {
	case q.opt != nil && q.opt.Version() != 0:
		q.fault, q.rcode = "an unknown version of EDNS", dns.RcodeBadVers
	case class != dns.ClassINET && class != dns.ClassANY:
		q.fault, q.rcode = "a DNS question of another class than IN", dns.RcodeRefused
	}
}

// answer returns the reply, nil for none, and the verdict to be recorded, nil
// for none.
func (q dnsQuestion) answer(judge func(name string) policy.Verdict, names *names) (*dns.Msg, *policy.Verdict) {
	reply := &dns.Msg{MsgHdr: q.head, Question: q.about}
	reply.Response, reply.RecursionAvailable = true, true
	if q.fault != "" {
		v := &policy.Verdict{Rule: ruleLink, Reason: q.fault}
		if q.quiet {
			return nil, v
		}
		reply.Rcode = q.rcode
		return reply, v
	}
	v := judge(q.name)
	if _, err := policy.Canonical(q.name); err != nil && v.Action != policy.Deny {
		v = policy.Verdict{Rule: ruleLink, Reason: "it is not the name of a host"}
	}
	if v.Action == policy.Deny {
		reply.Rcode, reply.Ns = dns.RcodeNameError, []dns.RR{soa()}
		return reply, &v
	}
	err := q.addresses(reply, v.Rule, names)
	if r, ok := errors.AsType[*refusal](err); ok {
		reply.Rcode = dns.RcodeServerFailure
		return reply, &r.verdict
	}
	if len(reply.Answer) == 0 {
		reply.Ns = []dns.RR{soa()} // the name is there, but has nothing of that type
	}
	if v.Reported {
		return reply, &v
	}
	return reply, nil
}

// addresses puts the addresses asked for into reply. Other types have no
// records, but for HTTPS, which costs a name as an address does: its server is
// asked.
func (q dnsQuestion) addresses(reply *dns.Msg, rule string, names *names) error {
	t := q.about[0].Qtype
	if t != dns.TypeA && t != dns.TypeAAAA && t != dns.TypeHTTPS {
		return nil
	}
	v4, v6, err := names.bind(q.name, rule)
	if err != nil {
		return err
	}
	head := dns.RR_Header{Name: q.about[0].Name, Rrtype: t, Class: dns.ClassINET, Ttl: positiveTTL}
	switch t {
	case dns.TypeA:
		reply.Answer = []dns.RR{&dns.A{Hdr: head, A: v4.AsSlice()}}
	case dns.TypeAAAA:
		reply.Answer = []dns.RR{&dns.AAAA{Hdr: head, AAAA: v6.AsSlice()}}
	}
	return nil
}

// soa is of the one zone there is, and says how long a negative answer holds
// (RFC 2308).
func soa() dns.RR {
	return &dns.SOA{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: negativeTTL},
		Ns: ".", Mbox: ".", Serial: 1, Refresh: negativeTTL, Retry: negativeTTL, Expire: negativeTTL, Minttl: negativeTTL}
}

// pack makes the bytes of reply, at most limit.
func (q dnsQuestion) pack(reply *dns.Msg, limit int) []byte {
	if reply == nil {
		return nil
	}
	if q.opt != nil {
		reply.SetEdns0(udpSize, q.opt.Do())
	}
	reply.Truncate(limit)
	reply.Compress = true
	answer, err := reply.Pack()
	if err != nil { // a name that unpacks but does not pack
		head := dns.Msg{MsgHdr: reply.MsgHdr}
		head.Rcode = dns.RcodeFormatError
		answer, _ = head.Pack() // a header alone always packs
	}
	return answer
}

// newDNSListener answers DNS over TCP, which has to be accepted before its
// question can be read.
func newDNSListener(g *Gateway) *listener {
	l := newListener(g, dnsWindow, maxDNSConns)
	l.full = func(id stack.TransportEndpointID, _ int) { g.refuse(policy.TCP, "", destination(id)) }
	l.serve = func(id stack.TransportEndpointID, c *gonet.TCPConn, ep tcpip.Endpoint) {
		questions := 0
		if ep != nil {
			questions = g.converse(c, destination(id))
			// A reset, so that nothing lingers however the sandbox behaves. What
			// was answered has been sent.
			ep.Abort()
			ep.Close()
		}
		if questions == 0 {
			g.refuse(policy.TCP, "", destination(id))
		}
	}
	return l
}

// converse answers questions until the connection ends, and returns how many
// there were.
func (g *Gateway) converse(c net.Conn, to netip.AddrPort) (questions int) {
	_ = c.SetDeadline(time.Now().Add(dnsTimeout)) // gonet never fails here
	var size [2]byte
	for ; questions < maxDNSQueries; questions++ {
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return questions
		}
		n := binary.BigEndian.Uint16(size[:])
		if n > maxDNSMessage {
			return questions
		}
		msg := make([]byte, n)
		if _, err := io.ReadFull(c, msg); err != nil {
			return questions
		}
		answer := g.answerDNS(msg, to, false)
		if answer == nil {
			return questions + 1
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return questions + 1
		}
	}
	return questions
}
