// Command bench measures rein beside what else a machine offers, in one run:
// the time to a ready sandbox, the time of one command, the throughput of a
// command that prints a lot and what that costs in memory, the speed of what
// leaves a sandbox by its gateway, and whether many sandboxes at once are all
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
	"syscall"
)

type config struct {
	bin      string // where rein's binaries are
	creates  int    // sandboxes per subject
	commands int    // commands per subject
	parallel int    // sandboxes at once under -stress
	bytes    int64  // printed by each throughput run
	latency  bool
	flood    bool
	loop     bool
	network  bool
	tls      bool
	models   bool
	stress   bool
	docker   string // a Docker daemon's address
	image    string // an image it has
	rootfs   string // a root file system for runc
	stateDir string
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
	flag.BoolVar(&c.latency, "latency", false, "only: time to a ready sandbox and of one command")
	flag.BoolVar(&c.flood, "flood", false, "only: throughput and memory of commands that print a lot")
	flag.BoolVar(&c.loop, "loop", false, "only: what the loop costs by itself, and the memory of many runs at once")
	flag.BoolVar(&c.network, "network", false, "only: speed of connections that leave a sandbox, beside other networks")
	flag.BoolVar(&c.tls, "tls", false, "only: speed and memory of requests whose TLS ends in the gateway")
	flag.BoolVar(&c.models, "models", false, "only: what a call of a model takes longer through the gateway")
	flag.BoolVar(&c.stress, "stress", false, "only: many sandboxes at once, and what they leave")
	flag.Parse()
	if !c.latency && !c.flood && !c.stress && !c.loop && !c.network && !c.tls && !c.models {
		c.latency, c.flood, c.loop, c.network, c.tls, c.models = true, true, true, true, true, true
	}
	c.docker, c.image, c.rootfs = os.Getenv("REIN_BENCH_DOCKER"), os.Getenv("REIN_BENCH_IMAGE"), os.Getenv("REIN_BENCH_ROOTFS")

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, c)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config) (err error) {
	if c.bin, err = filepath.Abs(c.bin); err != nil {
		return err
	}
	if c.stateDir, err = os.MkdirTemp("", "rein-bench."); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.stateDir)) }()

	fmt.Printf("%s, %d CPUs, uid %d\n", kernel(), runtime.NumCPU(), os.Getuid())
	if c.latency {
		if err := latency(ctx, c); err != nil {
			return err
		}
	}
	if c.flood {
		if err := flood(ctx, c); err != nil {
			return err
		}
	}
	if c.loop {
		if err := loop(ctx, c); err != nil {
			return err
		}
	}
	if c.network {
		if err := network(ctx, c); err != nil {
			return err
		}
	}
	if c.tls {
		if err := terminated(ctx, c); err != nil {
			return err
		}
	}
	if c.models {
		if err := models(ctx, c); err != nil {
			return err
		}
	}
	if c.stress {
		return stress(ctx, c)
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
