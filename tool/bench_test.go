package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/tool"
)

// bench is a set of the built-in tools over an in-memory sandbox.
type bench struct {
	t   *testing.T
	set *tool.Set
	box *sandbox.Sandbox
	n   atomic.Int32
}

func newBench(t *testing.T, change func(*tool.Options, *budget.Limits)) *bench {
	t.Helper()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	masker := secret.NewMasker(secret.New("key", "hunter2hunter2"))
	box, err := sandbox.Create(context.Background(), m, sandbox.Spec{TTL: time.Hour},
		sandbox.Options{Log: audit.New(&bytes.Buffer{}, audit.Options{}), Masker: masker})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Kill(context.Background()); err != nil {
			t.Error(err)
		}
		box.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	limits := budget.Standard()
	o := tool.Options{Sandbox: box, Masker: masker, Target: "default",
		Finish: func(ctx context.Context) (string, error) { return "saved\n", box.Kill(ctx) },
		Shorten: func(ctx context.Context, ttl time.Duration) (time.Time, error) {
			return box.Renew(ctx, time.Now().Add(ttl))
		}}
	if change != nil {
		change(&o, &limits)
	}
	if o.Budget, err = budget.NewTree(limits, budget.TreeOptions{}); err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, box: box}
	if b.set, err = tool.Builtin(o); err != nil {
		t.Fatal(err)
	}
	return b
}

// call makes a call with arguments that are alternating names and values.
func (b *bench) call(name string, args ...any) tool.Result {
	b.t.Helper()
	m := map[string]any{}
	for i := 0; i < len(args); i += 2 {
		m[args[i].(string)] = args[i+1]
	}
	raw, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.raw(name, string(raw))
}

func (b *bench) raw(name, args string) tool.Result {
	return b.set.Run(context.Background(), tool.Call{ID: fmt.Sprintf("call_%d", b.n.Add(1)), Name: name, Arguments: json.RawMessage(args)})
}

// begun makes a call as a resumed run does.
func (b *bench) begun(id, name, args string) tool.Result {
	return b.set.Run(context.Background(), tool.Call{ID: id, Name: name, Arguments: json.RawMessage(args), Begun: true})
}

func (b *bench) sh(command string) tool.Result {
	b.t.Helper()
	r := b.call(tool.RunCommand, "command", command)
	if !r.OK {
		b.t.Fatalf("%s: %+v %v", command, r, r.Err)
	}
	return r
}

// over makes the tools over a sandbox of p.
func over(t *testing.T, p sandbox.Provider, spec sandbox.Spec, change ...func(*tool.Options)) *bench {
	t.Helper()
	log := audit.New(&bytes.Buffer{}, audit.Options{})
	spec.TTL = time.Hour
	box, err := sandbox.Create(t.Context(), p, spec, sandbox.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { errors.Join(box.Kill(context.Background()), box.Close()) })
	tree, err := budget.NewTree(budget.Standard(), budget.TreeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, box: box}
	o := tool.Options{Sandbox: box, Budget: tree, Finish: func(context.Context) (string, error) { return "", nil }}
	for _, c := range change {
		c(&o)
	}
	if b.set, err = tool.Builtin(o); err != nil {
		t.Fatal(err)
	}
	return b
}

// foreign makes the tools over a sandbox of an OpenSandbox server, whose execd
// knows no call ids.
func foreign(t *testing.T, change ...func(*tool.Options)) (*bench, *opensandboxtest.Server) {
	t.Helper()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	t.Cleanup(func() { m.Close() })
	s := &opensandboxtest.Server{Machines: m}
	h := httptest.NewServer(s)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	p, err := opensandbox.New(opensandbox.Options{URL: h.URL, StateDir: t.TempDir(), CreateTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	b := over(t, p, sandbox.Spec{Image: "debian:12"}, change...)
	if b.box.Features().CallIDs {
		t.Fatal("the server knows call ids")
	}
	return b, s
}

func failed(t *testing.T, r tool.Result, class tool.Class, code string) {
	t.Helper()
	if r.OK || r.Err == nil || r.Err.Class != class || r.Err.Code != code || r.Err.Message == "" {
		t.Errorf("got %+v with error %v, want %s %s", r, r.Err, class, code)
	}
}
