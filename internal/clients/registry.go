// Package clients serves what package managers and other programs fetch, as the
// registries they know by heart: PyPI, npm, GitHub, Go's module proxy, crates.io, a
// bucket of S3 and a web site, on one loopback address with TLS of a test CA, and a
// resolver that says they are all there. Its tests run the real programs in
// sandboxes against them.
package clients

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509/pkix"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// The names that are served.
const (
	PyPI      = "pypi.org"
	PyPIFiles = "files.pythonhosted.org"
	NPM       = "registry.npmjs.org"
	GitHub    = "github.com"
	GoProxy   = "proxy.golang.org"
	Site      = "www.example.com"

	Crates      = "index.crates.io"
	CratesFiles = "static.crates.io"
	Bucket      = "rein-lab.s3.eu-central-1.amazonaws.com"
	GRPC        = "grpc.example.com" // where Registry.ServeGRPC serves
)

// Names are all of them.
func Names() []string {
	return []string{PyPI, PyPIFiles, NPM, GitHub, GoProxy, Site, Crates, CratesFiles, Bucket, GRPC}
}

// AccessKey is the id of the key with which requests to Bucket are signed.
const AccessKey = "AKIAREINLABREINLABRE"

// Package is the name of the one package that every registry has, and Module its
// name in Go.
const (
	Package = "rein-lab-hello"
	Module  = "github.com/rein-lab/hello"
	// Greeting is what each of them says.
	Greeting = "hello from the registry"
)

// Registry is the servers. They are at one loopback address that is nobody
// else's, because clients know no other ports than 443 and 80.
type Registry struct {
	Resolver netip.AddrPort
	CA       []byte // PEM

	address netip.Addr
	ca      *Authority
	closers []io.Closer
	all     sync.WaitGroup
	mu      sync.Mutex
	asked   map[string]int // requests by name
}

// New makes the packages below dir and serves them. git must be installed.
func New(dir string) (*Registry, error) {
	return newRegistry(dir, func(h http.Handler) http.Handler { return h })
}

// NewGuarded is New of servers that want a key of whoever asks, as a password or
// as a bearer; Bucket wants requests to be signed with another.
func NewGuarded(dir, key, signing string) (*Registry, error) {
	bucket := newS3(signing)
	return newRegistry(dir, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Host == Bucket {
				bucket.ServeHTTP(w, r)
				return
			}
			_, password, _ := r.BasicAuth()
			if password == key || r.Header.Get("Authorization") == "Bearer "+key {
				h.ServeHTTP(w, r)
				return
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="rein"`)
			http.Error(w, "no key", http.StatusUnauthorized)
		})
	})
}

func newRegistry(dir string, guard func(http.Handler) http.Handler) (*Registry, error) {
	repo, err := repository(dir)
	if err != nil {
		return nil, err
	}
	var octets [2]byte
	_, _ = rand.Read(octets[:]) // never fails
	r := &Registry{address: netip.AddrFrom4([4]byte{127, 77, octets[0], octets[1]&0x7e | 1}), asked: map[string]int{}}
	if err := r.serve(guard(r.handler(repo))); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Registry) serve(h http.Handler) error {
	ca, err := NewAuthority(pkix.Name{CommonName: "Test CA of rein"})
	if err != nil {
		return err
	}
	pair, err := ca.Certify(Names()...)
	if err != nil {
		return err
	}
	r.ca, r.CA = ca, ca.PEM
	for _, port := range []uint16{443, 80} {
		l, err := net.Listen("tcp", netip.AddrPortFrom(r.address, port).String())
		if err != nil {
			return err
		}
		if port == 443 {
			l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}})
		}
		server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
		r.closers = append(r.closers, server)
		r.all.Go(func() { _ = server.Serve(l) }) // until it is closed
	}
	u, err := net.ListenPacket("udp", netip.AddrPortFrom(r.address, 0).String())
	if err != nil {
		return err
	}
	r.Resolver = u.LocalAddr().(*net.UDPAddr).AddrPort()
	started := make(chan struct{})
	server := &dns.Server{PacketConn: u, Handler: dns.HandlerFunc(r.resolve), NotifyStartedFunc: func() { close(started) }}
	r.all.Go(func() { _ = server.ActivateAndServe() }) // until it is shut down
	<-started
	r.closers = append(r.closers, shutdown{server})
	return nil
}

type shutdown struct{ *dns.Server }

func (s shutdown) Close() error { return s.ShutdownContext(context.Background()) }

// resolve says that every name is here, and that of gRPC next to it.
func (r *Registry) resolve(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	if len(q.Question) == 1 && q.Question[0].Qtype == dns.TypeA {
		address := r.address
		if strings.EqualFold(q.Question[0].Name, GRPC+".") {
			address = address.Next()
		}
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: address.AsSlice()}}
	}
	_ = w.WriteMsg(m) // who asked may have gone
}

// handler serves each name its own.
func (r *Registry) handler(repo string) http.Handler {
	served := map[string]http.Handler{
		PyPI: http.HandlerFunc(index), PyPIFiles: file(wheelName, wheel()), NPM: http.HandlerFunc(npm),
		GitHub: gitHandler(repo), GoProxy: http.HandlerFunc(proxy), Crates: http.HandlerFunc(crates), CratesFiles: file(crateName, crate()),
		Site: http.HandlerFunc(site),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h := served[strings.ToLower(req.Host)]
		if h == nil {
			http.NotFound(w, req)
			return
		}
		r.mu.Lock()
		r.asked[req.Host]++
		r.mu.Unlock()
		h.ServeHTTP(w, req)
	})
}

// Asked is how many requests each name has had.
func (r *Registry) Asked(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[name]
}

// Close ends the servers, and returns when their goroutines have ended.
func (r *Registry) Close() {
	for _, c := range r.closers {
		c.Close() // nothing depends on it
	}
	r.all.Wait()
}

func file(name string, data []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/"+name) {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(data) // who asked may have gone
	})
}

// gitHandler is git's own server of its smart protocol.
func gitHandler(repo string) http.Handler {
	path, err := exec.LookPath("git")
	if err != nil {
		return http.NotFoundHandler()
	}
	return &cgi.Handler{Path: path, Args: []string{"http-backend"}, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(filepath.Dir(repo)), "GIT_HTTP_EXPORT_ALL=1",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", "GIT_CONFIG_KEY_1=http.receivepack", "GIT_CONFIG_VALUE_1=true"}, Logger: log.New(io.Discard, "", 0), Stderr: io.Discard}
}
