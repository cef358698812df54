package image_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/image"
)

// hostile are layers that would write, or read, outside the tree, or do harm
// in another way. Each is refused as a whole, or resolved inside.
var hostile = []struct {
	name   string
	layers [][]entry
	kind   image.Kind // "" is unpacked, to:
	want   map[string]string
	says   string
}{
	{"upwards", [][]entry{{file("../escaped", "x")}}, image.KindRefused, nil, "leads upwards"},
	{"upwards within", [][]entry{{dir("a", 0o755), file("a/../../escaped", "x")}}, image.KindRefused, nil, "leads upwards"},
	{"upwards as a directory", [][]entry{{dir("..", 0o777)}}, image.KindRefused, nil, "leads upwards"},
	{"an absolute name", [][]entry{{file("/escaped", "x")}}, "", map[string]string{"escaped": "x"}, ""},
	{"through an absolute link", [][]entry{{symlink("out", "@outside"), file("out/escaped", "x")}}, "",
		map[string]string{"out": "-> @outside", "@outside/escaped": "x"}, ""},
	{"through a relative link", [][]entry{{symlink("out", "../../../../../../../.."), file("out/escaped", "x")}}, "",
		map[string]string{"out": "-> ../../../../../../../..", "escaped": "x"}, ""},
	{"through a link of another layer", [][]entry{{symlink("out", "@outside")}, {file("out/escaped", "x")}}, "",
		map[string]string{"out": "-> @outside", "@outside/escaped": "x"}, ""},
	{"through a chain of links", [][]entry{{symlink("a", "b"), symlink("b", "c"), symlink("c", "/.."), symlink("d", "a@outside"), file("d/escaped", "x")}}, "",
		map[string]string{"a": "-> b", "b": "-> c", "c": "-> /..", "d": "-> a@outside", "@outside/escaped": "x"}, ""},
	{"a loop of links", [][]entry{{symlink("a", "b"), symlink("b", "a"), file("a/x", "x")}}, image.KindRefused, nil, "more than 40 links"},
	{"a link that grows", [][]entry{{symlink("a", "a/a"), file("a/x", "x")}}, image.KindRefused, nil, "more than 40 links"},
	{"links that multiply", [][]entry{{symlink("a", strings.Repeat("./../", 300)), symlink("b", "a/a/a/a/a/a/a/a"), file("b/x", "x")}}, image.KindRefused, nil, "more than 1024 steps"},
	{"a file as a directory", [][]entry{{file("a", "x"), file("a/b", "x")}}, image.KindRefused, nil, "is no directory"},
	{"over a link, not through it", [][]entry{{symlink("f", "@outside/canary")}, {file("f", "x")}}, "", map[string]string{"f": "x"}, ""},
	{"a hard link upwards", [][]entry{{hardlink("h", "../../../../../../@outside/canary")}}, image.KindRefused, nil, "leads upwards"},
	{"a hard link to what is outside", [][]entry{{hardlink("h", "@outside/canary")}}, image.KindCorrupt, nil, "does not exist"},
	{"a hard link through a link", [][]entry{{symlink("l", "@outside"), hardlink("h", "l/canary")}}, image.KindCorrupt, nil, "does not exist"},
	{"a hard link to a link, then written", [][]entry{{symlink("l", "@outside/canary"), hardlink("h", "l"), file("h", "x")}}, "",
		map[string]string{"l": "-> @outside/canary", "h": "x"}, ""},
	{"a hard link to a directory", [][]entry{{dir("d", 0o755), hardlink("h", "d")}}, image.KindRefused, nil, "hard link to a directory"},
	{"a hard link to itself", [][]entry{{file("f", "x"), hardlink("f", "f")}}, image.KindRefused, nil, "to itself"},
	{"a hard link to the root", [][]entry{{hardlink("h", "/")}}, image.KindRefused, nil, "a hard link to"},
	{"a hard link over what it is in", [][]entry{{file("d/f", "x"), hardlink("d", "d/f")}}, image.KindHost, nil, "no such file"},
	{"a root that is a link", [][]entry{{symlink("./", "@outside")}}, image.KindRefused, nil, "the root is no directory"},
	{"a root that is a file", [][]entry{{file(".", "x")}}, image.KindRefused, nil, "the root is no directory"},
	{"a whiteout of the parent", [][]entry{{file("d/f", "x")}, {file("d/.wh...", "")}}, image.KindRefused, nil, "whiteout"},
	{"a whiteout of itself", [][]entry{{file("d/f", "x")}, {file("d/.wh..", "")}}, image.KindRefused, nil, "whiteout"},
	{"a whiteout of nothing", [][]entry{{file("d/.wh.", "")}}, image.KindRefused, nil, "whiteout"},
	{"a whiteout outside", [][]entry{{symlink("l", "@outside")}, {file("l/.wh.canary", ""), file("l/.wh..wh..opq", "")}}, "",
		map[string]string{"l": "-> @outside"}, ""},
	{"a file in a whiteout", [][]entry{{file(".wh.x/f", "")}}, image.KindRefused, nil, "in a whiteout"},
	{"an opaque root, then a file through an old link", [][]entry{{symlink("l", "@outside")}, {file(".wh..wh..opq", ""), file("l/escaped", "x")}}, "",
		map[string]string{"l": "dir", "l/escaped": "x"}, ""},
	{"a long path", [][]entry{{file(strings.Repeat("a/", 30)+strings.Repeat("b", 2000), "")}}, image.KindTooLarge, nil, "2060 bytes, more than 2048"},
	{"a deep path", [][]entry{{file(strings.Repeat("a/", 129)+"f", "")}}, image.KindTooLarge, nil, "130 deep"},
	{"deep by links", [][]entry{{dir(strings.Repeat("a/", 100), 0o755), symlink("l", strings.Repeat("a/", 100)), file("l/"+strings.Repeat("b/", 100)+"f", "")}},
		image.KindTooLarge, nil, "more than 128 deep"},
	{"a long target", [][]entry{{symlink("l", strings.Repeat("x", 2049))}}, image.KindTooLarge, nil, "target of 2049 bytes"},
	{"a long name", [][]entry{{file(strings.Repeat("n", 300), "")}}, image.KindHost, nil, "file name too long"},
	{"an unknown kind", [][]entry{{{tar.Header{Typeflag: '7', Name: "x"}, ""}}}, image.KindUnsupported, nil, "unknown kind"},
}

// place puts the outside of a test where its layers say @outside.
func place(layers [][]entry, outside string) [][]entry {
	out := make([][]entry, len(layers))
	for i, l := range layers {
		for _, e := range l {
			e.Linkname = strings.ReplaceAll(e.Linkname, "@outside", outside)
			out[i] = append(out[i], e)
		}
	}
	return out
}

// parents adds the directories above what is in want.
func parents(want map[string]string) map[string]string {
	out := map[string]string{}
	for name, what := range want {
		out[name] = what
		for d := filepath.Dir(name); d != "."; d = filepath.Dir(d) {
			out[d] = "dir"
		}
	}
	return out
}

func TestHostile(t *testing.T) {
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			outside := t.TempDir()
			if err := os.WriteFile(filepath.Join(outside, "canary"), []byte("alive"), 0o600); err != nil {
				t.Fatal(err)
			}
			m := made(t, place(c.layers, outside)...)
			s, dir := storeIn(t, image.Options{Allow: anyLayout})
			img, err := s.Get(t.Context(), "oci:"+m.layout(m.manifest()))
			if c.kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				defer img.Close()
				want := map[string]string{}
				for name, what := range c.want {
					want[strings.TrimPrefix(strings.ReplaceAll(name, "@outside", outside), "/")] = strings.ReplaceAll(what, "@outside", outside)
				}
				if diff := cmp.Diff(parents(clean(want)), listing(t, img.Root)); diff != "" {
					t.Errorf("the tree differs (-want +got):\n%s", diff)
				}
			} else {
				if image.KindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.says) {
					t.Errorf("got %v (%s), want %s with %q", err, image.KindOf(err), c.kind, c.says)
				}
				leftNothing(t, dir)
			}
			if diff := cmp.Diff(map[string]string{"canary": "alive"}, listing(t, outside)); diff != "" {
				t.Errorf("something changed outside (-want +got):\n%s", diff)
			}
		})
	}
}

// clean gives names of files the form they have in a listing.
func clean(m map[string]string) map[string]string {
	out := map[string]string{}
	for name, what := range m {
		out[filepath.Clean(name)] = what
	}
	return out
}

func storeIn(t testing.TB, o image.Options) (*image.Store, string) {
	t.Helper()
	o.Dir = cache(t)
	return open(t, o), o.Dir
}

// bomb is an archive with one file of a GiB of zeros, packed in pieces, as both
// gzip and zstd allow.
func bomb(t testing.TB, pack func([]byte) []byte) []byte {
	t.Helper()
	const size, piece = 1 << 30, 16 << 20
	a := archive(t, file("zeros", "")) // of 512 bytes, and the end
	copy(a[124:136], fmt.Sprintf("%011o\x00", size))
	fix(a)
	b := pack(a[:512])
	zeros := pack(make([]byte, piece))
	for range size / piece {
		b = append(b, zeros...)
	}
	return append(b, pack(a[512:])...)
}

// A little that unpacks to a lot stops at the limit and leaves nothing.
func TestBombs(t *testing.T) {
	for _, c := range []struct {
		name   string
		make   func(t *testing.T, m *maker)
		limits image.Limits
		says   string
	}{
		{"gzip", func(t *testing.T, m *maker) {
			b := bomb(t, gzipped)
			if len(b) > 2<<20 {
				t.Fatalf("the bomb has %d bytes", len(b))
			}
			m.layer(layerGzip, nil, b)
		}, image.Limits{Unpacked: 10 << 20}, "more than 10485760 bytes"},
		{"zstd by ratio", func(t *testing.T, m *maker) {
			m.layer(layerZstd, nil, bomb(t, func(b []byte) []byte { return zstded(t, b) }))
		}, image.Limits{}, "more than 250 times their size"},
		{"what follows the archive", func(t *testing.T, m *maker) {
			a := append(archive(t, file("f", "x")), make([]byte, 4<<20)...)
			m.layer(layerGzip, a, gzipped(a))
		}, image.Limits{Unpacked: 1 << 20}, "more than 1048576 bytes"},
		{"a header with content", func(t *testing.T, m *maker) {
			a := archive(t, file("f", strings.Repeat("x", 2<<20)))
			a[156] = 'g' // a header of the whole archive: its content is skipped
			fix(a)
			m.layer(layerGzip, a, gzipped(a))
		}, image.Limits{Unpacked: 1 << 20}, "more than 1048576 bytes"},
		{"sparse", func(t *testing.T, m *maker) {
			a := sparse(t, 1<<40)
			m.layer(layerPlain, a, a)
		}, image.Limits{}, "a file of 1099511627776 bytes"},
		{"sparse, together", func(t *testing.T, m *maker) {
			a := sparse(t, 3<<20)
			m.layer(layerPlain, a, a)
			m.layer(layerPlain, a, a)
		}, image.Limits{Unpacked: 4 << 20}, "its files have more than 4194304 bytes"},
		{"sparse by ratio", func(t *testing.T, m *maker) {
			a := sparse(t, 1<<30)
			m.layer(layerPlain, a, a)
		}, image.Limits{}, "more than 250 times their size"},
		{"sparse by ratio, in many layers", func(t *testing.T, m *maker) {
			a := sparse(t, 100<<20)
			for range 3 {
				m.layer(layerPlain, a, a)
			}
		}, image.Limits{}, "layer 3 "},
		{"entries", func(t *testing.T, m *maker) {
			var l []entry
			for i := range 101 {
				l = append(l, file(fmt.Sprint("f", i), ""))
			}
			a := archive(t, l...)
			m.layer(layerGzip, a, gzipped(a))
		}, image.Limits{Entries: 100}, "more than 100 entries"},
		{"directories nobody describes", func(t *testing.T, m *maker) {
			var l []entry
			for i := range 3 {
				l = append(l, file(fmt.Sprint(i, strings.Repeat("/d", 60), "/f"), ""))
			}
			a := archive(t, l...)
			m.layer(layerGzip, a, gzipped(a))
		}, image.Limits{Entries: 100}, "more than 100 entries"},
		{"layers", func(t *testing.T, m *maker) {
			a := archive(t)
			for range 5 {
				m.layer(layerPlain, a, a)
			}
		}, image.Limits{Layers: 4}, "more than 4 layers"},
		{"compressed", func(t *testing.T, m *maker) {
			a := archive(t, file("f", strings.Repeat("x", 4000)))
			m.layer(layerPlain, a, a)
		}, image.Limits{Compressed: 3000}, "more than 3000 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newImage(t)
			c.make(t, m)
			s, dir := storeIn(t, image.Options{Allow: anyLayout, Limits: c.limits})
			img, err := s.Get(t.Context(), "oci:"+m.layout(m.manifest()))
			if image.KindOf(err) != image.KindTooLarge {
				t.Errorf("got %v, want %s", err, image.KindTooLarge)
			}
			if err == nil {
				t.Fatal("unpacked", errors.Join(img.Close()))
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			leftNothing(t, dir)
		})
	}
}

// The content of a layer must be what the manifest and the configuration say.
func TestCorrupt(t *testing.T) {
	plain := archive(t, file("f", "x"))
	other := archive(t, file("f", "y"))
	for _, c := range []struct {
		name string
		make func(m *maker)
		kind image.Kind
		says string
	}{
		{"another blob", func(m *maker) {
			d := m.layer(layerPlain, plain, plain)
			m.blobs[d["digest"].(string)] = other
		}, image.KindCorrupt, "its digest is"},
		{"another archive", func(m *maker) { m.layer(layerGzip, other, gzipped(plain)) }, image.KindCorrupt, "the digest of what is in it is"},
		{"longer", func(m *maker) {
			d := m.layer(layerPlain, plain, plain)
			d["size"] = len(plain) - 1
		}, image.KindCorrupt, "larger than"},
		{"shorter", func(m *maker) {
			d := m.layer(layerPlain, plain, plain)
			d["size"] = len(plain) + 1
		}, image.KindCorrupt, "it ends after"},
		{"a negative size", func(m *maker) {
			d := m.layer(layerPlain, plain, plain)
			d["size"] = -1
		}, image.KindCorrupt, "-1 bytes"},
		{"no gzip", func(m *maker) { m.layer(layerGzip, plain, plain) }, image.KindCorrupt, "no valid gzip"},
		{"no zstd", func(m *maker) { m.layer(layerZstd, plain, plain) }, image.KindCorrupt, "no valid zstd"},
		{"a cut gzip", func(m *maker) { z := gzipped(plain); m.layer(layerGzip, plain, z[:len(z)-9]) }, image.KindCorrupt, "no valid gzip"},
		{"no tar", func(m *maker) { m.layer(layerPlain, []byte("hello"), []byte("hello")) }, image.KindCorrupt, "no valid tar"},
		{"a cut tar", func(m *maker) { m.layer(layerPlain, plain[:512], plain[:512]) }, image.KindCorrupt, "no valid tar"},
		{"too few layers", func(m *maker) { m.layer(layerPlain, plain, plain); m.diffs = nil }, image.KindCorrupt, "names 0 layers, the manifest 1"},
		{"a layer elsewhere", func(m *maker) {
			m.layer("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", plain, gzipped(plain))
		}, image.KindUnsupported, "elsewhere"},
		{"a layer of Windows", func(m *maker) {
			m.layer("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", plain, gzipped(plain))
		}, image.KindUnsupported, "elsewhere"},
		{"a layer with addresses", func(m *maker) {
			m.layer(layerGzip, plain, gzipped(plain))["urls"] = []string{"http://169.254.169.254/"}
		}, image.KindUnsupported, "elsewhere"},
		{"an unknown kind", func(m *maker) { m.layer("application/x-squashfs", plain, plain) }, image.KindUnsupported, "is not known"},
		{"an unknown digest", func(m *maker) { m.layer(layerPlain, plain, plain)["digest"] = "md5:00" }, image.KindUnsupported, "no sha256"},
		{"another machine", func(m *maker) { m.arch = "sparc" }, image.KindNotFound, "for linux/sparc"},
		{"a zero byte", func(m *maker) { m.config["Env"] = []string{"A=b\x00c"} }, image.KindCorrupt, "zero byte"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newImage(t)
			c.make(m)
			s, dir := storeIn(t, image.Options{Allow: anyLayout})
			_, err := s.Get(t.Context(), "oci:"+m.layout(m.manifest()))
			if image.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v (%s), want %s with %q", err, image.KindOf(err), c.kind, c.says)
			}
			leftNothing(t, dir)
		})
	}
}

// As root an owner beyond what a user namespace maps is refused.
func TestUnmappedOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root keeps owners")
	}
	for _, id := range []int{65536, 1 << 30, -1} {
		m := made(t, []entry{file("f", "x").with(func(h *tar.Header) { h.Uid, h.Format = id, tar.FormatGNU })})
		s, dir := storeIn(t, image.Options{Allow: anyLayout})
		_, err := s.Get(t.Context(), "oci:"+m.layout(m.manifest()))
		if image.KindOf(err) != image.KindRefused {
			t.Errorf("owner %d: %v, want it refused", id, err)
		}
		leftNothing(t, dir)
	}
}

// Whiteouts take time with what is in the tree, not with how often they say it: at
// one look at each file for each of them, this layer would take half an hour.
func TestManyWhiteouts(t *testing.T) {
	const files, whiteouts = 10_000, 10_000
	var l []entry
	for i := range files {
		l = append(l, file(fmt.Sprint("d/e/f", i), ""))
	}
	for i := range whiteouts {
		l = append(l, file([]string{"d/.wh..wh..opq", "d/e/.wh..wh..opq", ".wh.d", ".wh..wh..opq"}[i%4], ""))
	}
	m := made(t, []entry{file("d/e/earlier", "")}, l)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, _ := storeIn(t, image.Options{Allow: anyLayout})
	img, err := s.Get(ctx, "oci:"+m.layout(m.manifest()))
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	if img.Entries != files+2 {
		t.Errorf("%d entries, want the %d files of the layer and their directories", img.Entries, files)
	}
}

// Links multiply what finding a directory takes: that is bounded for the image,
// not only for each of its entries. Each of these takes 800 and the reading of as
// many names.
func TestLinkChains(t *testing.T) {
	const chain, deep = 20, 20
	down := strings.Repeat("d/", deep)
	l := []entry{dir(down+"a", 0o755), dir(down+"b", 0o755), symlink("l0", down)}
	for i := range chain - 1 {
		l = append(l, symlink(fmt.Sprint("l", i+1), fmt.Sprint(down, strings.Repeat("../", deep), "l", i)))
	}
	for i := range 200 {
		l = append(l, file(fmt.Sprintf("l%d/%c/f%d", chain-1, 'a'+i%2, i), ""))
	}
	m := made(t, l)
	s, dir := storeIn(t, image.Options{Allow: anyLayout, Limits: image.Limits{Steps: 100_000}})
	_, err := s.Get(t.Context(), "oci:"+m.layout(m.manifest()))
	if image.KindOf(err) != image.KindTooLarge || !strings.Contains(err.Error(), "more than 100000 steps") {
		t.Errorf("got %v, want it refused for its steps", err)
	}
	leftNothing(t, dir)
}

// A whiteout of much stops when its context ends.
func TestWhiteoutCancelled(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if err := image.Opaque(ctx, dir); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	if _, err := os.Lstat(filepath.Join(dir, "f")); err != nil {
		t.Error(err)
	}
}

// A context that ends stops unpacking.
func TestCancelled(t *testing.T) {
	m := made(t, []entry{file("f", "x")})
	s, dir := storeIn(t, image.Options{Allow: anyLayout})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ctx, "oci:"+m.layout(m.manifest())); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	leftNothing(t, dir)
}
