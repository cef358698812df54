package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"sync"
)

// source counts and hashes what is read of one file, and keeps its error. The
// transport may go on reading after it has returned an early answer: finish
// ends that.
type source struct {
	mu    sync.Mutex
	r     io.Reader
	hash  io.Writer     // takes what is read
	sum   func() string // the hash of all of it
	bytes int64
	err   error
	over  bool
}

// start lets r be read. Without known, which gives the hash of what was read,
// the source computes it.
func (s *source) start(r io.Reader, known func() string) {
	s.r, s.hash, s.sum = r, io.Discard, known
	if known == nil {
		h := sha256.New()
		s.hash, s.sum = h, func() string { return hex.EncodeToString(h.Sum(nil)) }
	}
}

func (s *source) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, fs.ErrClosed
	}
	n, err := s.r.Read(p)
	s.hash.Write(p[:n]) // neither fails
	s.bytes += int64(n)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// finish waits for a Read under way and lets no other happen.
func (s *source) finish() (Transfer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	t := Transfer{Bytes: s.bytes}
	if s.sum != nil {
		t.SHA256 = s.sum()
	}
	return t, s.err
}
