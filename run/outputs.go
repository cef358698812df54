package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/run/workspace"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// maxTold is how many files that are left out, or fail, are told one by one.
const maxTold = 20

// errFull is why a file is left out of what is brought out: together it may be no more.
var errFull = errors.New("more than 1 GiB or 50,000 files")

// Bounds of what is brought out of one run.
const (
	MaxOutputBytes = 1 << 30
	MaxOutputFiles = 50_000
	maxDepth       = 200
)

// save brings the patch, the artifacts and, when asked for, the spilled output
// out of the sandbox. What cannot be saved is an error and does not keep the
// rest from being saved.
func (r *runner) save(ctx context.Context) error {
	r.emit(Event{Kind: EventOutputs, Text: "saving the outputs"})
	if !r.hasFiles() {
		return nil // said when the sandbox was made
	}
	cwd := r.box.Info().Cwd
	s := &store{r: r, ctx: ctx, cwd: cwd, seen: map[string]bool{}}
	if err := errors.Join(r.savePatch(ctx), s.artifacts(), s.spills(), r.mirror.last(ctx)); err != nil {
		return fmt.Errorf("the outputs could not all be saved: %w", err)
	}
	return nil
}

// noUTF8 is why something in a sandbox is left where it is. Names travel as
// JSON, where bytes that are no UTF-8 become U+FFFD: such a name cannot be asked
// for, nor told from one that has this character. So neither is.
const noUTF8 = "its name is no UTF-8, or has the character U+FFFD"

// misnamed reports whether a name is such a one.
func misnamed(name string) bool { return strings.ContainsRune(name, utf8.RuneError) }

// store brings files out into the run's directory.
type store struct {
	r     *runner
	ctx   context.Context
	cwd   string
	root  *os.Root
	seen  map[string]bool
	count int
	bytes int64
}

// artifacts brings out what Options.Artifacts names: a path, which is relative
// to the workspace or absolute, or a pattern over the workspace.
func (s *store) artifacts() error {
	var errs []error
	for _, want := range s.r.o.Artifacts {
		n, err := s.artifact(want)
		if err != nil {
			errs = append(errs, fmt.Errorf("artifact %s: %w", want, err))
		} else if n == 0 {
			s.r.warn("there is no artifact %s", want)
		}
	}
	if s.root != nil {
		errs = append(errs, s.root.Close())
	}
	return errors.Join(errs...)
}

func (s *store) artifact(want string) (n int, err error) {
	files, root, err := s.files(want)
	if err != nil {
		return 0, err
	}
	var errs []error
	var left, full []Skipped
	for _, f := range files {
		if f.Type != "file" {
			continue
		}
		name, inside := strings.CutPrefix(f.Path, strings.TrimSuffix(s.cwd, "/")+"/")
		if !inside {
			name = path.Join("root", f.Path)
		}
		n++
		if misnamed(name) {
			left = append(left, Skipped{Path: f.Path, Reason: noUTF8})
		} else if err := s.fetch(f, root, name); errors.Is(err, errFull) {
			full = append(full, Skipped{Path: f.Path, Reason: errFull.Error()})
		} else if err != nil {
			if errs = append(errs, err); len(errs) == maxTold || s.ctx.Err() != nil {
				break
			}
		}
	}
	s.leave(want, left)
	return n, errors.Join(append(errs, s.over(full))...)
}

// over notes what of an artifact is left out because all of them would be too
// much. The error names the first of it, and the report more.
func (s *store) over(full []Skipped) error {
	if len(full) == 0 {
		return nil
	}
	s.r.mu.Lock()
	s.r.report.Unfetched = append(s.r.report.Unfetched, full[:min(len(full), maxTold)]...)
	s.r.mu.Unlock()
	names := make([]string, len(full))
	for i, f := range full {
		names[i] = f.Path
	}
	return fmt.Errorf("%w: without %s", errFull, list(names))
}

// leave notes what of an artifact stays where it is, because of its name, unless
// it is another artifact, too. Two files may be told of by the same name.
func (s *store) leave(want string, left []Skipped) {
	left = slices.DeleteFunc(left, func(f Skipped) bool { return s.seen[f.Path] })
	if len(left) == 0 {
		return
	}
	for _, f := range left {
		s.seen[f.Path] = true
	}
	names := make([]string, len(left))
	for i, f := range left {
		names[i] = fmt.Sprintf("%+q", f.Path)
	}
	s.r.mu.Lock()
	s.r.report.Unfetched = append(s.r.report.Unfetched, left...)
	s.r.mu.Unlock()
	s.r.warn("artifact %s comes without %s: a name that is no UTF-8, or has the character U+FFFD, cannot be asked for", want, list(names))
}

// files lists what an artifact's name stands for, and the directory it is
// confined to.
func (s *store) files(want string) ([]execd.FileInfo, string, error) {
	if !path.IsAbs(want) && strings.ContainsAny(want, "*?[") {
		all, err := s.r.box.List(s.ctx, s.cwd, maxDepth, access(s.cwd))
		match := workspace.Compile(want)
		return slices.DeleteFunc(all, func(f execd.FileInfo) bool {
			return !match.Covers(strings.TrimPrefix(f.Path, strings.TrimSuffix(s.cwd, "/")+"/"))
		}), s.cwd, err
	}
	full, root := path.Clean(want), "/"
	if !path.IsAbs(want) {
		full, root = path.Join(s.cwd, want), s.cwd
	}
	info, err := s.r.box.Stat(s.ctx, full, access(root))
	switch {
	case sandbox.KindOf(err) == sandbox.KindNotFound:
		return nil, root, nil
	case err != nil:
		return nil, root, err
	case info.Type != "directory":
		return []execd.FileInfo{info}, root, nil
	}
	all, err := s.r.box.List(s.ctx, full, maxDepth, access(root))
	return all, root, err
}

// fetch brings one file out to artifacts/name.
func (s *store) fetch(f execd.FileInfo, root, name string) error {
	if s.seen[name] {
		return nil
	}
	s.seen[name] = true
	if s.count >= MaxOutputFiles || s.bytes+f.Size > MaxOutputBytes {
		return errFull
	}
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%q cannot be a file's name here", name)
	}
	if err := s.open(path.Dir(name)); err != nil {
		return err
	}
	out, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	moved, err := s.r.box.Download(s.ctx, f.Path, &bounded{w: out, left: MaxOutputBytes - s.bytes}, access(root))
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, s.root.Remove(name)) // no half of a file
	}
	s.bytes += moved.Bytes
	s.count++
	a := Artifact{Source: f.Path, Path: filepath.Join(s.r.dir, artifactsDir, name), Bytes: moved.Bytes, SHA256: moved.SHA256}
	s.r.mu.Lock()
	s.r.report.Artifacts = append(s.r.report.Artifacts, a)
	s.r.mu.Unlock()
	return s.r.record(audit.KindArtifact, "", a)
}

func (s *store) open(dir string) error {
	if s.root == nil {
		base := filepath.Join(s.r.dir, artifactsDir)
		if err := os.Mkdir(base, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		root, err := os.OpenRoot(base)
		if err != nil {
			return err
		}
		s.root = root
	}
	return s.root.MkdirAll(dir, 0o700)
}

// bounded is a writer with an end: what a sandbox sends is not believed.
type bounded struct {
	w    io.Writer
	left int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errors.New("the file is longer than what may be brought out")
	}
	return b.w.Write(p)
}

// spills keeps the full output of calls, masked.
func (s *store) spills() error {
	s.r.mu.Lock()
	spills := s.r.spills
	s.r.mu.Unlock()
	if !s.r.o.KeepOutput {
		return nil
	}
	var errs []error
	for _, sp := range spills {
		errs = append(errs, s.spill(sp))
	}
	return errors.Join(errs...)
}

func (s *store) spill(sp tool.Spill) error {
	dir := filepath.Join(s.r.dir, outputDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	name := filepath.Join(dir, filepath.Base(sp.Path))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w := s.r.o.Masker.Writer(f)
	_, err = s.r.box.Download(s.ctx, sp.Path, &bounded{w: w, left: MaxOutputBytes}, access(execd.SpillDir))
	return errors.Join(err, w.Close(), f.Close())
}
