package layer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rein-sh/rein/image"
)

// Entry is one name of a tree.
type Entry struct {
	Path   string `json:"path"`
	Mode   string `json:"mode"` // as fs.FileMode writes it
	Size   int64  `json:"size,omitempty"`
	MTime  int64  `json:"mtime,omitempty"` // nanoseconds; of files
	Link   string `json:"link,omitempty"`  // target
	SHA256 string `json:"sha256,omitempty"`
}

// unpack writes an archive into dir, which is empty, and makes of it a tree that can
// be shown: everything is the caller's own, readable for all and writable for nobody.
func unpack(ctx context.Context, dir string, r io.Reader, l Limits) (Dropped, error) {
	bounded := &bound{r: r, left: l.Bytes + int64(l.Entries)*2048} // a header and padding each
	out, err := image.Extract(ctx, dir, bounded, image.Limits{Unpacked: l.Bytes, Entries: l.Entries, File: l.File, Steps: l.Entries * 64})
	if err == nil {
		_, err = io.Copy(io.Discard, bounded) // what pads an archive
	}
	if err != nil {
		return Dropped{}, err
	}
	d := Dropped{Dropped: out.Dropped}
	d.Owners, d.Modes = 0, 0 // nothing keeps them
	root, err := os.OpenRoot(dir)
	if err != nil {
		return d, err
	}
	defer root.Close()
	if err := dropLinks(root, &d); err != nil {
		return d, err
	}
	return d, settle(root)
}

// errTooLong ends an archive that is longer than a tree can be.
var errTooLong = errors.New("the archive is longer than a tree can be")

type bound struct {
	r    io.Reader
	left int64
}

func (b *bound) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLong
	}
	return n, err
}

// mostLinks is how many links are named that were left out.
const mostLinks = 100

// dropLinks removes the links that lead out of the tree, whatever they pass through
// on the way: inside, they would lead into what the sandbox has there.
func dropLinks(root *os.Root, d *Dropped) error {
	return fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Type()&fs.ModeSymlink == 0 {
			return err
		}
		if _, err := root.Stat(path); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if len(d.Links) < mostLinks {
			d.Links = append(d.Links, path)
		}
		return root.Remove(path)
	})
}

// settle gives everything its owner and its mode.
func settle(root *os.Root) error {
	return fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if os.Geteuid() == 0 {
			if err := root.Lchown(path, 0, 0); err != nil {
				return err
			}
		}
		if e.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o444)
		if info.IsDir() || info.Mode()&0o111 != 0 {
			mode = 0o555
		}
		return root.Chmod(path, mode)
	})
}

// scan lists a tree, its root left out, sorted by path, with hashes of contents if
// they are asked for.
func scan(ctx context.Context, dir string, contents bool) ([]Entry, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var out []Entry
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil || path == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := Entry{Path: path, Mode: info.Mode().String()}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			e.Link, err = root.Readlink(path)
		case info.Mode().IsRegular():
			e.Size, e.MTime = info.Size(), info.ModTime().UnixNano()
			if contents {
				e.SHA256, err = sum(ctx, root, path)
			}
		}
		out = append(out, e)
		return err
	})
	return out, err
}

func sum(ctx context.Context, root *os.Root, path string) (string, error) {
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	f, err := root.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// digestOf is one hash of paths, modes, targets of links and contents.
func digestOf(entries []Entry) string {
	h := sha256.New()
	for _, e := range entries {
		fmt.Fprintf(h, "%q %s %d %q %s\n", e.Path, e.Mode, e.Size, e.Link, e.SHA256)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// difference names the first entry that is not as it was; empty for none. Without
// contents their hashes are not compared.
func difference(was, is []Entry, contents bool) string {
	for i, e := range was {
		switch {
		case i == len(is) || is[i].Path > e.Path:
			return e.Path + " is missing"
		case is[i].Path < e.Path:
			return is[i].Path + " is new"
		}
		got := is[i]
		if !contents {
			got.SHA256 = e.SHA256
		}
		if got != e {
			return e.Path + " is another"
		}
	}
	if len(is) > len(was) {
		return is[len(was)].Path + " is new"
	}
	return ""
}

// removeTree removes a directory, also one whose directories nobody may write to.
func removeTree(dir string) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() { // it is read after this, and no link is followed
			return root.Chmod(path, 0o700)
		}
		return err
	})
	return errors.Join(err, root.Close(), os.RemoveAll(filepath.Clean(dir)))
}
