package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"

	"github.com/rein-sh/rein/execd"
)

// Source is one file of an UploadAll.
type Source struct {
	Path string
	// Mode is the file's permissions, as in WriteOptions.
	Mode fs.FileMode
	// Open returns the content, which is closed after use.
	Open func() (io.ReadCloser, error)
}

// UploadAll writes many files with as few requests as the sandbox's execd
// takes, and is recorded as one operation on dir. Each file is written whole or
// not at all; files before a failing one stay. What arrived is compared with
// what was sent.
func (s *Sandbox) UploadAll(ctx context.Context, dir string, files []Source, a Access) error {
	in := FileIntent{Op: "upload", Path: dir, Range: fmt.Sprintf("%d files", len(files))}
	return s.file(ctx, a, in, func(ctx context.Context, out *FileOutcome) error {
		sent := make([]execd.Source, len(files))
		hashes := make([]*hashing, len(files))
		for i, f := range files {
			mode := octal(f.Mode)
			hashes[i] = &hashing{}
			sent[i] = execd.Source{
				Metadata: execd.UploadMetadata{Path: s.abs(f.Path), Mode: &mode, Rein: &execd.UploadOptions{Root: s.root(a)}},
				Open:     func() (io.ReadCloser, error) { return hashes[i].open(f.Open) },
			}
		}
		list, err := s.client.UploadAll(ctx, sent)
		for _, h := range hashes {
			out.Bytes += h.bytes
		}
		out.Entries = len(files)
		if err != nil {
			for i, h := range hashes {
				if h.err != nil {
					return &Error{Kind: KindHost, Op: "upload", Subject: files[i].Path, Err: h.err}
				}
			}
			return err
		}
		if len(list) == 0 && !s.ours() {
			return nil
		}
		for i, h := range hashes {
			if i >= len(list) || list[i].SHA256 != h.sum() {
				return &Error{Kind: KindInternal, Op: "upload", Subject: files[i].Path, Err: fmt.Errorf("it did not arrive as it was sent")}
			}
		}
		return nil
	})
}

// hashing counts and hashes what is read of one source, and keeps its error.
type hashing struct {
	source io.ReadCloser
	hash   hash.Hash
	bytes  int64
	err    error
}

func (h *hashing) open(open func() (io.ReadCloser, error)) (io.ReadCloser, error) {
	h.source, h.err = open()
	h.hash = sha256.New()
	return h, h.err
}

func (h *hashing) Read(p []byte) (int, error) {
	n, err := h.source.Read(p)
	h.hash.Write(p[:n]) // a hash does not fail
	h.bytes += int64(n)
	if err != nil && err != io.EOF {
		h.err = err
	}
	return n, err
}

func (h *hashing) Close() error { return h.source.Close() }

func (h *hashing) sum() string {
	if h.hash == nil {
		return ""
	}
	return hex.EncodeToString(h.hash.Sum(nil))
}
