package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// How the cache is shared. An image has a lock file, locks/NAME: who uses the
// image holds it shared, who fetches or removes it holds it alone. A directory
// in tmp is locked itself by the process that fills or empties it; one without
// a lock was left behind. The store's own lock is held for moments only, so that no
// directory in tmp is ever seen before it is locked.

// lockPoll is how often a lock that another process holds is asked for again.
const lockPoll = 50 * time.Millisecond

// lock takes an image's lock; the file is its owner. While others hold it,
// waiting is called once and the lock is asked for until ctx ends, or until
// needless says that it is not needed any more: then the file is nil.
func (s *Store) lock(ctx context.Context, name string, how int, waiting func(), needless func() (bool, error)) (*os.File, error) {
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		f, err := s.tryLock(name, how)
		if f != nil || err != nil {
			return f, err
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		if needless != nil {
			if over, err := needless(); over || err != nil {
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// tryLock is nil without an error when others hold the lock.
func (s *Store) tryLock(name string, how int) (*os.File, error) {
	path := s.lockPath(name)
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(f, how|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, nil
			}
			return nil, err
		}
		same, err := isAt(f, path)
		if same {
			return f, nil
		}
		f.Close() // another removed the file with its image; there may be a new one
		if err != nil {
			return nil, err
		}
	}
}

// giveUp ends a lock. The lock file of an image that is gone goes with it, when
// nobody else has it: the lock may be new and the image removed before it was
// taken.
func (s *Store) giveUp(held *os.File, name string) error {
	there, err := s.hasImage(name)
	if !there && err == nil && flock(held, unix.LOCK_EX|unix.LOCK_NB) == nil {
		var same bool
		if same, err = isAt(held, s.lockPath(name)); same {
			err = os.Remove(held.Name())
		}
	}
	return errors.Join(err, held.Close())
}

// isAt reports whether an open file is still the one of its name.
func isAt(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, now), err
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err != unix.EINTR {
			return err
		}
	}
}

func (s *Store) lockPath(name string) string { return filepath.Join(s.o.Dir, "locks", name) }

// guarded runs f under the store's own lock.
func (s *Store) guarded(how int, f func() error) error {
	l, err := os.OpenFile(filepath.Join(s.o.Dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := flock(l, how); err != nil {
		return err
	}
	return f()
}

// scratch makes a directory in tmp that is this process's as long as the file
// is open.
func (s *Store) scratch() (held *os.File, err error) {
	err = s.guarded(unix.LOCK_SH, func() error {
		dir, err := os.MkdirTemp(filepath.Join(s.o.Dir, "tmp"), "")
		if err != nil {
			return err
		}
		f, err := os.Open(dir)
		if err == nil {
			if err = flock(f, unix.LOCK_EX); err == nil {
				held = f
				return nil
			}
			f.Close()
		}
		return errors.Join(err, os.Remove(dir))
	})
	return held, err
}

// sweep removes what is nobody's.
func (s *Store) sweep() error {
	var left []*os.File
	err := s.guarded(unix.LOCK_EX, func() error {
		entries, err := os.ReadDir(filepath.Join(s.o.Dir, "tmp"))
		if err != nil {
			return err
		}
		for _, e := range entries {
			f, err := os.OpenFile(filepath.Join(s.o.Dir, "tmp", e.Name()), unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
			if err != nil {
				continue // gone meanwhile, or nothing of ours
			}
			if flock(f, unix.LOCK_EX|unix.LOCK_NB) != nil {
				f.Close()
				continue
			}
			left = append(left, f)
		}
		return s.sweepRecords()
	})
	for _, f := range left {
		err = errors.Join(err, discard(f))
	}
	return errors.Join(err, s.sweepLocks())
}

// sweepLocks removes the lock files of images that a crash kept from coming.
func (s *Store) sweepLocks() error {
	entries, err := os.ReadDir(filepath.Join(s.o.Dir, "locks"))
	for _, e := range entries {
		if nameDigest(e.Name()) == "" {
			continue
		}
		there, lookErr := s.hasImage(e.Name())
		if there || lookErr != nil {
			err = errors.Join(err, lookErr)
			continue
		}
		held, lockErr := s.tryLock(e.Name(), unix.LOCK_EX)
		if err = errors.Join(err, lockErr); held != nil {
			err = errors.Join(err, s.giveUp(held, e.Name()))
		}
	}
	return err
}

// sweepRecords removes records that were not finished. The store's lock is held
// alone.
func (s *Store) sweepRecords() error {
	unwritten, err := filepath.Glob(filepath.Join(s.o.Dir, "refs", unfinished+"*"))
	for _, path := range unwritten {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// discard removes a directory of tmp and gives up its lock.
func discard(f *os.File) error {
	return errors.Join(removeTree(f.Name()), f.Close())
}

// removeTree removes a directory, also one whose directories may not be written
// to by their owner.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, os.ErrPermission) {
		return err
	}
	r, opened := os.OpenRoot(dir)
	if opened != nil {
		return errors.Join(err, opened)
	}
	err = fs.WalkDir(r.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() { // it is read after this, and no link is followed
			return r.Chmod(path, 0o700)
		}
		return err
	})
	return errors.Join(err, r.Close(), os.RemoveAll(dir))
}
