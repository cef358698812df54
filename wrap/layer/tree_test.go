package layer_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rein-sh/rein/image"
	"github.com/rein-sh/rein/wrap/layer"
)

// small are limits that tests reach.
var small = layer.Limits{Entries: 1000, Bytes: 1 << 20, File: 1 << 19}

// archive is what tar might print.
func archive(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		text := ""
		if h.Typeflag == tar.TypeReg {
			text = h.Linkname
			h.Linkname, h.Size = "", int64(len(text))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func file(name, text string, mode int64) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: text, Mode: mode}
}

func link(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Cleanup(func() { layer.RemoveTree(dir) })
	d, err := layer.Unpack(t.Context(), dir, archive(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o777},
		file("./a/program", "#!/bin/sh\n", 0o6755), file("./a/text", "x", 0o600),
		link("./bin", "a/program"), link("./a/up", "../bin"), link("./dangling", "a/none"),
		link("./absolute", "/etc/passwd"), link("./out", "../../etc/passwd"), link("./a/self", "self"),
		link("./through", "a/dir/../../out"), link("./a/dir", "../.."),
		tar.Header{Typeflag: tar.TypeChar, Name: "./null", Devmajor: 1, Devminor: 3, Mode: 0o666}, tar.Header{Typeflag: tar.TypeFifo, Name: "./pipe", Mode: 0o666},
		tar.Header{Typeflag: tar.TypeLink, Name: "./again", Linkname: "./a/text"}), small)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a/dir", "a/self", "absolute", "out"}; !slices.Equal(slices.Sorted(slices.Values(d.Links)), want) {
		t.Errorf("left out: %q, want %q", d.Links, want)
	}
	if d.Devices != 1 || d.Pipes != 1 || d.Setuid != 1 {
		t.Errorf("%+v", d)
	}
	got := map[string]string{}
	err = filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		info, infoErr := e.Info()
		if err != nil || infoErr != nil {
			return fmt.Errorf("%w, %w", err, infoErr)
		}
		got[strings.TrimPrefix(p, dir)] = info.Mode().String()
		return nil
	})
	want := map[string]string{"": "dr-xr-xr-x", "/a": "dr-xr-xr-x", "/a/program": "-r-xr-xr-x", "/a/text": "-r--r--r--", "/again": "-r--r--r--",
		"/bin": "Lrwxrwxrwx", "/a/up": "Lrwxrwxrwx", "/dangling": "Lrwxrwxrwx", "/through": "Lrwxrwxrwx"} // what the last passed through is gone
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v", got, err)
	}
}

// What no package has is no tree, and nothing outside is touched.
func TestUnpackRefuses(t *testing.T) {
	t.Parallel()
	many := make([]tar.Header, 1001)
	for i := range many {
		many[i] = file(fmt.Sprintf("f%d", i), "", 0o644)
	}
	outside := t.TempDir()
	for name, r := range map[string]io.Reader{
		"upwards":           archive(t, file("../x", "x", 0o644)),
		"through a link":    archive(t, link("l", outside), file("l/../../x", "x", 0o644)),
		"hard link outside": archive(t, tar.Header{Typeflag: tar.TypeLink, Name: "l", Linkname: "../../etc/passwd"}),
		"many entries":      archive(t, many...),
		"a million entries": &endless{make: func(i int) tar.Header { return file(fmt.Sprintf("d%d/f", i), "", 0o644) }},
		"much":              archive(t, file("a", strings.Repeat("x", 1<<19), 0o644), file("b", strings.Repeat("x", 1<<19), 0o644), file("c", "x", 0o644)),
		"a large file":      archive(t, file("a", strings.Repeat("x", 1<<19+1), 0o644)),
		"deep":              archive(t, file(strings.Repeat("d/", 200)+"f", "x", 0o644)),
		"endless padding":   io.MultiReader(archive(t, file("a", "x", 0o644)), zeros{}),
		"no archive":        strings.NewReader(strings.Repeat("not tar\n", 1000)),
		"cut":               io.LimitReader(archive(t, file("a", strings.Repeat("x", 4096), 0o644)), 2000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if _, err := layer.Unpack(t.Context(), dir, r, small); err == nil {
				t.Error("it was taken")
			} else if k := image.KindOf(err); k == image.KindHost {
				t.Errorf("not its own fault: %v", err)
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Errorf("%v, %v", left, err)
			}
			if err := layer.RemoveTree(dir); err != nil {
				t.Error(err)
			}
		})
	}
}

// A file through a link that leads out lands in the tree.
func TestUnpackThroughLink(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	t.Cleanup(func() { layer.RemoveTree(dir) })
	_, err := layer.Unpack(t.Context(), dir, archive(t, link("l", outside), file("l/x", "x", 0o644)), small)
	if left, readErr := os.ReadDir(outside); readErr != nil || len(left) > 0 {
		t.Errorf("%v, %v (%v)", left, readErr, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// endless is an archive without an end.
type endless struct {
	make func(i int) tar.Header
	n    int
	buf  bytes.Buffer
}

func (e *endless) Read(p []byte) (int, error) {
	if e.buf.Len() == 0 {
		h := e.make(e.n)
		h.Linkname = ""
		e.n++
		if err := tar.NewWriter(&e.buf).WriteHeader(&h); err != nil {
			return 0, err
		}
	}
	return e.buf.Read(p)
}

func TestParseLock(t *testing.T) {
	t.Parallel()
	got, err := layer.ParseLock([]byte(`{"lockfileVersion": 3, "packages": {"": {}, "node_modules/b": {"version": "2.0.0+x", "integrity": "sha512-b"},
		"node_modules/@a/a": {"version": "1.0.0-rc.1", "resolved": "https://r.example/a.tgz"}}}`))
	if err != nil || len(got) != 2 || got[0].Path != "node_modules/@a/a" || got[1].Integrity != "sha512-b" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "[]", `{"lockfileVersion": 1}`, `{"lockfileVersion": 3, "packages": {"node_modules/a": {"version": "latest"}}}`,
		`{"lockfileVersion": 3, "packages": {"node_modules/a": {"version": "1.0.0", "integrity": "sha1-x"}}}`,
		`{"lockfileVersion": 3, "packages": {"node_modules/\u001b[2J": {"version": "1.0.0"}}}`} {
		if got, err := layer.ParseLock([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func FuzzParseLock(f *testing.F) {
	f.Add([]byte(`{"lockfileVersion": 3, "packages": {"node_modules/b": {"version": "2.0.0", "integrity": "sha512-b"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := layer.ParseLock(data)
		if err == nil && !slices.IsSortedFunc(got, func(a, b layer.Resolved) int { return strings.Compare(a.Path, b.Path) }) {
			t.Errorf("%+v", got)
		}
	})
}

func FuzzUnpack(f *testing.F) {
	var t testing.T
	for _, h := range []tar.Header{file("a/b", "x", 0o755), link("l", "../x")} {
		b, _ := io.ReadAll(archive(&t, h))
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := filepath.Join(t.TempDir(), "tree")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := layer.Unpack(t.Context(), dir, bytes.NewReader(data), small)
		root, openErr := os.OpenRoot(dir)
		if openErr != nil {
			t.Fatal(openErr)
		}
		defer root.Close()
		if err == nil {
			_ = fs.WalkDir(root.FS(), ".", func(p string, e fs.DirEntry, err error) error {
				if e != nil && e.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0 {
					t.Errorf("%s is %v", p, e.Type())
				}
				return err
			})
		}
		if err := layer.RemoveTree(dir); err != nil {
			t.Error(err)
		}
	})
}

func TestOlder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		have, least string
		older       bool
	}{{"20.20.2", "", false}, {"20.20.2", "20", false}, {"20.20.2", "20.20.3", true}, {"18.1.0", "20", true}, {"22.0.0-rc.1", "20.11", false}, {"", "1", true}, {"20", "20.1", true}} {
		if got := layer.Older(c.have, c.least); got != c.older {
			t.Errorf("%q, %q: %v", c.have, c.least, got)
		}
	}
}
