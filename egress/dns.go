package egress

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

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

// refuseQuestion reads the name a DNS message asks for and builds the answer
// that refuses it. The answer is nil for what must not be answered: a message
// that is no query, or is too short to have an id. A query that cannot be read
// gets FORMERR.
func refuseQuestion(msg []byte) (name string, answer []byte) {
	if len(msg) < dnsHeader {
		return "", nil
	}
	query := dns.Msg{MsgHdr: dns.MsgHdr{
		Id:               binary.BigEndian.Uint16(msg),
		Response:         msg[2]&0x80 != 0,
		Opcode:           int(msg[2]>>3) & 0xf,
		RecursionDesired: msg[2]&1 != 0,
	}}
	reply := dns.Msg{MsgHdr: query.MsgHdr}
	reply.Response, reply.Rcode = true, dns.RcodeFormatError

	// Only the first question is read: nobody sends two, and whatever follows
	// does not change that it is refused.
	if raw, end, err := dns.UnpackDomainName(msg, dnsHeader); err == nil && binary.BigEndian.Uint16(msg[4:]) > 0 {
		name = strings.ToLower(strings.TrimSuffix(raw, "."))
		if len(msg) >= end+4 && binary.BigEndian.Uint16(msg[4:]) == 1 {
			reply.Rcode = dns.RcodeRefused
			reply.Question = []dns.Question{{Name: raw,
				Qtype: binary.BigEndian.Uint16(msg[end:]), Qclass: binary.BigEndian.Uint16(msg[end+2:])}}
		}
	}
	if query.Response {
		return name, nil
	}
	answer, err := reply.Pack()
	if err != nil { // a name that unpacks but does not pack
		reply.Question, reply.Rcode = nil, dns.RcodeFormatError
		answer, _ = reply.Pack() // a header alone always packs
	}
	return name, answer
}

// dnsServer answers DNS over TCP, which has to be accepted before its question
// can be read.
type dnsServer struct {
	g         *Gateway
	forwarder *tcp.Forwarder

	mu   sync.Mutex
	open map[stack.TransportEndpointID]struct{} // connections, also half-open ones
}

func newDNSServer(g *Gateway) *dnsServer {
	d := &dnsServer{g: g, open: map[stack.TransportEndpointID]struct{}{}}
	d.forwarder = tcp.NewForwarder(g.stack, dnsWindow, maxDNSConns, d.serve)
	return d
}

// accept takes a SYN to port 53, or has it reset and recorded when enough
// connections are open.
func (d *dnsServer) accept(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.open[id]; ok {
		return true // a SYN once more: its answer is under way
	}
	if len(d.open) < maxDNSConns && d.forwarder.HandlePacket(id, pkt) {
		d.open[id] = struct{}{}
		return true
	}
	d.g.refuse(policy.TCP, "", destination(id))
	return false
}

// serve runs one connection, in a goroutine of the forwarder.
func (d *dnsServer) serve(r *tcp.ForwarderRequest) {
	id := r.ID()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.open, id)
	}()
	if !d.g.use() {
		r.Complete(true)
		return
	}
	defer d.g.users.Done()

	var wq waiter.Queue
	ep, err := r.CreateEndpoint(&wq) // waits; closing the gateway ends it
	r.Complete(false)
	questions := 0
	if err == nil {
		questions = d.converse(gonet.NewTCPConn(&wq, ep), destination(id))
		// A reset, so that nothing lingers however the sandbox behaves. What
		// was answered has been sent.
		ep.Abort()
		ep.Close()
	}
	if questions == 0 {
		d.g.refuse(policy.TCP, "", destination(id))
	}
}

// converse answers questions until the connection ends, and returns how many
// there were.
func (d *dnsServer) converse(c net.Conn, to netip.AddrPort) (questions int) {
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
		name, answer := refuseQuestion(msg)
		d.g.refuse(policy.DNS, name, to)
		if answer == nil {
			return questions + 1
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return questions + 1
		}
	}
	return questions
}
