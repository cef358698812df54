package repository

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Bounds of looking for changes.
const (
	maxIndex  = 64 << 20
	maxHashed = 256 << 20 // bytes of files that are read
)

// Changed counts the files in dir that git tracks and that are not what its
// index has: changed, gone, or in conflict. What is staged and not committed,
// what is not tracked, submodules and what the user has git take for unchanged do
// not count. A file whose size and time say nothing is read and compared as it is:
// one that git converts on its way in counts as changed then.
func Changed(ctx context.Context, dir string) (int, error) {
	r, err := find(dir)
	if err != nil {
		return 0, err
	}
	defer r.close()
	h, err := r.head()
	if err != nil {
		return 0, err
	}
	newHash := sha1.New
	if len(h.Commit) == 2*sha256.Size {
		newHash = sha256.New
	}
	st, err := r.git.Stat("index")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // nothing is tracked
	}
	if err != nil {
		return 0, err
	}
	data, err := read(r.git, "index", maxIndex)
	if err != nil {
		return 0, err
	}
	entries, err := ParseIndex(data, newHash().Size())
	if err != nil {
		return 0, err
	}
	top, err := os.OpenRoot(r.top)
	if err != nil {
		return 0, err
	}
	defer top.Close()
	c := comparer{top: top, left: maxHashed, hash: newHash, index: st.ModTime().Unix()}
	n, last := 0, ""
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if r.prefix != "" && !strings.HasPrefix(e.Path, r.prefix+"/") || e.Path == last {
			continue
		}
		changed, err := c.changed(e)
		if err != nil {
			return 0, err
		}
		if changed {
			n, last = n+1, e.Path
		}
	}
	return n, nil
}

type comparer struct {
	top   *os.Root
	left  int64
	hash  func() hash.Hash
	index int64 // when the index was written
}

func (c *comparer) changed(e Entry) (bool, error) {
	if e.Staged != 0 {
		return true, nil
	}
	if e.Assumed || e.Mode == 0o160000 || e.Mode == 0o040000 {
		return false, nil
	}
	st, err := c.top.Lstat(e.Path)
	if err != nil {
		return true, nil // it is gone, or something is where its directory was
	}
	link := e.Mode == 0o120000
	if link != (st.Mode().Type() == fs.ModeSymlink) || !link && (!st.Mode().IsRegular() || (e.Mode&0o100 != 0) != (st.Mode()&0o100 != 0)) {
		return true, nil
	}
	at := st.ModTime()
	if uint32(st.Size()) == e.Size && uint32(at.Unix()) == e.Sec && uint32(at.Nanosecond()) == e.Nsec && at.Unix() < c.index {
		return false, nil // nothing was written in the second in which git looked
	}
	if uint32(st.Size()) != e.Size && e.Size != 0 {
		return true, nil
	}
	if c.left -= st.Size(); c.left < 0 {
		return false, fmt.Errorf("more than %d MiB would have to be read", maxHashed>>20)
	}
	return c.differs(e, st.Size(), link)
}

// differs compares the content of a file with its blob.
func (c *comparer) differs(e Entry, size int64, link bool) (bool, error) {
	var content io.Reader
	if link {
		target, err := c.top.Readlink(e.Path)
		if err != nil {
			return true, nil
		}
		content, size = strings.NewReader(target), int64(len(target))
	} else {
		f, err := c.top.OpenFile(e.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return false, err
		}
		defer f.Close()
		content = io.LimitReader(f, size+1)
	}
	h := c.hash()
	fmt.Fprintf(h, "blob %d\x00", size)
	if _, err := io.Copy(h, content); err != nil {
		return false, err
	}
	return !bytes.Equal(h.Sum(nil), e.ID), nil
}
