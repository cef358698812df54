package leak

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// The names that a policy opens where keys are tried: two to which a key is bound,
// of which the second speaks no HTTP/2, one that is allowed without, and registries
// of bundles. They all are the one KeyServer.
const (
	KeyName      = "api.github.com"
	OldKeyName   = "keys.lab.test"
	OtherName    = "other.lab.test"
	NPMName      = "registry.npmjs.org"
	PyPIName     = "pypi.org"
	GitHubName   = "github.com"
	repository   = "rein-lab/hello"
	keyedAnswers = "192.0.2.0/24" // TEST-NET-1 (RFC 5737): nobody is there
)

// KeyedRange is where the names lead: nobody is there, but whoever is asked by way
// of the KeyServer's proxy reaches it.
var KeyedRange = netip.MustParsePrefix(keyedAnswers)

// keyedNames has the address of each name.
var keyedNames = map[string]netip.Addr{
	KeyName: netip.MustParseAddr("192.0.2.10"), OldKeyName: netip.MustParseAddr("192.0.2.11"), OtherName: netip.MustParseAddr("192.0.2.20"),
	NPMName: netip.MustParseAddr("192.0.2.30"), PyPIName: netip.MustParseAddr("192.0.2.31"), GitHubName: netip.MustParseAddr("192.0.2.32"),
}

// KeyServer is a server on the host's loopback that stands for all of those names,
// with a certificate of an authority of its own, the resolver that knows them, and
// the proxy by which it is reached, whatever its port. It keeps what it was sent.
type KeyServer struct {
	Resolver netip.AddrPort
	Proxy    *url.URL
	CA       []byte // PEM

	key string
	at  string // where its TLS listens
	listeners

	mu   sync.Mutex
	sent []Sent
}

// Sent is a request that reached the server.
type Sent struct {
	Name string // of TLS
	Head string // its first line and fields, and what there was of its body
	Path string
}

// NewKeyServer listens. It greets whoever has the key.
func NewKeyServer(key string) (*KeyServer, error) {
	s := &KeyServer{key: key}
	if err := s.listen(); err != nil {
		s.Close()
		return nil, fmt.Errorf("the server that wants a key: %w", err)
	}
	return s, nil
}

func (s *KeyServer) listen() error {
	pair, err := s.certify()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.keep(l)
	s.at = l.Addr().String()
	old := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	server := &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: longest, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if h.ServerName == OldKeyName {
				return old, nil
			}
			return nil, nil
		}}}
	s.keep(server)
	s.all.Go(func() { _ = server.ServeTLS(l, "", "") }) // until it is closed
	p, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.keep(p)
	s.Proxy = &url.URL{Scheme: "http", Host: p.Addr().String()}
	s.accept(p, s.forward)
	return s.serveDNS()
}

// certify makes an authority and a certificate for all names.
func (s *KeyServer) certify() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Authority of a lab"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	s.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: root.NotBefore, NotAfter: root.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for name := range keyedNames {
		leaf.DNSNames = append(leaf.DNSNames, name)
	}
	der, err = x509.CreateCertificate(rand.Reader, leaf, root, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// forward takes CONNECT to one of the addresses, and leads it to the server.
func (s *KeyServer) forward(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(c)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	at, err := netip.ParseAddrPort(r.RequestURI)
	if r.Method != http.MethodConnect || err != nil || at.Port() != 443 || !KeyedRange.Contains(at.Addr()) {
		fmt.Fprint(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		s.add(Sent{Head: "the proxy was asked for " + r.Method + " " + r.RequestURI})
		return
	}
	out, err := net.Dial("tcp", s.at)
	if err != nil {
		return
	}
	defer out.Close()
	if !s.hold(out) {
		return
	}
	defer s.drop(out)
	if _, err := fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(out, in) // until either has gone
		_ = out.(*net.TCPConn).CloseWrite()
	})
	both.Go(func() {
		_, _ = io.Copy(c, out)
		_ = c.(*net.TCPConn).CloseWrite()
	})
	both.Wait()
}

func (s *KeyServer) serveDNS() error {
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Resolver = u.LocalAddr().(*net.UDPAddr).AddrPort()
	started := make(chan struct{})
	server := &dns.Server{PacketConn: u, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if len(q.Question) == 1 {
			at, ok := keyedNames[strings.ToLower(strings.TrimSuffix(q.Question[0].Name, "."))]
			switch {
			case !ok:
				m.Rcode = dns.RcodeNameError
			case q.Question[0].Qtype == dns.TypeA:
				m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: at.AsSlice()}}
			}
		}
		_ = w.WriteMsg(m) // who asked may have gone
	})}
	s.all.Go(func() { _ = server.ActivateAndServe() }) // until it is shut down
	<-started
	s.keep(shutdown{server})
	return nil
}

// serve keeps the request and answers it by its path.
func (s *KeyServer) serve(w http.ResponseWriter, r *http.Request) {
	head, _ := httputil.DumpRequest(r, false) // what there is of it is kept
	body, _ := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	s.add(Sent{Name: r.TLS.ServerName, Path: r.URL.Path, Head: string(head) + string(body)})
	w.Header().Set("Lab-Credential", "none")
	if r.Header.Get("Authorization") != "" {
		w.Header().Set("Lab-Credential", "some")
	}
	field := r.Header.Get("Authorization")
	switch top, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); top {
	case "welcome":
		if field == "Bearer "+s.key {
			fmt.Fprintln(w, welcome)
			return
		}
		fmt.Fprintln(w, "no key")
	case "echo":
		s.echo(w, rest, field)
	case "redirect":
		http.Redirect(w, r, "https://"+OtherName+"/landed", http.StatusTemporaryRedirect)
	case "redirect-out":
		http.Redirect(w, r, "https://"+outside+"/landed?key="+url.QueryEscape(field), http.StatusFound)
	case "socket":
		s.socket(w, r)
	default:
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintln(w, "the allowed server")
	}
}

// welcome is what whoever has the key is told.
const welcome = "welcome: the key is the right one"

func (s *KeyServer) add(sent Sent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, sent)
}

// Sent is every request that has reached the server.
func (s *KeyServer) Sent() []Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}
