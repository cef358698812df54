package layer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Get returns the layer of a package for a target, installed if need be and held
// until it is closed. Whoever asks for one that is being installed waits for it. told
// may be nil; it must not block. Errors are *Error, *sandbox.Error or those of ctx.
func (l *Layers) Get(ctx context.Context, p Package, t Target, told func(Progress)) (*Layer, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if told == nil {
		told = func(Progress) {}
	}
	say := func(s Stage, done int64) { told(Progress{p.String(), s, done}) }
	if !p.Update {
		if found, err := l.find(ctx, p, t); found != nil || err != nil {
			return found, err
		}
	}
	began := l.o.Now()
	key := keyOf("install", p.Name, p.Version, t.base(), t.Node, strings.Join(p.Scripts, " "))
	held, err := l.lock(ctx, key, unix.LOCK_EX, func() { say(StageWait, 0) })
	if err != nil {
		return nil, l.fault("install", p.String(), err)
	}
	defer held.Close()
	found, err := l.find(ctx, p, t) // another may have installed it meanwhile
	if err != nil {
		return nil, err
	}
	if found != nil && (!p.Update || found.Installed.After(began)) {
		return found, nil
	}
	if err := found.Close(); err != nil {
		return nil, err
	}
	name, err := l.install(ctx, key, p, t, say)
	if err != nil {
		say(StageFailed, 0)
		return nil, err
	}
	say(StageDone, 0)
	out, err := l.use(ctx, name)
	if out == nil && err == nil {
		err = &Error{Kind: KindNotFound, Op: "use", Subject: p.String(), Err: errors.New("it was removed at once")}
	}
	if out != nil {
		out.Fresh = true
	}
	return out, err
}

// find takes the layer that was last installed of those that are what was asked for;
// nil without an error when there is none.
func (l *Layers) find(ctx context.Context, p Package, t Target) (*Layer, error) {
	entries, err := os.ReadDir(l.at("layers"))
	if err != nil {
		return nil, l.fault("find", "", err)
	}
	best, at := "", time.Time{}
	for _, e := range entries {
		r, err := readRecord(l.at("layers", e.Name()))
		if err != nil || r == nil {
			continue // List says so, and Prune removes it
		}
		if r.Package != p.Name || r.Base != t.base() || strings.Join(r.Scripts, " ") != strings.Join(p.Scripts, " ") ||
			p.Version == "" && !r.Newest || p.Version != "" && r.Version != p.Version ||
			t.Node != "" && r.Node != strings.TrimPrefix(t.Node, "v") || older(r.Node, p.Node) {
			continue
		}
		if best == "" || r.Installed.After(at) {
			best, at = e.Name(), r.Installed
		}
	}
	if best == "" {
		return nil, nil
	}
	return l.use(ctx, best)
}

// use holds a layer, checked; nil without an error when it is gone.
func (l *Layers) use(ctx context.Context, name string) (*Layer, error) {
	held, err := l.lock(ctx, name, unix.LOCK_SH, nil)
	if err != nil {
		return nil, l.fault("use", name, err)
	}
	dir := l.at("layers", name)
	r, err := readRecord(dir)
	if r == nil || err != nil {
		return nil, errors.Join(l.fault("use", name, err), held.Close())
	}
	if err := r.check(ctx, dir, false); err != nil {
		return nil, errors.Join(l.changed(name, r, err), held.Close())
	}
	now := l.o.Now()
	if err := os.Chtimes(l.at("locks", name), now, now); err != nil {
		return nil, errors.Join(l.fault("use", name, err), held.Close())
	}
	return &Layer{Name: name, Dir: filepath.Join(dir, treeDir), Manifest: r.Manifest, held: held}, nil
}

// Verify compares every byte of a layer with its manifest. KindChanged says what is
// not as it was.
func (l *Layers) Verify(ctx context.Context, name string) error {
	if name != filepath.Base(name) {
		return &Error{Kind: KindNotFound, Op: "verify", Subject: name, Err: errors.New("it is no name of a layer")}
	}
	r, err := readRecord(l.at("layers", name))
	if err != nil {
		return l.fault("verify", name, err)
	}
	if r == nil {
		return &Error{Kind: KindNotFound, Op: "verify", Subject: name, Err: errors.New("there is no such layer")}
	}
	if err := r.check(ctx, l.at("layers", name), true); err != nil {
		if ended := context.Cause(ctx); ended != nil {
			return ended
		}
		return l.changed(name, r, err)
	}
	return nil
}

func (l *Layers) changed(name string, r *record, err error) error {
	return &Error{Kind: KindChanged, Op: "use", Subject: r.Package + "@" + r.Version, Err: fmt.Errorf("the layer %s is not what was installed: %w", name, err),
		Advice: "remove it, and it is installed again: rein layer rm " + name}
}

// older reports whether a version is below the least one, which may be empty.
func older(version, least string) bool {
	if least == "" {
		return false
	}
	have, need := numbers(version), numbers(least)
	for i, n := range need {
		switch {
		case i == len(have) || have[i] < n:
			return true
		case have[i] > n:
			return false
		}
	}
	return false
}

// numbers are those of a version, as far as it has them.
func numbers(version string) (out []int) {
	version, _, _ = strings.Cut(version, "-")
	for part := range strings.SplitSeq(version, ".") {
		n := 0
		if _, err := fmt.Sscanf(part, "%d", &n); err != nil {
			break
		}
		out = append(out, n)
	}
	return out
}
