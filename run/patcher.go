package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/run/patch"
	"github.com/rein-sh/rein/run/workspace"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// pair is a workspace file in the sandbox, compared with the input.
type pair struct {
	path   string
	before *workspace.Entry // nil: it was not there
	after  *execd.FileInfo  // nil: it is gone
}

// makePatch writes the difference between the inputs and what is there now to a
// new file. The patcher is there beside an error, too.
func (r *runner) makePatch(ctx context.Context, name string) (p *patcher, err error) {
	h := sha256.New()
	p = newPatcher(ctx, r, r.box, h)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return p, err
	}
	p.w, p.info.Path = io.MultiWriter(f, h), name
	defer func() { err = errors.Join(err, f.Close()) }()
	now, err := p.walk()
	if err != nil {
		return p, fmt.Errorf("patch: %w", err)
	}
	for _, s := range p.compare(now) {
		if err := p.add(s); err != nil {
			return p, fmt.Errorf("patch: %s: %w", s.path, err)
		}
	}
	st, err := f.Stat()
	if err != nil {
		return p, err
	}
	p.info.SHA256, p.info.Bytes = hex.EncodeToString(h.Sum(nil)), st.Size()
	return p, nil
}

// look only looks at what is protected.
func (p *patcher) look() error {
	now, err := p.walk()
	if err != nil {
		return err
	}
	for _, s := range p.compare(now) {
		if !p.guarded(s) {
			continue
		}
		after, sum, err := p.after(s)
		if _, ok := errors.AsType[skipError](err); ok {
			sum, err = unknown, nil
		}
		if p.guard(s, after, sum); err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	return nil
}

// savePatch saves the difference between the inputs and what is there now, and
// what became of protected files.
func (r *runner) savePatch(ctx context.Context) error {
	p, err := r.makePatch(ctx, filepath.Join(r.dir, patchFile))
	r.mu.Lock()
	r.report.Protected = p.protected
	r.mu.Unlock()
	r.breached = p.breached
	if err != nil {
		return err
	}
	r.guarded = true
	if p.secrets > 0 {
		r.warn("%d files of the patch contain a known secret", p.secrets)
	}
	if len(p.unwatched) > 0 {
		r.warn("new where files are protected, but left out by ignore files and so not looked at: %s", list(p.unwatched))
	}
	for _, s := range p.info.Skipped[:min(len(p.info.Skipped), maxTold)] {
		r.warn("%s is not in the patch: %s", s.Path, s.Reason)
	}
	if more := len(p.info.Skipped) - maxTold; more > 0 {
		r.warn("%d more files are not in the patch", more)
	}
	r.mu.Lock()
	r.report.Patch = p.info
	r.mu.Unlock()
	r.emit(Event{Kind: EventOutputs, Text: fmt.Sprintf("files in the patch: %d", len(p.info.Files))})
	return r.record(audit.KindArtifact, "", p.info)
}

// Bounds of one level of the workspace that is looked at, also of what is no part
// of a patch: files, and bytes of their paths and of where links lead.
const (
	maxListed      = 1_000_000
	maxListedBytes = 256 << 20
)

// listed counts the files of a level as they come: each of many directories may
// claim many.
type listed struct{ files, bytes atomic.Int64 }

func (l *listed) add(files []execd.FileInfo) error {
	n := 0
	for i := range files {
		n += len(files[i].Path) + len(files[i].Target)
	}
	if l.files.Add(int64(len(files))) > maxListed {
		return fmt.Errorf("the workspace has more than %d files in directories of one depth", maxListed)
	}
	if l.bytes.Add(int64(n)) > maxListedBytes {
		return fmt.Errorf("the workspace has files in directories of one depth whose paths take more than %d MiB", maxListedBytes>>20)
	}
	return nil
}

// walk lists what of the workspace may be part of a patch: build products, which
// may be a hundred times the rest, are not, nor is what was there before the
// work and is unchanged.
func (p *patcher) walk() ([]execd.FileInfo, error) {
	var found []execd.FileInfo
	err := levels(p.ctx, p.box, p.cwd, func(rel string, info execd.FileInfo) (bool, error) {
		ours, there := p.old[rel] != nil, p.r.there.has(rel, info)
		if !ours && there && info.Type != "directory" || !ours && p.foreign(rel, info, there) {
			return false, nil
		}
		if misnamed(rel) {
			if !there {
				p.skip(rel, noUTF8)
				p.guard(pair{path: rel, after: &info}, patch.Side{}, unknown)
			}
			return false, nil
		}
		if p.w == nil && info.Type != "directory" && !p.protect.covers(rel, info.Type == "file") {
			return false, nil
		}
		if found = append(found, info); len(found) > 2*MaxOutputFiles {
			return false, fmt.Errorf("the workspace has more than %d files that no ignore file leaves out", 2*MaxOutputFiles)
		}
		return true, nil
	})
	slices.SortFunc(found, func(a, b execd.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	return found, err
}

// levels lists a workspace, a level at a time. take says whether a directory is
// entered.
func levels(ctx context.Context, box *sandbox.Sandbox, cwd string, take func(rel string, info execd.FileInfo) (bool, error)) error {
	for level := []string{cwd}; len(level) > 0; {
		lists := make([][]execd.FileInfo, len(level))
		var seen listed
		err := each(ctx, indices(level), func(ctx context.Context, i int) (err error) {
			lists[i], err = box.Inventory(ctx, level[i], 1, access(cwd))
			if err != nil {
				return err
			}
			return seen.add(lists[i])
		})
		if err != nil {
			return err
		}
		level = nil
		for _, info := range slices.Concat(lists...) {
			enter, err := take(strings.TrimPrefix(info.Path, strings.TrimSuffix(cwd, "/")+"/"), info)
			if err != nil {
				return err
			}
			if enter && info.Type == "directory" {
				level = append(level, info.Path)
			}
		}
	}
	return nil
}

func indices[T any](s []T) []int {
	out := make([]int, len(s))
	for i := range out {
		out[i] = i
	}
	return out
}

func (p *patcher) rel(name string) string {
	return strings.TrimPrefix(name, strings.TrimSuffix(p.cwd, "/")+"/")
}

// foreign reports whether something that was not copied in is no part of the
// work: a repository's own files, build products, and credentials, which are
// named in the report unless they were there before the work.
func (p *patcher) foreign(rel string, info execd.FileInfo, there bool) bool {
	ignored, secret := p.r.leftOut(rel, info)
	if there {
		return ignored || secret
	}
	if secret {
		p.skip(rel, "it is where credentials are kept")
	}
	if ignored || secret {
		p.guardForeign(rel, info, secret)
	}
	return ignored || secret
}

// leftOut says why something is no part of the work, if it is not: it is ignored,
// or holds credentials.
func (r *runner) leftOut(rel string, info execd.FileInfo) (ignored, secret bool) {
	ignored = inRepository(rel) || r.inputs != nil && r.inputs.Ignores(rel, info.Type == "directory")
	return ignored, !ignored && tool.Secret(rel)
}

// compare pairs the inputs with what is there now, in the order of their paths.
func (p *patcher) compare(now []execd.FileInfo) []pair {
	var out []pair
	here := map[string]bool{}
	for i := range now {
		rel := p.rel(now[i].Path)
		if now[i].Type != "directory" {
			here[rel] = true
			out = append(out, pair{path: rel, before: p.old[rel], after: &now[i]})
		}
	}
	for name, e := range p.old {
		if !here[name] {
			out = append(out, pair{path: name, before: e})
		}
	}
	slices.SortFunc(out, func(a, b pair) int { return strings.Compare(a.path, b.path) })
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

// patcher writes a patch file by file, or without w only looks at what is
// protected.
type patcher struct {
	r       *runner
	box     *sandbox.Sandbox
	ctx     context.Context
	cwd     string
	w       io.Writer
	info    *PatchInfo
	bytes   int64
	secrets int
	protect guards
	// protected are the files that are, and breached those of them that are not
	// as they were.
	protected []Protected
	breached  []pair
	// unwatched are new things in protected places that are not looked at.
	unwatched []string
	old       map[string]*workspace.Entry // what was copied in, but for directories
}

func newPatcher(ctx context.Context, r *runner, box *sandbox.Sandbox, w io.Writer) *patcher {
	p := &patcher{r: r, box: box, ctx: ctx, cwd: box.Info().Cwd, w: w, info: &PatchInfo{}, old: map[string]*workspace.Entry{},
		protect: protected(r.o.Protect...)}
	if r.inputs == nil {
		return p
	}
	for _, e := range r.inputs.Entries {
		if e.Type != workspace.Dir {
			p.old[e.Path] = e
		}
	}
	return p
}

func (p *patcher) skip(name, why string) {
	p.info.Skipped = append(p.info.Skipped, Skipped{Path: name, Reason: why})
}

func (p *patcher) add(s pair) error {
	after, sum, err := p.after(s)
	if err != nil {
		if why, ok := errors.AsType[skipError](err); ok {
			p.skip(s.path, string(why))
			err = nil
		}
		p.guard(s, after, unknown)
		return err
	}
	p.guard(s, after, sum)
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
	if len(p.r.o.Masker.FindKnown(after.Data)) > 0 {
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
func (p *patcher) after(s pair) (patch.Side, string, error) {
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
	case info.Type == "symlink" && misnamed(info.Target):
		return patch.Side{}, "", skipError("it is a symbolic link to a name that is no UTF-8, or has the character U+FFFD")
	case info.Type == "symlink":
		return patch.Side{Mode: patch.Link, Data: []byte(info.Target)}, "link " + info.Target, nil
	case info.Type != "file":
		return patch.Side{}, "", skipError("it is not a regular file")
	case perm > 0o777:
		return patch.Side{}, "", skipError("it is setuid, setgid or sticky")
	}
	side := patch.Side{Mode: patch.Regular}
	if perm&0o100 != 0 {
		side.Mode = patch.Executable
	}
	if e := s.before; e != nil && info.SHA256 != "" && e.SHA256 == info.SHA256 && (info.Size <= patch.MaxFile || mode(e) == side.Mode) {
		return side, info.SHA256, nil
	}
	if info.Size > patch.MaxFile {
		return patch.Side{}, "", skipError(fmt.Sprintf("it is larger than %d MiB; name it as an artifact", patch.MaxFile>>20))
	}
	var b bytes.Buffer
	content := &bounded{w: &b, left: patch.MaxFile}
	moved, err := p.box.Download(p.ctx, info.Path, content, access(p.cwd))
	if content.left < 0 {
		return patch.Side{}, "", skipError("it is longer than its listing says")
	}
	if sandbox.KindOf(err) == sandbox.KindConflict || sandbox.KindOf(err) == sandbox.KindDenied {
		return patch.Side{}, "", skipError(err.Error())
	}
	side.Data = b.Bytes()
	return side, moved.SHA256, err
}

// mode is the mode of an input.
func mode(e *workspace.Entry) patch.Mode {
	switch {
	case e.Type == workspace.Link:
		return patch.Link
	case e.Perm&0o100 != 0:
		return patch.Executable
	}
	return patch.Regular
}

// before is the file as it was copied in; same when nothing about it changed.
func (p *patcher) before(s pair, after patch.Side, sum string) (patch.Side, bool, error) {
	e := s.before
	if e == nil {
		return patch.Side{}, false, nil
	}
	side := patch.Side{Mode: mode(e)}
	if e.Type == workspace.Link {
		side.Data = []byte(e.Target)
		return side, after.Mode == patch.Link && e.Target == string(after.Data), nil
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
