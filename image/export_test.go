package image

import (
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// Unpack writes archives into dir as the layers of an image.
func Unpack(ctx context.Context, dir string, l Limits, layers ...io.Reader) (Dropped, error) {
	u, err := newUnpacker(dir, l.withDefaults())
	if err != nil {
		return Dropped{}, err
	}
	for _, r := range layers {
		if err = u.layer(ctx, r); err != nil {
			break
		}
	}
	if err == nil {
		_, _, err = u.finish()
	}
	return u.dropped, errors.Join(err, u.close())
}

// Opaque hides all that is in dir.
func Opaque(ctx context.Context, dir string) error {
	u, err := newUnpacker(dir, Limits{}.withDefaults())
	if err != nil {
		return err
	}
	return errors.Join(u.whiteout(ctx, "", whiteoutOpaque), u.close())
}

// UseLock takes an image's lock as a user does, calls f and gives it up.
func (s *Store) UseLock(digest string, f func()) error {
	held, err := s.tryLock(dirName(digest), unix.LOCK_SH)
	if err != nil {
		return err
	}
	f()
	return s.giveUp(held, dirName(digest))
}

// ParseDocument reads a manifest or an index and reports whether it was one.
func ParseDocument(mediaType string, raw []byte) error {
	_, err := parseDocument(document{mediaType: mediaType, raw: raw}, Limits{}.withDefaults())
	return err
}

// RemoveTree removes what Unpack has made.
var RemoveTree = removeTree

// SetStall sets how long a registry may send nothing.
func (s *Store) SetStall(d time.Duration) { s.stall = d }

// SetAnswer sets how long a document may take.
func (s *Store) SetAnswer(d time.Duration) { s.answer = d }
