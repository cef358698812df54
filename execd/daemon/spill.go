package daemon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"os"
	"sync/atomic"

	"github.com/rein-sh/rein/execd"
)

// spill keeps the output of one command in a file, both streams in the order
// they were read. Its caller serialises write and close.
type spill struct {
	path   string // as the sandbox sees it
	osPath string
	limit  int64
	budget *atomic.Int64 // bytes that all spills may still use

	file     *os.File
	hash     hash.Hash
	bytes    int64
	newlines int64
	last     byte
	cut      bool
}

// write appends p as far as limit, budget and disk allow. The file is created
// with the first byte, so that a silent command costs none.
func (s *spill) write(p []byte) {
	if s.cut || len(p) == 0 {
		return
	}
	if room := s.limit - s.bytes; int64(len(p)) > room {
		p, s.cut = p[:room], true
	}
	if left := s.budget.Add(-int64(len(p))); left < 0 {
		give := min(-left, int64(len(p)))
		s.budget.Add(give)
		p, s.cut = p[:int64(len(p))-give], true
	}
	if len(p) == 0 {
		return
	}
	if s.file == nil && !s.create() {
		s.budget.Add(int64(len(p)))
		s.cut = true
		return
	}
	n, err := s.file.Write(p)
	if err != nil {
		s.budget.Add(int64(len(p) - n))
		s.cut = true
	}
	if n > 0 {
		s.hash.Write(p[:n])
		s.bytes += int64(n)
		s.newlines += int64(bytes.Count(p[:n], newline))
		s.last = p[n-1]
	}
}

func (s *spill) create() bool {
	f, err := os.OpenFile(s.osPath, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return false
	}
	s.file, s.hash = f, sha256.New()
	return true
}

// result describes the file so far; nil when there is none.
func (s *spill) result() *execd.Spill {
	if s == nil || s.file == nil && !s.cut {
		return nil
	}
	r := &execd.Spill{Path: s.path, Bytes: s.bytes, Lines: s.newlines, Complete: !s.cut}
	if s.bytes > 0 && s.last != '\n' {
		r.Lines++
	}
	if s.hash != nil {
		r.SHA256 = hex.EncodeToString(s.hash.Sum(nil))
	}
	return r
}

func (s *spill) close() {
	if s != nil && s.file != nil {
		s.file.Close()
	}
}
