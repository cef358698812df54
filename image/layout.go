package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"
)

// refName is the annotation by which an index of a layout names its entries.
const refName = "org.opencontainers.image.ref.name"

// layout is an image in an OCI layout, a directory of this host. It is read
// here and not by a library because nothing in it may be a FIFO, lead out of
// the directory or be larger than it says.
type layout struct {
	s   *Store
	ref Reference
	dir *os.Root
}

func (s *Store) openLayout(r Reference) (source, error) {
	root, err := os.OpenRoot(r.place)
	if err != nil {
		return nil, notThere(err)
	}
	return &layout{s, r, root}, nil
}

func notThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &fault{kind: KindNotFound, err: err}
	}
	return err
}

func (l *layout) close() { l.dir.Close() }

func (l *layout) remote() bool { return false }

func (l *layout) plan(ctx context.Context) (*plan, error) { return l.s.find(ctx, l) }

func (l *layout) head(ctx context.Context) (string, error) {
	d, err := l.root(ctx)
	return d.digest, err
}

// root reads the index and picks what the reference names.
func (l *layout) root(ctx context.Context) (document, error) {
	f, err := openRegular(l.dir, "index.json")
	if err != nil {
		return document{}, &fault{kind: KindNotFound, err: fmt.Errorf("it is no OCI layout: %w", err)}
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, l.s.o.Limits.Manifest+1))
	if err != nil {
		return document{}, err
	}
	if int64(len(raw)) > l.s.o.Limits.Manifest {
		return document{}, tooLarge("an index of more than %d bytes", l.s.o.Limits.Manifest)
	}
	index := document{mediaType: string(types.OCIImageIndex), digest: digestOf(raw), raw: raw}
	p, err := parseDocument(index, l.s.o.Limits)
	if err != nil {
		return document{}, err
	}
	d, err := l.pick(p.Manifests)
	if err != nil {
		return document{}, err
	}
	return l.document(ctx, d)
}

func (l *layout) pick(entries []descriptor) (descriptor, error) {
	var names []string
	for _, d := range entries {
		tag := d.Annotations[refName]
		switch {
		case l.ref.digest != "" && d.Digest == l.ref.digest, l.ref.tag != "" && tag == l.ref.tag:
			return d, nil
		case tag != "":
			names = append(names, tag)
		}
	}
	switch {
	case l.ref.digest != "" || l.ref.tag != "":
		return descriptor{}, &fault{kind: KindNotFound, hint: "name one that it has", err: fmt.Errorf("the layout names no such image, only %.300s", orNone(names))}
	case len(entries) == 0:
		return descriptor{}, &fault{kind: KindNotFound, err: errors.New("the layout is empty")}
	case len(entries) > 1:
		return descriptor{}, bad("add :NAME or @DIGEST", "the layout has %d images: %.300s", len(entries), orNone(names))
	}
	return entries[0], nil
}

func (l *layout) document(ctx context.Context, d descriptor) (document, error) {
	if err := l.s.bounded(d, "manifest"); err != nil {
		return document{}, err
	}
	raw, err := l.s.readBlob(ctx, l, d)
	return document{mediaType: d.MediaType, digest: d.Digest, raw: raw}, err
}

// blob opens a file of the layout; the digest has been checked to be one.
func (l *layout) blob(_ context.Context, d descriptor) (io.ReadCloser, error) {
	f, err := openRegular(l.dir, "blobs/"+strings.Replace(d.Digest, ":", "/", 1))
	if err != nil {
		return nil, corrupt("blob %s is not in the layout: %w", d.Digest, err)
	}
	return f, nil
}

// openRegular opens a file that is one: nothing that waits for a writer, and no
// device.
func openRegular(dir *os.Root, name string) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return regular(f)
}

// regular closes what is no regular file.
func regular(f *os.File) (*os.File, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", f.Name())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
