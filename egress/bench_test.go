package egress_test

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
)

func BenchmarkRoundTrip(b *testing.B) {
	ns, g, _ := start(b, egress.Options{})
	c := dial(b, g, serve(b, ns, echo))
	defer c.Close()
	buf := make([]byte, 64)
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkConnect(b *testing.B) {
	ns, g, _ := start(b, egress.Options{})
	port := serve(b, ns, func(c net.Conn) { io.Copy(io.Discard, c) })
	for b.Loop() {
		dial(b, g, port).Close()
	}
}

// What the sandbox pays for an attempt.
func BenchmarkRefusal(b *testing.B) {
	ns, _, _ := start(b, egress.Options{})
	ns.do(func() error {
		for b.Loop() {
			if c, err := net.Dial("tcp4", "1.1.1.1:443"); err == nil {
				c.Close()
				b.Fatal("connected")
			}
		}
		return nil
	})
}

// links are the two kinds a provider may use.
var links = map[string]func(*netns) int{"tap": (*netns).tap, "veth": (*netns).veth}

func BenchmarkUpload(b *testing.B) {
	for name, link := range links {
		// io.Copy writes 32 KiB at a time.
		for _, piece := range []int{32 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, piece>>10), func(b *testing.B) { upload(b, link, piece) })
		}
	}
}

func upload(b *testing.B, link func(*netns) int, piece int) {
	ns := newNetns(b)
	g, _ := open(b, egress.Options{FD: link(ns)})
	port := serve(b, ns, func(c net.Conn) {
		io.Copy(io.Discard, c)
		c.Write([]byte{1})
	})
	c := dial(b, g, port)
	defer c.Close()
	buf := make([]byte, piece)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	c.(interface{ CloseWrite() error }).CloseWrite()
	if _, err := io.ReadFull(c, buf[:1]); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkDownload(b *testing.B) {
	for name, link := range links {
		b.Run(name, func(b *testing.B) { download(b, link) })
	}
}

func download(b *testing.B, link func(*netns) int) {
	ns := newNetns(b)
	g, _ := open(b, egress.Options{FD: link(ns)})
	port := serve(b, ns, func(c net.Conn) {
		buf := make([]byte, 1<<20)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	})
	c := dial(b, g, port)
	defer c.Close()
	buf := make([]byte, 1<<20)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// Client, gateway and server share the machine's processors.

func BenchmarkCarryUpload(b *testing.B) {
	for name, link := range links {
		b.Run(name, func(b *testing.B) {
			c := carry(b, link, func(c *net.TCPConn) {
				io.Copy(io.Discard, c)
				c.Write([]byte{1})
			})
			buf := make([]byte, 256<<10)
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
			}
			c.CloseWrite()
			if _, err := io.ReadFull(c, buf[:1]); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func BenchmarkCarryDownload(b *testing.B) {
	for name, link := range links {
		b.Run(name, func(b *testing.B) {
			c := carry(b, link, func(c *net.TCPConn) {
				buf := make([]byte, 256<<10)
				for {
					if _, err := c.Write(buf); err != nil {
						return
					}
				}
			})
			buf := make([]byte, 256<<10)
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Fatal(err)
				}
			}
			c.Close() // before the server's end is waited for
		})
	}
}

// carry connects from inside to a server that f plays.
func carry(b *testing.B, link func(*netns) int, f func(*net.TCPConn)) *net.TCPConn {
	out := newAway()
	out.serve(b, "a.example.org", "93.184.215.14:22", f)
	ns := newNetns(b)
	g, _ := open(b, egress.Options{FD: link(ns), Host: out, Limits: egress.Limits{Bytes: 1 << 60, MaxUploadBytes: 1 << 60},
		Policy: compile(b, policy.Document{Rules: []policy.Rule{tcpTo("a.example.org", 22)}})})
	g.Open(true)
	c, err := reach(b, ns, "a.example.org", 22)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// What a connection costs that is let through, beside one that is refused.
func BenchmarkCarryConnect(b *testing.B) {
	out := newAway()
	out.serve(b, "a.example.org", "93.184.215.14:22", func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	ns, _, _ := owned(b, egress.Options{Host: out, Limits: egress.Limits{PerSecond: 1 << 30, Connections: 1 << 20},
		Policy: compile(b, policy.Document{Rules: []policy.Rule{tcpTo("a.example.org", 22)}})})
	addr, _ := resolve(b, ns, "a.example.org", 1)
	to := addr.String() + ":22"
	ns.do(func() error {
		for b.Loop() {
			c, err := net.Dial("tcp", to)
			if err != nil {
				return err
			}
			c.Close()
		}
		return nil
	})
}
