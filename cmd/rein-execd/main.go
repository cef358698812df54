// Command rein-execd is the daemon inside a sandbox, its first process.
//
// It reads one JSON object (execd.Boot) from standard input to the end, prints
// execd.ReadyLine on standard output once it listens, and serves until SIGTERM,
// on which it ends every command and exits. It needs CAP_SETUID and CAP_SETGID
// to run commands as another user, CAP_SETPCAP to empty their bounding set,
// CAP_KILL to end them, CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_FOWNER to write
// files for them and CAP_SYS_RESOURCE to limit their processes; with
// Boot.SameUser instead CAP_SYS_ADMIN and CAP_SETPCAP, with Boot.Guest nothing.
//
// "rein-execd warden" is what it starts for its commands; see package
// execd/daemon.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/execd/daemon"
)

// version is set by the linker.
var version = "devel"

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "warden":
		err = daemon.RunWarden()
		if errors.Is(err, io.EOF) {
			err = nil // the daemon let it go
		}
	case len(os.Args) == 2 && os.Args[1] == "--version":
		fmt.Println("rein-execd", version)
	case len(os.Args) == 1:
		err = run(os.Stdin, os.Stdout)
	default:
		err = errors.New("usage: rein-execd < boot.json (it is started by rein, inside a sandbox)")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rein-execd:", err)
		os.Exit(1)
	}
}

func run(stdin *os.File, stdout io.Writer) error {
	if err := seal(); err != nil {
		return err
	}
	boot, err := readBoot(stdin)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	if err := own(boot); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", boot.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	if boot.AllowFrom != "" {
		peer, err := netip.ParseAddr(boot.AllowFrom)
		if err != nil {
			return fmt.Errorf("allow_from: %w", err)
		}
		listener = daemon.OnlyFrom(listener, peer)
	}
	server, err := newServer(boot)
	if err != nil {
		return err
	}
	h := &http.Server{Handler: server.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(listener) }()
	fmt.Fprintln(stdout, execd.ReadyLine)
	select {
	case <-stop:
	case err = <-failed:
	}
	// Commands are ended first, so that their last events still go out.
	err = errors.Join(err, server.Close())
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	h.Shutdown(ctx)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// seal keeps this process's memory, descriptors and core from user code.
func seal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_DUMPABLE: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("RLIMIT_CORE: %w", err)
	}
	unix.Umask(0o022)
	return daemon.SealDescriptors()
}

// maxBoot bounds what is read from standard input.
const maxBoot = 1 << 20

// readBoot reads standard input to its end and puts /dev/null in its place.
func readBoot(stdin *os.File) (execd.Boot, error) {
	var boot execd.Boot
	b, err := io.ReadAll(io.LimitReader(stdin, maxBoot+1))
	if err != nil {
		return boot, fmt.Errorf("standard input: %w", err)
	}
	if len(b) > maxBoot {
		return boot, fmt.Errorf("standard input: more than %d bytes", maxBoot)
	}
	if err := json.Unmarshal(b, &boot); err != nil {
		return boot, fmt.Errorf("standard input is not a boot message: %w", err)
	}
	clear(b)
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return boot, fmt.Errorf("/dev/null: %w", err)
	}
	defer unix.Close(null)
	if err := unix.Dup3(null, int(stdin.Fd()), 0); err != nil {
		return boot, fmt.Errorf("/dev/null: %w", err)
	}
	if !boot.SameUser && !boot.Guest && int(boot.UID) == os.Geteuid() {
		return boot, errors.New("uid is the daemon's own: commands need another, or same_user")
	}
	return boot, nil
}

// own creates the user's directories.
func own(boot execd.Boot) error {
	for _, dir := range boot.Owned {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("owned: %w", err)
		}
		if boot.SameUser || boot.Guest {
			continue
		}
		if err := os.Chown(dir, int(boot.UID), int(boot.GID)); err != nil {
			return fmt.Errorf("owned: %w", err)
		}
	}
	return nil
}

func newServer(boot execd.Boot) (*daemon.Server, error) {
	// A daemon that waits has little garbage; a small heap matters more than
	// the collector's time.
	debug.SetGCPercent(50)
	stateDir := filepath.Dir(execd.SpillDir)
	opts := daemon.OSOptions{
		Warden:       []string{"/proc/self/exe", "warden"},
		Nested:       boot.SameUser,
		Init:         os.Getpid() == 1,
		MaxProcesses: boot.MaxProcesses,
		Dir:          filepath.Join(stateDir, "cmd"),
		UserName:     userName(boot),
	}
	if err := os.MkdirAll(opts.Dir, 0o711); err != nil {
		return nil, err
	}
	if boot.Cgroup != "" && boot.MaxProcesses > 0 {
		cgroup, err := boundProcesses(boot.Cgroup, boot.MaxProcesses)
		if err != nil {
			return nil, fmt.Errorf("bound the processes of commands: %w", err)
		}
		opts.Cgroup, opts.MaxProcesses = cgroup, 0
	}
	if boot.OOMEventsFD > 2 {
		opts.OOMEvents = os.NewFile(uintptr(boot.OOMEventsFD), "memory events")
	}
	cfg := daemon.Config{
		Token: boot.Token, StateDir: stateDir, Home: boot.Home, Cwd: boot.Cwd, Env: boot.Env,
		SpillBudget: boot.SpillBudget, MemoryLimit: boot.MemoryLimit, CPULimit: boot.CPULimit, Version: version,
	}
	if !boot.SameUser && !boot.Guest {
		opts.User = &daemon.User{UID: boot.UID, GID: boot.GID}
		cfg.User = opts.User
	}
	machine, err := daemon.NewOS(opts)
	if err != nil {
		return nil, err
	}
	cfg.Machine = machine
	server, err := daemon.New(cfg)
	if err != nil {
		return nil, errors.Join(err, machine.Close())
	}
	return server, nil
}

// boundProcesses makes a cgroup for at most n processes and threads of user
// code and returns its directory. The daemon moves into one beside it: a
// cgroup with processes of its own cannot bound its children (cgroup-v2.rst,
// "No Internal Process Constraint").
func boundProcesses(parent string, n int) (dir string, err error) {
	own, user := filepath.Join(parent, "execd"), filepath.Join(parent, "user")
	for _, dir := range []string{own, user} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}
	for _, set := range []struct{ file, value string }{
		{filepath.Join(own, "cgroup.procs"), strconv.Itoa(os.Getpid())},
		{filepath.Join(parent, "cgroup.subtree_control"), "+pids"},
		{filepath.Join(user, "pids.max"), strconv.Itoa(n)},
	} {
		if err := os.WriteFile(set.file, []byte(set.value), 0); err != nil {
			return "", err
		}
	}
	return user, nil
}

// userName finds the name of the commands' user in /etc/passwd, or gives the
// number.
func userName(boot execd.Boot) string {
	uid := int(boot.UID)
	if boot.SameUser || boot.Guest {
		uid = os.Geteuid()
	}
	return daemon.UserName(uid, strconv.Itoa(uid))
}
