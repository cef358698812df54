package egress_test

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/rein-sh/rein/egress"
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
