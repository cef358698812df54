// Package workspace reads a directory of the host that is to be copied into a
// sandbox: what belongs to it, what is left out and why. It opens nothing
// outside that directory, follows no symbolic link, and runs no program.
package workspace

import (
	"cmp"
	"context"
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
	"unicode/utf8"
)

// Bounds of a workspace.
const (
	DefaultMaxBytes = 1 << 30
	MaxFiles        = 50_000
)

// IgnoreFiles are the names of files whose patterns leave things out, in the
// order in which they are read: a later one wins.
var IgnoreFiles = []string{".gitignore", ".reinignore"}

const maxIgnoreFile = 1 << 20

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

// TooLargeError says that a workspace exceeds a bound, and what is large in it.
type TooLargeError struct {
	Dir          string
	Files        int
	Bytes, Max   int64
	Largest      []Item // files and directories at the top, largest first
	FilesExceeds bool
}

// Item is a part of a workspace.
type Item struct {
	Path  string
	Bytes int64
	Files int
}

func (e *TooLargeError) Error() string {
	var b strings.Builder
	if e.FilesExceeds {
		fmt.Fprintf(&b, "the workspace %s has %d files, more than %d", e.Dir, e.Files, MaxFiles)
	} else {
		fmt.Fprintf(&b, "the workspace %s has %s, more than %s", e.Dir, size(e.Bytes), size(e.Max))
	}
	for _, it := range e.Largest {
		fmt.Fprintf(&b, "\n  %9s %7d files  %s", size(it.Bytes), it.Files, it.Path)
	}
	return b.String()
}

// Hint says what to do.
func (e *TooLargeError) Hint() string {
	return "list what the task does not need in " + e.Dir + "/.reinignore, in the format of .gitignore"
}

func size(n int64) string {
	for _, u := range []struct {
		name string
		of   int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.of {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.of), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// Scan walks dir and says what belongs to it. It reads no file but ignore
// files. A workspace above a bound is a *TooLargeError.
func Scan(ctx context.Context, dir string, o Options) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &scanner{ctx: ctx, o: o, t: &Tree{Dir: dir, root: root, rules: map[string][]Patterns{}, texts: map[string][]string{}}, top: map[string]*Item{}}
	if s.o.MaxBytes == 0 {
		s.o.MaxBytes = DefaultMaxBytes
	}
	if !o.NoIgnore {
		s.ignoreFile(".", ".git/info/exclude")
	}
	err = s.dir(".", 0)
	if err == nil && (s.t.Bytes > s.o.MaxBytes || s.t.Files > MaxFiles) {
		err = s.tooLarge()
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return s.t, nil
}

// Close releases the directory.
func (t *Tree) Close() error { return t.root.Close() }

type scanner struct {
	ctx context.Context
	o   Options
	t   *Tree
	top map[string]*Item
}

const maxDepth = 200

func (s *scanner) dir(dir string, depth int) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if depth > maxDepth {
		s.skip(dir, "deeper than 200 directories")
		return nil
	}
	f, err := s.t.root.Open(dir)
	if err != nil {
		s.skip(dir, reason(err))
		return nil
	}
	items, err := f.ReadDir(-1)
	f.Close()
	if err != nil {
		s.skip(dir, reason(err))
		return nil
	}
	slices.SortFunc(items, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	if !s.o.NoIgnore {
		for _, name := range IgnoreFiles {
			if slices.ContainsFunc(items, func(d fs.DirEntry) bool { return d.Name() == name }) {
				s.ignoreFile(dir, path.Join(dir, name))
			}
		}
	}
	for _, d := range items {
		if err := s.entry(path.Join(dir, d.Name()), d, depth); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) entry(name string, d fs.DirEntry, depth int) error {
	switch {
	case strings.EqualFold(d.Name(), ".git"):
		return nil // a repository's history, hooks and credentials stay on the host
	case s.t.decide(name, d.IsDir()):
		s.t.Ignored = append(s.t.Ignored, name)
		return nil
	case s.o.Secret != nil && s.o.Secret(name):
		s.t.Secrets = append(s.t.Secrets, name)
		return nil
	case misnamed(d.Name()):
		s.skip(name, "its name is no UTF-8, or has the character U+FFFD")
		return nil
	}
	info, err := s.t.root.Lstat(name)
	if err != nil {
		s.skip(name, reason(err))
		return nil
	}
	e := &Entry{Path: name, Perm: info.Mode().Perm()}
	switch info.Mode().Type() {
	case fs.ModeDir:
		e.Type = Dir
		s.t.Entries = append(s.t.Entries, e)
		return s.dir(name, depth+1)
	case fs.ModeSymlink:
		e.Type = Link
		if e.Target, err = s.t.root.Readlink(name); err != nil {
			s.skip(name, reason(err))
			return nil
		}
		if to := path.Join(path.Dir(name), e.Target); path.IsAbs(e.Target) || to == ".." || strings.HasPrefix(to, "../") {
			s.skip(name, "a symbolic link that leads out of the workspace")
			return nil
		}
		if misnamed(e.Target) {
			s.skip(name, "a symbolic link to a name that is no UTF-8, or has the character U+FFFD")
			return nil
		}
	case 0:
		e.Type, e.Size = File, info.Size()
	default:
		s.skip(name, "not a regular file")
		return nil
	}
	s.t.Entries = append(s.t.Entries, e)
	s.t.Files++
	s.t.Bytes += e.Size
	first, _, _ := strings.Cut(name, "/")
	it := s.top[first]
	if it == nil {
		it = &Item{Path: first}
		s.top[first] = it
	}
	it.Files++
	it.Bytes += e.Size
	return nil
}

// misnamed reports whether a name is no UTF-8 or cannot be told from one that is
// none. Sandboxes are told of files in JSON, where such bytes become U+FFFD: the
// file would have another name there, and a patch that removes this one.
func misnamed(name string) bool { return strings.ContainsRune(name, utf8.RuneError) }

func (s *scanner) skip(name, why string) {
	s.t.Skipped = append(s.t.Skipped, Skip{Path: name, Reason: why})
}

func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return err.Error()
}

func (s *scanner) ignoreFile(dir, name string) {
	data, err := s.t.readRegular(name, maxIgnoreFile)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.skip(name, "not used as an ignore file: "+reason(err))
		}
		return
	}
	s.t.rules[dir] = append(s.t.rules[dir], Compile(string(data)))
	s.t.texts[dir] = append(s.t.texts[dir], string(data))
}

func (s *scanner) tooLarge() error {
	e := &TooLargeError{Dir: s.t.Dir, Files: s.t.Files, Bytes: s.t.Bytes, Max: s.o.MaxBytes, FilesExceeds: s.t.Bytes <= s.o.MaxBytes}
	for _, it := range s.top {
		e.Largest = append(e.Largest, *it)
	}
	slices.SortFunc(e.Largest, func(a, b Item) int {
		if e.FilesExceeds && a.Files != b.Files {
			return cmp.Compare(b.Files, a.Files)
		}
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Path, b.Path))
	})
	e.Largest = e.Largest[:min(10, len(e.Largest))]
	return e
}

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
