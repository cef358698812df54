package sandbox

import (
	"context"
	"errors"
	"fmt"
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
	// SHA256, when set, is asked when the upload has ended, and gives the hash,
	// in hexadecimal, of what was read. It is for who computes it while reading
	// anyway; without it UploadAll does.
	SHA256 func() string
}

// UploadAll writes many files with as few requests as the sandbox's execd
// takes, and is recorded as one operation on dir. Each file is written whole or
// not at all; files before a failing one stay. What arrived is compared with
// what was sent.
func (s *Sandbox) UploadAll(ctx context.Context, dir string, files []Source, a Access) error {
	for _, f := range files {
		if err := checkName("upload", f.Path); err != nil {
			return err
		}
	}
	in := FileIntent{Op: "upload", Path: dir, Range: fmt.Sprintf("%d files", len(files))}
	return s.file(ctx, a, in, func(ctx context.Context, out *FileOutcome) error {
		sent := make([]execd.Source, len(files))
		sources := make([]*source, len(files))
		for i, f := range files {
			mode := octal(f.Mode)
			src := &source{} // its hash begins when its turn comes
			sources[i] = src
			sent[i] = execd.Source{
				Metadata: execd.UploadMetadata{Path: s.abs(f.Path), Mode: &mode, Rein: &execd.UploadOptions{Root: s.root(a)}},
				Open:     func() (io.ReadCloser, error) { return src.open(f) },
			}
		}
		list, err := s.client.UploadAll(ctx, sent)
		out.Entries = len(files)
		transfers, readErr := finishAll(sources, files)
		for _, t := range transfers {
			out.Bytes += t.Bytes
		}
		switch {
		case err != nil && readErr != nil:
			return readErr
		case err != nil:
			return err
		case len(list) == 0 && !s.ours():
			return nil
		}
		for i, t := range transfers {
			if i >= len(list) || list[i].SHA256 != t.SHA256 {
				return &Error{Kind: KindInternal, Op: "upload", Subject: files[i].Path, Err: errors.New("it did not arrive as it was sent")}
			}
		}
		return nil
	})
}

// open opens f as the source.
func (r *source) open(f Source) (io.ReadCloser, error) {
	content, err := f.Open()
	if err != nil {
		r.err = err
		return nil, err
	}
	r.start(content, f.SHA256)
	return struct {
		io.Reader
		io.Closer
	}{r, content}, nil
}

// finishAll is what was read of each file, and the first error in reading.
func finishAll(sources []*source, files []Source) ([]Transfer, error) {
	transfers := make([]Transfer, len(sources))
	var first error
	for i, src := range sources {
		var err error
		if transfers[i], err = src.finish(); err != nil && first == nil {
			first = &Error{Kind: KindHost, Op: "upload", Subject: files[i].Path, Err: err}
		}
	}
	return transfers, first
}
