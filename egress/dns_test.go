package egress

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func pack(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRefuseQuestion(t *testing.T) {
	t.Parallel()
	query := func(name string) []byte { return pack(t, new(dns.Msg).SetQuestion(name, dns.TypeA)) }
	two := new(dns.Msg).SetQuestion("one.example.", dns.TypeA)
	two.Question = append(two.Question, dns.Question{Name: "two.example.", Qtype: dns.TypeA, Qclass: dns.ClassINET})
	response := new(dns.Msg).SetReply(new(dns.Msg).SetQuestion("answer.example.", dns.TypeA))
	update := new(dns.Msg).SetUpdate("zone.example.")
	header := func(questions uint16, rest string) []byte {
		b := make([]byte, dnsHeader)
		binary.BigEndian.PutUint16(b[4:], questions)
		return append(b, rest...)
	}
	for what, c := range map[string]struct {
		msg   []byte
		name  string
		rcode int // -1: no answer
	}{
		"plain":            {query("Example.COM."), "example.com", dns.RcodeRefused},
		"root":             {query("."), "", dns.RcodeRefused},
		"odd bytes":        {query(`a\000\027b\.c.example.`), `a\000\027b\.c.example`, dns.RcodeRefused},
		"longest name":     {query(strings.Repeat("a.", 127)), strings.Repeat("a.", 126) + "a", dns.RcodeRefused},
		"update":           {pack(t, update), "zone.example", dns.RcodeRefused},
		"two questions":    {pack(t, two), "one.example", dns.RcodeFormatError},
		"trailing rubbish": {append(query("x.example."), "rubbish"...), "x.example", dns.RcodeRefused},
		"response":         {pack(t, response), "answer.example", -1},
		"no question":      {header(0, ""), "", dns.RcodeFormatError},
		"cut name":         {header(1, "\x09abc"), "", dns.RcodeFormatError},
		"no type":          {header(1, "\x01a\x00"), "a", dns.RcodeFormatError},
		"loop":             {header(1, "\xc0\x0c"), "", dns.RcodeFormatError},
		"too short":        {make([]byte, dnsHeader-1), "", -1},
		"empty":            {nil, "", -1},
	} {
		name, answer := refuseQuestion(c.msg)
		if name != c.name {
			t.Errorf("%s: name %q, want %q", what, name, c.name)
		}
		if answer == nil {
			if c.rcode != -1 {
				t.Errorf("%s: not answered", what)
			}
			continue
		}
		var m dns.Msg
		if err := m.Unpack(answer); err != nil || m.Rcode != c.rcode || !m.Response || m.Id != binary.BigEndian.Uint16(c.msg) {
			t.Errorf("%s: answered %v, %v; want rcode %d", what, &m, err, c.rcode)
		}
	}
}

func FuzzRefuseQuestion(f *testing.F) {
	q := new(dns.Msg).SetQuestion("www.example.com.", dns.TypeAAAA)
	f.Add(pack(f, q))
	q.SetEdns0(4096, true)
	f.Add(pack(f, q))
	f.Add(pack(f, new(dns.Msg).SetReply(q)))
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02\x1b[\x00\x00\x10\x00\x01"))
	f.Add([]byte("0000\x00\x01000000\x00"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		name, answer := refuseQuestion(msg)
		for _, r := range name {
			if r < ' ' || r > '~' {
				t.Fatalf("name %q is not printable ASCII", name)
			}
		}
		if len(name) > 4*255 {
			t.Fatalf("name of %d bytes", len(name))
		}
		if answer == nil {
			if len(msg) >= dnsHeader && msg[2]&0x80 == 0 {
				t.Fatal("a query was not answered")
			}
			return
		}
		var m dns.Msg
		if err := m.Unpack(answer); err != nil {
			t.Fatalf("the answer cannot be read: %v", err)
		}
		if !m.Response || m.Id != binary.BigEndian.Uint16(msg) || len(m.Answer)+len(m.Ns)+len(m.Extra) != 0 ||
			m.Rcode != dns.RcodeRefused && m.Rcode != dns.RcodeFormatError || len(answer) > dnsHeader+255+4 {
			t.Fatalf("answered %v", &m)
		}
		var in dns.Msg
		// Unpack takes a question that ends before its class.
		if in.Unpack(msg) == nil && len(in.Question) == 1 && in.Question[0].Qclass != 0 && binary.BigEndian.Uint16(msg[4:]) == 1 &&
			(m.Rcode != dns.RcodeRefused || m.Question[0] != in.Question[0]) {
			t.Fatalf("asked %v, answered %v", &in, &m)
		}
	})
}
