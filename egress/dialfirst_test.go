package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// dials is a network without one: how long each address takes to answer, and
// whether it does. It writes down what was tried when, and what was closed.
type dials struct {
	begin time.Time
	mu    sync.Mutex
	tried []string
	open  int
}

type dialled struct {
	net.Conn
	d *dials
}

func (c *dialled) Close() error {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.open--
	return nil
}

// dial answers after as many milliseconds as the port says; those of odd
// addresses refuse.
func (d *dials) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	d.mu.Lock()
	d.tried = append(d.tried, fmt.Sprintf("%s at %v", to.Addr(), time.Since(d.begin)))
	d.mu.Unlock()
	select {
	case <-time.After(time.Duration(to.Port()) * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if to.Addr().As4()[3]%2 == 1 {
		return nil, fmt.Errorf("%s refuses", to.Addr())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open++
	return &dialled{d: d}, nil
}

func TestDialFirst(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		to    []string
		won   string // or the error
		took  time.Duration
		tried []string
	}{
		"the first": {[]string{"10.0.0.2:100", "10.0.0.4:1"}, "10.0.0.2:100", 100 * time.Millisecond, []string{"10.0.0.2 at 0s"}},
		"the next, at once": {[]string{"10.0.0.1:30", "10.0.0.4:10"}, "10.0.0.4:10", 40 * time.Millisecond,
			[]string{"10.0.0.1 at 0s", "10.0.0.4 at 30ms"}},
		"beside a silent one": {[]string{"10.0.0.2:9000", "10.0.0.4:10"}, "10.0.0.4:10", 260 * time.Millisecond,
			[]string{"10.0.0.2 at 0s", "10.0.0.4 at 250ms"}},
		"both at last": {[]string{"10.0.0.2:300", "10.0.0.4:500"}, "10.0.0.2:300", 300 * time.Millisecond,
			[]string{"10.0.0.2 at 0s", "10.0.0.4 at 250ms"}},
		"no more than so many": {[]string{"10.0.0.1:2000", "10.0.0.3:5000", "10.0.0.5:5000", "10.0.0.7:5000", "10.0.0.8:10"}, "10.0.0.8:10", 2010 * time.Millisecond,
			[]string{"10.0.0.1 at 0s", "10.0.0.3 at 250ms", "10.0.0.5 at 500ms", "10.0.0.7 at 750ms", "10.0.0.8 at 2s"}},
		"none": {[]string{"10.0.0.1:10", "10.0.0.3:20"}, "10.0.0.1 refuses", 30 * time.Millisecond,
			[]string{"10.0.0.1 at 0s", "10.0.0.3 at 10ms"}},
		"nowhere": {nil, errNoAddress.Error(), 0, nil},
		"all silent": {[]string{"10.0.0.2:60000", "10.0.0.4:60000"}, context.DeadlineExceeded.Error(), 5 * time.Second,
			[]string{"10.0.0.2 at 0s", "10.0.0.4 at 250ms"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &dials{begin: time.Now()}
			var to []netip.AddrPort
			for _, s := range c.to {
				to = append(to, netip.MustParseAddrPort(s))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			conn, won, err := dialFirst(ctx, d.dial, to)
			got := won.String()
			if err != nil {
				got = err.Error()
			}
			if got != c.won || time.Since(d.begin) != c.took || !slices.Equal(d.tried, c.tried) || (conn != nil) != (err == nil) {
				t.Errorf("%s: %s after %v, tried %q", what, got, time.Since(d.begin), d.tried)
			}
			if conn != nil {
				conn.Close()
			}
			if d.open != 0 {
				t.Errorf("%s: %d connections are open", what, d.open)
			}
		})
	}
}

// A connection that is made when another has won is closed.
func TestDialFirstClosesLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &dials{begin: time.Now()}
		deaf := func(_ context.Context, to netip.AddrPort) (net.Conn, error) { return d.dial(context.Background(), to) }
		conn, _, err := dialFirst(t.Context(), deaf, []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:900"), netip.MustParseAddrPort("10.0.0.4:50")})
		if err != nil || time.Since(d.begin) != 900*time.Millisecond || d.open != 1 {
			t.Errorf("%v after %v, %d open", err, time.Since(d.begin), d.open)
		}
		conn.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := dialFirst(ctx, d.dial, []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:900")}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
