package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/run/control"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// Secrets is where the secrets of Target.Spec are from. Its functions may be called
// concurrently.
type Secrets struct {
	// Read reads the secret of a name from where it is from, again, and never asks
	// anybody. Nil: a secret is rotated to a value that is given only.
	Read func(ctx context.Context, name string) (secret.Value, error)
	// Refresh has secrets read again, and rotated, so often while the run works.
	Refresh map[string]time.Duration
	// Revoke withdraws the keys that were made for the run where they are from, those
	// that are left. It is called once, when the sandbox is gone, on every path, and
	// returns within a bounded time. Nil withdraws nothing.
	Revoke func(ctx context.Context) []Revocation
	// RevokeOne withdraws one of them while the run works, as nothing uses it any more:
	// the value of a secret before the last two, or one that it could not be changed
	// to. Of a value that was not made it withdraws nothing. Nil leaves it to Revoke.
	RevokeOne func(ctx context.Context, name string, value secret.Value) []Revocation
}

// Revocation is how the withdrawal of one key went. It is also the data of
// audit.KindSecretRevoked.
type Revocation struct {
	Secret string    `json:"secret"`
	At     time.Time `json:"at"`
	OK     bool      `json:"ok"` // it ended with exit code 0
	// ExitCode is null when there is none.
	ExitCode   *int   `json:"exit_code"`
	Timeout    bool   `json:"timeout,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Output     string `json:"output,omitempty"` // the end of it, masked
	Error      string `json:"error,omitempty"`  // it could not be run
	// Orphan: the rein that had the key made was ended before it could say so.
	Orphan bool `json:"rein_was_ended,omitempty"`
}

// Says is how it went, in a few words.
func (v Revocation) Says() string {
	switch {
	case v.OK:
		return "withdrawn"
	case v.Timeout:
		return "NOT withdrawn: no end within " + (time.Duration(v.DurationMS) * time.Millisecond).Round(time.Second).String()
	case v.ExitCode != nil:
		return fmt.Sprintf("NOT withdrawn: exit code %d", *v.ExitCode)
	}
	return "NOT withdrawn: " + v.Error
}

// withdraw has the keys of the run withdrawn. What of it fails is told, and
// changes nothing of how the run ended.
func (r *runner) withdraw(ctx context.Context) {
	if r.o.Secrets.Revoke == nil {
		return
	}
	r.withdrawn(r.o.Secrets.Revoke(context.WithoutCancel(ctx)))
}

// withdrawn records and reports how withdrawals went.
func (r *runner) withdrawn(all []Revocation) {
	for i := range all {
		all[i].Output, all[i].Error = r.o.Masker.String(all[i].Output), r.o.Masker.String(all[i].Error)
		if err := r.record(audit.KindSecretRevoked, "", all[i]); err != nil {
			r.warn("%v", err)
		}
		if !all[i].OK {
			r.warn("the key of the secret %s may still be good: %s", all[i].Secret, all[i].Says())
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Revocations = append(r.report.Revocations, all...)
}

// rotate puts another value behind the placeholder of a secret, in the sandbox and
// in those that are made from now on. Of the values before it the sandbox's requests
// may still have the last; what they cannot have is withdrawn.
func (r *runner) rotate(ctx context.Context, name string, value secret.Value) error {
	r.mu.Lock()
	box := r.reached
	r.mu.Unlock()
	if box == nil {
		return errors.New("there is no sandbox yet")
	}
	err := box.RotateSecret(ctx, name, value)
	var unused []secret.Value
	switch {
	case err == nil:
		unused = r.held(name, value)
	case sandbox.KindOf(err) == sandbox.KindInvalid && !r.has(name, value): // nothing was changed
		unused = []secret.Value{value}
	}
	if r.o.Secrets.RevokeOne != nil {
		for _, v := range unused {
			r.withdrawn(r.o.Secrets.RevokeOne(ctx, name, v))
		}
	}
	return err
}

// held makes value that of a secret, and returns those that no request has any more.
// While checks are run in a sandbox of their own, which keeps what it was made with,
// there are none.
func (r *runner) held(name string, value secret.Value) (unused []secret.Value) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.o.Target.Spec.Secrets, func(s vault.Secret) bool { return s.Name == name })
	if i < 0 || same(value)(r.o.Target.Spec.Secrets[i].Value) {
		return nil
	}
	former := append(slices.DeleteFunc(r.former[name], same(value)), r.o.Target.Spec.Secrets[i].Value)
	if last := len(former) - 1; r.judging == nil {
		unused, former = former[:last], former[last:]
	}
	if r.former == nil {
		r.former = map[string][]secret.Value{}
	}
	r.former[name] = former
	r.o.Target.Spec.Secrets = slices.Clone(r.o.Target.Spec.Secrets)
	r.o.Target.Spec.Secrets[i].Value = value
	return unused
}

// has reports whether requests may have a value of a secret.
func (r *runner) has(name string, value secret.Value) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.former[name], same(value)) ||
		slices.ContainsFunc(r.o.Target.Spec.Secrets, func(s vault.Secret) bool { return s.Name == name && same(value)(s.Value) })
}

func same(a secret.Value) func(secret.Value) bool {
	return func(b secret.Value) bool { return a.Reveal() == b.Reveal() }
}

// spec is what sandboxes of the run are made from now.
func (r *runner) spec() sandbox.Spec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.o.Target.Spec
}

// readAgain reads a secret and rotates it.
func (r *runner) readAgain(ctx context.Context, name string) error {
	if r.o.Secrets.Read == nil {
		return errors.New("it cannot be read again")
	}
	value, err := r.o.Secrets.Read(ctx, name)
	if err != nil {
		return err
	}
	r.o.Masker.Add(value)
	return r.rotate(ctx, name, value)
}

// secretsAgain gives a sandbox that is taken up the secrets as they were read for
// it: keys of the process that had made it may have been withdrawn with its end.
func (r *runner) secretsAgain(ctx context.Context) {
	for _, s := range r.spec().Secrets {
		if s.Value.IsZero() {
			continue
		}
		err := r.rotate(ctx, s.Name, s.Value)
		if err != nil {
			r.warn("the sandbox goes on with the secret %s as it was: %v", s.Name, err)
		}
		if sandbox.KindOf(err) == sandbox.KindUnsupported {
			return // nor with another
		}
	}
}

// keepFresh has secrets read again as often as Options.Secrets says, until the
// returned function is called or ctx ends.
func (r *runner) keepFresh(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for name, every := range r.o.Secrets.Refresh {
		if every > 0 {
			running.Go(func() { r.refresh(ctx, name, every) })
		}
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// refresh rotates one secret, again and again. After a failure it tries sooner;
// it warns of the first.
func (r *runner) refresh(ctx context.Context, name string, every time.Duration) {
	failed := false
	for wait := every; ; {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		err := r.readAgain(ctx, name)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			wait, failed = every, false
			continue
		case !failed:
			r.warn("the secret %s could not be refreshed, and is as it was: %v", name, err)
		}
		wait, failed = max(every/10, min(every, 10*time.Second)), true
	}
}

// Rotate implements control.Handler. A value that is not given is read from where
// the secret is from.
func (d *desk) Rotate(ctx context.Context, by control.Peer, name string, value secret.Value) error {
	if err := d.open(); err != nil {
		return err
	}
	r := d.r
	if !slices.ContainsFunc(r.spec().Secrets, func(s vault.Secret) bool { return s.Name == name }) {
		return &control.Error{Code: control.CodeNotFound, Message: "the run has no secret " + name, Advice: "its secrets are those of its target"}
	}
	if err := d.record(audit.KindControl, ControlRecord{Method: control.MethodRotate, ID: name, UID: by.UID, PID: by.PID}); err != nil {
		return err
	}
	var err error
	if value.IsZero() {
		err = r.readAgain(ctx, name)
	} else {
		r.o.Masker.Add(value)
		err = r.rotate(ctx, name, value)
	}
	if err != nil {
		code := control.CodeFailed
		if sandbox.KindOf(err) == sandbox.KindInvalid {
			code = control.CodeInvalid
		}
		return &control.Error{Code: code, Message: r.o.Masker.String(err.Error()), Advice: r.o.Masker.String(hintOf(err))}
	}
	return nil
}

// GivenSecret is a secret that requests of the sandbox could be given.
type GivenSecret struct {
	Name string   `json:"name"`
	To   []string `json:"to"` // what, in words: "api.example.org on port 443, as bearer"
}

func given(secrets []vault.Secret) []GivenSecret {
	var out []GivenSecret
	for _, s := range secrets {
		g := GivenSecret{Name: s.Name}
		for _, use := range s.Use {
			g.To = append(g.To, use.Says())
		}
		out = append(out, g)
	}
	return out
}
