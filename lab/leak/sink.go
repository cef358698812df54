package leak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Sink listens on the host, TCP and UDP, on loopback and on every address of
// the host's own, and on an abstract Unix socket. It keeps what reaches it.
type Sink struct {
	// Port is the one port of all listeners, TCP and UDP.
	Port uint16
	// Own are the addresses it listens on that are not loopback.
	Own []netip.AddrPort
	// Abstract is the name of its Unix socket; empty where it has none.
	Abstract string

	listeners

	mu      sync.Mutex
	arrived []Arrival
}

// Arrival is something that reached the sink.
type Arrival struct {
	At   string // the sink's address
	From string
	Data string // its first bytes; empty for a connection that said nothing
}

func (a Arrival) String() string { return fmt.Sprintf("%s from %s: %q", a.At, a.From, a.Data) }

// sinkTries is how many ports are tried: each must be free everywhere.
const sinkTries = 20

// NewSink listens. token names its Unix socket.
func NewSink(token string) (*Sink, error) {
	var err error
	for range sinkTries {
		s := &Sink{}
		if err = s.listen(token); err == nil {
			return s, nil
		}
		s.Close()
	}
	return nil, fmt.Errorf("sink: %w", err)
}

func (s *Sink) listen(token string) error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.serve(l)
	s.Port = uint16(l.Addr().(*net.TCPAddr).Port)
	addrs := []netip.Addr{netip.MustParseAddr("::1")}
	own, err := hostAddrs()
	if err != nil {
		return err
	}
	if err := s.udp(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port)); err != nil {
		return err
	}
	for _, a := range append(addrs, own...) {
		at := netip.AddrPortFrom(a, s.Port)
		l, err := net.Listen("tcp", at.String())
		if err != nil {
			if a.Is6() { // a host without IPv6
				continue
			}
			return err
		}
		s.serve(l)
		if err := s.udp(at); err != nil {
			return err
		}
		if !a.IsLoopback() {
			s.Own = append(s.Own, at)
		}
	}
	name := "rein-lab-" + token
	if u, err := net.Listen("unix", "@"+name); err == nil {
		s.Abstract = name
		s.serve(u)
	}
	return nil
}

// hostAddrs are the host's addresses that another machine, or the sandbox,
// could use.
func hostAddrs() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		own = append(own, p.Addr())
	}
	return own, nil
}

func (s *Sink) serve(l net.Listener) {
	s.keep(l)
	s.accept(l, s.receive)
}

// receive keeps the first bytes that came on a connection.
func (s *Sink) receive(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(longest))
	buf := make([]byte, 512)
	n, _ := io.ReadAtLeast(c, buf, 1) // a connection alone counts
	s.add(Arrival{At: c.LocalAddr().Network() + " " + c.LocalAddr().String(), From: c.RemoteAddr().String(), Data: string(buf[:n])})
}

func (s *Sink) udp(at netip.AddrPort) error {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	s.keep(c)
	s.all.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				s.add(Arrival{At: "udp " + at.String(), From: from.String(), Data: string(buf[:min(n, 512)])})
			}
		}
	})
	return nil
}

func (s *Sink) add(a Arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived = append(s.arrived, a)
}

// Arrived is everything that has reached the sink.
func (s *Sink) Arrived() []Arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Arrival(nil), s.arrived...)
}

// Try shows that the sink hears: it sends to every one of its addresses from
// the host, waits until each has arrived, and forgets them. The error names
// the first address where nothing did.
func (s *Sink) Try(ctx context.Context, token string) error {
	at := append([]netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port)}, s.Own...)
	for _, a := range at {
		for _, network := range []string{"tcp", "udp"} {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, a.String())
			if err != nil {
				return err
			}
			_, err = io.WriteString(c, token+" from the host "+network+" "+a.String())
			c.Close()
			if err != nil {
				return err
			}
			if err := s.await(ctx, network+" "+a.String()); err != nil {
				return err
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived = nil
	return nil
}

// await waits until something has arrived whose data ends with words.
func (s *Sink) await(ctx context.Context, words string) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, a := range s.Arrived() {
			if strings.HasSuffix(a.Data, words) {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("nothing arrived at %s: %w", words, ctx.Err())
		}
	}
}
