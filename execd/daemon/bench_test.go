package daemon_test

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/execd/daemon"
)

// BenchmarkCommand is one command end to end: request, fork, exec, result.
func BenchmarkCommand(b *testing.B) {
	r := serve(b, bestUser())
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		o, err := r.Run(b.Context(), execd.RunRequest{Command: "true", Rein: &execd.RunOptions{Capture: 1 << 16}}, nil)
		if err != nil || o.ExitCode == nil || *o.ExitCode != 0 {
			b.Fatal(o, err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkOutput is what the daemon takes from a command that prints as fast
// as it can.
func BenchmarkOutput(b *testing.B) {
	const line = "0123456789012345678901234567890123456789012345678901234567890123456789012345678"
	for _, kind := range []struct{ name, command string }{
		{"yes", "yes | head -c %d"},
		{"lines80", "yes " + line + " | head -c %d"},
	} {
		for _, mode := range []struct {
			name string
			mib  int
			rein *execd.RunOptions
		}{
			{"captured", 1024, &execd.RunOptions{Capture: 1 << 16, Spill: true}},
			{"raw", 256, &execd.RunOptions{Raw: true}},
			{"events", 64, nil},
		} {
			if kind.name == "yes" && mode.name == "events" {
				continue // an event a character
			}
			b.Run(kind.name+"/"+mode.name, func(b *testing.B) {
				r := serve(b, bestUser())
				n := 0
				size := mode.mib << 20 / 80 * 80
				b.SetBytes(int64(size))
				for b.Loop() {
					req := execd.RunRequest{Command: fmt.Sprintf(kind.command, size), Rein: mode.rein}
					if mode.rein != nil {
						o := *mode.rein
						o.ID = "b" + strconv.Itoa(n)
						n++
						req.Rein = &o
					}
					var got int64
					o, err := r.Run(b.Context(), req, func(e execd.Event) {
						if e.Rein != nil {
							got += int64(len(e.Rein.Data))
						} else if e.Type == execd.EventStdout {
							got += int64(len(e.Text)) + 1
						}
					})
					if err != nil || o.Stdout.Bytes != int64(size) {
						b.Fatal(o, err)
					}
					if mode.name != "captured" && got != int64(size) {
						b.Fatalf("%d of %d bytes arrived", got, size)
					}
				}
			})
		}
	}
}

// BenchmarkStart is the machine's part of a command, without HTTP.
func BenchmarkStart(b *testing.B) {
	for name, opts := range users(b) {
		b.Run(name, func(b *testing.B) {
			opts.Warden, opts.Dir = wardenArgs, publicDir(b)
			m, err := daemon.NewOS(opts)
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			for b.Loop() {
				p, err := m.Start(daemon.Spec{ID: "b", Command: "true", Dir: "/", Env: testEnv})
				if err != nil {
					b.Fatal(err)
				}
				<-p.Gone()
				p.Stdout().Close()
				p.Stderr().Close()
			}
		})
	}
}

// BenchmarkPortOwner is the search for who holds a port, beside twenty commands
// that hold none: by the port alone, by both ends of a connection, and of what a
// command holds, as the gateway asks.
func BenchmarkPortOwner(b *testing.B) {
	r := serve(b, bestUser())
	for i := range 20 {
		start := execd.RunRequest{Command: "sleep 600", Background: true, Rein: &execd.RunOptions{ID: "idle" + strconv.Itoa(i)}}
		if _, err := r.Run(b.Context(), start, nil); err != nil {
			b.Fatal(err)
		}
	}
	port := opened(b, r, "server")
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for _, s := range []struct {
		name string
		of   execd.Socket
		id   string
	}{
		{"port", onPort(port), "server"},
		{"connection", execd.Socket{Local: c.LocalAddr().(*net.TCPAddr).AddrPort(), Remote: c.RemoteAddr().(*net.TCPAddr).AddrPort()}, ""},
	} {
		b.Run(s.name, func(b *testing.B) {
			for b.Loop() {
				if id, err := r.PortOwner(b.Context(), s.of); err != nil || id != s.id {
					b.Fatalf("owner of %v: %q %v", s.of, id, err)
				}
			}
		})
	}
	b.Run("held", func(b *testing.B) {
		s := connected(b, r, "client")
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		ask, err := execd.NewPortOwners(conn, testToken)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if owner, err := ask.Ask(s); err != nil || owner.ID != "client" {
				b.Fatalf("owner of %v: %+v %v", s, owner, err)
			}
		}
	})
}
