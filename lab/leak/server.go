package leak

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// The names of the allowed server and of those that lead elsewhere (RFC 2606).
const (
	AllowedName  = "ok.lab.test"
	TurnedSuffix = "turned.lab.test"
)

// Server is a server on the host's loopback that a policy allows by name, and
// the resolver that knows its name and others that lead where nobody may go. It
// keeps what it was asked.
type Server struct {
	Allowed  Allowed
	Resolver netip.AddrPort

	sink *Sink
	listeners

	mu    sync.Mutex
	asked []string // of the resolver: name and type
	got   []string // by the servers: what each was told
	turns int
}

// turned is where each name below TurnedSuffix leads.
func (s *Server) turned() map[string][]netip.Addr {
	list := map[string][]netip.Addr{}
	for word, texts := range map[string][]string{
		"private": {"10.1.2.3"}, "metadata": {"169.254.169.254"}, "metadata6": {"fd00:ec2::254"}, "mixed": {"127.0.0.1", "10.1.2.3"}, "unspecified": {"0.0.0.0"}, "unspecified6": {"::"},
		"loopback6": {"::1"}, "mapped": {"::ffff:169.254.169.254"}, "nat64": {"64:ff9b::a9fe:a9fe"}, "sixtofour": {"2002:a9fe:a9fe::1"}, "linklocal": {"fe80::1"},
		"multicast": {"224.0.0.1"}, "broadcast": {"255.255.255.255"}, "gateway": {"10.88.0.1"}, "sandbox": {"10.88.0.2"}, "synthetic": {"198.18.0.1"}, "carrier": {"100.64.0.1"},
	} {
		for _, text := range texts {
			list[word] = append(list[word], netip.MustParseAddr(text))
		}
	}
	for _, own := range s.sink.Own {
		list["own"+strings.Map(func(r rune) rune {
			if r == '.' || r == ':' {
				return '-'
			}
			return r
		}, own.Addr().String())] = []netip.Addr{own.Addr()}
	}
	list["rebind"] = nil // the allowed server first, and the sink from then on
	return list
}

// NewServer listens. Its names below TurnedSuffix are to be connected to at the
// sink's port.
func NewServer(sink *Sink) (*Server, error) {
	s := &Server{sink: sink, Allowed: Allowed{Name: AllowedName, Turned: map[string]string{}}}
	for word := range s.turned() {
		s.Allowed.Turned[word] = word + "." + TurnedSuffix
	}
	err := s.listen()
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("the allowed server: %w", err)
	}
	return s, nil
}

func (s *Server) listen() error {
	cert, err := certificate()
	if err != nil {
		return err
	}
	var ports []int
	var ends []net.Listener
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		s.keep(l)
		ends, ports = append(ends, l), append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	s.Allowed.HTTP, s.Allowed.TLS, s.Allowed.TCP = ports[0], ports[1], ports[2]
	config := &tls.Config{Certificates: []tls.Certificate{cert}, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		s.tell("server name " + h.ServerName)
		return nil, nil
	}}
	for _, l := range []net.Listener{ends[0], tls.NewListener(ends[1], config)} {
		server := &http.Server{Handler: http.HandlerFunc(s.page), ReadHeaderTimeout: longest, ErrorLog: log.New(io.Discard, "", 0)}
		s.keep(server)
		s.all.Go(func() { _ = server.Serve(l) }) // until it is closed
	}
	s.accept(ends[2], s.converse)
	return s.serveDNS()
}

// page answers HTTP.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 512)) // what there is of it is kept
	s.tell(fmt.Sprintf("host %s: %s %s: %s", r.Host, r.Method, r.URL, body))
	switch r.URL.Path {
	case "/to-name":
		http.Redirect(w, r, "http://"+outside+"/", http.StatusFound)
	case "/to-address":
		at := netip.AddrPortFrom(netip.MustParseAddr("169.254.169.254"), 80)
		if len(s.sink.Own) > 0 {
			at = s.sink.Own[0]
		}
		http.Redirect(w, r, "http://"+at.String()+"/", http.StatusTemporaryRedirect)
	default:
		fmt.Fprintln(w, "the allowed server")
	}
}

// converse answers what is said on a connection.
func (s *Server) converse(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(longest))
	buf := make([]byte, 512)
	if n, err := io.ReadAtLeast(c, buf, 1); err == nil {
		s.tell("tcp: " + string(buf[:n]))
		_, _ = io.WriteString(c, "the allowed server\n") // it may have gone
	}
}

func (s *Server) serveDNS() error {
	for range sinkTries {
		u, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", u.LocalAddr().String())
		if err != nil {
			u.Close()
			continue
		}
		s.Resolver = u.LocalAddr().(*net.UDPAddr).AddrPort()
		for _, server := range []*dns.Server{{PacketConn: u, Handler: dns.HandlerFunc(s.resolve)}, {Listener: l, Handler: dns.HandlerFunc(s.resolve)}} {
			started := make(chan struct{})
			server.NotifyStartedFunc = func() { close(started) }
			s.all.Go(func() { _ = server.ActivateAndServe() }) // until it is shut down
			<-started
			s.keep(shutdown{server})
		}
		return nil
	}
	return fmt.Errorf("no port is free for UDP and TCP")
}

type shutdown struct{ *dns.Server }

func (s shutdown) Close() error { return s.ShutdownContext(context.Background()) }

// resolve answers for the zone.
func (s *Server) resolve(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	if len(q.Question) == 1 {
		name := strings.ToLower(strings.TrimSuffix(q.Question[0].Name, "."))
		s.mu.Lock()
		s.asked = append(s.asked, name+" "+dns.TypeToString[q.Question[0].Qtype])
		s.mu.Unlock()
		addrs, ok := s.addresses(name, q.Question[0].Qtype)
		if !ok {
			m.Rcode = dns.RcodeNameError
		}
		for _, a := range addrs {
			hdr := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET}
			switch {
			case a.Is4() && q.Question[0].Qtype == dns.TypeA:
				m.Answer = append(m.Answer, &dns.A{Hdr: hdr, A: a.AsSlice()})
			case a.Is6() && q.Question[0].Qtype == dns.TypeAAAA:
				m.Answer = append(m.Answer, &dns.AAAA{Hdr: hdr, AAAA: a.AsSlice()})
			}
		}
	}
	_ = w.WriteMsg(m) // who asked may have gone
}

func (s *Server) addresses(name string, kind uint16) ([]netip.Addr, bool) {
	loopback := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	if name == AllowedName {
		return loopback, true
	}
	word, ok := strings.CutSuffix(name, "."+TurnedSuffix)
	if !ok {
		return nil, false
	}
	if word != "rebind" {
		addrs, ok := s.turned()[word]
		return addrs, ok
	}
	if kind != dns.TypeA {
		return nil, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turns++; s.turns%2 == 1 || len(s.sink.Own) == 0 {
		return loopback, true
	}
	return []netip.Addr{s.sink.Own[0].Addr()}, true
}

func (s *Server) tell(words string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, words)
}

// Got is what the servers were told: "server name NAME" of TLS, "host NAME: …"
// of HTTP, "tcp: …" of the third port.
func (s *Server) Got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// Asked is what the resolver was asked: a name and a type.
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// certificate is one that signs itself.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{AllowedName}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
