package local

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/rein-sh/rein/sandbox"
)

// idPrefix begins every sandbox id; the rest is a ULID in lower case.
const idPrefix = "sb-"

// Create makes a sandbox and returns when its execd listens.
func (p *Provider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if p.missing != nil {
		return sandbox.Info{}, p.missing
	}
	plan := planCgroup(lookAtCgroups())
	spec, err := p.complete(spec, plan)
	if err != nil {
		return sandbox.Info{}, err
	}
	named := spec.Cwd != ""
	img, root, err := p.openImage(ctx, &spec)
	if err != nil {
		return sandbox.Info{}, err
	}
	defer img.Close() // the keeper holds it by then
	id := idPrefix + strings.ToLower(ulid.Make().String())
	ctx, cancel := context.WithTimeout(ctx, p.opts.StartTimeout+5*time.Second)
	defer cancel()
	cfg := p.keeperConfig(id, spec, plan)
	if cfg.Vault, err = p.vaultConfig(spec); err != nil {
		return sandbox.Info{}, err
	}
	if img != nil {
		cfg.Image, cfg.Info.Image, cfg.Info.ImageDigest, cfg.Info.Entrypoint = root, img.Reference, img.Digest, entrypointOf(img)
		cfg.Info.Notes = p.imageNotes(img, named)
	}
	info, err := p.create(ctx, cfg)
	if err != nil {
		// Undone also when the caller has given up.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		return sandbox.Info{}, errors.Join(err, p.remove(undo, id))
	}
	return info, nil
}

func (p *Provider) keeperConfig(id string, spec sandbox.Spec, plan cgroupPlan) keeperConfig {
	return keeperConfig{
		Info: liveInfo{Info: sandbox.Info{
			ID: id, Provider: p.Name(), State: sandbox.StatePending, Image: spec.Image, Runtime: p.runtime.Name,
			Labels: spec.Labels, CreatedAt: time.Now().Round(0), ExpiresAt: until(spec.TTL), Cwd: spec.Cwd,
			Separation: p.separation(), Limits: append(p.runtime.limits(spec.Resources, plan), hostLimits(p.opts.Egress.HostLimits)...),
		}},
		Dir: p.dir(id), Records: filepath.Join(p.recordsDir(), id),
		Spec: spec, Runtime: p.runtime, Execd: p.opts.Execd, Keep: p.opts.Keep, Token: rand.Text() + rand.Text(),
		SameUser: p.sameUser(), Cgroup: plan, StartTimeout: p.opts.StartTimeout,
		Origin: spec.Network.Origin, Egress: p.opts.Egress.config(p.opts.StateDir),
	}
}

func (p *Provider) create(ctx context.Context, cfg keeperConfig) (sandbox.Info, error) {
	id := cfg.Info.ID
	if err := p.register(id); err != nil {
		return sandbox.Info{}, err
	}
	if os.Geteuid() == 0 {
		base, err := p.reserveIDs(id)
		if err != nil {
			return sandbox.Info{}, err
		}
		cfg.Info.IDBase = base
	}
	if err := writeJSON(filepath.Join(cfg.Dir, infoFile), cfg.Info); err != nil {
		return sandbox.Info{}, hostError("create", id, err)
	}
	if err := p.startKeeper(ctx, cfg); err != nil {
		return sandbox.Info{}, err
	}
	if err := os.Remove(filepath.Join(cfg.Dir, creatorFile)); err != nil {
		return sandbox.Info{}, hostError("create", id, err)
	}
	return p.Get(ctx, id)
}

// register makes the sandbox's directory before anything else of it exists. It
// appears complete, with its creator's identity, so that Sweep never takes a
// sandbox for abandoned while it is being made.
func (p *Provider) register(id string) error {
	self, err := identify(os.Getpid())
	if err != nil {
		return hostError("create", id, err)
	}
	tmp, err := os.MkdirTemp(p.liveDir(), unbornName(self))
	if err != nil {
		return hostError("create", id, err)
	}
	err = writeJSON(filepath.Join(tmp, creatorFile), self)
	if err == nil {
		err = os.Rename(tmp, p.dir(id))
	}
	if err != nil {
		return hostError("create", id, errors.Join(err, os.RemoveAll(tmp)))
	}
	return nil
}

// reserveIDs picks a range of host ids that no other sandbox of this StateDir
// has, and claims it by a link to the sandbox's id. They lie where no distribution puts users or subordinate ids.
func (p *Provider) reserveIDs(id string) (int, error) {
	const first, count = 0x6000, 0x1000 // ranges of 65536 from 1,610,612,736
	if err := os.MkdirAll(p.idsDir(), 0o700); err != nil {
		return 0, hostError("create", id, err)
	}
	h := fnv.New32a()
	h.Write([]byte(id))
	for i := range uint32(count) {
		n := first + int((h.Sum32()+i)%count)
		// A link is there with its content or not at all.
		err := os.Symlink(id, p.idsPath(n*idRange))
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return 0, hostError("create", id, err)
		}
		return n * idRange, nil
	}
	return 0, &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "create", Subject: id,
		Err: errors.New("all ranges of user ids are in use"), Hint: "rein sandbox gc"}
}

func (p *Provider) idsDir() string { return filepath.Join(p.opts.StateDir, "ids") }

func (p *Provider) idsPath(base int) string { return filepath.Join(p.idsDir(), strconv.Itoa(base)) }

// startKeeper runs rein-keep, detached, and waits for its reply. A keeper
// whose creator goes away before the reply ends its sandbox itself.
func (p *Provider) startKeeper(ctx context.Context, cfg keeperConfig) error {
	cmd := exec.Command(p.opts.Keep, "keep")
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// A keeper writes here only when it crashes.
	log, err := os.OpenFile(filepath.Join(cfg.Dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return hostError("create", cfg.Info.ID, err)
	}
	defer log.Close()
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return hostError("create", cfg.Info.ID, err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return hostError("create", cfg.Info.ID, err)
	}
	if err := startWithSlack(cmd); err != nil {
		return hostError("start "+p.opts.Keep, cfg.Info.ID, err)
	}
	// The keeper outlives us; while we live, we reap it.
	reaped := make(chan struct{})
	result := make(chan error, 1)
	go func() {
		result <- exchange(cfg, stdin, stdout)
		stdout.Close()
		cmd.Wait()
		close(reaped)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		// Closing its output tells a keeper that nobody waits any more.
		stdout.Close()
		cmd.Process.Kill()
		<-reaped
		return &sandbox.Error{Kind: sandbox.KindTimeout, Op: "create", Subject: cfg.Info.ID, Err: ctx.Err()}
	}
}

// exchange hands the keeper its configuration and reads its reply.
func exchange(cfg keeperConfig, stdin io.WriteCloser, stdout io.Reader) error {
	writeErr := errors.Join(json.NewEncoder(stdin).Encode(cfg), stdin.Close())
	line, err := bufio.NewReaderSize(stdout, 64<<10).ReadSlice('\n')
	if err != nil {
		return &sandbox.Error{Kind: sandbox.KindInternal, Op: "create", Subject: cfg.Info.ID,
			Err: fmt.Errorf("the keeper ended without a word: %w", errors.Join(writeErr, err))}
	}
	var reply keeperReply
	if err := json.Unmarshal(line, &reply); err != nil {
		return &sandbox.Error{Kind: sandbox.KindInternal, Op: "create", Subject: cfg.Info.ID, Err: fmt.Errorf("the keeper's reply: %w", err)}
	}
	if !reply.OK {
		return &sandbox.Error{Kind: reply.Kind, Op: reply.Op, Subject: cfg.Info.ID, Err: errors.New(reply.Error), Hint: reply.Hint}
	}
	return nil
}

func hostError(op, subject string, err error) error {
	return &sandbox.Error{Kind: sandbox.KindHost, Op: op, Subject: subject, Err: err}
}
