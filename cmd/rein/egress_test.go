package main

import (
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/net/dns/dnsmessage"
)

// worldCommand is "world": a network on loopback for a script, which ends with
// it. $DNS is a name server that knows every name beneath .test, as 127.0.0.1;
// $WEB and $TLS are the ports of servers that answer every request with "reached"
// and its host, the latter with a certificate for them, signed by itself, in
// ca.pem. What they are sent is in the file arrived.
func worldCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: world")
	}
	var mu sync.Mutex
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		f, err := os.OpenFile(ts.MkAbs("arrived"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = io.WriteString(f, r.Method+" "+r.Host+r.URL.Path+" "+string(body)+"\n")
		}
		if err != nil || f.Close() != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "reached "+r.Host+"\n")
	})
	web := httptest.NewServer(answer)
	ts.Defer(web.Close)
	sealed := httptest.NewUnstartedServer(answer) // httptest's certificate is for example.com and its names
	sealed.Config.ErrorLog = log.New(io.Discard, "", 0)
	sealed.StartTLS()
	ts.Defer(sealed.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sealed.Certificate().Raw})
	ts.Check(os.WriteFile(ts.MkAbs("ca.pem"), ca, 0o600))
	names, err := net.ListenPacket("udp", "127.0.0.1:0")
	ts.Check(err)
	var served sync.WaitGroup
	served.Go(func() { serveNames(names) })
	ts.Defer(func() { names.Close(); served.Wait() })
	ts.Setenv("DNS", names.LocalAddr().String())
	ts.Setenv("WEB", strconv.Itoa(web.Listener.Addr().(*net.TCPAddr).Port))
	ts.Setenv("TLS", strconv.Itoa(sealed.Listener.Addr().(*net.TCPAddr).Port))
}

// serveNames answers until its connection is closed.
func serveNames(c net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
		name := strings.ToLower(q.Name.String())
		known := strings.HasSuffix(name, ".test.") || strings.HasSuffix(name, "example.com.")
		switch {
		case !known:
			m.RCode = dnsmessage.RCodeNameError
		case q.Type == dnsmessage.TypeA:
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60},
				Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
			}}
		}
		if b, err := m.Pack(); err == nil {
			_, _ = c.WriteTo(b, from) // who asks asks again
		}
	}
}
