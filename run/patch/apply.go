package patch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
)

// Change is one file of a patch.
type Change struct {
	Path string `json:"path"`
	Kind Kind   `json:"kind"`
}

// ErrDeclined is returned by Apply when confirm said no.
var ErrDeclined = errors.New("declined; nothing was changed")

// Apply applies the patch read from r to the directory dir. Everything is
// checked and every new content is staged in dir before the first file
// changes; a fault on the way undoes what was done. Nothing outside dir is
// touched: names are confined to it, and no directory on the way to a file may
// be a symbolic link.
//
// confirm is asked about every Concern, and before about those of more whose
// files the patch changes; a nil confirm refuses them all.
func Apply(ctx context.Context, dir string, r io.Reader, confirm func(Concern) (bool, error), more ...Concern) ([]Change, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	a := &applier{root: root, stage: ".rein-apply-" + rand.Text(), seen: map[string]int{}}
	if err := root.Mkdir(a.stage, 0o700); err != nil {
		return nil, err
	}
	changes, err := a.all(ctx, r, confirm, more)
	// The old versions of changed files are in the stage as well.
	return changes, errors.Join(err, root.RemoveAll(a.stage))
}

// Applied reports whether every file of the patch read from r is in dir what the
// patch makes of it.
func Applied(ctx context.Context, dir string, r io.Reader) (bool, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, err
	}
	defer root.Close()
	a := &applier{root: root}
	there := map[string]bool{}
	for p := NewReader(r); ; {
		d, err := p.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return false, err
		}
		now, _, err := a.read(d.Path)
		there[d.Path] = err == nil && d.made(now) // what cannot be read is none of it; of two changes the second counts
	}
	for _, ok := range there {
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

type applier struct {
	root  *os.Root
	stage string
	steps []step
	seen  map[string]int // path → its last step
	made  []string       // directories that did not exist before
}

// step replaces, creates or removes one file.
type step struct {
	path     string
	kind     Kind
	old, new Mode
	staged   string // the new content; empty for a removal
	kept     string // where the old file waits; empty when there was none
	placed   bool
}

func (a *applier) all(ctx context.Context, r io.Reader, confirm func(Concern) (bool, error), more []Concern) ([]Change, error) {
	var concerns []Concern
	for p := NewReader(r); ; {
		d, err := p.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if err := a.prepare(d); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Path, err)
		}
		concerns = append(concerns, d.Concerns()...)
	}
	if err := a.conflicts(); err != nil {
		return nil, err
	}
	more = slices.DeleteFunc(slices.Clone(more), func(c Concern) bool { _, there := a.seen[c.Path]; return !there })
	for _, c := range append(more, concerns...) {
		if confirm == nil {
			return nil, fmt.Errorf("%s: %s, and nobody was asked: %w", c.Path, c.Why, ErrDeclined)
		}
		ok, err := confirm(c)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("%s: %w", c.Path, ErrDeclined)
		}
	}
	return a.commit()
}

// prepare checks one change and stages its content.
func (a *applier) prepare(d *Diff) error {
	old, perm, err := a.read(d.Path)
	if err != nil {
		return err
	}
	if prior, ok := a.seen[d.Path]; ok {
		// A file becomes a link, or the reverse: removed, then created.
		if !d.Created || a.steps[prior].kind != Deleted {
			return errors.New("the patch changes it twice")
		}
		old, perm = Side{}, 0
	}
	res, err := d.Result(old)
	if err != nil {
		return err
	}
	s := step{path: d.Path, kind: KindOf(old, res), old: old.Mode, new: res.Mode}
	if res.Mode != Absent {
		s.staged = path.Join(a.stage, "new"+strconv.Itoa(len(a.steps)))
		if err := a.write(s.staged, d.Path, res, perm); err != nil {
			return err
		}
	}
	a.seen[d.Path] = len(a.steps)
	a.steps = append(a.steps, s)
	return nil
}

// read returns the file at name and its permissions. It must not be reached
// over a link.
func (a *applier) read(name string) (Side, fs.FileMode, error) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		info, err := a.root.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Side{}, 0, err
		}
		if !info.IsDir() {
			return Side{}, 0, fmt.Errorf("%s is not a directory", dir)
		}
	}
	info, err := a.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Side{}, 0, nil
	case err != nil:
		return Side{}, 0, err
	case info.Mode().Type() == fs.ModeSymlink:
		target, err := a.root.Readlink(name)
		return Side{Mode: Link, Data: []byte(target)}, 0, err
	case !info.Mode().IsRegular():
		return Side{}, 0, errors.New("it is not a regular file")
	case info.Size() > MaxFile:
		return Side{}, 0, fmt.Errorf("it is larger than %d MiB", MaxFile>>20)
	}
	data, err := a.root.ReadFile(name)
	mode := Regular
	if info.Mode()&0o100 != 0 {
		mode = Executable
	}
	return Side{Mode: mode, Data: data}, info.Mode().Perm(), err
}

// write stages a content. A file that existed keeps its permissions, but for
// the execute bits when the patch changes them; a new one gets what the
// process's umask leaves, as from an editor.
func (a *applier) write(staged, name string, s Side, perm fs.FileMode) error {
	if s.Mode == Link {
		if err := checkLink(name, string(s.Data)); err != nil {
			return err
		}
		return a.root.Symlink(string(s.Data), staged)
	}
	fresh := fs.FileMode(0o666)
	if s.Mode == Executable {
		fresh = 0o777
	}
	if err := a.root.WriteFile(staged, s.Data, fresh); err != nil || perm == 0 {
		return err
	}
	perm &^= 0o111
	if s.Mode == Executable {
		perm |= perm >> 2 & 0o111 // whoever may read may execute
	}
	return a.root.Chmod(staged, perm)
}

// conflicts refuses a patch in which one path lies beneath another that is, or
// becomes, a file or a link.
func (a *applier) conflicts() error {
	files := map[string]bool{}
	for _, s := range a.steps {
		if s.new != Absent {
			files[s.path] = true
		}
	}
	for _, s := range a.steps {
		for dir := path.Dir(s.path); dir != "."; dir = path.Dir(dir) {
			if files[dir] {
				return fmt.Errorf("%s lies beneath %s, which the patch makes a file", s.path, dir)
			}
		}
	}
	return nil
}

// commit moves the old files aside and the new ones into their places.
func (a *applier) commit() ([]Change, error) {
	var changes []Change
	for i := range a.steps {
		if err := a.place(&a.steps[i], i); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w; nothing was changed", a.steps[i].path, err), a.undo())
		}
		changes = append(changes, Change{Path: a.steps[i].path, Kind: a.steps[i].kind})
	}
	a.prune()
	return changes, nil
}

func (a *applier) place(s *step, i int) error {
	if s.old != Absent {
		kept := path.Join(a.stage, "old"+strconv.Itoa(i))
		if err := a.root.Rename(s.path, kept); err != nil {
			return err
		}
		s.kept = kept
	}
	if s.staged == "" {
		return nil
	}
	if err := a.mkdirs(path.Dir(s.path)); err != nil {
		return err
	}
	if err := a.root.Rename(s.staged, s.path); err != nil {
		return err
	}
	s.placed = true
	return nil
}

func (a *applier) mkdirs(dir string) error {
	if dir == "." {
		return nil
	}
	if err := a.mkdirs(path.Dir(dir)); err != nil {
		return err
	}
	switch err := a.root.Mkdir(dir, 0o777); {
	case err == nil:
		a.made = append(a.made, dir)
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	return nil
}

// undo puts everything back, last change first.
func (a *applier) undo() error {
	var errs []error
	for i := len(a.steps) - 1; i >= 0; i-- {
		s := a.steps[i]
		if s.placed {
			errs = append(errs, a.root.Remove(s.path))
		}
		if s.kept != "" {
			errs = append(errs, a.root.Rename(s.kept, s.path))
		}
	}
	for _, dir := range slices.Backward(a.made) {
		errs = append(errs, a.root.Remove(dir))
	}
	return errors.Join(errs...)
}

// prune removes directories that a deletion left empty, as git does.
func (a *applier) prune() {
	for _, s := range a.steps {
		if s.kind != Deleted {
			continue
		}
		for dir := path.Dir(s.path); dir != "."; dir = path.Dir(dir) {
			if a.root.Remove(dir) != nil { // not empty: there is no more to do
				break
			}
		}
	}
}
