package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/run/patch"
	"github.com/rein-sh/rein/run/workspace"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

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
	cwd := r.box.Info().Cwd
	var now []execd.FileInfo
	var errs []error
	if r.inputs != nil || len(r.o.Artifacts) > 0 {
		r.emit(Event{Kind: EventOutputs, Text: "saving the outputs"})
		var err error
		if now, err = r.box.List(ctx, cwd, maxDepth, access(cwd)); err != nil {
			return fmt.Errorf("the outputs could not be saved: %w", err)
		}
	}
	if r.inputs != nil {
		errs = append(errs, r.savePatch(ctx, cwd, now))
	}
	s := &store{r: r, ctx: ctx, cwd: cwd, seen: map[string]bool{}}
	errs = append(errs, s.artifacts(now), s.spills())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the outputs could not all be saved: %w", err)
	}
	return nil
}

// state is a workspace file in the sandbox, compared with the input.
type state struct {
	path   string
	before *workspace.Entry // nil: it was not there
	after  *execd.FileInfo  // nil: it is gone
}

// savePatch writes the difference between the inputs and what is there now.
func (r *runner) savePatch(ctx context.Context, cwd string, now []execd.FileInfo) (err error) {
	name := filepath.Join(r.dir, patchFile)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	p := &patcher{r: r, ctx: ctx, cwd: cwd, w: io.MultiWriter(f, h), info: &PatchInfo{Path: name}}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, s := range r.compare(p, cwd, now) {
		if err := p.add(s); err != nil {
			return fmt.Errorf("patch: %s: %w", s.path, err)
		}
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	p.info.SHA256, p.info.Bytes = hex.EncodeToString(h.Sum(nil)), st.Size()
	if p.secrets > 0 {
		r.warn("%d files of the patch contain a known secret", p.secrets)
	}
	for _, s := range p.info.Skipped {
		r.warn("%s is not in the patch: %s", s.Path, s.Reason)
	}
	r.mu.Lock()
	r.report.Patch = p.info
	r.mu.Unlock()
	r.emit(Event{Kind: EventOutputs, Text: fmt.Sprintf("patch: %d files", len(p.info.Files))})
	return r.record(audit.KindArtifact, "", p.info)
}

// compare pairs the inputs with what is there now, in the order of their paths.
func (r *runner) compare(p *patcher, cwd string, now []execd.FileInfo) []state {
	before := map[string]*workspace.Entry{}
	for _, e := range r.inputs.Entries {
		if e.Type != workspace.Dir {
			before[e.Path] = e
		}
	}
	var out []state
	for i := range now {
		rel := strings.TrimPrefix(now[i].Path, cwd+"/")
		old := before[rel]
		delete(before, rel)
		switch {
		case now[i].Type == "directory" && old == nil:
		case old == nil && inRepository(rel), old == nil && r.inputs.Ignores(rel):
			// A repository's own files and build products are no part of the work.
		case old == nil && tool.Secret(rel):
			p.skip(rel, "it is where credentials are kept")
		case now[i].Type == "directory":
			out = append(out, state{path: rel, before: old})
		default:
			out = append(out, state{path: rel, before: old, after: &now[i]})
		}
	}
	for _, e := range r.inputs.Entries {
		if _, gone := before[e.Path]; gone {
			out = append(out, state{path: e.Path, before: e})
		}
	}
	return out
}

func inRepository(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(part, ".git") {
			return true
		}
	}
	return false
}

// patcher writes a patch file by file.
type patcher struct {
	r       *runner
	ctx     context.Context
	cwd     string
	w       io.Writer
	info    *PatchInfo
	bytes   int64
	secrets int
	protect workspace.Patterns
}

func (p *patcher) skip(name, why string) {
	p.info.Skipped = append(p.info.Skipped, Skipped{Path: name, Reason: why})
}

func (p *patcher) add(s state) error {
	if p.protect == nil {
		p.protect = workspace.Compile(strings.Join(p.r.o.Protect, "\n"))
	}
	after, sum, err := p.after(s)
	if err != nil {
		if why, ok := errors.AsType[skipError](err); ok {
			p.skip(s.path, string(why))
			err = nil
		}
		p.guard(s, "unknown")
		return err
	}
	p.guard(s, sum)
	before, same, err := p.before(s, after, sum)
	if err != nil || same {
		return err
	}
	if len(p.info.Files) >= MaxOutputFiles || p.bytes > MaxOutputBytes {
		p.skip(s.path, "the patch is full: 1 GiB or 50,000 files")
		return nil
	}
	var b bytes.Buffer
	if err := patch.Write(&b, s.path, before, after); err != nil {
		p.skip(s.path, err.Error())
		return nil
	}
	if b.Len() == 0 {
		return nil
	}
	if len(p.r.o.Masker.Find(after.Data)) > 0 {
		p.secrets++
	}
	p.bytes += int64(b.Len())
	p.info.Files = append(p.info.Files, Change{Path: s.path, Kind: string(patch.KindOf(before, after))})
	_, err = p.w.Write(b.Bytes())
	return err
}

// skipError is the reason why a file cannot be in a patch.
type skipError string

func (e skipError) Error() string { return string(e) }

// after is the file as it is in the sandbox now, and its hash. Data is only
// fetched when the file is not the input.
func (p *patcher) after(s state) (patch.Side, string, error) {
	info := s.after
	if info == nil {
		return patch.Side{}, "", nil
	}
	perm, err := strconv.ParseUint(strconv.Itoa(info.Mode), 8, 16)
	switch {
	case err != nil:
		return patch.Side{}, "", err
	case info.Type == "symlink" && info.Target == "":
		return patch.Side{}, "", skipError("it is a symbolic link, and where it leads is not known")
	case info.Type == "symlink":
		return patch.Side{Mode: patch.Link, Data: []byte(info.Target)}, "link " + info.Target, nil
	case info.Type != "file":
		return patch.Side{}, "", skipError("it is not a regular file")
	case perm > 0o777:
		return patch.Side{}, "", skipError("it is setuid, setgid or sticky")
	case info.Size > patch.MaxFile:
		return patch.Side{}, "", skipError(fmt.Sprintf("it is larger than %d MiB; name it as an artifact", patch.MaxFile>>20))
	}
	side := patch.Side{Mode: patch.Regular}
	if perm&0o100 != 0 {
		side.Mode = patch.Executable
	}
	if e := s.before; e != nil && info.SHA256 != "" && e.SHA256 == info.SHA256 {
		return side, info.SHA256, nil
	}
	var b bytes.Buffer
	moved, err := p.r.box.Download(p.ctx, info.Path, &b, access(p.cwd))
	if sandbox.KindOf(err) == sandbox.KindConflict || sandbox.KindOf(err) == sandbox.KindDenied {
		return patch.Side{}, "", skipError(err.Error())
	}
	side.Data = b.Bytes()
	return side, moved.SHA256, err
}

// before is the file as it was copied in; same when nothing about it changed.
func (p *patcher) before(s state, after patch.Side, sum string) (patch.Side, bool, error) {
	e := s.before
	if e == nil {
		return patch.Side{}, false, nil
	}
	side := patch.Side{Mode: patch.Regular}
	switch {
	case e.Type == workspace.Link:
		side = patch.Side{Mode: patch.Link, Data: []byte(e.Target)}
		return side, after.Mode == patch.Link && e.Target == string(after.Data), nil
	case e.Perm&0o100 != 0:
		side.Mode = patch.Executable
	}
	if e.SHA256 == sum {
		if side.Mode == after.Mode {
			return side, true, nil
		}
		side.Data = after.Data // only the mode changed
		return side, false, nil
	}
	if e.Size > patch.MaxFile {
		p.skip(s.path, fmt.Sprintf("it was larger than %d MiB", patch.MaxFile>>20))
		return side, true, nil
	}
	data, err := p.r.inputs.Content(e)
	if errors.Is(err, workspace.ErrChanged) {
		p.skip(s.path, err.Error())
		return side, true, nil
	}
	side.Data = data
	return side, false, err
}

// guard compares a protected file.
func (p *patcher) guard(s state, sum string) {
	e := s.before
	if e == nil || !p.protect.Covers(e.Path) {
		return
	}
	before := e.SHA256
	if e.Type == workspace.Link {
		before = "link " + e.Target
	}
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	p.r.report.Protected = append(p.r.report.Protected, Protected{Path: e.Path, Before: before, After: sum, Unchanged: before == sum})
}

// store brings files out into the run's directory.
type store struct {
	r     *runner
	ctx   context.Context
	cwd   string
	root  *os.Root
	seen  map[string]bool
	bytes int64
}

// artifacts brings out what Options.Artifacts names: a path beneath the
// workspace, a pattern over it, or an absolute path.
func (s *store) artifacts(now []execd.FileInfo) error {
	var errs []error
	for _, want := range s.r.o.Artifacts {
		n, err := s.artifact(want, now)
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

func (s *store) artifact(want string, now []execd.FileInfo) (int, error) {
	root, files := s.cwd, now
	match := workspace.Compile(want)
	if path.IsAbs(want) {
		want = path.Clean(want)
		rel, inside := strings.CutPrefix(want, s.cwd+"/")
		if !inside {
			var err error
			root = path.Dir(want)
			if files, err = s.r.box.List(s.ctx, root, maxDepth, access(root)); err != nil {
				return 0, err
			}
			rel = path.Base(want)
		}
		match = workspace.Compile("/" + escape(rel))
	} else if !strings.ContainsAny(want, "*?[") {
		match = workspace.Compile("/" + escape(path.Clean(want)))
	}
	n := 0
	for _, f := range files {
		rel := strings.TrimPrefix(f.Path, strings.TrimSuffix(root, "/")+"/")
		if f.Type != "file" || !match.Covers(rel) {
			continue
		}
		if root != s.cwd {
			rel = path.Join("root", f.Path)
		}
		if err := s.fetch(f, root, rel); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// escape makes a pattern of a plain path.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// fetch brings one file out to artifacts/name.
func (s *store) fetch(f execd.FileInfo, root, name string) error {
	if s.seen[name] {
		return nil
	}
	s.seen[name] = true
	if len(s.seen) > MaxOutputFiles || s.bytes+f.Size > MaxOutputBytes {
		return errors.New("more than 1 GiB or 50,000 files")
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
		return err
	}
	s.bytes += moved.Bytes
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
	dir := filepath.Join(s.r.dir, "output")
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
