package layer_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/rein-sh/rein/egress/policy"
)

// host is the registry's name, which resolves to loopback.
const host = "npm.example.com"

// registry serves packages made up here to npm, over plain HTTP.
type registry struct {
	URL      string
	Resolver netip.AddrPort
	Allow    []policy.Rule // what a private address takes

	turn sync.Mutex // of who asks for the newest, or changes which that is

	mu     sync.Mutex
	asked  []string // METHOD PATH
	newest string   // version of the agent; empty: the last
}

// withdraw makes an older version of the agent the newest.
func (r *registry) withdraw(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest = to
}

// pack is one version of a package: package.json and other files.
type pack struct {
	version string
	json    map[string]any
	files   map[string]string
}

// marks is a script that leaves a file behind.
func marks(name string) map[string]string {
	return map[string]string{"postinstall": fmt.Sprintf(`node -e "require('fs').writeFileSync('%s','')"`, name)}
}

// packages are an agent, which has two dependencies with install scripts.
func packages() map[string][]pack {
	agent := func(version string) pack {
		return pack{version, map[string]any{"bin": map[string]string{"rein-agent": "cli.js"}, "dependencies": map[string]string{"rein-dep": "1.0.0", "rein-bad": "1.0.0"}},
			map[string]string{"cli.js": "#!/usr/bin/env node\nconsole.log('" + version + "')\n"}}
	}
	return map[string][]pack{
		"rein-agent": {agent("1.0.0"), agent("1.1.0")},
		"rein-dep":   {{"1.0.0", map[string]any{"scripts": marks("made")}, nil}},
		"rein-bad":   {{"1.0.0", map[string]any{"scripts": marks("ran")}, nil}},
	}
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{}
	all := packages()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.asked = append(r.asked, req.Method+" "+req.URL.Path)
		newest := r.newest
		r.mu.Unlock()
		name, archive, of := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/-/")
		versions, last := map[string]any{}, ""
		for _, p := range all[name] {
			data := p.archive(t, name)
			if of && archive == p.version+".tgz" {
				_, _ = w.Write(data) // who asked may have gone
				return
			}
			sum := sha512.Sum512(data)
			doc := p.manifest(name)
			doc["dist"] = map[string]string{"tarball": r.URL + name + "/-/" + p.version + ".tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
			versions[p.version], last = doc, p.version
		}
		if len(versions) == 0 || of {
			http.NotFound(w, req)
			return
		}
		if name == agent.Name && newest != "" {
			last = newest
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "dist-tags": map[string]string{"latest": last}, "versions": versions}) // as above
	}))
	t.Cleanup(server.Close)
	port := server.Listener.Addr().(*net.TCPAddr).Port
	r.URL = fmt.Sprintf("http://%s:%d/", host, port)
	r.Allow = []policy.Rule{{CIDR: "127.0.0.0/8", Ports: []int{port}, Proto: "http"}}
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.Resolver = u.LocalAddr().(*net.UDPAddr).AddrPort()
	started := make(chan struct{})
	resolver := &dns.Server{PacketConn: u, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if len(q.Question) == 1 && q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1)}}
		}
		_ = w.WriteMsg(m) // as above
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = resolver.ActivateAndServe() }) // until it is shut down
	<-started
	t.Cleanup(func() { _ = resolver.Shutdown(); serving.Wait() })
	return r
}

// others are the requests that do not read.
func (r *registry) others() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.asked {
		if !strings.HasPrefix(a, "GET ") && !strings.HasPrefix(a, "HEAD ") {
			out = append(out, a)
		}
	}
	return out
}

func (p pack) manifest(name string) map[string]any {
	doc := map[string]any{"name": name, "version": p.version}
	for k, v := range p.json {
		doc[k] = v
	}
	return doc
}

func (p pack) archive(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	add := func(name, text string) {
		if err := w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Error(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Error(err)
		}
	}
	text, err := json.Marshal(p.manifest(name))
	if err != nil {
		t.Error(err)
	}
	add("package.json", string(text))
	for name, text := range p.files {
		add(name, text)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := z.Close(); err != nil {
		t.Error(err)
	}
	return b.Bytes()
}
