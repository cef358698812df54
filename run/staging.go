package run

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
)

// staged is a file that has come out, and is to take its place in the output
// directory. It counts as being there already.
type staged struct {
	syncedFile
	at   string // where it is
	info execd.FileInfo
	old  syncedFile // what is in its place by our hand
	mine bool       // whether something is
}

// stage brings one file of at most so many bytes out, whole or not at all, if it is
// to be written. A file that is there and is not ours stays as it is.
func (m *mirror) stage(ctx context.Context, rel string, info execd.FileInfo, most int64) (*staged, error) {
	if !filepath.IsLocal(rel) || strings.HasPrefix(rel, m.staging+"/") {
		m.skip(rel, "it cannot be a file's name here")
		return nil, nil
	}
	old, mine := m.ours[rel]
	room := m.info.room(old, mine)
	if info.Size > room {
		m.skip(rel, errFull.Error())
		return nil, nil
	}
	there, exists, err := m.hash(rel)
	if err != nil {
		m.skip(rel, err.Error())
		return nil, nil
	}
	f, at, err := m.receive(ctx, rel, info, min(room, most))
	if err != nil {
		return nil, err
	}
	if exists && there != f.SHA256 && !(mine && there == old.SHA256) {
		m.skip(rel, notOurs)
	}
	if exists && (there == f.SHA256 || !mine || there != old.SHA256) || mine && old.SHA256 == f.SHA256 {
		return nil, m.root.Remove(at)
	}
	s := &staged{f, at, info, old, mine}
	m.count(s, 1)
	return s, nil
}

// notOurs is why a file is not written over another.
const notOurs = "there is another file of that name, which is not the run's"

// count counts a file as being there, or with -1 as not.
func (m *mirror) count(s *staged, sign int64) {
	m.info.Bytes += sign * (s.Bytes - s.old.Bytes)
	if !s.mine {
		m.info.Files += int(sign)
	}
}

// room is how many bytes a file may have there, negative when there is no room
// for another file. What a file has now is its own, whether it grows or shrinks.
func (o *OutputInfo) room(old syncedFile, mine bool) int64 {
	if !mine && o.Files >= MaxOutputFiles {
		return -1
	}
	return MaxOutputBytes - o.Bytes + old.Bytes
}

// receive brings a file out into the directory for those on their way, so that
// no more than a part of it is in memory at any time.
func (m *mirror) receive(ctx context.Context, rel string, info execd.FileInfo, most int64) (_ syncedFile, at string, err error) {
	if err := m.root.MkdirAll(m.staging, 0o700); err != nil {
		return syncedFile{}, "", err
	}
	perm := fs.FileMode(0o644)
	if executable(info) {
		perm = 0o755
	}
	at = path.Join(m.staging, strings.ToLower(rand.Text()))
	f, err := m.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return syncedFile{}, "", err
	}
	h := sha256.New()
	w := &bounded{w: io.MultiWriter(f, h), left: most}
	_, err = m.r.box.Download(ctx, info.Path, w, access(m.r.box.Info().Cwd))
	if err = errors.Join(err, f.Close()); err != nil {
		return syncedFile{}, "", errors.Join(err, m.root.Remove(at))
	}
	return syncedFile{Path: rel, Bytes: most - w.left, SHA256: hex.EncodeToString(h.Sum(nil))}, at, nil
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

// missing are the files of ours that the work has removed. One that somebody
// else has changed here is ours no longer.
func (m *mirror) missing(here map[string]bool) []string {
	var gone []string
	for rel, old := range m.ours {
		if here[rel] {
			continue
		}
		if there, exists, err := m.hash(rel); err == nil && exists && there == old.SHA256 {
			gone = append(gone, rel)
			continue
		}
		m.disown(rel)
	}
	slices.Sort(gone)
	return gone
}

func (m *mirror) disown(rel string) {
	m.info.Files--
	m.info.Bytes -= m.ours[rel].Bytes
	delete(m.ours, rel)
}

// commit puts the files of a pass into their places and removes what is gone.
// What it is about to do is recorded before, so that whoever goes on with the run
// knows which files are the run's.
func (m *mirror) commit(files []staged, gone []string) error {
	if len(files)+len(gone) == 0 {
		return nil
	}
	plan, done := syncRecord{Removed: gone}, syncRecord{}
	for _, f := range files {
		plan.Written = append(plan.Written, f.syncedFile)
	}
	if err := m.r.record(audit.KindOutputIntent, "", plan); err != nil {
		for i := range files {
			m.count(&files[i], -1)
		}
		return err
	}
	var errs []error
	for i := range files {
		f := &files[i]
		switch placed, err := m.place(f); {
		case placed:
			done.Written = append(done.Written, f.syncedFile)
		case err != nil:
			errs = append(errs, err)
			fallthrough
		default:
			m.count(f, -1)
		}
	}
	for _, rel := range gone {
		if m.remove(rel) {
			done.Removed = append(done.Removed, rel)
		}
	}
	if len(done.Written)+len(done.Removed) > 0 {
		m.info.Passes++
	}
	return errors.Join(append(errs, m.r.record(audit.KindOutput, "", done))...)
}

// place puts a file where it belongs, unless somebody else has been there
// meanwhile.
func (m *mirror) place(f *staged) (bool, error) {
	there, exists, err := m.hash(f.Path)
	switch {
	case err != nil:
		m.skip(f.Path, err.Error())
	case exists && !(f.mine && there == f.old.SHA256):
		m.skip(f.Path, notOurs)
	default:
		if err := m.root.MkdirAll(path.Dir(f.Path), 0o755); err != nil {
			return false, err
		}
		if err := m.root.Rename(f.at, f.Path); err != nil {
			return false, err
		}
		m.ours[f.Path], m.seen[f.Path] = f.syncedFile, f.info
		return true, nil
	}
	m.seen[f.Path] = f.info
	return false, nil
}

// remove takes back a file that the work has removed, unless somebody else has
// changed it here.
func (m *mirror) remove(rel string) bool {
	old := m.ours[rel]
	m.disown(rel)
	if there, exists, err := m.hash(rel); err != nil || !exists || there != old.SHA256 {
		return false
	}
	if err := m.root.Remove(rel); err != nil {
		m.skip(rel, "it could not be removed: "+err.Error())
		return false
	}
	return true
}
