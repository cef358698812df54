// Package repository tells which commit a directory is checked out at, by
// reading git's files. It runs no program and follows nothing out of the
// directory: a repository may have been made to do harm.
package repository

import (
	"bufio"
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

// ErrNone says that the directory is no repository's top.
var ErrNone = errors.New("not the top of a git repository")

// Read tells where the repository at dir stands. A linked worktree, whose files
// are elsewhere, is not followed, and is ErrNone.
func Read(dir string) (Head, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Head{}, err
	}
	defer root.Close()
	if st, err := root.Lstat(".git"); errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsDir() {
		return Head{}, ErrNone
	}
	data, err := read(root, ".git/HEAD", maxHead)
	if err != nil {
		return Head{}, err
	}
	h, err := ParseHead(data)
	if err != nil || h.Ref == "" {
		return h, err
	}
	data, err = read(root, path.Join(".git", h.Ref), maxHead)
	if errors.Is(err, fs.ErrNotExist) {
		if data, err = read(root, ".git/packed-refs", maxPacked); errors.Is(err, fs.ErrNotExist) {
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
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if id, name, ok := strings.Cut(lines.Text(), " "); ok && name == ref && isID(id) {
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
