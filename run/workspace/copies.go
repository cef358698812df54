package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
)

// copies are files of a Tree as Read first gave them, by the hash of their
// content.
type copies struct {
	dir  string
	want map[*Entry]bool
}

// Keep has Read keep copies of the files of want in dir, which is made, so that
// what is made of them later does not depend on the workspace. In the order of
// want they take limit bytes at most; the files for which that is too little are
// returned. Copies that dir holds already, from an earlier process, are used.
// The caller removes dir.
func (t *Tree) Keep(dir string, want []*Entry, limit int64) (without []*Entry, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	t.copies = &copies{dir: dir, want: map[*Entry]bool{}}
	for _, e := range want {
		if e.Type != File {
			continue
		}
		if e.Size > limit {
			without = append(without, e)
			continue
		}
		limit -= e.Size
		t.copies.want[e] = true
	}
	return without, nil
}

// open opens the copy of a file that has been read.
func (c *copies) open(e *Entry) (*os.File, error) {
	if c == nil || !isSum(e.SHA256) {
		return nil, os.ErrNotExist
	}
	return os.Open(filepath.Join(c.dir, e.SHA256))
}

// isSum reports whether s is a SHA-256 in hexadecimal, and so a safe name.
func isSum(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

// begin starts a copy of e; nil where none is wanted.
func (c *copies) begin(e *Entry) (*os.File, error) {
	if c == nil || !c.want[e] {
		return nil, nil
	}
	return os.CreateTemp(c.dir, "new-")
}

// reading is a file of a tree that is read, hashed and, the first time, kept.
type reading struct {
	e    *Entry
	f    *os.File
	r    io.Reader
	sum  hash.Hash
	n    int64
	copy *os.File // nil: none is made
	err  error    // what the end of the content came to
}

// newReading takes over f.
func newReading(e *Entry, f, kept *os.File) *reading {
	r := &reading{e: e, f: f, sum: sha256.New(), copy: kept}
	w := io.Writer(r.sum)
	if kept != nil {
		w = io.MultiWriter(r.sum, kept)
	}
	r.r = io.TeeReader(io.LimitReader(f, e.Size+1), w)
	return r
}

func (r *reading) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.r.Read(p)
	r.n += int64(n)
	if err == io.EOF {
		r.err = r.end()
		err = r.err
	}
	return n, err
}

// end judges the content at its end, and keeps it.
func (r *reading) end() error {
	sum := hex.EncodeToString(r.sum.Sum(nil))
	switch {
	case r.e.SHA256 != "" && r.e.SHA256 != sum:
		return fmt.Errorf("%s: %w", r.e.Path, ErrChanged)
	case r.n != r.e.Size:
		return fmt.Errorf("%s changed while it was copied", r.e.Path)
	}
	if f := r.copy; f != nil {
		r.copy = nil
		err := f.Close()
		if err == nil {
			err = os.Rename(f.Name(), filepath.Join(filepath.Dir(f.Name()), sum))
		}
		if err != nil {
			return fmt.Errorf("the copy of %s could not be kept: %w", r.e.Path, err)
		}
	}
	r.e.SHA256 = sum
	return io.EOF
}

// Close also drops a copy of what was not read to its end.
func (r *reading) Close() error {
	if r.copy != nil {
		r.copy.Close()
		os.Remove(r.copy.Name())
		r.copy = nil
	}
	return r.f.Close()
}
