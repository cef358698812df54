package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"sync"

	"golang.org/x/sys/unix"
)

// root is a directory that nothing leads out of: the kernel resolves every
// name beneath it (openat2(2), RESOLVE_BENEATH, Linux 5.6), following links
// only as long as they stay inside, however they change meanwhile.
//
// It is not os.Root because that relies on O_NOFOLLOW, which gVisor does not
// heed together with O_DIRECTORY: it follows a link to a directory.
type root struct {
	mu  sync.RWMutex // held for writing by Close: requests may still be under way then
	dir *os.File
}

func openRoot(name string) (*root, error) {
	dir, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &root{dir: dir}, nil
}

func (r *root) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dir.Close()
}

// maxRetries bounds how often a resolution is tried again that something moved
// beneath (EAGAIN), so that user code cannot keep the daemon busy for ever.
const maxRetries = 128

// openAt resolves name beneath dir.
func openAt(dir int, name string, flag int, mode fs.FileMode, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flag | unix.O_CLOEXEC), Resolve: unix.RESOLVE_BENEATH | resolve}
	if flag&unix.O_CREAT != 0 {
		how.Mode = uint64(mode.Perm())
	}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(dir, name, &how)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN) && try < maxRetries:
		case errors.Is(err, unix.EXDEV):
			return -1, &os.PathError{Op: "open", Path: name, Err: errOutside}
		case err != nil:
			return -1, &os.PathError{Op: "open", Path: name, Err: err}
		default:
			return fd, nil
		}
	}
}

func (r *root) openAt(name string, flag int, mode fs.FileMode, resolve uint64) (int, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return openAt(int(r.dir.Fd()), name, flag, mode, resolve)
}

// OpenFile opens name, following links that stay inside.
func (r *root) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	fd, err := r.openAt(name, flag, mode, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// OpenRoot opens a directory beneath.
func (r *root) OpenRoot(name string) (*root, error) {
	dir, err := r.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &root{dir: dir}, nil
}

func (r *root) Stat(name string) (fs.FileInfo, error)  { return r.look(name, 0) }
func (r *root) Lstat(name string) (fs.FileInfo, error) { return r.look(name, unix.O_NOFOLLOW) }

func (r *root) look(name string, flag int) (fs.FileInfo, error) {
	f, err := r.OpenFile(name, unix.O_PATH|flag, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// in calls f with the directory that holds name, and name's last element, which
// f must not follow when it is a link.
func (r *root) in(op, name string, f func(dir int, base string) error) error {
	base := path.Base(name)
	if base == "." || base == ".." || base == "/" {
		return &os.PathError{Op: op, Path: name, Err: unix.EINVAL}
	}
	dir, err := r.openAt(path.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := f(dir, base); err != nil {
		return &os.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

func (r *root) Mkdir(name string, mode fs.FileMode) error {
	return r.in("mkdir", name, func(dir int, base string) error { return unix.Mkdirat(dir, base, uint32(mode.Perm())) })
}

func (r *root) Remove(name string) error {
	return r.in("remove", name, func(dir int, base string) error {
		err := unix.Unlinkat(dir, base, 0)
		if isDirectory(err) {
			return unix.Unlinkat(dir, base, unix.AT_REMOVEDIR)
		}
		return err
	})
}

// isDirectory reports what unlink(2) says of a directory: EISDIR on Linux,
// EPERM in POSIX.
func isDirectory(err error) bool { return errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) }

// RemoveAll removes name and everything beneath it. What is missing is removed.
func (r *root) RemoveAll(name string) error {
	err := r.in("remove", name, removeTree)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func removeTree(parent int, base string) error {
	err := unix.Unlinkat(parent, base, 0)
	if !isDirectory(err) {
		return err
	}
	fd, err := openAt(parent, base, unix.O_RDONLY|unix.O_DIRECTORY, 0, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), base)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeTree(fd, name); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return unix.Unlinkat(parent, base, unix.AT_REMOVEDIR)
}

func (r *root) Readlink(name string) (to string, err error) {
	err = r.in("readlink", name, func(dir int, base string) error {
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, base, buf)
		to = string(buf[:max(n, 0)])
		return err
	})
	return to, err
}

func (r *root) Rename(from, to string) error {
	return r.in("rename", from, func(src int, name string) error {
		return r.in("rename", to, func(dst int, base string) error { return unix.Renameat(src, name, dst, base) })
	})
}

// Chmod follows links that stay inside.
func (r *root) Chmod(name string, mode fs.FileMode) error {
	f, err := r.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Chmod(mode)
}

// Chown follows links that stay inside.
func (r *root) Chown(name string, uid, gid int) error {
	fd, err := r.openAt(name, unix.O_PATH, 0, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "chown", Path: name, Err: err}
	}
	return nil
}

func (r *root) Lchown(name string, uid, gid int) error {
	return r.in("lchown", name, func(dir int, base string) error {
		return unix.Fchownat(dir, base, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	})
}
