package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// udpSize is what is offered as the size of a UDP message (EDNS), on both
// sides: one that long needs no fragments anywhere.
const udpSize = 1232

// exchange asks a name server over UDP from a port of the kernel's choice, and
// over TCP what does not fit. A server that does not know EDNS is asked again
// without.
func exchange(ctx context.Context, server netip.AddrPort, q dns.Question) (*dns.Msg, error) {
	for _, size := range []uint16{udpSize, 0} {
		m, err := exchangeOver(ctx, "udp", server, q, size)
		if err == nil && m.Truncated {
			m, err = exchangeOver(ctx, "tcp", server, q, size)
		}
		unknown := err == nil && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented)
		if size == 0 || !unknown {
			return m, err
		}
	}
	panic("unreachable") // the last size returns
}

func exchangeOver(ctx context.Context, network string, server netip.AddrPort, q dns.Question, size uint16) (*dns.Msg, error) {
	query := &dns.Msg{MsgHdr: dns.MsgHdr{Id: dns.Id(), RecursionDesired: true}, Question: []dns.Question{q}}
	if size > 0 {
		query.SetEdns0(size, false)
	}
	msg, err := query.Pack()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	// Also the end of ctx by its deadline.
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })() // fails only when closed
	if network == "tcp" {
		msg = append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)
	}
	if _, err := c.Write(msg); err != nil {
		return nil, err
	}
	read := readDatagram
	if network == "tcp" {
		read = readStream
	}
	// What answers another question is no answer: whoever does not see ours
	// would have to guess its id and our port.
	for {
		b, err := read(c)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		if m, ok := matching(b, query.Id, q); ok {
			return m, nil
		}
		if network == "tcp" {
			return nil, errors.New("it answers another question")
		}
	}
}

// matching reads an answer to the question.
func matching(b []byte, id uint16, q dns.Question) (*dns.Msg, bool) {
	m := new(dns.Msg)
	if err := m.Unpack(b); err != nil {
		// An answer that was cut in the middle of a record says at least so.
		if len(b) < dnsHeader || !m.Truncated {
			return nil, false
		}
	}
	if m.Id != id || !m.Response || m.Opcode != dns.OpcodeQuery {
		return nil, false
	}
	// A server may refuse without repeating a question it did not read.
	if len(m.Question) == 0 {
		return m, m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented
	}
	got := m.Question[0]
	return m, len(m.Question) == 1 && got.Qtype == q.Qtype && got.Qclass == q.Qclass && strings.EqualFold(got.Name, q.Name)
}

func readDatagram(c net.Conn) ([]byte, error) {
	b := make([]byte, 4096)
	n, err := c.Read(b)
	return b[:n], err
}

func readStream(c net.Conn) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, fmt.Errorf("over TCP: %w", err)
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, fmt.Errorf("over TCP: %w", err)
	}
	return b, nil
}
