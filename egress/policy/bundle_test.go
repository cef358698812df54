package policy_test

import (
	"flag"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/publicsuffix"

	"github.com/rein-sh/rein/egress/policy"
)

var update = flag.Bool("update", false, "write suffixes.txt")

func TestBundles(t *testing.T) {
	t.Parallel()
	names := policy.Bundles()
	for _, want := range []string{"pypi", "npm", "debian", "go", "crates", "github-read", "github:OWNER/REPO", "huggingface"} {
		if !slices.Contains(names, want) {
			t.Errorf("no bundle %s", want)
		}
	}
	for _, name := range names {
		hosts := policy.Bundle(name)
		if len(hosts) == 0 {
			t.Errorf("%s has no hosts", name)
		}
		p := compile(t, policy.Document{Bundles: []string{name}})
		for _, h := range hosts {
			if canonical, err := policy.Canonical(h.Host); err != nil || canonical != h.Host {
				t.Errorf("%s: %q, %v", name, canonical, err)
			}
			if u, err := url.Parse(h.Source); err != nil || u.Scheme != "https" || u.Host == "" {
				t.Errorf("%s: %s has no source", name, h.Host)
			}
			if len(h.Ports) == 0 {
				t.Errorf("%s: %s has no port", name, h.Host)
			}
			for _, port := range h.Ports {
				if v := p.Connect(h.Host, uint16(port)); !v.Allowed() || v.Rule != "bundles."+name {
					t.Errorf("%s: %s port %d: %+v", name, h.Host, port, v)
				}
			}
		}
		if v := p.Connect("example.org", 443); v.Allowed() {
			t.Errorf("%s allows anything", name)
		}
	}
	if policy.Bundle("") != nil || policy.Bundle("none") != nil {
		t.Error("bundles that are none")
	}
}

// What a bundle opens for sending, beside reading, is said.
func TestBundleNotes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"npm": "", "github-read": "", "huggingface": "", "github:rein-sh/rein": "every repository at objects.githubusercontent.com, release-assets", "pypi": "",
		"debian": "", "go": "proxy.golang.org: the server that a module's name leads to", "crates": ""} {
		notes := compile(t, policy.Document{Bundles: []string{name}}).Notes()
		if want == "" {
			if len(notes) > 0 {
				t.Errorf("%s: %v", name, notes)
			}
			continue
		}
		if len(notes) != 1 || notes[0].Path != "bundles[0]" || !strings.Contains(notes[0].Message, want) {
			t.Errorf("%s: %v", name, notes)
		}
	}
}

// A rule that denies holds against a bundle.
func TestBundleDenied(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{Bundles: []string{"pypi"}, Rules: []policy.Rule{{Host: "pypi.org", Action: "deny"}}})
	if v := p.Connect("pypi.org", 443); v.Allowed() || v.Rule != "rules[0]" {
		t.Errorf("%+v", v)
	}
}

func TestReceives(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]struct {
		how   string
		known bool
	}{
		"registry.npmjs.org": {"npm publish", true}, "PyPI.org.": {"", true}, "upload.pypi.org": {"twine", true}, "bucket.s3.amazonaws.com": {"bucket", true},
		"s3.amazonaws.com": {"bucket", true}, "example.org": {"", false}, "evils3.amazonaws.com": {"", false}, "workers.dev": {"", false}, "1.2.3.4": {"", false},
	} {
		how, known := policy.Receives(host)
		if known != want.known || !strings.Contains(how, want.how) || (want.how == "") != (how == "") {
			t.Errorf("%s: %q, %v", host, how, known)
		}
	}
}

// suffixes.txt is what the module's list says, in the layout that its table.go
// describes: nodes of 40 bits (children 10, ICANN 1, offset of the text 16, its
// length 6), and children of 32 (wildcard 1, type 2, high 14, low 14).
func TestSuffixes(t *testing.T) {
	t.Parallel()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/net/publicsuffix").Output()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("the list cannot be found: %v", err)
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "data", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	text, nodes, children := read("text"), read("nodes"), read("children")
	number := func(b []byte, size, i int) (n uint64) {
		for _, c := range b[size*i : size*(i+1)] {
			n = n<<8 | uint64(c)
		}
		return n
	}
	const exception, parentOnly = 1, 2
	var names []string
	var walk func(i int, beneath string, depth int)
	walk = func(i int, beneath string, depth int) {
		node := number(nodes, 5, i)
		offset := node >> 6 & 0xffff
		name := string(text[offset:offset+node&63]) + beneath
		c := number(children, 4, int(node>>23&0x3ff))
		kind, wildcard := c>>28&3, c>>30&1 == 1
		// A name whose parent has a wildcard is a suffix all the same.
		if depth > 1 && suffixOf(name) != name && (kind == parentOnly || wildcard && kind == exception) {
			names = append(names, name)
			if one := "x." + name; wildcard && suffixOf(one) != one {
				t.Errorf("%s is no suffix: the layout was not understood", one)
			}
		}
		for child := c & 0x3fff; child < c>>14&0x3fff; child++ {
			walk(int(child), "."+name, depth+1)
		}
	}
	for i := range topLevel(nodes, children, number) {
		walk(i, "", 1)
	}
	slices.Sort(names)
	compareSuffixes(t, names)
}

// topLevel counts the nodes of top-level domains: the first child of any node
// comes after them.
func topLevel(nodes, children []byte, number func([]byte, int, int) uint64) int {
	least := len(nodes) / 5
	for i := range len(nodes) / 5 {
		c := number(children, 4, int(number(nodes, 5, i)>>23&0x3ff))
		if low, high := int(c&0x3fff), int(c>>14&0x3fff); low < high {
			least = min(least, low)
		}
	}
	return least
}

func suffixOf(name string) string {
	suffix, _ := publicsuffix.PublicSuffix(name)
	return suffix
}

func compareSuffixes(t *testing.T, names []string) {
	t.Helper()
	old, err := os.ReadFile("suffixes.txt")
	if err != nil {
		t.Fatal(err)
	}
	var comment, have []string
	for line := range strings.Lines(string(old)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
			comment = append(comment, line)
		} else {
			have = append(have, line)
		}
	}
	if len(names) < 300 || !slices.Contains(names, "amazonaws.com") || !slices.Contains(names, "compute.amazonaws.com") {
		t.Fatalf("%d names: the layout was not understood", len(names))
	}
	if slices.Equal(have, names) {
		return
	}
	if !*update {
		t.Fatal("suffixes.txt is not what the module's list says: run this test with -update")
	}
	if err := os.WriteFile("suffixes.txt", []byte(strings.Join(append(comment, names...), "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRegistrable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"a.b.example.org": "example.org", "example.org": "example.org", "A.Example.CO.UK.": "example.co.uk",
		"org": "org", "me.github.io": "me.github.io", "x.me.github.io": "me.github.io", "not a name": "not a name", "db.internal": "db.internal"} {
		if got := policy.Registrable(in); got != want {
			t.Errorf("%q: %q; want %q", in, got, want)
		}
	}
}

func TestEncoded(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"example.org", "files.pythonhosted.org", "registry.npmjs.org", "cas-server.xethub-eu.hf.co", "cdn-lfs-us-1.hf.co",
		"release-assets.githubusercontent.com", "d111111abcdef8.cloudfront.net", "r3---sn-4g5ednsl.googlevideo.com", "us-east-1.console.aws.amazon.com",
		"ec2-203-0-113-25.compute-1.amazonaws.com", "xn--bcher-kva.example", "generativelanguage.googleapis.com", "productionresultssa10.blob.core.windows.net",
		"security.debian.org", "kubernetes-internationalization-team.example.org", "2024.example.org"} {
		if got := policy.Encoded(name); len(got) > 0 && len(got[0]) < 36 {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, name := range []string{
		"48656c6c6f20776f726c64.evil.example",               // hexadecimal
		"deadbeef-1234-4abc-8def-0123456789ab.evil.example", // an identifier
		"jbswy3dpeblw64tmmqqq.evil.example",                 // base32
		"mfrggzdfmztwq2lk.evil.example",                     // base32
		"u2vjcmv0oibhd3mta2v5x3h4y1o9z7q.evil.example",      // base64, lower case
		"1234567890123456.evil.example",                     // digits
		strings.Repeat("a", 50) + ".evil.example",           // long
		strings.Repeat("abcdefghi.", 14) + "evil.example",   // long as a whole
		"chunk-0001-7b22757365723a20.evil.example",
	} {
		if got := policy.Encoded(name); len(got) == 0 {
			t.Errorf("%s is not flagged", name)
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{Bundles: []string{"npm"}, Rules: []policy.Rule{
		{Host: "*.example.org"}, {Host: "git.example.org", Ports: []int{22}, Proto: "tcp"}, {Host: "bad.example.org", Action: "deny"}, {CIDR: "10.0.0.0/8"}}})
	e, err := p.Explain("Git.Example.org.", 0, nil)
	if err != nil || e.Target != "git.example.org" || e.Registrable != "example.org" || !e.DNS.Allowed() || len(e.Ports) != 3 || len(e.Rules) != 2 || e.Known {
		t.Fatalf("%+v, %v", e, err)
	}
	for _, a := range e.Ports {
		if !a.Verdict.Allowed() {
			t.Errorf("%+v", a)
		}
	}
	e, err = p.Explain("bad.example.org", 443, nil)
	if err != nil || e.DNS.Action != policy.Deny || len(e.Ports) != 1 || e.Ports[0].Verdict.Rule != "rules[2]" || len(e.Rules) != 2 || e.Rules[1].Says != "rules[2] denies bad.example.org" {
		t.Errorf("%+v, %v", e, err)
	}
	e, err = p.Explain("registry.npmjs.org", 443, nil)
	if err != nil || e.Receives != "" || !e.Known { // it can only be read from
		t.Errorf("%+v, %v", e, err)
	}
	open := compile(t, policy.Document{Bundles: []string{"go", "npm"}, Rules: []policy.Rule{{Host: "registry.npmjs.org"}}})
	e, err = open.Explain("registry.npmjs.org", 443, nil)
	if err != nil || !strings.Contains(e.Receives, "npm publish") || !e.Known || !strings.Contains(strings.Join(e.Notes, "\n"), "bundles[0]") {
		t.Errorf("%+v, %v", e, err)
	}
	e, err = open.Explain("proxy.golang.org", 443, nil)
	if err != nil || !strings.Contains(e.Receives, "a module's name leads to") {
		t.Errorf("%+v, %v", e, err)
	}
	e, err = p.Explain("0xa.0.0.1", 443, nil)
	if err != nil || e.Target != "10.0.0.1" || e.Class != policy.Private || e.DNS != nil || !e.Ports[0].Verdict.Allowed() {
		t.Errorf("%+v, %v", e, err)
	}
	own := func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.1") }
	e, err = p.Explain("10.0.0.1", 443, own)
	if v := e.Ports[0].Verdict; err != nil || e.Class != policy.Own || v.Allowed() || !policy.Openable(v.Rule) || len(e.Notes) == 0 || !strings.Contains(e.Notes[0], "this host") {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err = p.Explain("10.0.0.2", 443, own); err != nil || !e.Ports[0].Verdict.Allowed() {
		t.Errorf("%+v, %v", e, err)
	}
	e, err = p.Explain("64:ff9b::169.254.169.254", 80, nil)
	if err != nil || e.Class != policy.Metadata || e.Ports[0].Verdict.Rule != "address.metadata" || policy.Openable("address.metadata") || len(e.Notes) == 0 {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err = p.Explain("no name", 443, nil); err == nil {
		t.Error("no error")
	}
	if e, err = (*policy.Policy)(nil).Explain("example.org", 443, nil); err != nil || e.Ports[0].Verdict.Allowed() {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestSuggest(t *testing.T) {
	t.Parallel()
	seen := []policy.Seen{
		{Name: "pypi.org", Port: 443, Proto: policy.TLS, Addr: addr("198.18.0.5")},
		{Name: "PyPI.org.", Port: 443, Proto: policy.TLS},
		{Name: "git.example.org", Port: 22, Proto: policy.TCP},
		{Name: "git.example.org", Port: 443, Proto: policy.TCP},
		{Name: "git.example.org", Proto: policy.DNS, Addr: addr("10.88.0.1"), Port: 53},
		{Name: "asked.example.org", Proto: policy.DNS, Addr: addr("10.88.0.1"), Port: 53},
		{Name: "asked.example.org", Proto: policy.DNS, Addr: addr("10.88.0.1"), Port: 53},
		{Name: "alt.example.org", Port: 8443, Proto: policy.TLS},
		{Addr: addr("1.1.1.1"), Port: 443, Proto: policy.TCP},
		// None of what follows.
		{Addr: addr("169.254.169.254"), Port: 80, Proto: policy.TCP},
		{Name: "metadata.google.internal", Port: 80, Proto: policy.HTTP},
		{Name: "metadata.google.internal", Proto: policy.DNS},
		{Name: "rebound.example.org", Addr: addr("169.254.169.254"), Port: 80, Proto: policy.HTTP},
		{Name: "inside.example.org", Addr: addr("10.0.0.7"), Port: 443, Proto: policy.TLS},
		{Addr: addr("10.0.0.1"), Port: 22, Proto: policy.TCP},
		{Name: "lan.example.org", Port: 8080, Proto: policy.HTTP, Refused: "it is private"},
		{Addr: addr("1.0.0.1"), Port: 443, Proto: policy.TLS, Refused: "it is this host's own"},
		{Addr: addr("64:ff9b::a9fe:a9fe"), Port: 80, Proto: policy.TCP},
		{Addr: addr("64:ff9b::808:808"), Port: 80, Proto: policy.TCP},
		{Addr: addr("198.18.0.9"), Port: 443, Proto: policy.TCP},
		{Addr: addr("8.8.8.8"), Port: 53, Proto: policy.UDP},
		{Addr: addr("8.8.8.8"), Proto: policy.ICMP},
		{Name: "48656c6c6f20776f726c64.evil.example", Proto: policy.DNS},
		{Name: "a_b.example.org", Proto: policy.DNS},
		{Proto: policy.TCP},
	}
	for i := range 20 {
		seen = append(seen, policy.Seen{Name: string(rune('a'+i)) + "x.tunnel.example", Proto: policy.DNS})
	}
	s := policy.Suggest(seen)
	want := []policy.Rule{
		{CIDR: "1.1.1.1", Ports: []int{443}},
		{Host: "alt.example.org", Ports: []int{8443}, Proto: "tls"},
		{Host: "asked.example.org", Ports: []int{443}},
		{Host: "git.example.org", Ports: []int{443}},
		{Host: "git.example.org", Ports: []int{22}, Proto: "tcp"},
		{Host: "pypi.org", Ports: []int{443}},
	}
	if !slices.EqualFunc(s.Document.Rules, want, func(a, b policy.Rule) bool {
		return a.Host == b.Host && a.CIDR == b.CIDR && slices.Equal(a.Ports, b.Ports) && a.Proto == b.Proto && a.Action == "" && b.Action == ""
	}) {
		t.Errorf("%+v", s.Document)
	}
	if len(s.Left) != len(seen)-9 {
		t.Errorf("%d left out of %d: %v", len(s.Left), len(seen), s.Left)
	}
	p := compile(t, s.Document)
	for i, one := range seen {
		v := p.Connect(one.Name, one.Port)
		if one.Name == "" {
			v = p.Literal(one.Addr, one.Port, nil)
		}
		if one.Proto == policy.DNS {
			v = p.Name(one.Name)
		}
		if v.Allowed() != (i < 9) && one.Proto != policy.UDP {
			t.Errorf("%+v: %+v", one, v)
		}
	}
	if s := policy.Suggest(nil); len(s.Document.Rules)+len(s.Left)+len(s.Notes) != 0 {
		t.Errorf("%+v", s)
	}
}

// A name whose address was refused is not proposed, although it was asked for: a
// rule for it alone would open nothing. What is not looked at is said.
func TestSuggestWhatOpens(t *testing.T) {
	t.Parallel()
	s := policy.Suggest([]policy.Seen{
		{Name: "lan.example.org", Proto: policy.DNS, Port: 53},
		{Name: "lan.example.org", Proto: policy.TCP, Port: 8080, Refused: "10.0.0.1 is private"},
		{Name: "db.example.org", Proto: policy.TCP, Port: 5432},
	})
	if len(s.Document.Rules) != 1 || s.Document.Rules[0].Host != "db.example.org" || len(s.Left) != 1 || s.Left[0].Reason != "10.0.0.1 is private" {
		t.Errorf("%+v", s)
	}
	if !slices.ContainsFunc(s.Notes, func(n string) bool {
		return strings.Contains(n, "db.example.org is proposed as tcp, which is not looked at")
	}) {
		t.Errorf("%q", s.Notes)
	}
}

// What was looked into has to be again, and a bundle is less than a rule.
func TestSuggestBundles(t *testing.T) {
	t.Parallel()
	s := policy.Suggest([]policy.Seen{
		{Name: "registry.npmjs.org", Port: 443, Proto: policy.TLS},
		{Name: "registry.npmjs.org", Port: 443, Proto: policy.HTTPS},
		{Name: "api.example.org", Port: 443, Proto: policy.HTTPS},
		{Name: "api.example.org", Port: 443, Proto: policy.TCP},
	})
	if len(s.Left) != 0 || len(s.Document.Rules) != 2 || s.Document.Rules[0].Proto != "https" || s.Document.Rules[1].Proto != "https" {
		t.Errorf("%+v", s)
	}
	if !slices.ContainsFunc(s.Notes, func(n string) bool { return strings.HasPrefix(n, "registry.npmjs.org is of the bundle npm,") }) {
		t.Errorf("%q", s.Notes)
	}
	compile(t, s.Document)
}
