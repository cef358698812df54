// Package repository tells which commit a directory is checked out at, and how
// many of its files are not as git last saw them, by reading git's files. It
// runs no program: a repository may have been made to do harm. Links of the file
// system are not followed out of git's directories, and its own only to where
// they lead back from.
package repository

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Head is where a repository stands.
type Head struct {
	Commit string // hexadecimal; empty before the first commit
	Ref    string // such as refs/heads/main; empty when detached
}

// Bounds of what is read.
const (
	maxHead   = 4 << 10
	maxPacked = 64 << 20
)

// ErrNone says that the directory is in no repository.
var ErrNone = errors.New("not in a git repository")

// Read tells where the repository stands that dir is the top of, a directory in,
// or a linked worktree of.
func Read(dir string) (Head, error) {
	r, err := find(dir)
	if err != nil {
		return Head{}, err
	}
	defer r.close()
	return r.head()
}

func (r *repo) head() (Head, error) {
	data, err := read(r.git, "HEAD", maxHead)
	if err != nil {
		return Head{}, err
	}
	h, err := ParseHead(data)
	if err != nil || h.Ref == "" {
		return h, err
	}
	data, err = read(r.common, h.Ref, maxHead)
	if errors.Is(err, fs.ErrNotExist) {
		if data, err = read(r.common, "packed-refs", maxPacked); errors.Is(err, fs.ErrNotExist) {
			return h, nil
		}
		if err == nil {
			h.Commit = FindPacked(data, h.Ref)
		}
		return h, err
	}
	if err != nil {
		return h, err
	}
	if h.Commit = strings.TrimSpace(string(data)); !isID(h.Commit) {
		return Head{}, fmt.Errorf("%s holds no commit's id", h.Ref)
	}
	return h, nil
}

// ParseHead reads the file HEAD: a reference, or a commit's id.
func ParseHead(data []byte) (Head, error) {
	text := strings.TrimSpace(string(data))
	if ref, ok := strings.CutPrefix(text, "ref:"); ok {
		ref = strings.TrimSpace(ref)
		if !strings.HasPrefix(ref, "refs/") || !filepath.IsLocal(ref) || path.Clean(ref) != ref || strings.ContainsAny(ref, "\x00\n\r") {
			return Head{}, errors.New("HEAD names no reference")
		}
		return Head{Ref: ref}, nil
	}
	if !isID(text) {
		return Head{}, errors.New("HEAD holds neither a reference nor a commit's id")
	}
	return Head{Commit: text}, nil
}

// FindPacked finds a reference's commit in the file packed-refs; "" when it is
// not there.
func FindPacked(data []byte, ref string) string {
	for line := range bytes.Lines(data) {
		if id, name, ok := strings.Cut(string(bytes.TrimRight(line, "\r\n")), " "); ok && name == ref && isID(id) {
			return id
		}
	}
	return ""
}

// isID reports whether s is a SHA-1 or SHA-256 in hexadecimal.
func isID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

func read(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold us
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > limit {
		return nil, fmt.Errorf("%s is no regular file of a usable size", name)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}
