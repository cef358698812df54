package layer_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/wrap/layer"
)

// counted is a provider that counts what it makes.
type counted struct {
	*local.Provider
	made atomic.Int32
	last atomic.Pointer[sandbox.Spec]
}

func (c *counted) Create(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	c.made.Add(1)
	c.last.Store(&s)
	return c.Provider.Create(ctx, s)
}

// left fails when a sandbox is.
func (c *counted) left(t *testing.T) {
	t.Helper()
	if list, err := c.List(context.WithoutCancel(t.Context()), nil); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

func provider(t *testing.T, r *registry, runtime string) *counted {
	t.Helper()
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	o := local.Options{Keep: filepath.Join(bin, "rein-keep"), Execd: filepath.Join(bin, "rein-execd"), Runtime: runtime, StateDir: t.TempDir()}
	if _, err := os.Stat(o.Keep); err != nil {
		t.Fatalf("%v: run make build", err)
	}
	if runtime == "gvisor" {
		o.RuntimePath = filepath.Join(bin, "rein-runsc")
	}
	o.Egress = local.Egress{Resolvers: []netip.AddrPort{r.Resolver}}
	p, err := local.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return &counted{Provider: p}
}

// store opens one in a directory that others cannot enter, as a cache's is.
func store(t *testing.T, dir string, r *registry) *layer.Layers {
	t.Helper()
	o := layer.Options{Dir: filepath.Join(dir, "agents"), Records: filepath.Join(dir, "sandboxes")}
	if r != nil {
		o.Registry, o.Allow = r.URL, r.Allow
	}
	l, err := layer.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// private is a directory of the test whose trees can be removed at its end.
func private(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := layer.RemoveTree(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func kind(err error) layer.Kind {
	if e, ok := errors.AsType[*layer.Error](err); ok {
		return e.Kind
	}
	return ""
}

var agent = layer.Package{Name: "rein-agent", Version: "1.0.0", Scripts: []string{"rein-dep"}, Node: "18"}

// A package is installed once, without scripts that nobody named, kept, and run in
// sandboxes that cannot change it.
func TestInstall(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	for _, runtime := range []string{"gvisor", "runc"} {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			p, dir := provider(t, r, runtime), private(t)
			l, target := store(t, dir, r), layer.Target{Provider: p}
			got := get(t, l, agent, target)
			if !got.Fresh || got.Version != "1.0.0" || got.Newest || len(got.Packages) != 3 || !strings.HasPrefix(got.Packages[0].Integrity, "sha512-") || !got.Has("rein-agent") {
				t.Errorf("%+v", got)
			}
			for name, want := range map[string]bool{"rein-dep/made": true, "rein-bad/ran": false, "rein-bad/package.json": true} {
				if _, err := os.Stat(filepath.Join(got.Dir, "node_modules", name)); (err == nil) != want {
					t.Errorf("%s: %v", name, err)
				}
			}
			spec := p.last.Load()
			if !strings.HasPrefix(spec.Network.Rules[len(spec.Network.Rules)-1].Host, host) || len(spec.Network.Bundles) > 0 || len(spec.Mounts)+len(spec.Secrets)+len(spec.Env) > 0 || spec.Resources.Disk == 0 || spec.TTL > 11*time.Minute {
				t.Errorf("%+v", spec)
			}
			if others := r.others(); len(others) > 0 {
				t.Errorf("not only read: %q", others)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "sandboxes", got.SandboxID, "audit.jsonl")); err != nil || !strings.Contains(string(b), "npm install") {
				t.Errorf("its record: %v", err)
			}
			if again := get(t, l, agent, target); again.Fresh || again.Digest != got.Digest || p.made.Load() != 1 {
				t.Errorf("%+v, %d sandboxes", again, p.made.Load())
			}
			p.left(t)
			shown(t, p, got)
			both(t, p, r, dir)
			failures(t, p, l, target)
		})
	}
}

func get(t *testing.T, l *layer.Layers, p layer.Package, target layer.Target) *layer.Layer {
	t.Helper()
	got, err := l.Get(t.Context(), p, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { got.Close() })
	return got
}

// shown runs the agent in a sandbox that has its layer.
func shown(t *testing.T, p sandbox.Provider, l *layer.Layer) {
	t.Helper()
	box, err := sandbox.Create(t.Context(), p, sandbox.Spec{TTL: time.Minute, Mounts: []sandbox.Mount{l.Mount()}}, sandbox.Options{Log: audit.New(nothing{}, audit.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	res, err := box.Run(t.Context(), sandbox.Command{Shell: l.Bin() + "/rein-agent; touch " + layer.At + "/x " + l.Bin() + "/x; rm -f " + l.Bin() + "/rein-agent; ls " + l.Bin()})
	if err != nil || string(res.Stdout.Head) != "1.0.0\nrein-agent\n" {
		t.Errorf("%q, %q, %v", res.Stdout.Head, res.Stderr.Head, err)
	}
	if err := l.Fits(box.Info(), "v"+l.Node); err != nil {
		t.Error(err)
	}
	if err := l.Fits(box.Info(), "v1.0.0"); kind(err) != layer.KindChanged {
		t.Errorf("another Node.js: %v", err)
	}
	if err := box.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}

type nothing struct{}

func (nothing) Write(p []byte) (int, error) { return len(p), nil }
func (nothing) Sync() error                 { return nil }
func (nothing) Close() error                { return nil }

// both is the newest, asked for by two at once: it is installed once, and stays the
// newest until it is asked for again.
func both(t *testing.T, p *counted, r *registry, dir string) {
	t.Helper()
	r.turn.Lock()
	defer r.turn.Unlock()
	before, newest := p.made.Load(), agent
	newest.Version = ""
	var all sync.WaitGroup
	var fresh atomic.Int32
	for range 2 {
		all.Go(func() {
			l, err := store(t, dir, r).Get(t.Context(), newest, layer.Target{Provider: p}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if l.Fresh {
				fresh.Add(1)
			}
			if l.Version != "1.1.0" || !l.Newest {
				t.Errorf("%+v", l)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := p.made.Load() - before; n != 1 || fresh.Load() != 1 {
		t.Errorf("%d sandboxes, %d installations", n, fresh.Load())
	}
	newest.Update = true
	used := get(t, store(t, dir, r), newest, layer.Target{Provider: p})
	if !used.Fresh || used.Version != "1.1.0" || p.made.Load()-before != 2 {
		t.Errorf("%+v", used)
	}
	// A release that is withdrawn does not come back; not by a layer that is there, and
	// not by one that is used.
	for _, version := range []string{"1.0.0", "1.1.0", "1.0.0"} {
		r.withdraw(version)
		newest.Update = true
		if l := get(t, store(t, dir, r), newest, layer.Target{Provider: p}); !l.Fresh || l.Version != version {
			t.Errorf("%+v", l)
		}
		newest.Update = false
		if l := get(t, store(t, dir, r), newest, layer.Target{Provider: p}); l.Fresh || l.Version != version {
			t.Errorf("not asked for again: %+v, want %s", l, version)
		}
	}
	r.withdraw("")
}

// failures leave nothing behind.
func failures(t *testing.T, p *counted, l *layer.Layers, target layer.Target) {
	t.Helper()
	for name, c := range map[string]struct {
		p    layer.Package
		kind layer.Kind
		says string
		hint string
	}{
		"a Node.js that is too old": {layer.Package{Name: agent.Name, Version: "1.0.0", Node: "99.1"}, layer.KindNode, "needs Node.js 99.1", "nodejs"},
		"no such package":           {layer.Package{Name: "rein-none"}, layer.KindInstall, "has no package rein-none (E404)", "check the name"},
		"no such version":           {layer.Package{Name: agent.Name, Version: "9.9.9"}, layer.KindInstall, "has no rein-agent@9.9.9 (ETARGET)", "npm view rein-agent versions --registry http://"},
	} {
		_, err := l.Get(t.Context(), c.p, target, nil)
		e, ok := errors.AsType[*layer.Error](err)
		if !ok || e.Kind != c.kind || !strings.Contains(err.Error(), c.says) || !strings.Contains(e.Hint(), c.hint) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := l.Get(ctx, layer.Package{Name: agent.Name, Version: "1.1.0"}, target, func(pr layer.Progress) {
		if pr.Stage == layer.StageInstall {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	p.left(t)
}

// Where nothing else is allowed, an installation says what it was denied.
func TestDenied(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	p, dir := provider(t, r, "runc"), private(t)
	l, err := layer.Open(layer.Options{Dir: filepath.Join(dir, "agents"), Records: filepath.Join(dir, "sandboxes"), Registry: r.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = l.Get(t.Context(), agent, layer.Target{Provider: p}, nil); kind(err) != layer.KindInstall || !strings.Contains(err.Error(), "denied "+host) {
		t.Errorf("%v", err)
	}
	p.left(t)
}

// bare is a provider whose sandboxes have no program at all.
type bare struct{ *sandboxtest.Memory }

func (b bare) Create(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	s.Resources, s.Network, s.Image = sandbox.Resources{}, policy.Document{}, ""
	return b.Memory.Create(ctx, s)
}

func TestNoNode(t *testing.T) {
	t.Parallel()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{})
	t.Cleanup(func() { m.Close() })
	_, err := store(t, private(t), nil).Get(t.Context(), agent, layer.Target{Provider: bare{m}, Spec: sandbox.Spec{Image: "debian:12"}}, nil)
	e, ok := errors.AsType[*layer.Error](err)
	if !ok || e.Kind != layer.KindNode || !strings.Contains(e.Hint(), "node:18") || strings.Contains(e.Hint(), "nodejs") {
		t.Errorf("%v", err)
	}
	if list, err := m.List(t.Context(), nil); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// What was changed is not used; what is used is not removed.
func TestChanged(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	p, dir := provider(t, r, "runc"), private(t)
	l, target := store(t, dir, r), layer.Target{Provider: p}
	got := get(t, l, agent, target)
	if err := l.Verify(t.Context(), got.Name); err != nil {
		t.Error(err)
	}
	if err := l.Remove(t.Context(), got.Name); kind(err) != layer.KindInUse {
		t.Errorf("removed while it is used: %v", err)
	}
	if gone, err := l.Prune(t.Context(), 0); err != nil || len(gone) > 0 {
		t.Errorf("%v, %v", gone, err)
	}
	cli := filepath.Join(got.Dir, "node_modules/rein-agent/cli.js")
	info, err := os.Stat(cli)
	text, readErr := os.ReadFile(cli)
	text[len(text)-3] ^= 1
	if err := errors.Join(err, readErr, os.Chmod(cli, 0o755), os.WriteFile(cli, text, 0o755), os.Chmod(cli, 0o555), os.Chtimes(cli, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	if err := l.Verify(t.Context(), got.Name); kind(err) != layer.KindChanged || !strings.Contains(err.Error(), "cli.js") {
		t.Errorf("another content of the same size and time: %v", err)
	}
	if err := os.Chtimes(cli, time.Time{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	_, err = l.Get(t.Context(), agent, target, nil)
	if e, ok := errors.AsType[*layer.Error](err); !ok || e.Kind != layer.KindChanged || !strings.Contains(e.Hint(), "rein layer rm "+got.Name) {
		t.Errorf("another time: %v", err)
	}
	if err := errors.Join(got.Close(), got.Close()); err != nil {
		t.Error(err)
	}
	if list, err := l.List(t.Context()); err != nil || len(list) != 1 || list[0].InUse || list[0].Digest != got.Digest {
		t.Errorf("%+v, %v", list, err)
	}
	if gone, err := l.Prune(t.Context(), time.Hour); err != nil || len(gone) > 0 {
		t.Errorf("it was just used: %v, %v", gone, err)
	}
	if gone, err := l.Prune(t.Context(), 0); err != nil || len(gone) != 1 {
		t.Errorf("%v, %v", gone, err)
	}
	if err := l.Remove(t.Context(), got.Name); kind(err) != layer.KindNotFound {
		t.Errorf("removed twice: %v", err)
	}
	if got := get(t, l, agent, target); !got.Fresh {
		t.Error("it was used though it is gone")
	}
}

// What a crash has left is nobody's; what somebody is at stays.
func TestCrash(t *testing.T) {
	t.Parallel()
	dir := private(t)
	store(t, dir, nil)
	tmp := filepath.Join(dir, "agents", "tmp")
	for _, name := range []string{"crashed", "busy"} {
		inner := filepath.Join(tmp, name, "tree", "a")
		if err := errors.Join(os.MkdirAll(inner, 0o755), os.WriteFile(filepath.Join(inner, "f"), nil, 0o444), os.Chmod(inner, 0o555)); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := os.Create(filepath.Join(dir, "agents", "locks", "busy"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "agents", "layers", "half", "tree"), 0o755)); err != nil {
		t.Fatal(err)
	}
	l := store(t, dir, nil)
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) != 1 || left[0].Name() != "busy" {
		t.Errorf("%v, %v", left, err)
	}
	if list, err := l.List(t.Context()); err != nil || len(list) != 1 || list[0].Damage == "" {
		t.Errorf("%+v, %v", list, err)
	}
	if gone, err := l.Prune(t.Context(), time.Hour); err != nil || len(gone) != 1 {
		t.Errorf("%v, %v", gone, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for says, o := range map[string]layer.Options{
		"absolute paths":     {Dir: "agents", Records: dir},
		"no http or https":   {Dir: filepath.Join(dir, "a"), Records: dir, Registry: "npm.example.com"},
		"a password":         {Dir: filepath.Join(dir, "a"), Records: dir, Registry: "https://u:p@npm.example.com"},
		"methods are":        {Dir: filepath.Join(dir, "a"), Records: dir, Registry: "https://192.0.2.1/"},
		"others may enter":   {Dir: dir, Records: dir},
		"may not be allowed": {Dir: filepath.Join(dir, "a"), Records: dir, Allow: []policy.Rule{{Host: "*"}}},
	} {
		_, err := layer.Open(o)
		if says == "may not be allowed" {
			says = "" // in the policy's own words
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	for _, p := range []layer.Package{{}, {Name: "--global"}, {Name: "a", Version: "latest"}, {Name: "a", Node: ">=1"}, {Name: "a", Scripts: []string{"'; id"}}} {
		if _, err := store(t, private(t), nil).Get(t.Context(), p, layer.Target{}, nil); kind(err) != layer.KindInvalid {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
