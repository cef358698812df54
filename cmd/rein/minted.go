package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/secret"
)

// minted is a key that was made, as its rein sees it: a custodian has it, too.
type minted struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	key  secret.Value

	mu sync.Mutex
}

// minting are the keys that this rein had made.
type minting struct {
	mu   sync.Mutex
	keys []*minted
	dir  string // of the run that they are for
	// place is what a custodian finds a sandbox with, as flags.
	place []string
}

// add takes a key, unless it is one that is there: a command may print the same for
// a while.
func (m *minting) add(k *minted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.ContainsFunc(m.keys, k.same) {
		k.drop()
		return
	}
	m.keys = append(m.keys, k)
	if m.dir != "" {
		k.order(custodyOrder{Do: orderRun, Dir: m.dir})
	}
}

func (k *minted) same(o *minted) bool { return k.name == o.name && k.key.Reveal() == o.key.Reveal() }

// of says in which directory the run is that the keys are for.
func (m *minting) of(dir string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dir = dir
	for _, k := range m.keys {
		k.order(custodyOrder{Do: orderRun, Dir: dir})
	}
}

// outlive has the keys withdrawn when a sandbox has ended, whatever becomes of us.
func (m *minting) outlive(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, k := range m.keys {
		if err := k.order(custodyOrder{Do: orderWatch, Sandbox: id}); err != nil {
			errs = append(errs, fmt.Errorf("nobody withdraws the key of %s when the sandbox has ended: %w", k.name, err))
			continue
		}
		k.release()
	}
	m.keys = nil
	return errors.Join(errs...)
}

// withdraw withdraws all keys that are left, and says how that went.
func (m *minting) withdraw(ctx context.Context) []run.Revocation {
	return m.withdrawn(ctx, func(*minted) bool { return true })
}

// withdrawOne withdraws the key of a secret that has a value, if it is left.
func (m *minting) withdrawOne(ctx context.Context, name string, value secret.Value) []run.Revocation {
	return m.withdrawn(ctx, (&minted{name: name, key: value}).same)
}

func (m *minting) withdrawn(ctx context.Context, which func(*minted) bool) []run.Revocation {
	var keys, left []*minted
	m.mu.Lock()
	for _, k := range m.keys {
		if which(k) {
			keys = append(keys, k)
		} else {
			left = append(left, k)
		}
	}
	m.keys = left
	m.mu.Unlock()
	out := make([]run.Revocation, len(keys))
	var all sync.WaitGroup
	for i, k := range keys {
		all.Go(func() { out[i] = k.withdraw(ctx) })
	}
	all.Wait()
	return out
}

// order tells the custodian something. It may have ended.
func (k *minted) order(o custodyOrder) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return json.NewEncoder(k.in).Encode(o)
}

// release leaves the custodian to itself.
func (k *minted) release() {
	_ = k.in.Close() // a pipe
	_ = k.cmd.Process.Release()
}

// withdraw has the key withdrawn, and waits for that.
func (k *minted) withdraw(ctx context.Context) run.Revocation {
	start := time.Now()
	_ = k.order(custodyOrder{Do: orderRevoke}) // one that was ended has withdrawn it, and said so
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTimeout+5*time.Second)
	defer cancel()
	reply := make(chan custodyReply, 1)
	go func() {
		var r custodyReply
		_ = k.out.Decode(&r) // none is an outcome, too
		reply <- r
	}()
	failed := run.Revocation{Secret: k.name, At: start, Error: "the process that had the key is gone, and it is not known whether it was withdrawn"}
	select {
	case r := <-reply:
		if r.Outcome != nil {
			failed = *r.Outcome
		}
	case <-ctx.Done():
		failed.Timeout, failed.DurationMS = true, time.Since(start).Milliseconds()
		_ = k.cmd.Process.Kill() // else it has ended
		<-reply
	}
	_ = k.in.Close()
	_ = k.cmd.Wait() // how it ended says nothing more
	return failed
}

// drop ends a custodian that has nothing to withdraw.
func (k *minted) drop() {
	_ = k.order(custodyOrder{Do: orderDrop})
	_ = k.in.Close()
	_ = k.cmd.Wait()
}

// mint has the command of a secret make a key, in the custody of a process that
// withdraws it.
func (a *app) mint(ctx context.Context, name string, s config.Secret, alone bool) (text string, err error) {
	if _, err := exec.LookPath(s.Revoke[0]); err != nil {
		return "", withHint(fmt.Errorf("none is made, since it could not be withdrawn: %w", err), "check the path under revoke: in the configuration")
	}
	read, write, err := os.Pipe()
	if err != nil {
		return "", err
	}
	k, err := a.newCustodian(name, s.Revoke, read)
	_ = read.Close() // the custodian has it
	if err != nil {
		_ = write.Close()
		return "", fmt.Errorf("the process that is to withdraw it could not be started: %w", err)
	}
	err = a.keyCommand(ctx, s.Command, write, alone)
	_ = write.Close() // the command has ended
	_ = k.order(custodyOrder{Do: orderMade})
	var r custodyReply
	if got := k.out.Decode(&r); got != nil && err == nil {
		err = fmt.Errorf("the process that is to withdraw it has ended: %w", got)
	}
	text = string(r.Printed)
	k.key = secret.New(name, trimmed(text))
	switch {
	case notAKey(text, trimmed(text)) != "":
		k.drop()
		return text, err
	case err != nil: // it printed one before it failed
		if v := k.withdraw(ctx); !v.OK {
			err = fmt.Errorf("%w; the key that it printed may still be good: %s", err, v.Says())
		}
		return text, err
	}
	a.minted.add(k)
	return text, nil
}

// newCustodian starts a custodian, in a session of its own: an interrupt at the
// terminal is not for it.
func (a *app) newCustodian(name string, revoke []string, output *os.File) (*minted, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{os.Args[0], custodianName}
	if a.configPath != "" {
		args = append(args, "--config", a.configPath)
	}
	cmd := &exec.Cmd{Path: self, Args: append(args, a.minted.place...), ExtraFiles: []*os.File{output}, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	for k, v := range a.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	k := &minted{name: name, cmd: cmd, in: in, out: json.NewDecoder(out)}
	if err := json.NewEncoder(in).Encode(custody{Secret: name, Revoke: revoke}); err != nil {
		return nil, errors.Join(err, in.Close(), cmd.Wait())
	}
	return k, nil
}

// withdrawLeft withdraws the keys of what did not come about, and tells the user
// what of it failed.
func (a *app) withdrawLeft(ctx context.Context) {
	for _, v := range a.minted.withdraw(ctx) {
		if !v.OK {
			a.note("warning: the key of the secret %s may still be good: %s", v.Secret, v.Says())
		}
	}
}
