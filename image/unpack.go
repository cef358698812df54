package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The names of whiteouts, as the image specification has them.
const (
	whiteout       = ".wh."
	whiteoutMeta   = ".wh..wh." // left behind by storage drivers
	whiteoutOpaque = ".wh..wh..opq"
)

// maxID is the largest owner an image may have: what a user namespace maps.
const maxID = 65535

// unpacker applies layers to a tree, in their order.
type unpacker struct {
	*tree
	root    bool // as root, owners are kept
	entries int  // so far, of all layers
	written int64
	total   weight
	dropped Dropped
	gone    map[uint64]struct{}   // names whose device was left out
	dirs    map[uint64]attributes // by inode, which a directory has only while it exists
	// admit takes the size of what is written to files of the layer; nil admits all.
	admit func(bytes int) error
	buf   []byte
}

// attributes are what a directory gets when everything is in it.
type attributes struct {
	mode  uint32
	mtime int64 // nanoseconds
}

func newUnpacker(dir string, l Limits) (*unpacker, error) {
	t, err := openTree(dir, l)
	if err != nil {
		return nil, err
	}
	u := &unpacker{tree: t, root: os.Geteuid() == 0,
		gone: map[uint64]struct{}{}, dirs: map[uint64]attributes{}, buf: make([]byte, 128<<10)}
	t.charge, t.made = u.count, u.describeImplicit
	return u, nil
}

// describeImplicit gives a directory its attributes that no entry describes.
func (u *unpacker) describeImplicit(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	u.dirs[st.Ino] = attributes{mode: 0o755}
	return nil
}

// count admits one more entry.
func (u *unpacker) count() error {
	if u.entries++; u.entries > u.limits.Entries {
		return tooLarge("more than %d entries", u.limits.Entries)
	}
	return nil
}

// layer applies one layer, whose archive r has already been bounded.
func (u *unpacker) layer(ctx context.Context, r io.Reader) error {
	clear(u.touched)
	clear(u.cleared)
	clear(u.gone)
	u.forget()
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return noArchive("tar", err)
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := u.count(); err != nil {
			return err
		}
		if err := u.entry(ctx, h, in); err != nil {
			return fmt.Errorf("entry %.300q: %w", h.Name, err)
		}
	}
}

// place splits the name of an entry. base is "" for the root itself.
func (u *unpacker) place(name string) (dir, base string, err error) {
	if len(name) > u.limits.Path {
		return "", "", tooLarge("its path has %d bytes, more than %d", len(name), u.limits.Path)
	}
	parts := components(name)
	if len(parts) > u.limits.Depth {
		return "", "", tooLarge("its path is %d deep, more than %d", len(parts), u.limits.Depth)
	}
	for i, p := range parts {
		switch {
		case p == "..":
			return "", "", refused("its path leads upwards")
		case strings.ContainsRune(p, 0):
			return "", "", refused("a zero byte is in its path")
		case strings.HasPrefix(p, whiteout) && i < len(parts)-1:
			return "", "", refused("it lies in a whiteout")
		}
	}
	if len(parts) == 0 {
		return "", "", nil
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], "/"), parts[last], nil
}

// entry applies one entry.
func (u *unpacker) entry(ctx context.Context, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader { // says something about the archive
		return nil
	}
	dir, base, err := u.place(h.Name)
	if err != nil {
		return err
	}
	u.dropAttributes(h)
	if strings.HasPrefix(base, whiteout) {
		return u.whiteout(ctx, dir, base)
	}
	if base == "" {
		if h.Typeflag != tar.TypeDir {
			return refused("the root is no directory")
		}
		return u.describeRoot(h)
	}
	if err := u.open(dir, true); err != nil {
		return err
	}
	real := u.resolved() + base
	if len(real) > u.limits.Path {
		return tooLarge("its path has %d bytes, more than %d", len(real), u.limits.Path)
	}
	u.touch(real)
	delete(u.gone, u.hash(real))
	switch h.Typeflag {
	case tar.TypeDir:
		return u.directory(h, base)
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.file(h, base, content)
	case tar.TypeSymlink:
		return u.symlink(h, base)
	case tar.TypeLink:
		return u.link(h, base, real)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return u.drop(h, base, real)
	}
	return unsupported("", "an entry of the unknown kind %q", h.Typeflag)
}

// dropAttributes counts what is not kept of an entry.
func (u *unpacker) dropAttributes(h *tar.Header) {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "SCHILY.xattr.") || strings.HasPrefix(k, "LIBARCHIVE.xattr.") {
			u.dropped.Attributes++
		}
	}
	if h.Mode&0o6000 != 0 && (h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeGNUSparse) {
		u.dropped.Setuid++
	}
	if !u.root && (h.Uid != 0 || h.Gid != 0) {
		u.dropped.Owners++
	}
}

// whiteout hides what earlier layers have.
func (u *unpacker) whiteout(ctx context.Context, dir, base string) error {
	name := strings.TrimPrefix(base, whiteout)
	switch {
	case base == whiteoutOpaque:
	case strings.HasPrefix(base, whiteoutMeta):
		return nil
	case name == "" || name == "." || name == "..":
		return refused("a whiteout of nothing, or of more than one name")
	}
	err := u.open(dir, false)
	if errors.Is(err, errNoParent) {
		return nil
	}
	if err != nil {
		return err
	}
	real := u.resolved()
	u.valid = false // the directory that was open may be hidden
	r, err := os.OpenRoot(u.rootDir.Name())
	if err != nil {
		return err
	}
	defer r.Close()
	if base == whiteoutOpaque {
		return u.hideBeneath(ctx, r, strings.TrimSuffix(real, "/"))
	}
	return u.hide(ctx, r, real+name)
}

// drop leaves an entry out that a tree must not have, and what it replaces.
func (u *unpacker) drop(h *tar.Header, base, real string) error {
	if h.Typeflag == tar.TypeFifo {
		u.dropped.Pipes++
	} else {
		u.dropped.Devices++
	}
	u.gone[u.hash(real)] = struct{}{}
	return u.remove(base)
}

// mode is what of an entry's mode is kept: never setuid or setgid, and the
// sticky bit of directories only. As an ordinary user everything must stay
// readable for it, because nobody else can do so in its place.
func (u *unpacker) mode(h *tar.Header) uint32 {
	m, least := uint32(h.Mode)&0o777, uint32(0o400)
	if h.Typeflag == tar.TypeDir {
		m, least = uint32(h.Mode)&0o1777, 0o500
	}
	if !u.root && m&least != least {
		u.dropped.Modes++
		m |= least
	}
	return m
}

// own gives an entry of the current directory its owner.
func (u *unpacker) own(h *tar.Header, base string) error {
	if !u.root {
		return nil
	}
	if h.Uid < 0 || h.Uid > maxID || h.Gid < 0 || h.Gid > maxID {
		return refused("it belongs to %d:%d; owners are 0 to %d", h.Uid, h.Gid, maxID)
	}
	return unix.Fchownat(u.dirfd(), base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW)
}

func (u *unpacker) directory(h *tar.Header, base string) error {
	st, err := u.stat(base)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if err := u.remove(base); err != nil {
			return err
		}
		err = unix.ENOENT
	}
	if errors.Is(err, unix.ENOENT) {
		if err := unix.Mkdirat(u.dirfd(), base, 0o700); err != nil {
			return err
		}
		st, err = u.stat(base)
	}
	if err != nil {
		return err
	}
	if err := u.own(h, base); err != nil {
		return err
	}
	u.dirs[st.Ino] = attributes{u.mode(h), nanoseconds(h.ModTime)}
	return nil
}

// describeRoot is what the entry of the root itself does.
func (u *unpacker) describeRoot(h *tar.Header) error {
	if err := u.open("", true); err != nil {
		return err
	}
	st, err := u.stat(".")
	if err != nil {
		return err
	}
	if err := u.own(h, "."); err != nil {
		return err
	}
	u.dirs[st.Ino] = attributes{u.mode(h), nanoseconds(h.ModTime)}
	return nil
}

// file writes a file that did not exist: what has its name goes first, so that
// a link to it elsewhere keeps what it had.
func (u *unpacker) file(h *tar.Header, base string, content io.Reader) error {
	if h.Size > u.limits.File {
		return tooLarge("a file of %d bytes, more than %d", h.Size, u.limits.File)
	}
	if u.written += h.Size; u.written > u.limits.Unpacked {
		return tooLarge("its files have more than %d bytes", u.limits.Unpacked)
	}
	if err := u.remove(base); err != nil {
		return err
	}
	fd, err := unix.Openat(u.dirfd(), base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	err = u.fill(f, h, content)
	if err == nil {
		err = u.own(h, base)
	}
	if err == nil {
		err = unix.Fchmod(fd, u.mode(h))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return u.stamp(base, h.ModTime)
}

// fill copies the content, which the archive cannot make longer than it says,
// though it says it of a sparse file in no bytes of its own.
func (u *unpacker) fill(f *os.File, h *tar.Header, content io.Reader) error {
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, admitted{content, u.admit}, u.buf)
	if err == nil && n != h.Size {
		err = corrupt("it has %d bytes, not %d", n, h.Size)
	}
	if err == nil || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return err
	}
	return noArchive("tar", err)
}

// admitted is content whose bytes are admitted before they are written.
type admitted struct {
	r     io.Reader
	admit func(bytes int) error
}

func (a admitted) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if a.admit != nil && n > 0 {
		if err := a.admit(n); err != nil {
			return 0, err
		}
	}
	return n, err
}

func (u *unpacker) symlink(h *tar.Header, base string) error {
	switch {
	case h.Linkname == "" || strings.ContainsRune(h.Linkname, 0):
		return refused("a link without a target")
	case len(h.Linkname) > u.limits.Path:
		return tooLarge("a link's target of %d bytes, more than %d", len(h.Linkname), u.limits.Path)
	}
	if err := u.remove(base); err != nil {
		return err
	}
	if err := unix.Symlinkat(h.Linkname, u.dirfd(), base); err != nil {
		return err
	}
	if err := u.own(h, base); err != nil {
		return err
	}
	return u.stamp(base, h.ModTime)
}

// link makes a second name of a file of the tree. The last component of the
// target is never followed, so that a link gets a second name itself.
func (u *unpacker) link(h *tar.Header, base, real string) error {
	dir, target, err := u.place(h.Linkname)
	if err != nil {
		return fmt.Errorf("its target %.300q: %w", h.Linkname, err)
	}
	if target == "" || strings.HasPrefix(target, whiteout) {
		return refused("a hard link to %.300q", h.Linkname)
	}
	to, err := unix.FcntlInt(uintptr(u.dirfd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if err := u.open(dir, false); err != nil {
		return fmt.Errorf("its target %.300q: %w", h.Linkname, asCorrupt(err))
	}
	source := u.resolved() + target
	if source == real {
		return refused("a hard link to itself")
	}
	if _, ok := u.gone[u.hash(source)]; ok {
		u.gone[u.hash(real)] = struct{}{}
		return u.removeReal(real)
	}
	st, err := u.stat(target)
	if err != nil {
		return corrupt("its target %.300q does not exist", h.Linkname)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return refused("a hard link to a directory")
	}
	from, err := unix.FcntlInt(uintptr(u.dirfd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	if err := u.removeReal(real); err != nil {
		return err
	}
	return unix.Linkat(from, target, to, base, 0)
}

// removeReal removes what has a real path, whatever directory is open.
func (u *unpacker) removeReal(real string) error {
	dir, base := path.Split(real)
	if err := u.open(strings.TrimSuffix(dir, "/"), false); err != nil {
		return err
	}
	return u.remove(base)
}

func asCorrupt(err error) error {
	if errors.Is(err, errNoParent) {
		return corrupt("%w", err)
	}
	return err
}

// stamp sets the time of an entry of the current directory.
func (u *unpacker) stamp(base string, t time.Time) error {
	at := unix.NsecToTimespec(nanoseconds(t))
	return unix.UtimesNanoAt(u.dirfd(), base, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
}

// nanoseconds is a time the kernel takes: archives hold any, file systems those
// of a few centuries.
func nanoseconds(t time.Time) int64 {
	const last = 1 << 33 // seconds; the year 2242
	if s := t.Unix(); s < 0 || s > last {
		return 0
	}
	return t.UnixNano()
}
