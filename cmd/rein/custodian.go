package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// A key that a command made, and that another command withdraws, is withdrawn
// whatever becomes of the rein that had it made. So a process of its own has it,
// the custodian. It is there before the key, which it reads from the command
// itself, and withdraws it when it is told to, when its rein has ended without a
// word, or when the sandbox has that it was told to watch.
//
// Protocol: JSON values. In on standard input: a custody, then orders. Out on
// standard output: a custodyReply with what the command printed, and one with how
// the withdrawal went. Descriptor 3 is the other end of the command's output.
const custodianName = "key-custodian"

// custody is what a custodian is for.
type custody struct {
	Secret string   `json:"secret"`
	Revoke []string `json:"revoke"`
}

// custodyOrder is one thing a custodian is told.
type custodyOrder struct {
	Do      string `json:"do"`
	Dir     string `json:"dir,omitempty"`     // of orderRun
	Sandbox string `json:"sandbox,omitempty"` // of orderWatch
}

// The orders.
const (
	orderMade   = "made"   // the command has ended
	orderDrop   = "drop"   // there is no key
	orderRun    = "run"    // it is of the run in Dir
	orderWatch  = "watch"  // it is of Sandbox, which outlives its rein
	orderRevoke = "revoke" // now
)

type custodyReply struct {
	Printed []byte          `json:"printed,omitempty"`
	Outcome *run.Revocation `json:"outcome,omitempty"`
}

// Bounds of withdrawing a key.
const (
	revokeTimeout = 30 * time.Second
	maxRevokeTold = 2 << 10 // bytes of what the command prints
	watchEvery    = 2 * time.Second
	recordTimeout = 10 * time.Second
)

// custodianCommand is started by rein, with what it needs to find a sandbox.
func (a *app) custodianCommand() *cobra.Command {
	var p place
	cmd := &cobra.Command{Use: custodianName, Short: "keeps a key until it is withdrawn", Hidden: true, Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := &custodian{a: a, place: p, orders: make(chan custodyOrder), timeout: revokeTimeout, out: json.NewEncoder(a.out)}
			in := json.NewDecoder(a.in)
			if err := in.Decode(&c.custody); err != nil || len(c.Revoke) == 0 {
				return errors.New("the custodian is started by rein, not by hand")
			}
			go func() { // ends with the process
				defer close(c.orders)
				for {
					var o custodyOrder
					if in.Decode(&o) != nil {
						return
					}
					c.orders <- o
				}
			}()
			return c.keep(cmd.Context())
		}}
	p.flags(cmd)
	return cmd
}

// custodian is one key.
type custodian struct {
	custody
	a      *app
	place  place
	orders chan custodyOrder // closed when its rein has ended
	out    *json.Encoder

	key     secret.Value
	dir     string        // of the run
	timeout time.Duration // of the withdrawal
}

// keep has the key until it is withdrawn.
func (c *custodian) keep(ctx context.Context) error {
	printed, err := c.receive()
	if err != nil {
		return err
	}
	value := strings.TrimSpace(string(printed))
	c.key = secret.New(c.Secret, value)
	_ = c.out.Encode(custodyReply{Printed: printed}) // a rein that has ended is noticed below
	if notAKey(string(printed), value) != "" {
		return nil // and none was made
	}
	watched := ""
	for {
		var order custodyOrder
		told := false
		select {
		case order, told = <-c.orders:
		case <-ctx.Done():
			order, told = custodyOrder{Do: orderRevoke}, true
		}
		switch {
		case !told && watched != "":
			return c.watch(ctx, watched)
		case !told:
			return c.orphaned(ctx)
		case order.Do == orderDrop:
			return nil
		case order.Do == orderRun:
			c.dir = order.Dir
		case order.Do == orderWatch:
			watched = order.Sandbox
		case order.Do == orderRevoke:
			outcome := c.withdraw(ctx)
			return c.out.Encode(custodyReply{Outcome: &outcome})
		}
	}
}

// receive reads what the command prints, to its end. Of a command that has ended
// and left something behind that could still print, no more is waited for.
func (c *custodian) receive() ([]byte, error) {
	const fd = 3
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	pipe := os.NewFile(fd, "the command's output")
	defer pipe.Close()
	var printed bytes.Buffer
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(&printed, io.LimitReader(pipe, maxKeySize+1))
		_, rest := io.Copy(io.Discard, pipe)
		done <- errors.Join(err, rest)
	}()
	orders := c.orders
	for {
		select {
		case err := <-done:
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = nil
			}
			return printed.Bytes(), err
		case _, told := <-orders:
			wait := time.Second
			if !told { // the command may still be at it
				wait = keyTimeout
			}
			if err := pipe.SetReadDeadline(time.Now().Add(wait)); err != nil {
				return nil, err
			}
			orders = nil
		}
	}
}

// withdraw runs the command that withdraws the key.
func (c *custodian) withdraw(ctx context.Context) run.Revocation {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Revoke[0], c.Revoke[1:]...)
	for k, v := range c.a.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var told tail
	masked := secret.NewMasker(c.key).Writer(&told)
	cmd.Stdin = strings.NewReader(c.key.Reveal() + "\n")
	cmd.Stdout, cmd.Stderr = masked, masked
	start := time.Now()
	err := cmd.Run()
	_ = masked.Close()                     // a tail takes everything
	if errors.Is(err, exec.ErrWaitDelay) { // what it left behind has its output, and so is there
		_ = cmd.Cancel()
	}
	v := run.Revocation{Secret: c.Secret, At: start, OK: err == nil, DurationMS: time.Since(start).Milliseconds(),
		Timeout: ctx.Err() != nil, Output: told.String()}
	if s := cmd.ProcessState; s != nil && s.Exited() {
		code := s.ExitCode()
		v.ExitCode = &code
		v.OK = code == 0 && !v.Timeout
	}
	if !v.OK && v.ExitCode == nil && !v.Timeout {
		v.Error = err.Error()
	}
	return v
}

// orphaned withdraws the key of a rein that has ended without a word, and records
// that where the run is recorded, unless another rein has it already.
func (c *custodian) orphaned(ctx context.Context) error {
	outcome := c.withdraw(ctx)
	outcome.Orphan = true
	if c.dir == "" {
		return nil
	}
	if _, err := run.ReadReport(c.dir); !errors.Is(err, fs.ErrNotExist) {
		return err // what has ended is not changed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	for {
		log, err := audit.Open(filepath.Join(c.dir, run.AuditFile), audit.Options{Masker: secret.NewMasker(c.key), ContinueTorn: true})
		if err == nil {
			_, err = log.Append(audit.Entry{Kind: audit.KindSecretRevoked, RunID: filepath.Base(c.dir), Data: outcome})
			return errors.Join(err, log.Close())
		}
		if audit.ErrorKindOf(err) != audit.ErrorLocked {
			return err
		}
		select {
		case <-time.After(watchEvery / 10):
		case <-ctx.Done():
			return err
		}
	}
}

// watch withdraws the key when the sandbox has ended, and records that with it.
func (c *custodian) watch(ctx context.Context, id string) error {
	h, err := c.a.open(ctx, c.place)
	for err == nil && ctx.Err() == nil { // a host that is shut down ends its sandboxes
		info, asked := h.provider.Get(ctx, id)
		if sandbox.KindOf(asked) == sandbox.KindNotFound || asked == nil && info.State == sandbox.StateLost {
			break
		}
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
		}
	}
	outcome := c.withdraw(ctx)
	if err != nil {
		return err
	}
	log, err := c.a.openLog(h, id, audit.Options{Masker: secret.NewMasker(c.key)})
	if err != nil {
		return err
	}
	_, err = log.Append(audit.Entry{Kind: audit.KindSecretRevoked, SandboxID: id, Data: outcome})
	return errors.Join(err, log.Close())
}

// tail keeps the end of what is written to it.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = bytes.Clone((*t)[max(0, len(*t)-maxRevokeTold):])
	return len(p), nil
}

func (t tail) String() string { return strings.TrimSpace(strings.ToValidUTF8(string(t), "\ufffd")) }
