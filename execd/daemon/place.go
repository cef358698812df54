package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
)

// place is the part of the file system that a file operation may touch. With a
// root nothing outside it can be reached, whatever links there are and however
// they change meanwhile; without one, names are the system's own. Names are
// clean and absolute: "/" is the root of the place.
type place struct {
	root *root // nil: the whole system
}

// openPlace opens a directory of the system as a place.
func openPlace(dir string) (place, error) {
	if dir == "/" {
		return place{}, nil
	}
	root, err := openRoot(dir)
	return place{root: root}, err
}

// beneath returns the place that is a directory of this one.
func (p place) beneath(dir string) (place, error) {
	if p.root == nil {
		root, err := openRoot(dir)
		return place{root: root}, err
	}
	root, err := p.root.OpenRoot(local(dir))
	return place{root: root}, err
}

// local turns a name of a place into what its root takes.
func local(name string) string {
	if name = strings.TrimPrefix(name, "/"); name == "" {
		return "."
	}
	return name
}

func (p place) close() error {
	if p.root == nil {
		return nil
	}
	return p.root.Close()
}

func (p place) stat(name string) (fs.FileInfo, error) {
	if p.root == nil {
		return os.Stat(name)
	}
	return p.root.Stat(local(name))
}

func (p place) lstat(name string) (fs.FileInfo, error) {
	if p.root == nil {
		return os.Lstat(name)
	}
	return p.root.Lstat(local(name))
}

func (p place) open(name string, flag int, mode fs.FileMode) (*os.File, error) {
	if p.root == nil {
		return os.OpenFile(name, flag, mode)
	}
	return p.root.OpenFile(local(name), flag, mode)
}

func (p place) mkdir(name string, mode fs.FileMode) error {
	if p.root == nil {
		return os.Mkdir(name, mode)
	}
	return p.root.Mkdir(local(name), mode)
}

func (p place) remove(name string) error {
	if p.root == nil {
		return os.Remove(name)
	}
	return p.root.Remove(local(name))
}

func (p place) removeAll(name string) error {
	if p.root == nil {
		return os.RemoveAll(name)
	}
	return p.root.RemoveAll(local(name))
}

func (p place) readlink(name string) (string, error) {
	if p.root == nil {
		return os.Readlink(name)
	}
	return p.root.Readlink(local(name))
}

func (p place) rename(from, to string) error {
	if p.root == nil {
		return os.Rename(from, to)
	}
	return p.root.Rename(local(from), local(to))
}

// renameNew renames without ever replacing what is there: EEXIST then. It
// holds both directories open, so that no link that changes meanwhile matters.
func (p place) renameNew(from, to string) error {
	src, err := p.open(path.Dir(from), unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := p.open(path.Dir(to), unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dst.Close()
	err = unix.Renameat2(int(src.Fd()), path.Base(from), int(dst.Fd()), path.Base(to), unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// Not every file system can; then only the look beforehand protects.
		if _, lErr := p.lstat(to); lErr == nil {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.EEXIST}
		}
		err = unix.Renameat(int(src.Fd()), path.Base(from), int(dst.Fd()), path.Base(to))
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// maxLinks is the kernel's bound on links in a path.
const maxLinks = 40

// target follows the links that name itself may be, so that a write goes
// through them as it would with open. In a place with a root an absolute link
// leads outside.
func (p place) target(name string) (string, error) {
	for range maxLinks {
		info, err := p.lstat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return name, nil
		}
		if err != nil {
			return "", err
		}
		to, err := p.readlink(name)
		if err != nil {
			return "", err
		}
		switch {
		case !path.IsAbs(to):
			// Not path.Join: ".." after a link is not the name before it. The
			// name's own directory is resolved by the kernel.
			dir, _ := splitName(name)
			name = dir + to
		case p.root != nil:
			return "", &os.PathError{Op: "open", Path: name, Err: errOutside}
		default:
			name = to
		}
	}
	return "", &os.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// mkdirAll creates name and its missing parents and calls made for each.
func (p place) mkdirAll(name string, made func(string) error) error {
	info, err := p.stat(name)
	if err == nil {
		if !info.IsDir() {
			return &os.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if parent := path.Dir(name); parent != name {
		if err := p.mkdirAll(parent, made); err != nil {
			return err
		}
	}
	if err := p.mkdir(name, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) { // somebody else was quicker, or it is a dangling link
			if info, sErr := p.stat(name); sErr == nil && info.IsDir() {
				return nil
			}
		}
		return err
	}
	return made(name)
}

// errOutside is a path that leads out of its place.
var errOutside = errors.New("the path leads outside its root")

// escapes reports whether err is errOutside.
func escapes(err error) bool { return errors.Is(err, errOutside) }

// openRegular opens a regular file. Anything else is refused without being
// waited for, also when it takes the file's place between look and open.
func (p place) openRegular(name string) (*os.File, fs.FileInfo, error) {
	info, err := p.stat(name)
	if err != nil {
		return nil, nil, err
	}
	if err := regular(info); err != nil {
		return nil, nil, err
	}
	f, err := p.open(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = regular(info)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// openPlain opens a file of the daemon's own state or of /etc for reading. Under
// one uid a command may have put anything in its place: a FIFO is not waited for.
func openPlain(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = regular(info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// maxPlain bounds what readPlain takes: it is above any record.
const maxPlain = 64 << 20

// readPlain reads such a file.
func readPlain(name string) ([]byte, error) {
	f, err := openPlain(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxPlain))
}

// writeNew makes a file that is not there yet, whole or not at all.
func writeNew(name string, b []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(name)
	}
	return err
}

// regular refuses what is not a regular file.
func regular(info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return refuse(http.StatusBadRequest, execd.CodeInvalidFile, "it is %s, not a regular file", kindOf(info.Mode()))
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return fmt.Sprintf("special (%s)", m.Type())
}
