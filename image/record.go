package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// marker is image.json: that a tree is complete, and what is known about it.
type marker struct {
	Digest  string    `json:"digest"`
	Config  Config    `json:"config"`
	Entries int       `json:"entries"`
	Size    int64     `json:"size"`
	Dropped Dropped   `json:"dropped"`
	Notes   []string  `json:"notes,omitempty"`
	Fetched time.Time `json:"fetched"`
}

// refRecord is where a reference led to.
type refRecord struct {
	Reference string    `json:"reference"`
	Platform  string    `json:"platform"`
	Digest    string    `json:"digest"`
	Documents []string  `json:"documents"` // the first is what the reference names
	Resolved  time.Time `json:"resolved"`
}

// maxRecord bounds what is read of a record, which holds an image's
// configuration at most.
const maxRecord = 64 << 20

// unfinished begins the names of records that are being written.
const unfinished = ".new-"

// dirName is a digest as the name of a file.
func dirName(digest string) string { return strings.Replace(digest, ":", "-", 1) }

// nameDigest is the digest a file is named for, "" for other names.
func nameDigest(name string) string {
	digest := strings.Replace(name, "-", ":", 1)
	if !digestPart.MatchString(digest) {
		return ""
	}
	return digest
}

func (s *Store) imagePath(name string) string { return filepath.Join(s.o.Dir, "images", name) }

func (s *Store) refPath(reference, platform string) string {
	sum := sha256.Sum256([]byte(reference + "\n" + platform))
	return filepath.Join(s.o.Dir, "refs", hex.EncodeToString(sum[:])+".json")
}

// readMarker is nil when there is no image of this name, or none that is of use:
// then damage says why.
func (s *Store) readMarker(name string) (m *marker, damage, err error) {
	m = &marker{}
	ok, err := readRecord(filepath.Join(s.imagePath(name), "image.json"), m)
	if damaged, is := errors.AsType[*damagedError](err); is {
		return nil, damaged, nil
	}
	switch {
	case err != nil:
		return nil, nil, err
	case ok && dirName(m.Digest) == name:
		return m, nil, nil
	case ok:
		return nil, fmt.Errorf("image.json is about %.100q", m.Digest), nil
	}
	if there, err := s.hasImage(name); !there || err != nil {
		return nil, nil, err
	}
	return nil, errors.New("image.json is missing"), nil
}

// hasImage reports whether something is in an image's place.
func (s *Store) hasImage(name string) (bool, error) {
	_, err := os.Lstat(s.imagePath(name))
	return err == nil, ignoreMissing(err)
}

// readRef is nil without an error when the reference was never resolved, or its
// record is damaged: then resolving it writes another.
func (s *Store) readRef(r Reference) (*refRecord, error) {
	return readRefAt(s.refPath(r.String(), platformText(s.platform)))
}

func readRefAt(path string) (*refRecord, error) {
	rec := &refRecord{}
	ok, err := readRecord(path, rec)
	if _, damaged := errors.AsType[*damagedError](err); damaged {
		return nil, nil
	}
	if !ok || err != nil || !digestPart.MatchString(rec.Digest) || len(rec.Documents) == 0 {
		return nil, err
	}
	return rec, nil
}

// findDigest is where another reference to the same place led to that named the
// digest of r. One to another place says nothing about what is in this one, which
// is what the allow-list trusts.
func (s *Store) findDigest(r Reference) (*refRecord, error) {
	var found *refRecord
	err := s.refs(func(_ string, rec *refRecord) error {
		if rec == nil || rec.Platform != platformText(s.platform) || !slices.Contains(rec.Documents, r.digest) {
			return nil
		}
		if other, err := ParseReference(rec.Reference); err == nil && other.scheme == r.scheme && other.place == r.place {
			found = rec
		}
		return nil
	})
	return found, err
}

// writeRef records where a reference led to. What a crash leaves of it, a sweep
// removes, which the store's lock keeps out meanwhile.
func (s *Store) writeRef(rec refRecord) error {
	return s.guarded(unix.LOCK_SH, func() error { return writeRecord(s.refPath(rec.Reference, rec.Platform), rec) })
}

// refs calls f for every reference that was resolved; rec is nil when its record
// is damaged, or gone meanwhile.
func (s *Store) refs(f func(path string, rec *refRecord) error) error {
	entries, err := os.ReadDir(filepath.Join(s.o.Dir, "refs"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unfinished) {
			continue
		}
		path := filepath.Join(s.o.Dir, "refs", e.Name())
		rec, err := readRefAt(path)
		if err == nil {
			err = f(path, rec)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// touch notes that an image is used now: the time of its lock file says so.
func (s *Store) touch(name string) error {
	now := s.o.Now()
	return os.Chtimes(s.lockPath(name), now, now)
}

// damagedError is a record that is there and says nothing.
type damagedError struct{ err error }

func (e *damagedError) Error() string { return e.err.Error() }
func (e *damagedError) Unwrap() error { return e.err }

// readRecord reports false when there is no such file. What cannot be understood
// is a *damagedError.
func readRecord(path string, v any) (bool, error) {
	f, err := os.OpenFile(path, unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	var raw []byte
	if err == nil {
		defer f.Close()
		raw, err = io.ReadAll(io.LimitReader(f, maxRecord))
	}
	for _, no := range []error{unix.ENOTDIR, unix.ELOOP, unix.EISDIR} { // it is no file
		if errors.Is(err, no) {
			return false, &damagedError{err}
		}
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return false, &damagedError{fmt.Errorf("%s cannot be read: %w", filepath.Base(path), err)}
	}
	return true, nil
}

// writeRecord replaces a file as a whole, and only when its bytes are on disk.
func writeRecord(path string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), unfinished)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
