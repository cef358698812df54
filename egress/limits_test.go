package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/egress/policy"
)

// simulated is a gateway without a stack, for what time and numbers decide.
func simulated(t *testing.T, o Options, rules ...policy.Rule) (*Gateway, *emitted) {
	t.Helper()
	p, err := policy.Compile(policy.Document{Rules: rules, Origin: policy.OriginHost})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Limits.check(); err != nil {
		t.Fatal(err)
	}
	e := &emitted{}
	o.Limits, o.Policy = o.Limits.orDefault(), p
	ctx, cancel := context.WithCancel(t.Context())
	g := newGateway(ctx, cancel, o)
	g.log = newRecorder(e.add)
	g.Open(true)
	t.Cleanup(func() {
		cancel()
		g.users.Wait()
		g.log.close()
	})
	return g, e
}

var anySSH = policy.Rule{Host: "*.example.org", Ports: []int{22}, Proto: "tcp"}

var ssh = endpoint{name: "a.example.org", port: 22}

// still is a connection that goes nowhere: its writes are swallowed.
type still struct{ net.Conn }

func (still) Write(b []byte) (int, error) { return len(b), nil }
func (still) Read(b []byte) (int, error)  { return len(b), nil }
func (still) Close() error                { return nil }

// stillHost answers as it is told.
type stillHost struct {
	dead  bool // dials end with their context
	dials atomic.Int32
}

func (h *stillHost) Lookup(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("2606:2800:220:1::1")}, nil
}

func (h *stillHost) Dial(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
	h.dials.Add(1)
	if h.dead {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return still{}, nil
}

func (h *stillHost) Own(netip.Addr) bool { return false }

// begin opens a flow as a SYN would, but for the sandbox's side.
func begin(t *testing.T, g *Gateway) *flow {
	t.Helper()
	f, refused := g.newFlow(ssh, 40000)
	if refused != nil {
		t.Fatal(refused)
	}
	if err := f.connect(); err != nil {
		f.end(err)
		t.Fatal(err)
	}
	return f
}

func wantRule(t *testing.T, err error, rule string) {
	t.Helper()
	if r, ok := errors.AsType[*refusal](err); !ok || r.verdict.Rule != rule {
		t.Errorf("%v, want a refusal by %s", err, rule)
	}
}

func TestLimitConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, e := simulated(t, Options{Host: &stillHost{}, Limits: Limits{Connections: 2}}, anySSH)
		a, b := begin(t, g), begin(t, g)
		f, refused := g.newFlow(ssh, 1)
		wantRule(t, refused, "limit:connections")
		f.record(refused)
		a.end(errors.New("over"))
		c := begin(t, g)
		c.end(errors.New("over"))
		b.end(errors.New("over"))
		if list := e.get(); len(list) != 4 || list[0].Rule != "limit:connections" || list[0].Verdict != verdictDeny {
			t.Errorf("recorded %+v", list)
		}
	})
}

func TestLimitPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := simulated(t, Options{Host: &stillHost{}, Limits: Limits{PerSecond: 3}}, anySSH)
		wantPerSecond(t, 3, func() bool {
			f, refused := g.newFlow(ssh, 1)
			if refused != nil {
				wantRule(t, refused, "limit:per_second")
				return false
			}
			f.end(errOver)
			return true
		})
	})
}

// wantPerSecond checks how many connections are admitted, at once and on
// average.
func wantPerSecond(t *testing.T, limit int, admit func() bool) {
	t.Helper()
	open := func() (n int) {
		for admit() {
			n++
		}
		return n
	}
	if n := open(); n != limit*burst {
		t.Errorf("%d at once, want %d", n, limit*burst)
	}
	for range 3 {
		time.Sleep(time.Second)
		if n := open(); n != limit {
			t.Errorf("%d in a second, want %d", n, limit)
		}
	}
	time.Sleep(time.Hour)
	if n := open(); n != limit*burst {
		t.Errorf("%d at once after an hour, want %d", n, limit*burst)
	}
}

func TestLimitBytes(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		rule   string
		out    int // of 100 written in two pieces
		in     int // of 100 read after that
	}{
		"upload":   {Limits{MaxUploadBytes: 80}, "limit:max_upload_bytes", 80, 0},
		"bytes":    {Limits{Bytes: 70}, "limit:bytes", 70, 0},
		"download": {Limits{Bytes: 150}, "limit:bytes", 100, 50},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, e := simulated(t, Options{Host: &stillHost{}, Limits: c.limits}, anySSH)
				f := begin(t, g)
				n, err := f.outside.Write(make([]byte, 60))
				if n != 60 || err != nil {
					t.Errorf("%d, %v", n, err)
				}
				n, err = f.outside.Write(make([]byte, 40))
				if n+60 != c.out {
					t.Errorf("%d bytes were sent, want %d: %v", n+60, c.out, err)
				}
				if err == nil {
					n, err = f.outside.Read(make([]byte, 100))
					if n != c.in {
						t.Errorf("%d bytes were received, want %d", n, c.in)
					}
				}
				wantRule(t, err, c.rule)
				wantRule(t, context.Cause(f.ctx), c.rule)
				f.end(err)
				_, refused := g.newFlow(ssh, 1)
				wantRule(t, refused, c.rule)
				if list := e.get(); len(list) != 1 || list[0].Rule != c.rule || list[0].BytesOut != int64(c.out) || list[0].BytesIn != int64(c.in) {
					t.Errorf("recorded %+v", list)
				}
				// Another policy may raise it.
				p, err := policy.Compile(policy.Document{Rules: []policy.Rule{anySSH}, Limits: policy.Limits{Bytes: 1000, MaxUploadBytes: 1000}})
				if err != nil {
					t.Fatal(err)
				}
				g.SetPolicy(p)
				begin(t, g).end(errors.New("over"))
			})
		})
	}
}

// Dead hosts take their turns and nobody else's time beyond it.
func TestLimitDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &stillHost{dead: true}
		g, _ := simulated(t, Options{Host: host, Limits: Limits{Dials: 2}}, anySSH)
		start := time.Now()
		errs := make(chan error)
		for range 3 {
			f, refused := g.newFlow(ssh, 1)
			if refused != nil {
				t.Fatal(refused)
			}
			go func() {
				err := f.connect()
				f.end(err)
				errs <- err
			}()
		}
		wantRule(t, <-errs, "limit:dials")
		if took := time.Since(start); took != turnTimeout {
			t.Errorf("its turn was waited for %v, want %v", took, turnTimeout)
		}
		<-errs
		<-errs
		if took := time.Since(start); took != connectTimeout {
			t.Errorf("dead hosts took %v, want %v", took, connectTimeout)
		}
		if n := host.dials.Load(); n != 4 { // two addresses each
			t.Errorf("%d dials, want 4", n)
		}
	})
}

func TestBadLimits(t *testing.T) {
	t.Parallel()
	for _, l := range []Limits{{Connections: -1}, {PerSecond: -1}, {Bytes: -1}, {MaxUploadBytes: -1}, {Dials: -1}, {Questions: -1}, {Names: -1}, {NamesPerMinute: -1}} {
		if l.check() == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
	if err := DefaultLimits().check(); err != nil || (Limits{}).orDefault() != DefaultLimits() {
		t.Errorf("the defaults: %v", err)
	}
}

// The table of docs/limits.md has the defaults that hold.
func TestLimitsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	d, all := DefaultLimits(), DefaultHostLimits()
	for name, value := range map[string]string{
		"connections": strconv.Itoa(d.Connections), "per_second": strconv.Itoa(d.PerSecond),
		"bytes": fmt.Sprintf("%d GiB", d.Bytes>>30), "max_upload_bytes": fmt.Sprintf("%d GiB", d.MaxUploadBytes>>30),
		"dials": strconv.Itoa(d.Dials), "questions": strconv.Itoa(d.Questions),
		"names": strconv.Itoa(d.Names), "names_per_minute": strconv.Itoa(d.NamesPerMinute),
		"idle_seconds": fmt.Sprintf("%d h", d.IdleSeconds/3600),
	} {
		row := regexp.MustCompile("(?m)^\\| `" + name + "` \\| [^|]+ \\| " + value + " \\|")
		if !row.Match(page) {
			t.Errorf("docs/limits.md does not give %s as %s", name, value)
		}
	}
	_, page, _ = bytes.Cut(page, []byte("| limit of all |"))
	for name, value := range map[string]string{
		"connections": strconv.Itoa(all.Connections), "per_second": strconv.Itoa(all.PerSecond),
		"bytes": fmt.Sprintf("%d GiB", all.Bytes>>30), "max_upload_bytes": fmt.Sprintf("%d GiB", all.MaxUploadBytes>>30),
	} {
		if !regexp.MustCompile("(?m)^\\| `" + name + "` \\| [^|]+ \\| " + value + " \\|").Match(page) {
			t.Errorf("docs/limits.md does not give %s of all sandboxes as %s", name, value)
		}
	}
}
