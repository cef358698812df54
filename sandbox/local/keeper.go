package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/sandbox"
)

// keeperConfig is what Create hands to the keeper on its standard input. It is
// written nowhere.
type keeperConfig struct {
	Info         liveInfo      `json:"info"`
	Dir          string        `json:"dir"`     // of the live sandbox
	Records      string        `json:"records"` // where its network record goes
	Spec         sandbox.Spec  `json:"spec"`    // with resources filled in
	Runtime      ociRuntime    `json:"runtime"`
	Execd        string        `json:"execd"`
	Keep         string        `json:"keep"` // rein-keep, which the nest is too
	Token        string        `json:"token"`
	SameUser     bool          `json:"same_user"`
	Image        *rootImage    `json:"image,omitempty"` // nil: the host's
	Cgroup       cgroupPlan    `json:"cgroup"`
	StartTimeout time.Duration `json:"start_timeout"`
	Origin       policy.Origin `json:"origin,omitempty"` // of Spec.Network, which does not say it itself
	Egress       egressConfig  `json:"egress,omitzero"`
	Vault        vaultConfig   `json:"vault,omitzero"`
}

// keeperReply is the keeper's one line on standard output: the sandbox runs,
// or why it does not. Afterwards nothing more is written there.
type keeperReply struct {
	OK    bool         `json:"ok"`
	Kind  sandbox.Kind `json:"kind,omitempty"`
	Op    string       `json:"op,omitempty"`
	Error string       `json:"error,omitempty"`
	Hint  string       `json:"hint,omitempty"`
}

// keeper owns one sandbox.
type keeper struct {
	cfg     keeperConfig
	cgroup  *cgroup
	nest    *nestProcess
	ended   *os.File // opened while it still may open files
	network *networkLog
	shared  *egress.HostMeter
	gateway *egress.Gateway // may be used by others once the state is running
	owners  owners
	ports   *portOwner

	vault     *vault.Vault      // nil: there are no secrets
	authority *egress.Authority // nil: no TLS ends in the gateway
	trusted   string            // PEM that the sandbox trusts besides the system's

	deadline *deadline
	killed   chan struct{} // closed by the first kill request
	kill     sync.Once

	transition sync.Mutex // held from running to paused and back
	held       *hold      // of a deadline that stands still

	mu     sync.Mutex
	state  sandbox.State
	reason string
}

// Keep is the body of the command "rein-keep keep". It returns when the
// sandbox is gone. It must be called from the main goroutine: the kernel ties
// the nest to the thread that starts it, so that thread must live as long as
// the keeper does.
func Keep() error {
	goruntime.LockOSThread()
	if err := closeInherited(); err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	// The creator's terminal or parent may go; the sandbox has its own end.
	// Caught, not ignored: what is ignored stays so in every program started.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	k := &keeper{killed: make(chan struct{}), state: sandbox.StatePending}
	if err := json.NewDecoder(os.Stdin).Decode(&k.cfg); err != nil {
		return fmt.Errorf("the keeper is started by rein, not by hand: %w", err)
	}
	if checkID("keep", k.cfg.Info.ID) != nil || !filepath.IsAbs(k.cfg.Dir) {
		return errors.New("the keeper is started by rein, not by hand: its configuration names no sandbox")
	}
	err := k.run(ctx, os.Stdout)
	if err != nil {
		reply := keeperReply{Kind: sandbox.KindInternal, Op: "create", Error: err.Error()}
		if e, ok := errors.AsType[*sandbox.Error](err); ok {
			reply.Kind, reply.Op, reply.Hint = e.Kind, e.Op, sandbox.HintOf(err)
			if e.Err != nil {
				reply.Error = e.Err.Error()
			}
		}
		err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(reply))
	}
	return err
}

// closeInherited closes what the caller of rein had left open above standard
// error: a pipe, say, that somebody reads to its end. Go marks its own
// descriptors close-on-exec, and one that survived an exec is not marked.
func closeInherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	return nil
}

// run creates the sandbox, serves it, and ends it.
func (k *keeper) run(ctx context.Context, stdout io.WriteCloser) (err error) {
	self, err := identify(os.Getpid())
	if err != nil {
		return err
	}
	if err := writeJSON(k.path(keeperFile), self); err != nil {
		return err
	}
	if k.ended, err = os.OpenFile(k.path(endedFile), os.O_WRONLY|os.O_CREATE, 0o600); err != nil {
		return err
	}
	defer k.ended.Close()
	if k.deadline, err = newDeadline(k.cfg.Info.ExpiresAt); err != nil {
		return err
	}
	defer k.deadline.Close()

	if k.cfg.Image != nil {
		held, err := holdImage(k.cfg.Image)
		if err != nil {
			return err
		}
		defer held.Close()
	}
	defer func() { err = errors.Join(err, k.close()) }()
	if err := k.prepareVault(); err != nil {
		return err
	}
	link, err := k.startNest()
	if err != nil {
		return err
	}
	server, err := k.listen()
	if err != nil {
		unix.Close(link)
		return err
	}
	defer server.Close()
	out, err := k.wayOut()
	if err == nil {
		err = k.harden()
	}
	if err != nil {
		unix.Close(link)
		return err
	}
	server.serve()
	// From here on the keeper has nothing left to lose to a hostile frame.
	out.FD = link
	if err := k.startGateway(out); err != nil {
		return err
	}
	if err := k.awaitReady(ctx); err != nil {
		return err
	}
	k.setState(sandbox.StateRunning, "")
	if err := json.NewEncoder(stdout).Encode(keeperReply{OK: true}); err != nil {
		return nil // the creator is gone, and with it the only one who knew of this sandbox
	}
	stdout.Close() // whoever reads it to its end does not wait for ours
	k.serveUntilEnd(ctx)
	return nil
}

// awaitReady waits until execd says that it listens.
func (k *keeper) awaitReady(ctx context.Context) error {
	timeout := time.NewTimer(k.cfg.StartTimeout)
	defer timeout.Stop()
	select {
	case <-k.nest.ready:
		return nil
	case <-k.nest.gone:
		if kills := k.cgroup.oomKills(); kills > 0 {
			return &sandbox.Error{Kind: sandbox.KindHost, Op: "start the sandbox",
				Err:  fmt.Errorf("the kernel ended it for want of memory (limit %d bytes)", k.cfg.Spec.Resources.Memory),
				Hint: "raise the target's resources.memory"}
		}
		return &sandbox.Error{Kind: sandbox.KindHost, Op: "start the sandbox",
			Err:  fmt.Errorf("runtime %s ended: %s", k.cfg.Runtime.Name, k.nest.explain()),
			Hint: "rein probe"}
	case <-timeout.C:
		return &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "start the sandbox",
			Err:  fmt.Errorf("execd did not answer within %v: %s", k.cfg.StartTimeout, k.nest.explain()),
			Hint: "the host may be overloaded; try again or raise start_timeout"}
	case <-k.killed:
		return &sandbox.Error{Kind: sandbox.KindConflict, Op: "start the sandbox", Err: errors.New("it was killed while it started")}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serveUntilEnd returns at a kill, at the deadline, or on SIGTERM. A sandbox
// that ends by itself stays known as lost until one of these, so that whoever
// asks is told why.
func (k *keeper) serveUntilEnd(ctx context.Context) {
	gone, link := k.nest.gone, k.gateway.Done()
	for {
		select {
		case <-link:
			// Nothing reaches the sandbox any more: it is of no use to anybody.
			k.endNest()
			link = nil
		case <-gone:
			reason := "runtime_exited"
			if k.cgroup.oomKills() > 0 {
				reason = "oom"
			}
			k.setState(sandbox.StateLost, reason)
			// Nothing will answer any more: whoever waits is told now.
			k.gateway.Close()
			gone = nil
		case <-k.killed:
			return
		case <-k.deadline.Passed():
			return
		case <-ctx.Done():
			return
		}
	}
}

// close ends the sandbox and everything the keeper holds, in the reverse order
// of its making. The directory and the cgroup stay for Kill or Sweep: the
// keeper no longer has the right to remove them.
func (k *keeper) close() error {
	k.setState(sandbox.StateLost, "ended")
	k.vault.Wipe()
	k.endNest()
	if k.gateway != nil {
		k.gateway.Close()
		k.ports.close()
	}
	var err error
	if k.shared != nil {
		err = k.shared.Close()
	}
	if k.network != nil {
		err = errors.Join(err, k.network.Close())
	}
	// Without this mark, a keeper that is gone was killed, and its sandbox lost.
	_, markErr := k.ended.WriteString("ended\n")
	return errors.Join(err, markErr)
}

func (k *keeper) requestKill() { k.kill.Do(func() { close(k.killed) }) }

func (k *keeper) setState(s sandbox.State, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state, k.reason = s, reason
}

// running returns the gateway while the sandbox runs.
func (k *keeper) running(op string) (*egress.Gateway, error) {
	if err := k.require(sandbox.StateRunning, op); err != nil {
		return nil, err
	}
	return k.gateway, nil
}

// info is what the keeper answers to Get.
func (k *keeper) info() sandbox.Info {
	k.mu.Lock()
	defer k.mu.Unlock()
	info := k.cfg.Info.Info
	info.State, info.Reason, info.ExpiresAt = k.state, k.reason, k.deadline.Time()
	return info
}

func (k *keeper) path(name string) string { return k.cfg.Dir + "/" + name }
