package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
)

// runtimes are measured each for itself.
var runtimes = []struct{ runtime, name string }{{"runc", reinRunc}, {"gvisor", reinGVisor}}

func stateOf(c config, runtime string) string { return filepath.Join(c.stateDir, "rein-"+runtime) }

// provider is rein with one runtime, with a state directory of the benchmark.
func provider(c config, runtime string) (*local.Provider, error) {
	return c.provider(runtime, local.Options{})
}

// provider is the same with options.
func (c config) provider(runtime string, o local.Options) (*local.Provider, error) {
	o.Keep, o.Execd = filepath.Join(c.bin, "rein-keep"), filepath.Join(c.bin, "rein-execd")
	o.Runtime, o.StateDir = runtime, stateOf(c, runtime)
	if runtime == "gvisor" {
		o.RuntimePath = filepath.Join(c.bin, "rein-runsc")
	}
	return local.New(o)
}

// box is a sandbox with everything rein does for one: it is recorded too.
type box struct{ sb *sandbox.Sandbox }

func newBox(ctx context.Context, p sandbox.Provider) (box, error) {
	sb, err := sandbox.Create(ctx, p, sandbox.Spec{TTL: 15 * time.Minute},
		sandbox.Options{Log: audit.New(io.Discard, audit.Options{})})
	return box{sb}, err
}

func (b box) command(ctx context.Context) error {
	r, err := b.sb.Run(ctx, sandbox.Command{Shell: "true", Tool: "bench"})
	if err == nil && !r.OK() {
		err = fmt.Errorf("true failed: %+v", r.Outcome)
	}
	return err
}

func (b box) end(ctx context.Context) error {
	return errors.Join(b.sb.Kill(ctx), b.sb.Close())
}

// subjects lists what can be measured here, and notes what cannot.
func subjects(ctx context.Context, c config) (all []subject, notes []string, err error) {
	for _, r := range runtimes {
		p, err := provider(c, r.runtime)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, subject{name: r.name, create: func(ctx context.Context) (machine, error) {
			b, err := newBox(ctx, p)
			return b, err
		}})
	}
	all = append(all, reinCLI(c))
	if c.docker != "" {
		all = append(all, dockers(ctx, c)...)
	} else {
		notes = append(notes, "docker: make bench-peers starts a daemon")
	}
	if c.rootfs != "" && available("runc") {
		s, err := runcSubject(ctx, c)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, s)
	} else {
		notes = append(notes, "bare runc: make bench-peers makes a root file system for it")
	}
	if available("bwrap") {
		all = append(all, bwrapSubject())
	} else {
		notes = append(notes, "bwrap: apt-get install bubblewrap")
	}
	return all, notes, nil
}

// reinCLI is rein as it is typed, a process per verb as with the peers.
func reinCLI(c config) subject {
	rein := filepath.Join(c.bin, "rein")
	env := []string{"XDG_STATE_HOME=" + filepath.Join(c.stateDir, "cli"), "XDG_CONFIG_HOME=" + filepath.Join(c.stateDir, "config")}
	return subject{name: "rein, gVisor, command line", create: func(ctx context.Context) (machine, error) {
		id, err := output(ctx, env, rein, "sandbox", "create")
		return programs{env, []string{rein, "sandbox", "exec", id, "--", "true"}, []string{rein, "sandbox", "kill", id}}, err
	}}
}
