package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == creatorArg {
		os.Exit(creator(os.Args[2], os.Args[3], os.Args[4]))
	}
	code := m.Run()
	if err := os.RemoveAll(imagesDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// runtimes are tested both; neither may be missing.
var runtimes = []string{"gvisor", "runc"}

// binary is one of rein's own, as make build leaves them.
func binary(name string) string {
	path, err := filepath.Abs(filepath.Join("../../bin", name))
	if err != nil {
		panic(err)
	}
	return path
}

func options(runtime, stateDir string) local.Options {
	o := local.Options{Keep: binary("rein-keep"), Execd: binary("rein-execd"), Runtime: runtime, StateDir: stateDir}
	if runtime == "gvisor" {
		o.RuntimePath = binary("rein-runsc")
	}
	return o
}

func provider(t *testing.T, runtime string) *local.Provider {
	t.Helper()
	return providerWith(t, runtime, func(*local.Options) {})
}

func providerWith(t *testing.T, runtime string, change func(*local.Options)) *local.Provider {
	t.Helper()
	if _, err := os.Stat(binary("rein-keep")); err != nil {
		t.Fatalf("%v: run make build", err)
	}
	state := t.TempDir()
	o := options(runtime, state)
	change(&o)
	p, err := local.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return // what is alive is evidence; its deadline ends it
		}
		if _, err := p.Sweep(context.WithoutCancel(t.Context()), true); err != nil {
			t.Errorf("sweeping %s: %v", state, err)
		}
		noneLeft(t, state)
	})
	return p
}

// noneLeft checks that nothing of a state directory's sandboxes is on disk.
func noneLeft(t *testing.T, state string) {
	t.Helper()
	for _, dir := range []string{"live", "ids"} {
		left, err := os.ReadDir(filepath.Join(state, dir))
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		for _, e := range left {
			t.Errorf("left over: %s/%s", dir, e.Name())
		}
	}
}

// expected are the capabilities that this user must have with a runtime.
func expected(runtime string) []sandbox.Capability {
	must := []sandbox.Capability{
		sandbox.CapExec, sandbox.CapProcesses, sandbox.CapFiles, sandbox.CapBackground, sandbox.CapCallIDs, sandbox.CapCaps,
		sandbox.CapSpill, sandbox.CapPipeStatus, sandbox.CapLabels, sandbox.CapRenew, sandbox.CapMounts,
		sandbox.CapNetworkDeny, sandbox.CapNetworkRecord, sandbox.CapLimitDisk, sandbox.CapLimitPIDs,
		sandbox.CapConfine, sandbox.CapNetworkRefuse, sandbox.CapExecdGuard, sandbox.CapTreeEnd, sandbox.CapUnprivileged,
		sandbox.CapStderrInSessions, sandbox.CapSessions, sandbox.CapPTY, sandbox.CapPause,
		sandbox.CapNetworkAllow, sandbox.CapNetworkAsk, sandbox.CapNetworkLive, sandbox.CapModels,
	}
	root := os.Geteuid() == 0
	if runtime == "gvisor" {
		must = append(must, sandbox.CapKernel, sandbox.CapSeparation)
	} else if root {
		must = append(must, sandbox.CapSeparation, sandbox.CapOOMFlag)
	}
	if root {
		must = append(must, sandbox.CapLimitCPU, sandbox.CapLimitMemory)
	}
	return must
}

// verified keeps what the suite has shown, where REIN_VERIFIED says so.
func verified(t *testing.T, of string) func(sandboxtest.Summary) {
	name := "local-" + of
	if os.Geteuid() != 0 {
		name += "-user"
	}
	return sandboxtest.SaveSummary(t, os.Getenv("REIN_VERIFIED"), name, "")
}

func TestConformance(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			sandboxtest.Run(t, sandboxtest.Harness{
				New:  func(t *testing.T) sandbox.Provider { return networked(t, runtime) },
				Must: expected(runtime), Loopback: "suite.test",

				Summary: verified(t, runtime),
			})
		})
	}
}

// Fifty sandboxes are made at once, are alive at once, each answers, and all
// are gone afterwards.
func TestFifty(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			p := provider(t, runtime)
			const n = 50
			boxes := make([]*sandbox.Sandbox, n)
			each := func(what string, f func(i int) error) {
				errs := make(chan error, n)
				for i := range n {
					go func() { errs <- f(i) }()
				}
				for range n {
					if err := <-errs; err != nil {
						t.Errorf("%s: %v", what, err)
					}
				}
				if t.Failed() {
					t.FailNow()
				}
			}
			each("create", func(i int) (err error) {
				boxes[i], err = sandbox.Create(t.Context(), p, sandbox.Spec{TTL: 5 * time.Minute}, sandbox.Options{Log: discard()})
				return err
			})
			alive, err := p.List(t.Context(), nil)
			if err != nil || len(alive) != n {
				t.Fatalf("%d sandboxes are alive: %v", len(alive), err)
			}
			each("run", func(i int) error {
				r, err := boxes[i].Run(t.Context(), sandbox.Command{Shell: "echo " + boxes[i].ID()})
				if err == nil && strings.TrimSpace(string(r.Stdout.Head)) != boxes[i].ID() {
					err = fmt.Errorf("%s answers %q", boxes[i].ID(), r.Stdout.Head)
				}
				return err
			})
			each("kill", func(i int) error { return boxes[i].Kill(t.Context()) })
		})
	}
}

// created makes a sandbox. It is nil where that is refused, which has to be if and
// only if there is a text, and with this text.
func created(t *testing.T, p sandbox.Provider, spec sandbox.Spec, refused string) *sandbox.Sandbox {
	t.Helper()
	box, err := sandbox.Create(t.Context(), p, spec, sandbox.Options{Log: discard()})
	switch {
	case refused != "" && (err == nil || !strings.Contains(err.Error(), refused)):
		t.Errorf("%v, want it refused: %s", err, refused)
	case refused == "" && err != nil:
		t.Fatal(err)
	}
	return box
}

func discard() *audit.Log { return audit.New(io.Discard, audit.Options{}) }

// A caller that gives up learns nothing about the sandbox.
func TestCanceledIsNotLost(t *testing.T) {
	p := provider(t, "runc")
	info, err := p.Create(t.Context(), sandbox.Spec{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for _, ctx := range []context.Context{canceled, expired} {
		_, getErr := p.Get(ctx, info.ID)
		for op, err := range map[string]error{"get": getErr, "pause": p.Pause(ctx, info.ID, sandbox.PauseOptions{}), "resume": p.Resume(ctx, info.ID)} {
			if sandbox.KindOf(err) != sandbox.KindTimeout || !errors.Is(err, ctx.Err()) {
				t.Errorf("%s: %v (%s), want %v", op, err, sandbox.KindOf(err), ctx.Err())
			}
		}
	}
}
