package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// ignoreFiles are the names of files whose patterns leave things out, in the
// order in which they are read: a later one wins.
var ignoreFiles = []string{".gitignore", ".reinignore"}

// Bounds of one ignore file, in bytes, and of how deep directories are entered.
const (
	maxIgnoreFile = 1 << 20
	maxDepth      = 200
)

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

// scanner walks a directory for Scan.
type scanner struct {
	ctx context.Context
	o   Options
	t   *Tree
	top map[string]*Item
}

func (s *scanner) dir(dir string, depth int) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if depth > maxDepth {
		s.skip(dir, fmt.Sprintf("deeper than %d directories", maxDepth))
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
		for _, name := range ignoreFiles {
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
