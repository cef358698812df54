package image_test

import (
	"archive/tar"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/image"
)

// What a layer has, the tree has: names, contents, modes, times, links.
func TestUnpack(t *testing.T) {
	img := unpackedTree(t,
		[]entry{
			dir("./", 0o755), dir("./etc", 0o750), file("./etc/passwd", "root:x:0:0::/root:/bin/sh\n"),
			dir("closed/", 0o555), file("closed/inside", "x"), dir("tmp", 0o1777),
			file("bin/sh", "#!\n").with(func(h *tar.Header) { h.Mode = 0o755 }),
			symlink("bin/bash", "sh"), symlink("sbin", "/bin"), hardlink("bin/dash", "bin/sh"), hardlink("bin/bash2", "bin/bash"),
		},
		[]entry{file("closed/later", "y"), file("sbin/init", "through an absolute link"), file("implied/a/b", "")},
	)
	want := map[string]string{"etc": "dir", "etc/passwd": "root:x:0:0::/root:/bin/sh\n", "closed": "dir", "closed/inside": "x", "closed/later": "y",
		"tmp": "dir", "bin": "dir", "bin/sh": "#!\n", "bin/bash": "-> sh", "sbin": "-> /bin", "bin/dash": "#!\n", "bin/bash2": "-> sh",
		"bin/init": "through an absolute link", "implied": "dir", "implied/a": "dir", "implied/a/b": ""}
	if diff := cmp.Diff(want, listing(t, img.Root)); diff != "" {
		t.Errorf("the tree differs (-want +got):\n%s", diff)
	}
	if img.Entries != len(want) {
		t.Errorf("%d entries, want %d", img.Entries, len(want))
	}
	for name, mode := range map[string]os.FileMode{".": 0o755 | os.ModeDir, "etc": 0o750 | os.ModeDir, "closed": 0o555 | os.ModeDir,
		"tmp": 0o777 | os.ModeSticky | os.ModeDir, "bin/sh": 0o755, "implied/a": 0o755 | os.ModeDir} {
		info, err := os.Lstat(filepath.Join(img.Root, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), mode)
		}
	}
	for _, name := range []string{"etc", "etc/passwd", "closed", "bin/sh", "bin/bash"} {
		info, err := os.Lstat(filepath.Join(img.Root, name))
		if err != nil {
			t.Fatal(err)
		}
		if !info.ModTime().Equal(when) {
			t.Errorf("%s is of %v, want %v", name, info.ModTime(), when)
		}
	}
	a, errA := os.Stat(filepath.Join(img.Root, "bin/sh"))
	b, errB := os.Stat(filepath.Join(img.Root, "bin/dash"))
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		t.Error("the hard link is a file of its own")
	}
}

func TestWhiteouts(t *testing.T) {
	lower := []entry{dir("d", 0o755), file("d/a", "1"), file("d/b", "1"), dir("d/s", 0o755), file("d/s/x", "1"), file("f", "1"), symlink("l", "d")}
	for name, c := range map[string]struct {
		layers [][]entry
		want   map[string]string
	}{
		"a file": {[][]entry{lower, {file(".wh.f", "")}},
			map[string]string{"d": "dir", "d/a": "1", "d/b": "1", "d/s": "dir", "d/s/x": "1", "l": "-> d"}},
		"a directory": {[][]entry{lower, {file(".wh.d", "")}}, map[string]string{"f": "1", "l": "-> d"}},
		"a link, not what it leads to": {[][]entry{lower, {file(".wh.l", "")}},
			map[string]string{"d": "dir", "d/a": "1", "d/b": "1", "d/s": "dir", "d/s/x": "1", "f": "1"}},
		"through a link": {[][]entry{lower, {file("l/.wh.a", "")}},
			map[string]string{"d": "dir", "d/b": "1", "d/s": "dir", "d/s/x": "1", "f": "1", "l": "-> d"}},
		"opaque, before what the layer adds": {[][]entry{lower, {file("d/.wh..wh..opq", ""), file("d/new", "2")}},
			map[string]string{"d": "dir", "d/new": "2", "f": "1", "l": "-> d"}},
		"opaque, after what the layer adds": {[][]entry{lower, {file("d/s/new", "2"), file("d/a", "2"), file("d/.wh..wh..opq", "")}},
			map[string]string{"d": "dir", "d/a": "2", "d/s": "dir", "d/s/new": "2", "f": "1", "l": "-> d"}},
		"opaque root":         {[][]entry{lower, {file("n", "2"), file(".wh..wh..opq", "")}}, map[string]string{"n": "2"}},
		"opaque, two earlier": {[][]entry{{file("d/old", "0")}, lower, {file("d/.wh..wh..opq", "")}}, map[string]string{"d": "dir", "f": "1", "l": "-> d"}},
		"only earlier layers": {[][]entry{lower, {file("d/a", "2"), file("d/.wh.a", "")}},
			map[string]string{"d": "dir", "d/a": "2", "d/b": "1", "d/s": "dir", "d/s/x": "1", "f": "1", "l": "-> d"}},
		"opaque twice, with something between": {[][]entry{lower, {file("d/.wh..wh..opq", ""), file("d/s/new", "2"), file("d/s/.wh..wh..opq", ""), file("d/.wh..wh..opq", "")}},
			map[string]string{"d": "dir", "d/s": "dir", "d/s/new": "2", "f": "1", "l": "-> d"}},
		"opaque inside, then around": {[][]entry{lower, {file("d/s/.wh..wh..opq", ""), file("d/s/y", "2"), file("d/.wh..wh..opq", ""), file(".wh.d", "")}},
			map[string]string{"d": "dir", "d/s": "dir", "d/s/y": "2", "f": "1", "l": "-> d"}},
		"opaque in two layers": {[][]entry{lower, {file("d/.wh..wh..opq", ""), file("d/x", "2")}, {file("d/.wh..wh..opq", ""), file("d/y", "3")}},
			map[string]string{"d": "dir", "d/y": "3", "f": "1", "l": "-> d"}},
		"a directory that is made again": {[][]entry{lower, {file(".wh.d", ""), file("d/new", "2")}},
			map[string]string{"d": "dir", "d/new": "2", "f": "1", "l": "-> d"}},
		"what is not there":     {[][]entry{{file("f", "1")}, {file("no/where/.wh.x", ""), file(".wh.y", "")}}, map[string]string{"f": "1"}},
		"left by drivers":       {[][]entry{{file("f", "1"), file(".wh..wh.plnk", ""), file(".wh..wh.aufs", "")}}, map[string]string{"f": "1"}},
		"a file over directory": {[][]entry{lower, {file("d", "2")}}, map[string]string{"d": "2", "f": "1", "l": "-> d"}},
		"a directory over a link": {[][]entry{lower, {dir("l", 0o755), file("l/x", "2")}},
			map[string]string{"d": "dir", "d/a": "1", "d/b": "1", "d/s": "dir", "d/s/x": "1", "f": "1", "l": "dir", "l/x": "2"}},
		"a file through a name of two": {[][]entry{{file("a", "1"), hardlink("b", "a")}, {file("a", "2")}}, map[string]string{"a": "2", "b": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, listing(t, unpackedTree(t, c.layers...).Root)); diff != "" {
				t.Errorf("the tree differs (-want +got):\n%s", diff)
			}
		})
	}
}

// What must not be in a tree is not, and is counted.
func TestDropped(t *testing.T) {
	suid := func(h *tar.Header) { h.Mode = 0o6755 }
	attributes := func(h *tar.Header) {
		h.Format = tar.FormatPAX
		h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02", "SCHILY.xattr.user.note": "x"}
	}
	img := unpackedTree(t,
		[]entry{file("dev/null", "a lower file"), file("keep", "")},
		[]entry{special(tar.TypeChar, "dev/null"), special(tar.TypeBlock, "dev/sda"), special(tar.TypeFifo, "pipe"), hardlink("dev/zero", "dev/null"),
			file("su", "x").with(suid), dir("sgid", 0o2755), file("ping", "x").with(attributes),
			special(tar.TypeChar, "dev/once"), file("dev/once", "a file after all"), hardlink("dev/twice", "dev/once")},
	)
	want := map[string]string{"dev": "dir", "keep": "", "su": "x", "sgid": "dir", "ping": "x", "dev/once": "a file after all", "dev/twice": "a file after all"}
	if diff := cmp.Diff(want, listing(t, img.Root)); diff != "" {
		t.Errorf("the tree differs (-want +got):\n%s", diff)
	}
	if want := (image.Dropped{Devices: 3, Pipes: 1, Setuid: 2, Attributes: 2}); img.Dropped != want {
		t.Errorf("dropped %+v, want %+v", img.Dropped, want)
	}
	for _, name := range []string{"su", "sgid"} {
		info, err := os.Lstat(filepath.Join(img.Root, name))
		if err != nil || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 || info.Mode().Perm() != 0o755 {
			t.Errorf("%s has mode %v (%v), want 0755 alone", name, info.Mode(), err)
		}
	}
	buf := make([]byte, 1024)
	if n, err := syscall.Listxattr(filepath.Join(img.Root, "ping"), buf); err == nil && n > 0 {
		t.Errorf("ping has the attributes %q", buf[:n])
	}
}

// As root owners are kept; as an ordinary user everything is the user's own,
// and readable for it.
func TestOwners(t *testing.T) {
	owned := func(h *tar.Header) { h.Uid, h.Gid, h.Mode = 1000, 65535, 0 }
	img := unpackedTree(t, []entry{file("f", "x").with(owned), dir("d", 0).with(owned), symlink("l", "f").with(owned), file("d/in", "y")})
	for name, mode := range map[string]os.FileMode{"f": 0o400, "d": 0o500 | os.ModeDir, "l": 0o777 | os.ModeSymlink} {
		info, err := os.Lstat(filepath.Join(img.Root, name))
		if err != nil {
			t.Fatal(err)
		}
		st, uid, gid := info.Sys().(*syscall.Stat_t), uint32(os.Geteuid()), uint32(os.Getegid())
		if os.Geteuid() == 0 {
			uid, gid = 1000, 65535
			if name != "l" {
				mode = mode.Type()
			}
		}
		if st.Uid != uid || st.Gid != gid || info.Mode() != mode {
			t.Errorf("%s is %d:%d with %v, want %d:%d with %v", name, st.Uid, st.Gid, info.Mode(), uid, gid, mode)
		}
	}
	want := image.Dropped{Modes: 2, Owners: 3}
	if os.Geteuid() == 0 {
		want = image.Dropped{}
	}
	if img.Dropped != want {
		t.Errorf("dropped %+v, want %+v", img.Dropped, want)
	}
}
