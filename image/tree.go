package image

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is a directory that layers are written into. Nothing in it is reached but
// through descriptors of real directories, opened one component at a time
// without following links: a link is read and resolved here, with the tree as
// the root of all that is absolute. Nobody else writes to the tree meanwhile.
type tree struct {
	limits  Limits
	rootDir *os.File
	// stack is the directory that was used last, from the root down; at is the
	// name it was asked for by, which saves resolving it for the next entry.
	stack []frame
	at    string
	valid bool

	steps   int                // what finding directories may still take, of all layers
	charge  func() error       // admits a directory that an entry needs and none describes
	made    func(fd int) error // it is there
	seed    maphash.Seed
	touched map[uint64]struct{} // paths of the layer being applied
	cleared map[uint64]struct{} // paths with nothing of earlier layers at or beneath them
}

// frame is one open directory on the way down.
type frame struct {
	real string // its path, with a slash at the end
	fd   int
}

// The bounds of resolving one name: links, as in the kernel, and steps, which
// links multiply. Limits.Steps bounds them for a whole image.
const (
	maxLinks = 40
	maxSteps = 1024
)

var errNoParent = errors.New("its directory does not exist")

func openTree(dir string, l Limits) (*tree, error) {
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return &tree{limits: l, rootDir: f, steps: l.Steps, seed: maphash.MakeSeed(), touched: map[uint64]struct{}{}, cleared: map[uint64]struct{}{}}, nil
}

func (t *tree) close() error {
	t.forget()
	return t.rootDir.Close()
}

// forget drops the open directories.
func (t *tree) forget() {
	for _, f := range t.stack {
		unix.Close(f.fd)
	}
	t.stack, t.at, t.valid = t.stack[:0], "", false
}

// resolved is the real path of the directory that was opened last, with a slash
// at the end; "" is the root.
func (t *tree) resolved() string {
	if len(t.stack) == 0 {
		return ""
	}
	return t.stack[len(t.stack)-1].real
}

// spend takes steps off what is left for the image.
func (t *tree) spend(n int) error {
	if t.steps -= n; t.steps < 0 {
		return tooLarge("finding its directories, link after link, takes more than %d steps", t.limits.Steps)
	}
	return nil
}

// dirfd is the directory that was opened last.
func (t *tree) dirfd() int {
	if len(t.stack) == 0 {
		return int(t.rootDir.Fd())
	}
	return t.stack[len(t.stack)-1].fd
}

// open makes dir, a clean path without a leading slash ("" is the root), the
// current directory. Links on the way are resolved within the tree; what is
// missing is made, or with make false is errNoParent.
func (t *tree) open(dir string, create bool) error {
	if t.valid && t.at == dir {
		return nil
	}
	t.forget()
	rest := components(dir)
	links := 0
	for steps := 0; len(rest) > 0; steps++ {
		if steps > maxSteps {
			return refused("its directory takes more than %d steps to find", maxSteps)
		}
		if err := t.spend(1); err != nil {
			return err
		}
		name := rest[0]
		rest = rest[1:]
		if name == ".." { // of a link only
			if n := len(t.stack); n > 0 {
				unix.Close(t.stack[n-1].fd)
				t.stack = t.stack[:n-1]
			}
			continue
		}
		target, err := t.descend(name, create)
		if err != nil {
			return err
		}
		if target == "" {
			continue
		}
		if links++; links > maxLinks {
			return refused("more than %d links lead to its directory", maxLinks)
		}
		if strings.HasPrefix(target, "/") {
			t.forget()
		}
		to := components(target)
		if err := t.spend(len(to)); err != nil { // a step each to go there, and one to read them
			return err
		}
		rest = append(to, rest...)
	}
	t.at, t.valid = dir, true
	return nil
}

// components splits a path; "." and what is empty is left out.
func components(p string) []string {
	var out []string
	for c := range strings.SplitSeq(p, "/") {
		if c != "" && c != "." {
			out = append(out, c)
		}
	}
	return out
}

// descend goes into one directory. If name is a link, it stays and returns the
// target.
func (t *tree) descend(name string, create bool) (target string, err error) {
	if len(t.stack) >= t.limits.Depth || len(t.resolved())+len(name) > t.limits.Path {
		return "", tooLarge("its directory is more than %d deep, or its path longer than %d bytes", t.limits.Depth, t.limits.Path)
	}
	fd, err := openDir(t.dirfd(), name)
	switch err {
	case nil:
	case unix.ENOENT:
		if !create {
			return "", errNoParent
		}
		if fd, err = t.mkdir(name); err != nil {
			return "", err
		}
	case unix.ELOOP, unix.ENOTDIR: // O_NOFOLLOW with O_DIRECTORY says either of a link
		if target, err = readlink(t.dirfd(), name); err != nil {
			return "", refused("%q on its path is no directory", name)
		}
		return target, nil
	default:
		return "", fmt.Errorf("open directory %q: %w", name, err)
	}
	t.stack = append(t.stack, frame{t.resolved() + name + "/", fd})
	t.touch(t.resolved())
	return "", nil
}

// mkdir makes a directory that an entry needs and no entry describes.
func (t *tree) mkdir(name string) (int, error) {
	if err := t.charge(); err != nil {
		return -1, err
	}
	if err := unix.Mkdirat(t.dirfd(), name, 0o700); err != nil {
		return -1, fmt.Errorf("make directory %q: %w", name, err)
	}
	fd, err := openDir(t.dirfd(), name)
	if err != nil {
		return -1, fmt.Errorf("open directory %q: %w", name, err)
	}
	if err := t.made(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func openDir(at int, name string) (int, error) {
	for {
		fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// readlink reads a link; its target is never empty.
func readlink(at int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(at, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// stat describes a name in the current directory, without following it.
func (t *tree) stat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(t.dirfd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// remove removes whatever has the name in the current directory.
func (t *tree) remove(name string) error {
	st, err := t.stat(name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		err = t.removeAll(t.resolved() + name)
	case unix.S_IFLNK: // a directory may have been found through it
		err = unix.Unlinkat(t.dirfd(), name, 0)
	default:
		return unix.Unlinkat(t.dirfd(), name, 0)
	}
	t.valid = false // the directory stays open for this entry
	return err
}

// removeAll removes a directory by its real path.
func (t *tree) removeAll(name string) error {
	r, err := os.OpenRoot(t.rootDir.Name())
	if err != nil {
		return err
	}
	defer r.Close()
	return r.RemoveAll(name)
}

// hash is a path's place in touched and cleared. It cannot be foreseen, so nobody can make
// two that collide.
func (t *tree) hash(real string) uint64 {
	return maphash.String(t.seed, strings.TrimSuffix(real, "/"))
}

// touch notes that the layer being applied has this path.
func (t *tree) touch(real string) { t.touched[t.hash(real)] = struct{}{} }

func (t *tree) has(real string) bool {
	_, ok := t.touched[t.hash(real)]
	return ok
}

// hide removes what earlier layers have at a real path: what this layer has
// stays. Until the next layer nothing of earlier ones can come back, so each
// directory is gone through once, however many whiteouts are in a layer.
func (t *tree) hide(ctx context.Context, r *os.Root, real string) error {
	if !t.has(real) {
		return r.RemoveAll(real)
	}
	return t.hideBeneath(ctx, r, real)
}

// hideBeneath removes what earlier layers have in a directory; in what is no
// directory there is nothing.
func (t *tree) hideBeneath(ctx context.Context, r *os.Root, real string) error {
	place := t.hash(real)
	if _, ok := t.cleared[place]; ok {
		return nil
	}
	if real == "" {
		real = "."
	}
	info, err := r.Lstat(real)
	if err != nil || !info.IsDir() {
		return ignoreMissing(err)
	}
	d, err := r.Open(real)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	for _, n := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if real != "." {
			n = real + "/" + n
		}
		if err := t.hide(ctx, r, n); err != nil {
			return err
		}
	}
	t.cleared[place] = struct{}{}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func refused(format string, args ...any) error {
	return &fault{kind: KindRefused, err: fmt.Errorf(format, args...)}
}
