// Package workspace reads a directory of the host that is to be copied into a
// sandbox: what belongs to it, what is left out and why. It opens nothing
// outside that directory, follows no symbolic link, and runs no program.
package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Bounds of a workspace.
const (
	DefaultMaxBytes = 1 << 30
	MaxFiles        = 50_000
)

// Options say what belongs to a workspace.
type Options struct {
	// NoIgnore takes what ignore files leave out.
	NoIgnore bool
	// Secret reports whether a file may hold credentials; it is always left
	// out. The path is relative to the workspace.
	Secret func(path string) bool
	// MaxBytes bounds the files' sizes together; 0 means DefaultMaxBytes.
	MaxBytes int64
}

// Type of an entry.
type Type string

// The types.
const (
	File Type = "file"
	Dir  Type = "directory"
	Link Type = "symlink"
)

// Entry is one file, directory or link of a workspace.
type Entry struct {
	Path   string      `json:"path"` // relative, slash-separated
	Type   Type        `json:"type"`
	Perm   fs.FileMode `json:"perm"` // permission bits only
	Size   int64       `json:"size,omitempty"`
	Target string      `json:"target,omitempty"` // of a link: relative, and inside the workspace
	// SHA256 of a file's content, once it has been read with Tree.Read.
	SHA256 string `json:"sha256,omitempty"`
}

// Skip is a path left out, and why.
type Skip struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Tree is a workspace as it was found. Close it after use.
type Tree struct {
	Dir     string
	Entries []*Entry // directories before what is in them
	Bytes   int64
	Files   int
	Ignored []string // by ignore files: files, and directories with all in them
	Secrets []string // by Options.Secret
	Skipped []Skip
	root    *os.Root
	rules   map[string][]Patterns // directory → its ignore files, in order
	texts   map[string][]string   // their texts
	copies  *copies               // nil: none are kept
}

// Ignores reports whether the workspace's ignore files, as Scan found them,
// leave out a path, which need not exist: itself or a directory above it.
func (t *Tree) Ignores(name string, dir bool) bool {
	for i := range len(name) {
		if name[i] == '/' && t.decide(name[:i], true) {
			return true
		}
	}
	return t.decide(name, dir)
}

// decide asks the ignore files above name, the nearest first.
func (t *Tree) decide(name string, dir bool) bool {
	for at := path.Dir(name); ; at = path.Dir(at) {
		rel := name
		if at != "." {
			rel = strings.TrimPrefix(name, at+"/")
		}
		for _, r := range slices.Backward(t.rules[at]) {
			if match, decided := r.Match(rel, dir); decided {
				return match
			}
		}
		if at == "." {
			return false
		}
	}
}

// Close releases the directory.
func (t *Tree) Close() error { return t.root.Close() }

// open opens a regular file that is not reached over a link in its last part.
func (t *Tree) open(name string) (*os.File, fs.FileInfo, error) {
	before, err := t.root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	// Not blocking: a FIFO may have taken the file's place.
	f, err := t.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || !os.SameFile(before, info)) {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func (t *Tree) readRegular(name string, limit int64) ([]byte, error) {
	f, _, err := t.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %s", name, size(limit))
	}
	return data, err
}

// Read opens a file of the tree. At the end of its content e.SHA256 and e.Size
// say what was read; reading more than the size found by Scan is an error. A file
// that was read before is its copy, where one is kept (Keep), and that which
// is in the workspace otherwise: ErrChanged at its end when it has changed.
func (t *Tree) Read(e *Entry) (io.ReadCloser, error) {
	if f, err := t.copies.open(e); err == nil {
		return newReading(e, f, nil), nil
	}
	f, _, err := t.open(e.Path)
	if err != nil {
		return nil, err
	}
	kept, err := t.copies.begin(e)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return newReading(e, f, kept), nil
}

// Content returns a file's content as Read gave it: its copy, where one is kept
// (Keep), or what is in the workspace, which is ErrChanged when it is something
// else by now.
func (t *Tree) Content(e *Entry) ([]byte, error) {
	if f, err := t.copies.open(e); err == nil {
		data, err := io.ReadAll(io.LimitReader(f, e.Size+1))
		f.Close()
		if err == nil && is(data, e.SHA256) {
			return data, nil
		}
	}
	data, err := t.readRegular(e.Path, e.Size)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrChanged, err)
	}
	if !is(data, e.SHA256) {
		return nil, ErrChanged
	}
	return data, nil
}

func is(data []byte, sum string) bool {
	got := sha256.Sum256(data)
	return hex.EncodeToString(got[:]) == sum
}

// ErrChanged says that a file on the host is no longer what was copied in.
var ErrChanged = errors.New("the file on this host has changed since it was copied in")

// Hash is the SHA-256 over every entry's path, type, permissions and content:
// equal for equal inputs. All files must have been read.
func (t *Tree) Hash() string {
	h := sha256.New()
	for _, e := range t.Entries {
		fmt.Fprintf(h, "%q %s %o %s %q\n", e.Path, e.Type, e.Perm, e.SHA256, e.Target)
	}
	return hex.EncodeToString(h.Sum(nil))
}
