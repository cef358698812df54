package lab_test

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/rein-sh/rein/lab"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
)

// TestA4 tries every way out of real sandboxes: of gVisor as root, of runc as
// anybody else. make lab has all four.
func TestA4(t *testing.T) {
	bin, err := filepath.Abs("../bin")
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	o := local.Options{Keep: filepath.Join(bin, "rein-keep"), Execd: filepath.Join(bin, "rein-execd"), Runtime: "runc", StateDir: state}
	if os.Geteuid() == 0 {
		o.Runtime, o.RuntimePath = "gvisor", filepath.Join(bin, "rein-runsc")
	}
	p, err := local.New(o)
	if err != nil {
		t.Fatal(err)
	}
	networked := func(n lab.Network) (sandbox.Provider, func(), error) {
		o := o
		o.Egress = local.Egress{Resolvers: []netip.AddrPort{n.Resolver}, Proxy: n.Proxy, CA: n.CA}
		p, err := local.New(o)
		return p, nil, err
	}
	r, err := lab.A4(context.Background(), lab.Env{Provider: p, StateDir: state, Probe: filepath.Join(bin, "rein"), Networked: networked})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Steps {
		if !s.Pass && !s.NotTried {
			t.Errorf("%s: tried %s: expected %s, got %s", s.Name, s.Tried, s.Expected, s.Got)
		}
	}
	if !r.Pass || r.DurationMS > lab.A4Limit.Milliseconds() {
		t.Errorf("pass %v in %d ms", r.Pass, r.DurationMS)
	}
	if left, err := os.ReadDir(filepath.Join(state, "live")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
