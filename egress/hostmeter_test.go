package egress

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func hostMeter(t *testing.T, path string, l HostLimits) *HostMeter {
	t.Helper()
	m, err := OpenHostMeter(path, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// gatewaysOfOneHost share a file, each by a meter of its own as in a process of
// its own.
func gatewaysOfOneHost(t *testing.T, n int, l HostLimits) []*Gateway {
	t.Helper()
	path, list := filepath.Join(t.TempDir(), "shared"), make([]*Gateway, n)
	for i := range list {
		list[i], _ = simulated(t, Options{Host: &stillHost{}, HostMeter: hostMeter(t, path, l)}, anySSH)
	}
	return list
}

func wantRefused(t *testing.T, g *Gateway, rule string) {
	t.Helper()
	err := passing(t, g)
	wantRule(t, err, rule)
	if rule != "limit:host" && !strings.HasSuffix(err.Error(), "all sandboxes of this host share this limit") {
		t.Errorf("the reason does not say whose limit it is: %v", err)
	}
}

// passing begins and ends a connection, and returns why it could not be made.
func passing(t *testing.T, g *Gateway) error {
	t.Helper()
	f, refused := g.newFlow(ssh, 1)
	if refused != nil {
		t.Fatal(refused)
	}
	err := f.connect()
	f.end(cmp.Or(err, errOver))
	return err
}

var errOver = errors.New("over")

func TestHostConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gatewaysOfOneHost(t, 3, HostLimits{Connections: 3})
		a, b := begin(t, g[0]), begin(t, g[0])
		c := begin(t, g[1])
		for _, g := range g {
			wantRefused(t, g, "limit:host_connections")
		}
		b.end(errOver)
		d := begin(t, g[2])
		wantRefused(t, g[0], "limit:host_connections")
		for _, f := range []*flow{a, c, d} {
			f.end(errOver)
		}
		begin(t, g[0]).end(errOver)
	})
}

// holderArg makes a process of these tests one that has two connections.
const holderArg = "hold"

// What a process held that was killed is free at once.
func TestHostConnectionsOfTheKilled(t *testing.T) {
	limits := HostLimits{Connections: 3}
	if args := flag.Args(); len(args) == 2 && args[0] == holderArg {
		m := hostMeter(t, args[1], limits)
		g, _ := simulated(t, Options{Host: &stillHost{}, HostMeter: m}, anySSH)
		begin(t, g)
		begin(t, g)
		fmt.Println("holds")
		select {} // until it is killed
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shared")
	m := hostMeter(t, path, limits)
	g, _ := simulated(t, Options{Host: &stillHost{}, HostMeter: m}, anySSH)
	for range 2 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestHostConnectionsOfTheKilled$", holderArg, path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "holds\n" {
			t.Fatalf("it said %q: %v", line, err)
		}
		f := begin(t, g)
		wantRefused(t, g, "limit:host_connections")
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		other := begin(t, g)
		begin(t, g).end(errOver)
		other.end(errOver)
		f.end(errOver)
	}
}

// However many come from however many processes at once, no more are open.
func TestHostConnectionsAtOnce(t *testing.T) {
	t.Parallel()
	const limit, processes = 5, 6
	g := gatewaysOfOneHost(t, processes, HostLimits{Connections: limit, PerSecond: 1 << 20})
	var open, most, admitted atomic.Int64
	var wg sync.WaitGroup
	for _, g := range g {
		for range 3 {
			wg.Go(func() {
				for range 100 {
					if g.meter.host.admit() != nil {
						continue
					}
					admitted.Add(1)
					n := open.Add(1)
					for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
					}
					open.Add(-1)
					g.meter.host.release()
				}
			})
		}
	}
	wg.Wait()
	if most.Load() > limit || admitted.Load() == 0 {
		t.Errorf("%d were open at once, of %d", most.Load(), admitted.Load())
	}
	for range limit { // nothing was left
		f := begin(t, g[0])
		defer f.end(errOver)
	}
	wantRefused(t, g[1], "limit:host_connections")
}

func TestHostPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gatewaysOfOneHost(t, 2, HostLimits{PerSecond: 3})
		n := 0
		wantPerSecond(t, 3, func() bool {
			err := passing(t, g[n%2])
			n++
			if err != nil {
				wantRule(t, err, "limit:host_per_second")
				wantRefused(t, g[n%2], "limit:host_per_second")
			}
			return err == nil
		})
	})
}

// Exactly as many bytes pass as are left, in the hour that runs and the 24
// before it.
func TestHostBytes(t *testing.T) {
	for name, c := range map[string]struct {
		limits HostLimits
		rule   string
		out    int // of 50 written by each of two, one after the other
		in     int // of 100 read after that
	}{
		"upload":   {HostLimits{MaxUploadBytes: 80}, "limit:host_max_upload_bytes", 80, 0},
		"bytes":    {HostLimits{Bytes: 70}, "limit:host_bytes", 70, 0},
		"download": {HostLimits{Bytes: 150}, "limit:host_bytes", 100, 50},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := gatewaysOfOneHost(t, 2, c.limits)
				round := func() {
					a, b := begin(t, g[0]), begin(t, g[1])
					out, err := a.outside.Write(make([]byte, 50))
					if err != nil {
						t.Fatal(err)
					}
					n, err := b.outside.Write(make([]byte, 50))
					if out += n; out != c.out {
						t.Errorf("%d bytes were sent, want %d: %v", out, c.out, err)
					}
					if err == nil {
						n, err = b.outside.Read(make([]byte, 100))
						if n != c.in {
							t.Errorf("%d bytes were received, want %d", n, c.in)
						}
					}
					wantRule(t, err, c.rule)
					wantRule(t, context.Cause(b.ctx), c.rule)
					b.end(err)
					a.end(errOver)
				}
				round()
				start := time.Now()
				for _, after := range []time.Duration{0, time.Hour, 24 * time.Hour} {
					time.Sleep(time.Until(start.Add(after)))
					wantRefused(t, g[0], c.rule)
					wantRefused(t, g[1], c.rule)
				}
				time.Sleep(time.Until(start.Add(25 * time.Hour)))
				round()
			})
		})
	}
}

// What was taken in advance is another's when the last connection has ended, and
// when the hour is over.
func TestHostBytesInAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 64 << 20
		g := gatewaysOfOneHost(t, 2, HostLimits{Bytes: limit})
		a, b := begin(t, g[0]), begin(t, g[1])
		send := func(f *flow, n int) {
			t.Helper()
			if sent, err := f.outside.Write(make([]byte, n)); sent != n || err != nil {
				t.Fatalf("%d of %d: %v", sent, n, err)
			}
		}
		send(a, 1)
		if got := g[0].meter.host.both.left; got != hostChunk {
			t.Errorf("%d bytes were taken in advance", got)
		}
		a.end(errOver)
		send(b, limit-1)
		if n, err := b.outside.Write(make([]byte, 1)); n != 0 {
			t.Error("more was sent than may be")
		} else {
			wantRule(t, err, "limit:host_bytes")
		}
		b.end(errOver)

		time.Sleep(25 * time.Hour)
		a, b = begin(t, g[0]), begin(t, g[1])
		defer a.end(errOver)
		defer b.end(errOver)
		send(a, 1)
		time.Sleep(time.Hour)
		send(a, 1)
		time.Sleep(24 * time.Hour) // the first is not counted any more; of the second hour there is one
		send(a, 1)
		send(b, limit-hostChunk-2)
	})
}

// A clock that is put back forgets nothing that was used.
func TestHostClockPutBack(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 30, 0, 0, time.UTC)
	c := hostCounts{Hour: hourOf(now), Both: day{5, 4}}
	c.age(now.Add(-time.Hour)) // as between two processes
	if c.Hour != hourOf(now) || c.Both != (day{5, 4}) {
		t.Errorf("an hour back: %+v", c)
	}
	c.age(now.Add(-1000 * time.Hour))
	if c.Hour != hourOf(now)-1000 || c.Both != (day{5, 4}) {
		t.Errorf("far back: %+v", c)
	}
	c.age(now.Add(-999 * time.Hour))
	if c.Both != (day{0, 5, 4}) {
		t.Errorf("an hour later: %+v", c)
	}
	c.Next = now.Add(time.Hour).UnixNano()
	if c.allow(now, 2) {
		t.Error("a connection more than there may be at once")
	}
	c.Next = now.Add(burst * time.Second).UnixNano()
	if c.allow(now, 2) || !c.allow(now.Add(time.Second), 2) {
		t.Error("the bucket did not fill again")
	}
}

// Where the file's hour is yet to come, what was taken in advance is used without
// looking at the file.
func TestHostBytesOfClockPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "shared")
		m := hostMeter(t, path, HostLimits{})
		g, _ := simulated(t, Options{Host: &stillHost{}, HostMeter: m}, anySSH)
		f := begin(t, g)
		defer f.end(errOver)
		if err := m.file.change(func(c *hostCounts) error { c.Hour++; return nil }); err != nil {
			t.Fatal(err)
		}
		send := func() (int, error) { return f.outside.Write(make([]byte, 10)) }
		if _, err := send(); err != nil {
			t.Fatal(err)
		}
		other, err := openHostFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer other.close()
		if err := other.lock(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if n, err := send(); n != 10 || err != nil || time.Since(start) != 0 {
			t.Errorf("%d bytes were sent after %v: %v", n, time.Since(start), err)
		}
	})
}

func TestBadHostLimits(t *testing.T) {
	t.Parallel()
	for _, l := range []HostLimits{{Connections: -1}, {PerSecond: -1}, {Bytes: -1}, {MaxUploadBytes: -1}} {
		path := filepath.Join(t.TempDir(), "shared")
		if _, err := OpenHostMeter(path, l); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
	if DefaultHostLimits().Check() != nil || (HostLimits{}).orDefault() != DefaultHostLimits() {
		t.Error("the defaults")
	}
}

// BenchmarkHostMeter is what counting costs: a connection, and a piece of what
// splice carries.
func BenchmarkHostMeter(b *testing.B) {
	m, err := OpenHostMeter(filepath.Join(b.TempDir(), "shared"), HostLimits{PerSecond: 1 << 30, Bytes: 1 << 60, MaxUploadBytes: 1 << 60})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	b.Run("connection", func(b *testing.B) {
		for b.Loop() {
			if r := m.admit(); r != nil {
				b.Fatal(r)
			}
			m.release()
		}
	})
	b.Run("send", func(b *testing.B) {
		b.SetBytes(spliceBuffer)
		for b.Loop() {
			if _, r := m.send(spliceBuffer); r != nil {
				b.Fatal(r)
			}
		}
	})
}
