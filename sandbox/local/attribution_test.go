package local_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// Also what ends within milliseconds is known by the port it came from: its
// connection is made when it is.
func TestShortConnectionsByPort(t *testing.T) {
	const connections, late = 20, 2 // a machine under load may be late
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
			defer server.Close()
			port := server.Listener.Addr().(*net.TCPAddr).Port
			p := networked(t, runtime)
			s := connected(t, p, to(port, "yes.test"), nil)
			run(t, s, "sleep 60 >/dev/null 2>&1 &") // another one, that does nothing
			calls := map[string]bool{}
			for range connections {
				r := run(t, s, fmt.Sprintf("curl -sS http://yes.test:%d/", port))
				if string(r.Stdout.Head) != "hello" {
					t.Fatalf("%q %q", r.Stdout.Head, r.Stderr.Head)
				}
				calls[r.CallID] = true
			}
			var records []sandbox.NetworkRecord
			eventually(t, "every connection is on record", func() bool {
				log, err := p.NetworkRecords(t.Context(), s.ID(), 0)
				if err != nil {
					t.Fatal(err)
				}
				records = log.Records
				return len(records) == connections
			})
			for _, r := range records {
				if r.How == sandbox.ByPort {
					if !calls[r.CallID] {
						t.Errorf("%+v is of a call that was not made, or made another one", r)
					}
					delete(calls, r.CallID)
				}
			}
			if len(calls) > late {
				t.Errorf("%d of %d connections are not attributed by their port", len(calls), connections)
			}
			if err := s.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Under gVisor it is known who made a connection also when that has ended, and
// all of its command, before anybody could look: the processes here end without
// waiting for the connection. Two commands at once are not taken for each other.
func TestConnectionsOfWhatHasEnded(t *testing.T) {
	const commands, at, late = 6, 2, 2
	port := echo(t)
	p := networked(t, "gvisor")
	s := connected(t, p, to(port, "yes.test"), nil)
	leave := fmt.Sprintf(`exec python3 -c "
import os,socket
s=socket.socket()
s.setblocking(False)
s.connect_ex((socket.gethostbyname('yes.test'),%d))
os._exit(0)"`, port)
	// Who made a connection is nobody's business but the daemon's.
	const diag = "import socket\nsocket.socket(socket.AF_NETLINK,socket.SOCK_RAW,0)\nsocket.socket(socket.AF_NETLINK,socket.SOCK_RAW,4)"
	if r := run(t, s, "python3 -c '"+diag+"'"); r.OK() || !strings.Contains(string(r.Stderr.Head), "line 3") || !strings.Contains(string(r.Stderr.Head), "Protocol not supported") {
		t.Errorf("a command that asks: %q", r.Stderr.Head)
	}
	ids := make(chan string, commands*at)
	var all sync.WaitGroup
	for range at {
		all.Go(func() {
			for range commands {
				r, err := s.Run(t.Context(), sandbox.Command{Shell: leave, Timeout: 20 * time.Second})
				if err != nil || !r.OK() {
					t.Errorf("%v: %s", err, r.Stderr.Head)
				}
				ids <- r.CallID
			}
		})
	}
	all.Wait()
	close(ids)
	calls := map[string]bool{}
	for id := range ids {
		calls[id] = true
	}
	found := 0
	eventually(t, "every connection is on record", func() bool {
		log, err := p.NetworkRecords(t.Context(), s.ID(), 0)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		of := map[string]int{}
		for _, r := range log.Records {
			n += int(r.Count)
			if r.How == sandbox.ByPort {
				of[r.CallID]++
			}
		}
		for id, n := range of {
			if !calls[id] || n > 1 {
				t.Fatalf("%d connections are said to be of %q", n, id)
			}
		}
		found = len(of)
		return n == commands*at
	})
	if found < commands*at-late {
		t.Errorf("%d of %d connections are attributed by their port", found, commands*at)
	}
}
