package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/run/patch"
	"github.com/rein-sh/rein/run/workspace"
	"github.com/rein-sh/rein/tool"
)

// OutputInfo is what Options.Output holds.
type OutputInfo struct {
	Dir     string    `json:"dir"`
	Files   int       `json:"files"` // that are there now
	Bytes   int64     `json:"bytes"`
	Passes  int       `json:"passes"` // after which something had changed
	Skipped []Skipped `json:"skipped,omitempty"`
}

// syncRecord is the data of audit.KindOutputIntent, what a pass is about to
// change in the directory, and of audit.KindOutput, what it has changed.
type syncRecord struct {
	Written []syncedFile `json:"written,omitempty"`
	Removed []string     `json:"removed,omitempty"`
}

type syncedFile struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Bounds of one pass while the work goes on. The pass at the end has no others than
// the outputs have.
const (
	syncTime  = 10 * time.Second
	syncBytes = 256 << 20
)

// mirror keeps the new and changed files of the workspace in a directory of the
// host. A nil mirror does nothing.
type mirror struct {
	r    *runner
	root *os.Root

	working context.Context // ends with the work, and when the last pass is about to begin
	finish  context.CancelFunc

	turn    chan struct{}             // holds one while a pass is under way; what follows is its
	seen    map[string]execd.FileInfo // as they were when they were last looked at
	ours    map[string]syncedFile     // what is in the directory by our hand
	inputs  map[string]*workspace.Entry
	skipped map[string]bool
	later   map[string]bool // larger than a pass, and told of
	info    OutputInfo
	staging string // the directory in it of files that are on their way
	behind  bool   // seen is to be found out: the run was resumed
	closed  bool
}

// checkOutput refuses a directory in which the work would meet its own inputs.
func (o *Options) checkOutput() error {
	if o.Output == "" {
		return nil
	}
	bad := func(why, hint string) error { return &UsageError{Field: "output " + o.Output, Reason: why, hint: hint} }
	if !filepath.IsAbs(o.Output) {
		return bad("it is no absolute path", "")
	}
	if o.Workspace.Dir == "" {
		return nil
	}
	work, out := real(o.Workspace.Dir), real(o.Output)
	for _, pair := range [][2]string{{work, out}, {out, work}} {
		if rel, err := filepath.Rel(pair[0], pair[1]); err == nil && filepath.IsLocal(rel) {
			return bad("it is the workspace, in it or above it", "name a directory of its own; rein runs apply changes the workspace")
		}
	}
	return nil
}

// real is a path without links, as far as it exists.
func real(p string) string {
	if r, err := filepath.EvalSymlinks(p); err == nil {
		return r
	}
	if dir := filepath.Dir(p); dir != p {
		return filepath.Join(real(dir), filepath.Base(p))
	}
	return p
}

// openOutput begins to keep Options.Output: what is in the sandbox now is where it
// starts from.
func (r *runner) openOutput(ctx context.Context) error {
	if r.o.Output == "" {
		return nil
	}
	m, err := r.newMirror(ctx)
	if err != nil {
		return err
	}
	if err := m.walk(ctx, func(rel string, info execd.FileInfo) { m.seen[rel] = info }); err != nil {
		m.finish()
		return errors.Join(err, m.root.Close())
	}
	r.mirror = m
	return nil
}

// newMirror is a mirror of nothing yet, for work that ends with ctx.
func (r *runner) newMirror(ctx context.Context) (*mirror, error) {
	if err := os.MkdirAll(r.o.Output, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(r.o.Output)
	if err != nil {
		return nil, err
	}
	working, finish := context.WithCancel(ctx)
	return &mirror{r: r, root: root, working: working, finish: finish, turn: make(chan struct{}, 1), seen: map[string]execd.FileInfo{}, ours: map[string]syncedFile{}, skipped: map[string]bool{}, later: map[string]bool{},
		info: OutputInfo{Dir: r.o.Output}, staging: ".rein-" + strings.ToLower(r.o.ID)}, nil
}

// after brings the directory up to date after a call that may have written.
func (m *mirror) after(c tool.Call) {
	if m == nil || c.Name == tool.ReadFile || c.Name == tool.SandboxCreate || c.Name == tool.SandboxKill {
		return
	}
	m.update()
}

// update is one pass while the work goes on: the last makes up for one that is cut
// short.
func (m *mirror) update() {
	ctx, cancel := context.WithTimeout(m.working, syncTime)
	defer cancel()
	if err := m.sync(ctx, syncBytes, false); err != nil && m.working.Err() == nil {
		m.r.warn("the output directory is not up to date: %v", err)
	}
}

// last brings it up to date for good: by hashes, so that nothing is missed that
// kept its size and time.
func (m *mirror) last(ctx context.Context) error {
	if m == nil {
		return nil
	}
	m.finish()
	return errors.Join(m.sync(ctx, MaxOutputBytes, true), m.close())
}

// close says what is in the directory, also when the sandbox was lost.
func (m *mirror) close() error {
	if m == nil {
		return nil
	}
	m.finish()
	m.turn <- struct{}{}
	defer m.leave()
	if m.closed {
		return nil
	}
	m.closed = true
	m.r.mu.Lock()
	m.r.report.Output = &m.info
	m.r.mu.Unlock()
	return m.root.Close()
}

// walk lists the regular files of the work.
func (m *mirror) walk(ctx context.Context, take func(rel string, info execd.FileInfo)) error {
	cwd := m.r.box.Info().Cwd
	n := 0
	for level := []string{cwd}; len(level) > 0; {
		dir := level[0]
		level = level[1:]
		list, err := m.r.box.List(ctx, dir, 1, access(cwd))
		if err != nil {
			return err
		}
		for _, info := range list {
			if n++; n > 2*MaxOutputFiles {
				return fmt.Errorf("the workspace has more than %d files", 2*MaxOutputFiles)
			}
			rel := strings.TrimPrefix(info.Path, strings.TrimSuffix(cwd, "/")+"/")
			if ignored, secret := m.r.leftOut(rel, info); ignored || secret || misnamed(rel) {
				continue
			}
			switch {
			case info.Type == "directory":
				level = append(level, info.Path)
			case info.Type == "file" && info.Mode <= 777: // octal digits: not setuid, setgid or sticky
				take(rel, info)
			}
		}
	}
	return nil
}

func (m *mirror) leave() { <-m.turn }

func (m *mirror) sync(ctx context.Context, most int64, hashed bool) (err error) {
	select {
	case m.turn <- struct{}{}:
		defer m.leave()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if m.closed {
		return nil
	}
	if err := m.catchUp(ctx); err != nil {
		return err
	}
	here, changed := map[string]bool{}, []execd.FileInfo{}
	err = m.walk(ctx, func(rel string, info execd.FileInfo) {
		here[rel] = true
		was, known := m.seen[rel]
		if !known || hashed || was.Size != info.Size || !was.ModifiedAt.Equal(info.ModifiedAt) || was.Mode != info.Mode {
			changed = append(changed, info)
		}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.root.RemoveAll(m.staging)) }()
	files, err := m.receiveAll(ctx, changed, most, hashed)
	return errors.Join(err, m.commit(files, m.missing(here)))
}

// receiveAll brings what has changed beside its place, most bytes of it. What is
// too large is left out, for a later pass or, in the last one, for good.
func (m *mirror) receiveAll(ctx context.Context, changed []execd.FileInfo, most int64, hashed bool) (files []staged, _ error) {
	var errs []error
	var later []string
	for _, info := range changed {
		if err := ctx.Err(); err != nil {
			errs = append(errs, err)
			break
		}
		rel := m.rel(info)
		_, known := m.seen[rel]
		_, mine := m.ours[rel]
		if hashed && known && !mine && m.seen[rel].Size == info.Size && m.unchanged(ctx, info) {
			continue // an input as it was
		}
		if info.Size > most {
			if hashed {
				m.skip(rel, errFull.Error())
			} else if !m.later[rel] {
				m.later[rel] = true
				later = append(later, rel)
			}
			continue
		}
		f, err := m.stage(ctx, rel, info, most)
		if f != nil {
			most -= f.Bytes
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", rel, err))
		case f == nil:
			m.seen[rel] = info
		default:
			files = append(files, *f)
		}
	}
	if len(later) > 0 {
		errs = append(errs, fmt.Errorf("more has changed than is brought out at a time; for later: %s", list(later)))
	}
	return files, errors.Join(errs...)
}

// rel is a file's name in the directory.
func (m *mirror) rel(info execd.FileInfo) string {
	return strings.TrimPrefix(info.Path, strings.TrimSuffix(m.r.box.Info().Cwd, "/")+"/")
}

// unchanged reports whether a file is what was there before the work: it was
// copied in, or is of the image.
func (m *mirror) unchanged(ctx context.Context, info execd.FileInfo) bool {
	rel := m.rel(info)
	if was, known := m.seen[rel]; known && !was.ModifiedAt.Equal(info.ModifiedAt) {
		return false
	}
	if info.SHA256 == "" {
		h := sha256.New()
		if _, err := m.r.box.Download(ctx, info.Path, &bounded{w: h, left: MaxOutputBytes}, access(m.r.box.Info().Cwd)); err != nil {
			return false
		}
		info.SHA256 = hex.EncodeToString(h.Sum(nil))
	}
	if e := m.input(rel); e != nil {
		return e.Type == workspace.File && e.SHA256 == info.SHA256 && (mode(e) == patch.Executable) == executable(info)
	}
	return m.r.there.has(rel, info)
}

// input is what was copied in under that name; nil: nothing.
func (m *mirror) input(rel string) *workspace.Entry {
	if m.r.inputs == nil {
		return nil
	}
	if m.inputs == nil {
		m.inputs = make(map[string]*workspace.Entry, len(m.r.inputs.Entries))
		for _, e := range m.r.inputs.Entries {
			m.inputs[e.Path] = e
		}
	}
	return m.inputs[rel]
}

// executable reports whether a file's owner can execute it: that digit is odd.
func executable(info execd.FileInfo) bool { return info.Mode/100%10%2 == 1 }

// skip notes once why a file is not brought out.
func (m *mirror) skip(rel, why string) {
	if m.skipped[rel] {
		return
	}
	m.skipped[rel] = true
	if len(m.info.Skipped) < maxTold {
		m.info.Skipped = append(m.info.Skipped, Skipped{Path: rel, Reason: why})
		m.r.warn("%s is not written to %s: %s", rel, m.info.Dir, why)
	}
}
