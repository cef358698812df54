package layer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Layers is the store of one user, at
//
//	layers/NAME/tree           what is shown in sandboxes
//	layers/NAME/manifest.json  what it is
//	locks/NAME                 held shared by who uses it, alone by who removes it
//	locks/KEY                  held alone by who installs
//	tmp/KEY                    what is being installed
//	tmp/NAME                   what is being removed
//
// A layer is complete when it is in its place, where it comes by being renamed. It is
// safe for concurrent use, also by several processes.
type Layers struct{ o Options }

// Open opens the store, making it if need be, and removes what a crash has left in it.
// Nothing is held open.
func Open(o Options) (*Layers, error) {
	fail := func(hint, text string, args ...any) (*Layers, error) {
		return nil, &Error{Kind: KindHost, Op: "open", Subject: o.Dir, Err: fmt.Errorf(text, args...), Advice: hint}
	}
	if !filepath.IsAbs(o.Dir) || !filepath.IsAbs(o.Records) {
		return fail("", "the store and the directory of records are absolute paths")
	}
	o.Dir = filepath.Clean(o.Dir)
	o.Limits = Limits{cmp.Or(o.Limits.Entries, 100_000), cmp.Or(o.Limits.Bytes, 3<<30), cmp.Or(o.Limits.File, 1<<30), cmp.Or(o.Limits.Disk, 4<<30)}
	o.Wall = cmp.Or(o.Wall, 10*time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Layers{o}
	if _, err := l.network(); err != nil {
		return nil, err
	}
	if hint, err := CheckCredential(o.Registry, o.Credential.Read != nil, o.Credential.User); err != nil {
		return nil, &Error{Kind: KindInvalid, Op: "open", Subject: "the registry " + o.Registry, Err: err, Advice: hint}
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return fail("name a directory of your own", "%w", err)
	}
	info, err := os.Lstat(o.Dir)
	if err != nil {
		return fail("", "%w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fail("name another directory", "it is no directory")
	case !ok || int(st.Uid) != os.Geteuid():
		return fail("name a directory of your own", "it belongs to another user than uid %d", os.Geteuid())
	case info.Mode().Perm()&0o077 != 0:
		return fail("chmod 700 "+o.Dir, "others may enter it")
	}
	for _, d := range []string{"layers", "locks", "tmp"} {
		if err := os.Mkdir(filepath.Join(o.Dir, d), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fail("", "%w", err)
		}
	}
	if err := l.sweep(); err != nil {
		return fail("", "%w", err)
	}
	return l, nil
}

// base names what a target's sandboxes are made from.
func (t Target) base() string {
	from := cmp.Or(t.Base, t.Spec.Image, "host")
	return from + " " + runtime.GOOS + "/" + runtime.GOARCH
}

// keyOf is a file's name for what tells layers apart.
func keyOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:12])
}

// name is that of the layer that m is. The newest is apart from the same version by
// its number, which somebody may be using.
func (m Manifest) name() string {
	return keyOf(m.Package, m.Version, strconv.FormatBool(m.Newest), m.Base, m.Node, strings.Join(m.Scripts, " "))
}

func (l *Layers) at(parts ...string) string {
	return filepath.Join(append([]string{l.o.Dir}, parts...)...)
}

// hold is a lock that is held.
type hold struct{ file *os.File }

// Close gives it up, also where a process that is just being started has the file, too.
func (h *hold) Close() error {
	return errors.Join(unix.Flock(int(h.file.Fd()), unix.LOCK_UN), h.file.Close())
}

// lockPoll is how often a lock that another process holds is asked for again.
const lockPoll = 50 * time.Millisecond

// lock takes a lock, whose owner is the file. While others hold it, waiting is called
// once and the lock is asked for until ctx ends.
func (l *Layers) lock(ctx context.Context, name string, how int, waiting func()) (*hold, error) {
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		f, err := l.tryLock(name, how)
		if f != nil || err != nil {
			return f, err
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// tryLock is nil without an error when others hold the lock. Lock files stay: they
// are empty, and one that was removed could be locked by two.
func (l *Layers) tryLock(name string, how int) (*hold, error) {
	f, err := os.OpenFile(l.at("locks", name), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err != unix.EINTR {
			break
		}
	}
	if err == nil {
		return &hold{f}, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, err
}

// sweep removes what nobody installs or removes any more.
func (l *Layers) sweep() error {
	entries, err := os.ReadDir(l.at("tmp"))
	for _, e := range entries {
		held, lockErr := l.tryLock(e.Name(), unix.LOCK_EX)
		if err = errors.Join(err, lockErr); held != nil {
			err = errors.Join(err, removeTree(l.at("tmp", e.Name())), held.Close())
		}
	}
	return err
}

// Info is a layer of the store.
type Info struct {
	Name string `json:"name"`
	Manifest
	Used   time.Time `json:"used"`
	InUse  bool      `json:"in_use"`
	Damage string    `json:"damage,omitempty"` // why it cannot be used
}

// List returns the layers, the last used first.
func (l *Layers) List(ctx context.Context) ([]Info, error) {
	entries, err := os.ReadDir(l.at("layers"))
	if err != nil {
		return nil, l.fault("list", "", err)
	}
	out := []Info{}
	for _, e := range entries {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		i := Info{Name: e.Name()}
		r, err := readRecord(l.at("layers", e.Name()))
		switch {
		case err != nil:
			i.Damage = err.Error()
		case r == nil:
			i.Damage = "it has no manifest"
		default:
			i.Manifest, i.Used = r.Manifest, r.Installed
		}
		held, err := l.tryLock(e.Name(), unix.LOCK_EX)
		if err != nil {
			return nil, l.fault("list", e.Name(), err)
		}
		if i.InUse = held == nil; held != nil {
			held.Close()
		}
		if info, err := os.Lstat(l.at("locks", e.Name())); err == nil && info.ModTime().After(i.Used) {
			i.Used = info.ModTime()
		}
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b Info) int { return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(a.Name, b.Name)) })
	return out, nil
}

// Remove removes a layer by its name; KindInUse when a run uses it.
func (l *Layers) Remove(_ context.Context, name string) error {
	if name != filepath.Base(name) || name == "." || name == ".." {
		return &Error{Kind: KindNotFound, Op: "remove", Subject: name, Err: errors.New("it is no name of a layer")}
	}
	if _, err := os.Lstat(l.at("layers", name)); err != nil {
		return &Error{Kind: KindNotFound, Op: "remove", Subject: name, Err: errors.New("there is no such layer")}
	}
	held, err := l.tryLock(name, unix.LOCK_EX)
	switch {
	case err != nil:
		return l.fault("remove", name, err)
	case held == nil:
		return &Error{Kind: KindInUse, Op: "remove", Subject: name, Err: errors.New("a run uses it"), Advice: "wait for its end"}
	}
	defer held.Close()
	if err := removeTree(l.at("tmp", name)); err != nil { // of a removal that was cut short
		return l.fault("remove", name, err)
	}
	if err := os.Rename(l.at("layers", name), l.at("tmp", name)); err != nil {
		return l.fault("remove", name, err)
	}
	return l.fault("remove", name, removeTree(l.at("tmp", name)))
}

// Prune removes the layers that nobody has used for that long, and all that are
// damaged, and returns them.
func (l *Layers) Prune(ctx context.Context, unused time.Duration) ([]Info, error) {
	list, err := l.List(ctx)
	if err != nil {
		return nil, err
	}
	removed := []Info{}
	for _, i := range list {
		if i.InUse || i.Damage == "" && l.o.Now().Sub(i.Used) < unused {
			continue
		}
		err := l.Remove(ctx, i.Name)
		if e, ok := errors.AsType[*Error](err); ok && (e.Kind == KindInUse || e.Kind == KindNotFound) {
			continue // meanwhile
		}
		if err != nil {
			return removed, err
		}
		removed = append(removed, i)
	}
	return removed, nil
}

// fault is an error of the store's own files; nil for nil.
func (l *Layers) fault(op, subject string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return &Error{Kind: KindHost, Op: op, Subject: cmp.Or(subject, l.o.Dir), Err: err}
}
