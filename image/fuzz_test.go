package image_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rein-sh/rein/image"
)

// Whatever an archive holds, unpacking it stays in the tree, and the tree holds
// nothing but files, directories and links without special bits.
func FuzzUnpack(f *testing.F) {
	for _, c := range hostile {
		if c.kind == image.KindTooLarge {
			continue
		}
		var first, second []byte
		first = archive(f, c.layers[0]...)
		if len(c.layers) > 1 {
			second = archive(f, c.layers[1]...)
		}
		f.Add(first, second)
	}
	f.Add(sparse(f, 1<<20), []byte("no archive"))
	f.Add(archive(f, special('3', "dev/null"), special('6', "pipe"), hardlink("x", "dev/null")), archive(f, dir("dev", 0), file(".wh.x", "")))
	limits := image.Limits{Unpacked: 1 << 20, Entries: 200, Path: 512, Depth: 16, File: 1 << 20}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		base := t.TempDir()
		root := filepath.Join(base, "root")
		if err := os.Mkdir(root, 0o700); err != nil {
			t.Fatal(err)
		}
		canary := filepath.Join(base, "@outside")
		if err := os.WriteFile(canary, []byte("alive"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := image.Unpack(t.Context(), root, limits, io.LimitReader(bytes.NewReader(first), 1<<20), io.LimitReader(bytes.NewReader(second), 1<<20))
		if err == nil {
			harmless(t, root)
		}
		if err := image.RemoveTree(root); err != nil {
			t.Error(err)
		}
		left, err := os.ReadDir(base)
		if err != nil || len(left) != 1 {
			t.Errorf("beside the tree: %v (%v)", left, err)
		}
		if b, err := os.ReadFile(canary); err != nil || string(b) != "alive" {
			t.Errorf("the file outside is %q (%v)", b, err)
		}
	})
}

func harmless(t *testing.T, root string) {
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			if os.Geteuid() != 0 && os.IsPermission(err) { // a directory without a way in
				t.Errorf("%s is not readable for its owner", path)
			}
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if special := info.Mode() & (os.ModeDevice | os.ModeNamedPipe | os.ModeSocket | os.ModeSetuid | os.ModeSetgid); special != 0 {
			t.Errorf("%s is %v", path, info.Mode())
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid > 65535 && st.Uid != uint32(os.Geteuid()) {
			t.Errorf("%s belongs to %d", path, st.Uid)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// What reads as a reference is written out so that it reads as the same, and
// allows itself as a pattern.
func FuzzReference(f *testing.F) {
	for _, seed := range []string{"debian", "debian:12", "ghcr.io/org/app:1@" + someDigest, "localhost:5000/a/b", "[::1]:5000/a", "oci:/a/b:c", "oci:/a@" + someDigest,
		"docker-archive:/a.tar:b:c", "docker://x", "*", "ghcr.io/*/x", "oci:/*", "a/../b", "A.B/c", "docker.io/*:1", "index.docker.io/x", "@", ":", "oci:/@:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := image.ParsePattern(s); err == nil {
			again, err := image.ParsePattern(p.String())
			if err != nil || again.String() != p.String() {
				t.Errorf("pattern %q is written as %q, which reads as %q (%v)", s, p, again, err)
			}
		}
		r, err := image.ParseReference(s)
		if err != nil {
			return
		}
		again, err := image.ParseReference(r.String())
		if err != nil || again != r {
			t.Errorf("%q is written as %q, which reads as %q (%v)", s, r, again, err)
		}
		if strings.ContainsAny(r.String(), "\x00\n\x1b ") {
			t.Errorf("%q is written as %q", s, r)
		}
	})
}

// Whatever a user database holds, a number that is found is one that is mapped.
func FuzzResolveUser(f *testing.F) {
	f.Add("app:staff", []byte(passwd), []byte(group))
	f.Add("4711", []byte("::::::\n"), []byte(":::\n"))
	f.Add("a", []byte("a:x:1:2::/:/bin/sh"), []byte("g:x:3:a\ng:x:3:a,a\n"))
	f.Fuzz(func(t *testing.T, spec string, passwd, group []byte) {
		root := tree(t, map[string]string{"etc/none": ""})
		for name, b := range map[string][]byte{"passwd": passwd, "group": group} {
			if err := os.WriteFile(filepath.Join(root, "etc", name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		u, err := image.Config{User: spec}.ResolveUser(root)
		if err == nil && (u.UID > 65535 || u.GID > 65535 || !filepath.IsAbs(u.Home) || len(u.Groups) > 1024) {
			t.Errorf("%q is %+v", spec, u)
		}
	})
}

func FuzzManifest(f *testing.F) {
	m := newImage(f)
	good := m.manifest()
	f.Add(ociManifest, m.blobs[good["digest"].(string)])
	index := m.index(good)
	f.Add(ociIndex, m.blobs[index["digest"].(string)])
	f.Add("", []byte(`{"manifests":[],"layers":[]}`))
	f.Add(ociManifest, []byte(`{"schemaVersion":1}`))
	f.Fuzz(func(t *testing.T, mediaType string, raw []byte) {
		if err := image.ParseDocument(mediaType, raw); err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}
