package egress

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/rein-sh/rein/egress/policy"
)

func pack(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// judgeTest allows what ends in allowed.example, asks about ask.example and
// only reports reported.example.
func judgeTest(name string) policy.Verdict {
	switch {
	case strings.HasSuffix(name, "allowed.example"):
		return policy.Verdict{Action: policy.Allow, Rule: "rules[0]"}
	case name == "ask.example":
		return policy.Verdict{Action: policy.Ask, Rule: "rules[1]"}
	case strings.HasSuffix(name, "reported.example"):
		return policy.Verdict{Action: policy.Allow, Rule: policy.RuleDefault, Reason: "no rule allows it", Reported: true}
	}
	return policy.Verdict{Rule: policy.RuleDefault, Reason: "no rule allows it"}
}

func answerTest(msg []byte, n *names, udp bool) (q dnsQuestion, answer []byte, v *policy.Verdict) {
	q = readQuestion(msg)
	reply, v := q.answer(judgeTest, n)
	return q, q.pack(reply, q.limit(udp)), v
}

func headed(questions uint16, rest string) []byte {
	b := make([]byte, dnsHeader)
	binary.BigEndian.PutUint16(b[4:], questions)
	return append(b, rest...)
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	query := func(name string, qtype uint16) []byte { return pack(t, new(dns.Msg).SetQuestion(name, qtype)) }
	edit := func(f func(*dns.Msg)) []byte {
		m := new(dns.Msg).SetQuestion("allowed.example.", dns.TypeA)
		f(m)
		return pack(t, m)
	}
	const (
		silent = -1
		first4 = "198.18.0.1"
		first6 = "fd72:6569:6e00:1::1"
	)
	for what, c := range map[string]struct {
		msg    []byte
		name   string
		rcode  int
		answer string // the address; empty for none
		rule   string // of what is recorded; empty when nothing is
	}{
		"A":               {query("Allowed.Example.", dns.TypeA), "allowed.example", 0, first4, ""},
		"AAAA":            {query("aLLowed.example.", dns.TypeAAAA), "allowed.example", 0, first6, ""},
		"HTTPS":           {query("allowed.example.", dns.TypeHTTPS), "allowed.example", 0, "", ""},
		"SVCB":            {query("allowed.example.", dns.TypeSVCB), "allowed.example", 0, "", ""},
		"TXT":             {query("allowed.example.", dns.TypeTXT), "allowed.example", 0, "", ""},
		"MX":              {query("allowed.example.", dns.TypeMX), "allowed.example", 0, "", ""},
		"ANY":             {query("allowed.example.", dns.TypeANY), "allowed.example", 0, "", ""},
		"AXFR":            {query("allowed.example.", dns.TypeAXFR), "allowed.example", 0, "", ""},
		"ask":             {query("ask.example.", dns.TypeA), "ask.example", 0, first4, ""},
		"reported":        {query("reported.example.", dns.TypeA), "reported.example", 0, first4, "default"},
		"reported oddity": {query(`_x\032y.reported.example.`, dns.TypeA), `_x\ y.reported.example`, dns.RcodeNameError, "", "link"},
		"denied":          {query("Example.COM.", dns.TypeA), "example.com", dns.RcodeNameError, "", "default"},
		"denied TXT":      {query("example.com.", dns.TypeTXT), "example.com", dns.RcodeNameError, "", "default"},
		"denied PTR":      {query("1.0.18.198.in-addr.arpa.", dns.TypePTR), "1.0.18.198.in-addr.arpa", dns.RcodeNameError, "", "default"},
		"root":            {query(".", dns.TypeNS), "", dns.RcodeNameError, "", "default"},
		"odd bytes":       {query(`a\000\027b\.c.example.`, dns.TypeA), `a\000\027b\.c.example`, dns.RcodeNameError, "", "default"},
		"odd and allowed": {query(`a\000.allowed.example.`, dns.TypeA), `a\000.allowed.example`, dns.RcodeNameError, "", "link"},
		"longest name":    {query(strings.Repeat("a.", 127), dns.TypeA), strings.Repeat("a.", 126) + "a", dns.RcodeNameError, "", "default"},
		"any class":       {edit(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }), "allowed.example", 0, first4, ""},
		"other class":     {edit(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), "allowed.example", dns.RcodeRefused, "", "link"},
		"EDNS":            {edit(func(m *dns.Msg) { m.SetEdns0(4096, true) }), "allowed.example", 0, first4, ""},
		"EDNS version": {edit(func(m *dns.Msg) { m.SetEdns0(4096, false); m.IsEdns0().SetVersion(1) }),
			"allowed.example", dns.RcodeBadVers, "", "link"},
		"EDNS options": {edit(func(m *dns.Msg) {
			m.SetEdns0(100, false).IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0123456789abcdef"}, &dns.EDNS0_PADDING{Padding: make([]byte, 300)}}
		}), "allowed.example", 0, first4, ""},
		"update":           {pack(t, new(dns.Msg).SetUpdate("zone.example.")), "zone.example", dns.RcodeNotImplemented, "", "link"},
		"notify":           {edit(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), "allowed.example", dns.RcodeNotImplemented, "", "link"},
		"two questions":    {edit(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), "allowed.example", dns.RcodeFormatError, "", "link"},
		"trailing rubbish": {append(query("allowed.example.", dns.TypeA), "rubbish"...), "allowed.example", 0, first4, ""},
		"cut record":       {append(headed(0, ""), edit(func(m *dns.Msg) { m.SetEdns0(4096, true) })[dnsHeader:]...), "", dns.RcodeFormatError, "", "link"},
		"response":         {edit(func(m *dns.Msg) { m.Response = true }), "allowed.example", silent, "", "link"},
		"no question":      {headed(0, ""), "", dns.RcodeFormatError, "", "link"},
		"cut name":         {headed(1, "\x09abc"), "", dns.RcodeFormatError, "", "link"},
		"no type":          {headed(1, "\x01a\x00"), "a", dns.RcodeFormatError, "", "link"},
		"loop":             {headed(1, "\xc0\x0c"), "", dns.RcodeFormatError, "", "link"},
		"too long":         {append(query("allowed.example.", dns.TypeA), make([]byte, maxDNSMessage)...), "allowed.example", dns.RcodeFormatError, "", "link"},
		"too short":        {make([]byte, dnsHeader-1), "", silent, "", "link"},
		"empty":            {nil, "", silent, "", "link"},
	} {
		for _, udp := range []bool{true, false} {
			q, answer, v := answerTest(c.msg, limited(10, 10), udp)
			if q.name != c.name {
				t.Errorf("%s: name %q, want %q", what, q.name, c.name)
			}
			if rule := ""; v != nil {
				if rule = v.Rule; rule != c.rule || v.Reason == "" {
					t.Errorf("%s: to be recorded: %+v", what, v)
				}
			} else if c.rule != "" {
				t.Errorf("%s: not to be recorded", what)
			}
			if (answer == nil) != (c.rcode == silent) {
				t.Errorf("%s: answered %x", what, answer)
			}
			if answer != nil {
				checkAnswer(t, what, c.msg, answer, c.rcode, c.answer)
			}
		}
	}
}

// checkAnswer reads an answer and compares it with what it must be.
func checkAnswer(t *testing.T, what string, msg, answer []byte, rcode int, want string) {
	t.Helper()
	var m dns.Msg
	if err := m.Unpack(answer); err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	var in dns.Msg
	in.Unpack(msg)
	if m.Rcode != rcode || !m.Response || !m.RecursionAvailable || m.Truncated || m.Id != binary.BigEndian.Uint16(msg) || m.RecursionDesired != in.RecursionDesired {
		t.Errorf("%s: answered %v; want rcode %d", what, &m, rcode)
	}
	if opt := in.IsEdns0(); rcode != dns.RcodeFormatError && (opt == nil) != (m.IsEdns0() == nil) {
		t.Errorf("%s: asked with %v, answered with %v", what, opt, m.IsEdns0())
	} else if opt != nil && (m.IsEdns0().UDPSize() != udpSize || m.IsEdns0().Do() != opt.Do() || m.IsEdns0().Version() != 0 || len(m.IsEdns0().Option) > 0) {
		t.Errorf("%s: answered with %v", what, m.IsEdns0())
	}
	if len(m.Question) == 1 && m.Question[0] != in.Question[0] { // as it was written, upper case too
		t.Errorf("%s: asked %v, answered about %v", what, in.Question, m.Question)
	}
	negative := rcode == dns.RcodeNameError || rcode == 0 && want == ""
	if negative != (len(m.Ns) == 1) || negative && m.Ns[0].(*dns.SOA).Minttl != negativeTTL {
		t.Errorf("%s: authority %v", what, m.Ns)
	}
	var got []string
	for _, rr := range m.Answer {
		if rr.Header().Name != in.Question[0].Name || rr.Header().Ttl != positiveTTL {
			t.Errorf("%s: record %v", what, rr)
		}
		switch rr := rr.(type) {
		case *dns.A:
			got = append(got, rr.A.String())
		case *dns.AAAA:
			got = append(got, rr.AAAA.String())
		default:
			t.Errorf("%s: record %v", what, rr)
		}
	}
	if strings.Join(got, " ") != want {
		t.Errorf("%s: addresses %q, want %q", what, got, want)
	}
}

// A name that gets no address is SERVFAIL and says why; questions of other
// types cost no address.
func TestAnswerLimits(t *testing.T) {
	t.Parallel()
	ask := func(n *names, name string, qtype uint16) (int, *policy.Verdict) {
		_, answer, v := answerTest(pack(t, new(dns.Msg).SetQuestion(name+".", qtype)), n, true)
		var m dns.Msg
		if err := m.Unpack(answer); err != nil {
			t.Fatal(err)
		}
		return m.Rcode, v
	}
	for limit, n := range map[string]*names{"limit:names": limited(2, 10), "limit:names_per_minute": limited(10, 1)} {
		for i := range 20 {
			if rcode, v := ask(n, fmt.Sprintf("txt%d.allowed.example", i), dns.TypeTXT); rcode != 0 || v != nil {
				t.Errorf("%s: TXT is answered %d, %v", limit, rcode, v)
			}
		}
		for i, want := range []int{0, 0, dns.RcodeServerFailure} {
			rcode, v := ask(n, fmt.Sprintf("h%d.allowed.example", i), dns.TypeA)
			if rcode != want || (v == nil) != (want == 0) || v != nil && v.Rule != limit {
				t.Errorf("%s: name %d is answered %d, %v", limit, i, rcode, v)
			}
		}
		if rcode, v := ask(n, "h1.allowed.example", dns.TypeAAAA); rcode != 0 || v != nil {
			t.Errorf("%s: a name with an address is answered %d, %v", limit, rcode, v)
		}
	}
}

// The longest answers fit into the smallest message there is.
func TestAnswerSize(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 63)
	name := strings.Join([]string{label, label, label, label[:45], "allowed", "example"}, ".") + "."
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS} {
		m := new(dns.Msg).SetQuestion(name, qtype)
		m.SetEdns0(512, true)
		_, answer, _ := answerTest(pack(t, m), limited(10, 10), true)
		if err := m.Unpack(answer); err != nil || m.Truncated || len(answer) > 512 || len(m.Answer)+len(m.Ns) != 1 {
			t.Errorf("%d bytes: %v, %v", len(answer), m, err)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"www.example.com.", "www.Allowed.example.", "ask.example.", "x_.reported.example."} {
		q := new(dns.Msg).SetQuestion(name, dns.TypeAAAA)
		f.Add(pack(f, q), true)
		q.SetEdns0(4096, true)
		f.Add(pack(f, q), false)
		f.Add(pack(f, new(dns.Msg).SetReply(q)), true)
	}
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"), true)
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02\x1b[\x00\x00\x10\x00\x01"), true)
	f.Add([]byte("0000\x00\x01000000\x00"), false)
	f.Fuzz(func(t *testing.T, msg []byte, udp bool) {
		n := limited(10, 10)
		q, answer, v := answerTest(msg, n, udp)
		for _, r := range q.name {
			if r < ' ' || r > '~' {
				t.Fatalf("name %q is not printable ASCII", q.name)
			}
		}
		if len(q.name) > 4*255 {
			t.Fatalf("name of %d bytes", len(q.name))
		}
		for _, name := range n.names {
			if c, err := policy.Canonical(name); err != nil || c != name || name != q.name {
				t.Fatalf("%q has an address, asked for %q: %v", name, q.name, err)
			}
		}
		if answer == nil {
			if len(msg) >= dnsHeader && msg[2]&0x80 == 0 {
				t.Fatal("a query was not answered")
			}
			if v == nil {
				t.Fatal("nothing was recorded")
			}
			return
		}
		if len(answer) > dns.MinMsgSize {
			t.Fatalf("an answer of %d bytes", len(answer))
		}
		var m dns.Msg
		if err := m.Unpack(answer); err != nil {
			t.Fatalf("the answer cannot be read: %v", err)
		}
		if !m.Response || m.Truncated || m.Id != binary.BigEndian.Uint16(msg) || len(m.Question) > 1 || len(m.Answer)+len(m.Ns) > 1 {
			t.Fatalf("answered %v", &m)
		}
		if (m.Rcode == dns.RcodeSuccess) != (v == nil || v.Reported) || len(m.Answer) > len(n.names) {
			t.Fatalf("answered %v, to be recorded: %v", &m, v)
		}
		for _, rr := range m.Answer {
			var addr netip.Addr
			switch rr := rr.(type) {
			case *dns.A:
				addr, _ = netip.AddrFromSlice(rr.A.To4())
			case *dns.AAAA:
				addr, _ = netip.AddrFromSlice(rr.AAAA)
			}
			if name, ok := n.lookup(addr); !ok || name != q.name || rr.Header().Name != m.Question[0].Name {
				t.Fatalf("asked for %q, %s stands for %q", q.name, addr, name)
			}
		}
	})
}
