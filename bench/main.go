// Command bench measures rein beside what else a machine offers, in one run:
// the time to a ready sandbox, the time of one command, the throughput of a
// command that prints a lot and what that costs in memory, the speed of what
// leaves a sandbox by its gateway, what a call costs over MCP, and whether many sandboxes at once are all
// alive and leave nothing behind.
//
// It prints each figure beside its target. Whether a time meets its target is
// for a person to read: exit code 1 means that something was wrong, such as a
// lost byte or a process left over, never that something was slow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
)

type config struct {
	bin      string // where rein's binaries are
	creates  int    // sandboxes per subject
	commands int    // commands per subject
	parallel int    // sandboxes at once under -stress
	bytes    int64  // printed by each throughput run
	docker   string // a Docker daemon's address
	image    string // an image it has
	rootfs   string // a root file system for runc
	stateDir string
}

// parts are what is measured, in this order; on demand are those that are measured
// only when they are named.
var parts = []struct {
	name, what string
	run        func(context.Context, config) error
	onDemand   bool
}{
	{name: "latency", what: "time to a ready sandbox and of one command", run: latency},
	{name: "flood", what: "throughput and memory of commands that print a lot", run: flood},
	{name: "loop", what: "what the loop costs by itself, and the memory of many runs at once", run: loop},
	{name: "network", what: "speed of connections that leave a sandbox, beside other networks", run: network},
	{name: "tls", what: "speed and memory of requests whose TLS ends in the gateway", run: terminated},
	{name: "models", what: "what a call of a model takes longer through the gateway", run: models},
	{name: "mcp", what: "what a call takes longer over the Model Context Protocol", run: overMCP},
	{name: "stress", what: "many sandboxes at once, and what they leave", run: stress, onDemand: true},
}

// inside are what this program is in a sandbox or another network.
var inside = map[string]func(args []string) error{clientMode: client, webMode: webClient, streamsMode: streamsClient, uploadMode: uploadClient, modelsMode: modelsClient}

func main() {
	if len(os.Args) > 1 && inside[os.Args[1]] != nil {
		if err := inside[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	var c config
	flag.StringVar(&c.bin, "bin", "bin", "directory of rein and its other programs")
	flag.IntVar(&c.creates, "creates", 30, "sandboxes created per subject")
	flag.IntVar(&c.commands, "commands", 300, "commands run per subject")
	flag.IntVar(&c.parallel, "parallel", 50, "sandboxes at once with -stress")
	flag.Int64Var(&c.bytes, "bytes", 1<<30, "bytes printed by each throughput run")
	named := make([]*bool, len(parts))
	for i, p := range parts {
		named[i] = flag.Bool(p.name, false, "only: "+p.what)
	}
	flag.Parse()
	anyNamed := slices.ContainsFunc(named, func(b *bool) bool { return *b })
	c.docker, c.image, c.rootfs = os.Getenv("REIN_BENCH_DOCKER"), os.Getenv("REIN_BENCH_IMAGE"), os.Getenv("REIN_BENCH_ROOTFS")

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, c, func(i int) bool { return *named[i] || !anyNamed && !parts[i].onDemand })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures the parts that are wanted.
func run(ctx context.Context, c config, wanted func(part int) bool) (err error) {
	if c.bin, err = filepath.Abs(c.bin); err != nil {
		return err
	}
	if c.stateDir, err = os.MkdirTemp("", "rein-bench."); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.stateDir)) }()

	fmt.Printf("%s, %d CPUs, uid %d\n", kernel(), runtime.NumCPU(), os.Getuid())
	for i, p := range parts {
		if !wanted(i) {
			continue
		}
		if err := p.run(ctx, c); err != nil {
			return fmt.Errorf("-%s: %w", p.name, err)
		}
	}
	return nil
}

func kernel() string {
	var u syscall.Utsname
	if err := syscall.Uname(&u); err != nil {
		return "Linux"
	}
	var b []byte
	for _, c := range u.Release {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return "Linux " + string(b)
}
