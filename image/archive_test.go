package image_test

import (
	"archive/tar"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/rein-sh/rein/image"
)

// What others write is read: an OCI layout and a docker-archive of
// go-containerregistry.
func TestOthers(t *testing.T) {
	img, err := random.Image(2000, 3)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img})
	if _, err := layout.Write(dir, index); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("ghcr.io/org/app:1")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "app.tar")
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		t.Fatal(err)
	}
	digest, errDigest := img.Digest()
	id, errID := img.ConfigName()
	if errDigest != nil || errID != nil {
		t.Fatal(errDigest, errID)
	}
	s := open(t, image.Options{Allow: []string{"oci:/*", "docker-archive:/*"}})
	for ref, want := range map[string]string{"oci:" + dir: digest.String(), "oci:" + dir + "@" + digest.String(): digest.String(),
		"docker-archive:" + file: id.String(), "docker-archive:" + file + ":ghcr.io/org/app:1": id.String()} {
		got := get(t, s, ref)
		if got.Digest != want || got.Entries != 3 || got.Size != 6000 {
			t.Errorf("%s: %s with %d entries of %d bytes, want %s with 3 of 6000", ref, got.Digest, got.Entries, got.Size, want)
		}
	}
	if _, err := s.Get(t.Context(), "docker-archive:"+file+":ghcr.io/org/app:2"); image.KindOf(err) != image.KindNotFound || !strings.Contains(err.Error(), "app:1") {
		t.Errorf("another tag: %v, want it not found and what there is", err)
	}
}

// saved writes a docker-archive of some layers and returns its path. Changes
// are made to what is in it.
func saved(t testing.TB, change func(files *[]entry, manifest map[string]any), layers ...[]byte) string {
	t.Helper()
	m := newImage(t)
	diffs := []string{}
	names := []string{}
	files := []entry{}
	for i, l := range layers {
		diffs = append(diffs, digestOf(l))
		names = append(names, string(rune('a'+i))+"/layer.tar")
		files = append(files, file(names[i], string(l)))
	}
	config, err := json.Marshal(map[string]any{"os": "linux", "architecture": m.arch, "rootfs": map[string]any{"diff_ids": diffs}})
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, file("config.json", string(config)))
	entry := map[string]any{"Config": "config.json", "RepoTags": []string{"app:1"}, "Layers": names}
	if change != nil {
		change(&files, entry)
	}
	list, err := json.Marshal([]any{entry})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "saved.tar")
	if err := os.WriteFile(path, archive(t, append(files, file("manifest.json", string(list)))...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestArchive(t *testing.T) {
	layer := archive(t, file("f", "x"))
	for _, c := range []struct {
		name   string
		change func(*[]entry, map[string]any)
		kind   image.Kind
		says   string
	}{
		{"good", nil, "", ""},
		{"gzipped layer", func(f *[]entry, _ map[string]any) { (*f)[0] = file("a/layer.tar", string(gzipped(layer))) }, "", ""},
		{"a link to a layer", func(f *[]entry, _ map[string]any) {
			*f = append(*f, file("real/layer.tar", (*f)[0].body))
			(*f)[0] = symlink("a/layer.tar", "../real/layer.tar")
		}, "", ""},
		{"another layer", func(f *[]entry, _ map[string]any) { (*f)[0] = file("a/layer.tar", string(archive(t, file("f", "y")))) }, image.KindCorrupt, "digest"},
		{"a link outside", func(f *[]entry, _ map[string]any) { (*f)[0] = symlink("a/layer.tar", "/etc/passwd") }, image.KindCorrupt, "not in the archive"},
		{"a loop of links", func(f *[]entry, _ map[string]any) { (*f)[0] = symlink("a/layer.tar", "layer.tar") }, image.KindCorrupt, "not in the archive"},
		{"a missing configuration", func(_ *[]entry, m map[string]any) { m["Config"] = "../../etc/passwd" }, image.KindCorrupt, "not in the archive"},
		{"more layers than digests", func(_ *[]entry, m map[string]any) { m["Layers"] = []string{"a/layer.tar", "a/layer.tar"} }, image.KindCorrupt, "names 1 layers, the archive 2"},
		{"a large configuration", func(f *[]entry, _ map[string]any) {
			*f = append(*f, file("config.json", strings.Repeat(" ", 5<<20)))
		}, image.KindTooLarge, "5242880 bytes"},
		{"a large manifest that is none", func(f *[]entry, m map[string]any) { m["RepoTags"] = 7 }, image.KindCorrupt, "manifest.json: its images cannot be read"},
		{"a configuration that is a manifest", func(f *[]entry, m map[string]any) {
			(*f)[1] = file("config.json", strings.Replace((*f)[1].body, "{", `{"schemaVersion":2,`, 1))
		}, image.KindCorrupt, "is a manifest, too"},
		{"a configuration with layers", func(f *[]entry, m map[string]any) {
			(*f)[1] = file("config.json", strings.Replace((*f)[1].body, "{", `{"Layers":null,`, 1))
		}, image.KindCorrupt, "is a manifest, too"},
		{"a long name", func(f *[]entry, _ map[string]any) { *f = append(*f, file(strings.Repeat("n", 2049), "")) }, image.KindTooLarge, "a name of 2049 bytes"},
		{"a long link", func(f *[]entry, _ map[string]any) {
			*f = append(*f, symlink("l", strings.Repeat("n", 2049)))
		}, image.KindTooLarge, "a name of 2049 bytes"},
		{"a sparse member", func(f *[]entry, _ map[string]any) {
			(*f)[0] = (*f)[0].with(func(h *tar.Header) { h.Name = "elsewhere" })
		}, image.KindCorrupt, "not in the archive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, dir := storeIn(t, image.Options{Allow: []string{"docker-archive:/*"}})
			img, err := s.Get(t.Context(), "docker-archive:"+saved(t, c.change, layer))
			if image.KindOf(err) != c.kind || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v (%s), want %q with %q", err, image.KindOf(err), c.kind, c.says)
			}
			if err != nil {
				leftNothing(t, dir)
				return
			}
			defer img.Close()
			if listing(t, img.Root)["f"] != "x" {
				t.Error("its file is not there")
			}
		})
	}
}

// What is no archive, or no layout, or waits for somebody, is an error.
func TestNoSource(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	m := made(t, []entry{file("f", "x")})
	root := m.manifest()
	piped := m.layout(root)
	blob := filepath.Join(piped, "blobs", "sha256", strings.TrimPrefix(m.layers[0]["digest"].(string), "sha256:"))
	if err := os.Remove(blob); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(blob, 0o600); err != nil {
		t.Fatal(err)
	}
	linked := m.layout(root)
	blob = filepath.Join(linked, "blobs", "sha256", strings.TrimPrefix(m.layers[0]["digest"].(string), "sha256:"))
	if err := os.Remove(blob); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(write("outside", string(m.blobs[m.layers[0]["digest"].(string)])), blob); err != nil {
		t.Fatal(err)
	}
	saved := saved(t, nil, archive(t, file("f", "x")))
	b, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]struct {
		kind image.Kind
		says string
	}{
		"docker-archive:" + filepath.Join(dir, "none"):                     {image.KindNotFound, "no such file"},
		"docker-archive:" + dir:                                            {image.KindInvalid, "no regular file"},
		"docker-archive:" + pipe("pipe"):                                   {image.KindInvalid, "no regular file"},
		"docker-archive:" + write("gz", string(gzipped(b))):                {image.KindUnsupported, "compressed as a whole"},
		"docker-archive:" + write("text", strings.Repeat("hello", 200)):    {image.KindCorrupt, "docker-archive"},
		"docker-archive:" + write("cut", string(b[:1024])):                 {image.KindCorrupt, ""},
		"docker-archive:" + write("void", string(make([]byte, 1024))):      {image.KindCorrupt, "no docker-archive"},
		"oci:" + filepath.Join(dir, "none"):                                {image.KindNotFound, "no such file"},
		"oci:" + filepath.Dir(write("plain/x", "")):                        {image.KindNotFound, "no OCI layout"},
		"oci:" + filepath.Dir(pipe("piped/index.json")):                    {image.KindNotFound, "no regular file"},
		"oci:" + filepath.Dir(write("bad/index.json", "{")):                {image.KindCorrupt, "no JSON"},
		"oci:" + filepath.Dir(write("old/index.json", `{"manifests":[]}`)): {image.KindNotFound, "empty"},
		"oci:" + piped:                    {image.KindCorrupt, "no regular file"},
		"oci:" + linked:                   {image.KindCorrupt, "escapes"},
		"oci:" + m.layout(root, root):     {image.KindInvalid, "2 images"},
		"oci:" + m.layout(root) + ":none": {image.KindNotFound, "no such image"},
	} {
		s, cache := storeIn(t, image.Options{Allow: []string{"oci:/*", "docker-archive:/*"}})
		_, err := s.Get(t.Context(), ref)
		if image.KindOf(err) != want.kind || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v (%s), want %s with %q", ref, err, image.KindOf(err), want.kind, want.says)
		}
		leftNothing(t, cache)
	}
}

// Manifests that mean two things, or never end, are refused.
func TestHostileManifests(t *testing.T) {
	with := func(m *maker, change func(v map[string]any)) descriptor {
		var v map[string]any
		if err := json.Unmarshal(m.blobs[m.manifest()["digest"].(string)], &v); err != nil {
			t.Fatal(err)
		}
		change(v)
		return m.json(ociManifest, v)
	}
	for _, c := range []struct {
		name string
		make func(m *maker) descriptor
		kind image.Kind
		says string
	}{
		{"manifest and configuration", func(m *maker) descriptor {
			return with(m, func(v map[string]any) { v["rootfs"] = map[string]any{"type": "layers", "diff_ids": m.diffs} })
		}, image.KindCorrupt, "both a manifest and a configuration"},
		{"what a configuration may lack", func(m *maker) descriptor {
			return with(m, func(v map[string]any) { delete(v, "schemaVersion") })
		}, image.KindCorrupt, "has the schemaVersion 0"},
		{"index and manifest", func(m *maker) descriptor {
			return with(m, func(v map[string]any) { v["manifests"] = []descriptor{m.manifest()} })
		}, image.KindCorrupt, "both an index and a manifest"},
		{"an index as a manifest", func(m *maker) descriptor {
			d := m.index(m.manifest())
			d["mediaType"] = ociManifest
			return d
		}, image.KindCorrupt, "says that it is"},
		{"too deep", func(m *maker) descriptor { return m.index(m.index(m.index(m.index(m.manifest())))) }, image.KindTooLarge, "more than 3 deep"},
		{"deep enough", func(m *maker) descriptor { return m.index(m.index(m.index(m.manifest()))) }, "", ""},
		{"too many entries", func(m *maker) descriptor {
			all := make([]descriptor, 513)
			for i := range all {
				all[i] = m.manifest()
			}
			return m.index(all...)
		}, image.KindTooLarge, "more than 512 entries"},
		{"a large manifest", func(m *maker) descriptor {
			return m.json(ociManifest, map[string]any{"schemaVersion": 2, "x": strings.Repeat("x", 5<<20)})
		}, image.KindTooLarge, "a manifest of"},
		{"a size that lies", func(m *maker) descriptor { d := m.manifest(); d["size"] = 10; return d }, image.KindCorrupt, "larger than the 10 bytes"},
		{"a digest that lies", func(m *maker) descriptor {
			d := m.manifest()
			m.blobs[d["digest"].(string)] = append(m.blobs[d["digest"].(string)][:len(m.blobs[d["digest"].(string)])-1], ' ')
			return d
		}, image.KindCorrupt, "its digest is"},
		{"a digest that is a path", func(m *maker) descriptor { d := m.manifest(); d["digest"] = "sha256:../../../etc/passwd"; return d }, image.KindUnsupported, "no sha256"},
		{"schema 1", func(m *maker) descriptor {
			d := m.json("application/vnd.docker.distribution.manifest.v1+json", map[string]any{"schemaVersion": 1, "fsLayers": []any{}})
			return d
		}, image.KindUnsupported, "schema 1"},
		{"an artifact", func(m *maker) descriptor {
			return m.json(ociManifest, map[string]any{"schemaVersion": 2, "config": m.json("application/vnd.cncf.helm.config.v1+json", map[string]any{}), "layers": []any{}})
		}, image.KindUnsupported, "it is no image"},
		{"an unknown kind", func(m *maker) descriptor { return m.json("application/x", map[string]any{"schemaVersion": 2}) }, image.KindUnsupported, "unknown kind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := made(t, []entry{file("f", "x")})
			root := c.make(m)
			s := open(t, image.Options{Allow: anyLayout})
			img, err := s.Get(t.Context(), "oci:"+m.layout(root))
			if image.KindOf(err) != c.kind || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v (%s), want %q with %q", err, image.KindOf(err), c.kind, c.says)
			}
			if err := img.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A list of many small things takes no more memory than the bytes it has.
func TestLongLists(t *testing.T) {
	many := strings.Repeat("{},", 4<<20/3-100) + "{}"
	layout := t.TempDir()
	if err := os.WriteFile(filepath.Join(layout, "index.json"), []byte(`{"schemaVersion":2,"manifests":[`+many+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	saved := filepath.Join(t.TempDir(), "saved.tar")
	if err := os.WriteFile(saved, archive(t, file("manifest.json", "["+many+"]")), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, image.Options{Allow: []string{"oci:/*", "docker-archive:/*"}})
	for ref, says := range map[string]string{"oci:" + layout: "more than 512 entries", "docker-archive:" + saved: "more than 512 images"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := s.Get(t.Context(), ref)
		runtime.ReadMemStats(&after)
		if image.KindOf(err) != image.KindTooLarge || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it too large with %q", ref, err, says)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 60 {
			t.Errorf("%s took %d MiB", ref, took)
		}
	}
}
