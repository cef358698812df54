package run

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
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

// syncRecord is the data of audit.KindOutput: one pass that changed something.
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

	mu      sync.Mutex
	seen    map[string]execd.FileInfo // as they were when they were last looked at
	ours    map[string]syncedFile     // what is in the directory by our hand
	skipped map[string]bool
	info    OutputInfo
	pass    syncRecord
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
	if err := os.MkdirAll(r.o.Output, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(r.o.Output)
	if err != nil {
		return err
	}
	m := &mirror{r: r, root: root, seen: map[string]execd.FileInfo{}, ours: map[string]syncedFile{}, skipped: map[string]bool{}, info: OutputInfo{Dir: r.o.Output}}
	if err := m.walk(ctx, func(rel string, info execd.FileInfo) { m.seen[rel] = info }); err != nil {
		return errors.Join(err, root.Close())
	}
	r.mirror = m
	return nil
}

// after brings the directory up to date after a call that may have written.
func (m *mirror) after(c tool.Call) {
	if m == nil || c.Name == tool.ReadFile || c.Name == tool.SandboxCreate || c.Name == tool.SandboxKill {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), syncTime)
	defer cancel()
	if err := m.sync(ctx, syncBytes, false); err != nil {
		m.r.warn("the output directory is not up to date: %v", err)
	}
}

// last brings it up to date for good: by hashes, so that nothing is missed that
// kept its size and time.
func (m *mirror) last(ctx context.Context) error {
	if m == nil {
		return nil
	}
	return errors.Join(m.sync(ctx, MaxOutputBytes, true), m.close())
}

// close says what is in the directory, also when the sandbox was lost.
func (m *mirror) close() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
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

func (m *mirror) sync(ctx context.Context, most int64, hashed bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	here, changed := map[string]bool{}, []execd.FileInfo{}
	err := m.walk(ctx, func(rel string, info execd.FileInfo) {
		here[rel] = true
		was, known := m.seen[rel]
		if !known || hashed || was.Size != info.Size || !was.ModifiedAt.Equal(info.ModifiedAt) || was.Mode != info.Mode {
			changed = append(changed, info)
		}
	})
	if err != nil {
		return err
	}
	m.pass = syncRecord{}
	var errs []error
	for _, info := range changed {
		rel := strings.TrimPrefix(info.Path, strings.TrimSuffix(m.r.box.Info().Cwd, "/")+"/")
		_, known := m.seen[rel]
		_, mine := m.ours[rel]
		if hashed && known && !mine && m.seen[rel].Size == info.Size && m.unchanged(ctx, info) {
			continue // an input as it was
		}
		if most -= info.Size; most < 0 {
			errs = append(errs, errors.New("more has changed than is brought out at a time"))
			break
		}
		if err := m.fetch(ctx, rel, info); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", rel, err))
			continue
		}
		m.seen[rel] = info
	}
	for rel := range m.ours {
		if !here[rel] {
			m.remove(rel)
		}
	}
	return errors.Join(append(errs, m.record())...)
}

// unchanged reports whether an input is what was copied in.
func (m *mirror) unchanged(ctx context.Context, info execd.FileInfo) bool {
	rel := strings.TrimPrefix(info.Path, strings.TrimSuffix(m.r.box.Info().Cwd, "/")+"/")
	was := m.seen[rel]
	if !was.ModifiedAt.Equal(info.ModifiedAt) || m.r.inputs == nil {
		return false
	}
	h := sha256.New()
	if _, err := m.r.box.Download(ctx, info.Path, &bounded{w: h, left: MaxOutputBytes}, access(m.r.box.Info().Cwd)); err != nil {
		return false
	}
	sum := hex.EncodeToString(h.Sum(nil))
	for _, e := range m.r.inputs.Entries {
		if e.Path == rel {
			return e.SHA256 == sum
		}
	}
	return false
}

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

// fetch writes one file, whole or not at all. A file that is there and is not
// ours stays as it is.
func (m *mirror) fetch(ctx context.Context, rel string, info execd.FileInfo) error {
	if !filepath.IsLocal(rel) {
		m.skip(rel, "it cannot be a file's name here")
		return nil
	}
	old, mine := m.ours[rel]
	room := m.info.room(old, mine)
	if info.Size > room {
		m.skip(rel, errFull.Error())
		return nil
	}
	there, exists, err := m.hash(rel)
	if err != nil {
		m.skip(rel, err.Error())
		return nil
	}
	f, tmp, err := m.receive(ctx, rel, info, min(room, syncBytes))
	if err != nil {
		return err
	}
	if exists && there != f.SHA256 && !(mine && there == old.SHA256) {
		m.skip(rel, "there is another file of that name, which is not the run's")
	}
	if exists && (there == f.SHA256 || !mine || there != old.SHA256) || mine && old.SHA256 == f.SHA256 {
		return m.root.Remove(tmp)
	}
	if err := m.root.Rename(tmp, rel); err != nil {
		return errors.Join(err, m.root.Remove(tmp))
	}
	m.info.Bytes += f.Bytes - old.Bytes
	if !mine {
		m.info.Files++
	}
	m.ours[rel] = f
	m.pass.Written = append(m.pass.Written, f)
	return nil
}

// room is how many bytes a file may have there, negative when there is no room
// for another file. What a file has now is its own, whether it grows or shrinks.
func (o *OutputInfo) room(old syncedFile, mine bool) int64 {
	if !mine && o.Files >= MaxOutputFiles {
		return -1
	}
	return MaxOutputBytes - o.Bytes + old.Bytes
}

// receive brings a file out under another name beside its own, so that no more
// than a part of it is in memory at any time.
func (m *mirror) receive(ctx context.Context, rel string, info execd.FileInfo, most int64) (_ syncedFile, tmp string, err error) {
	dir := path.Dir(rel)
	if err := m.root.MkdirAll(dir, 0o755); err != nil {
		return syncedFile{}, "", err
	}
	perm := fs.FileMode(0o644)
	if info.Mode/100%10%2 == 1 { // the owner's digit is odd: it can be executed
		perm = 0o755
	}
	tmp = path.Join(dir, ".rein-"+strings.ToLower(rand.Text()))
	f, err := m.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return syncedFile{}, "", err
	}
	h := sha256.New()
	w := &bounded{w: io.MultiWriter(f, h), left: most}
	_, err = m.r.box.Download(ctx, info.Path, w, access(m.r.box.Info().Cwd))
	if err = errors.Join(err, f.Close()); err != nil {
		return syncedFile{}, "", errors.Join(err, m.root.Remove(tmp))
	}
	return syncedFile{Path: rel, Bytes: most - w.left, SHA256: hex.EncodeToString(h.Sum(nil))}, tmp, nil
}

// hash is that of the regular file in the directory, if there is one.
func (m *mirror) hash(rel string) (sum string, exists bool, err error) {
	st, err := m.root.Lstat(rel)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	if !st.Mode().IsRegular() {
		return "", false, errors.New("what is there of that name is no regular file")
	}
	f, err := m.root.Open(rel)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), true, err
}

// remove takes back a file that the work has removed, unless somebody else has
// changed it here.
func (m *mirror) remove(rel string) {
	old := m.ours[rel]
	delete(m.ours, rel)
	m.info.Files--
	m.info.Bytes -= old.Bytes
	if there, exists, err := m.hash(rel); err != nil || !exists || there != old.SHA256 {
		return
	}
	if err := m.root.Remove(rel); err != nil {
		m.skip(rel, "it could not be removed: "+err.Error())
		return
	}
	m.pass.Removed = append(m.pass.Removed, rel)
}

// record records a pass, if it changed anything.
func (m *mirror) record() error {
	if len(m.pass.Written)+len(m.pass.Removed) == 0 {
		return nil
	}
	m.info.Passes++
	slices.Sort(m.pass.Removed)
	return m.r.record(audit.KindOutput, "", m.pass)
}
