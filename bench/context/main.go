// Command context plays what a coding agent does on small projects, in
// sandboxes, twice each: with all results kept whole, and with what package
// history sends. It prints how many tokens both took, and fails when a number
// that is promised is missed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/internal/trajectory"
	"github.com/rein-sh/rein/sandbox/local"
)

type config struct {
	bin, runtime, only string
	strategies         string
	scripts            string // directory of the trajectories
	verbose            bool
	high, low          int
}

func main() {
	var c config
	flag.StringVar(&c.bin, "bin", "bin", "directory of rein's programs")
	flag.StringVar(&c.runtime, "runtime", "gvisor", "gvisor or runc")
	flag.StringVar(&c.only, "only", "", "play only trajectories whose name has this in it; their sum is not judged")
	flag.StringVar(&c.strategies, "strategies", "reference", "what is compared with whole results, separated by commas")
	flag.StringVar(&c.scripts, "scripts", "internal/trajectory/testdata", "directory of the trajectories")
	flag.IntVar(&c.high, "high", 0, "bytes of whole results above which they are reduced; 0 is the default")
	flag.IntVar(&c.low, "low", 0, "bytes of whole results that are left then; 0 is the default")
	flag.BoolVar(&c.verbose, "v", false, "print each request, and why something was read again")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := measure(ctx, c)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "context:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, c config) (err error) {
	state, err := os.MkdirTemp("", "rein-context.")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(state)) }()
	o := local.Options{Keep: filepath.Join(c.bin, "rein-keep"), Execd: filepath.Join(c.bin, "rein-execd"), Runtime: c.runtime, StateDir: state}
	if c.runtime == "gvisor" {
		o.RuntimePath = filepath.Join(c.bin, "rein-runsc")
	}
	provider, err := local.New(o)
	if err != nil {
		return err
	}
	all, err := trajectory.Load(os.DirFS(c.scripts))
	if err != nil {
		return err
	}
	env := trajectory.Env{Provider: provider, StateDir: state, High: c.high, Low: c.low,
		Env: map[string]string{"PATH": "/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "PYTHONDONTWRITEBYTECODE": "1"}}
	var failed []error
	for _, s := range strings.Split(c.strategies, ",") {
		t := newTable(history.Strategy(s))
		for _, tr := range all {
			if strings.Contains(tr.Name, c.only) {
				failed = append(failed, t.play(ctx, env, c, tr))
			}
		}
		failed = append(failed, t.end(c.only != ""))
	}
	return errors.Join(failed...)
}
