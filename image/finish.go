package image

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// finish gives the directories their modes and times, now that everything is in
// them, and counts what is in the tree: files with several names once.
func (u *unpacker) finish() (entries int, size int64, err error) {
	u.forget()
	w := walk{u: u, linked: map[uint64]struct{}{}}
	fd := int(u.rootDir.Fd())
	if err := w.directory(fd); err != nil {
		return 0, 0, err
	}
	return w.entries, w.size, w.settle(fd, fd, ".")
}

type walk struct {
	u       *unpacker
	entries int
	size    int64
	linked  map[uint64]struct{}
}

// batch is how many names of a directory are held at once.
const batch = 1024

func (w *walk) directory(fd int) error {
	again, err := openDir(fd, ".") // its own offset, and an owner to close it
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(again), "directory")
	for {
		names, err := d.Readdirnames(batch)
		for _, n := range names {
			if err := w.entry(fd, n); err != nil {
				return errors.Join(err, d.Close())
			}
		}
		if err == io.EOF {
			return d.Close()
		}
		if err != nil {
			return errors.Join(err, d.Close())
		}
	}
}

func (w *walk) entry(at int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	w.entries++
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if _, ok := w.linked[st.Ino]; st.Nlink > 1 && !ok {
			w.linked[st.Ino] = struct{}{}
		} else if ok {
			return nil
		}
		w.size += st.Size
		return nil
	}
	fd, err := openDir(at, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := w.directory(fd); err != nil {
		return err
	}
	return w.settle(fd, at, name)
}

// settle sets what a directory was described with.
func (w *walk) settle(fd, at int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	a, ok := w.u.dirs[st.Ino]
	if !ok { // the root, of an image that does not mention it
		a.mode = 0o755
	}
	if err := unix.Fchmod(fd, a.mode); err != nil {
		return err
	}
	t := unix.NsecToTimespec(a.mtime)
	return unix.UtimesNanoAt(at, name, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
}
