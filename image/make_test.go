package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/rein-sh/rein/image"
)

const (
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociIndex    = "application/vnd.oci.image.index.v1+json"
	ociConfig   = "application/vnd.oci.image.config.v1+json"
	layerPlain  = "application/vnd.oci.image.layer.v1.tar"
	layerGzip   = layerPlain + "+gzip"
	layerZstd   = layerPlain + "+zstd"
)

// when is the time of what the tests make.
var when = time.Unix(1_600_000_000, 0)

// entry is one entry of a layer.
type entry struct {
	tar.Header
	body string
}

func file(name, body string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(body)), ModTime: when}, body}
}

func dir(name string, mode int64) entry {
	return entry{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, ModTime: when}, ""}
}

func symlink(name, target string) entry {
	return entry{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: when}, ""}
}

func hardlink(name, target string) entry {
	return entry{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644, ModTime: when}, ""}
}

func special(kind byte, name string) entry {
	return entry{tar.Header{Typeflag: kind, Name: name, Mode: 0o666, Devmajor: 1, Devminor: 3, ModTime: when}, ""}
}

// with changes an entry.
func (e entry) with(f func(*tar.Header)) entry {
	f(&e.Header)
	return e
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

func zstded(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

type descriptor = map[string]any

// maker makes an image's parts. What a test wants wrong, it changes.
type maker struct {
	t      testing.TB
	blobs  map[string][]byte // by digest
	layers []descriptor
	diffs  []string
	config map[string]any // the program's part
	arch   string
}

func newImage(t testing.TB) *maker {
	return &maker{t: t, blobs: map[string][]byte{}, config: map[string]any{}, arch: runtime.GOARCH}
}

// made is an image of gzipped layers.
func made(t testing.TB, layers ...[]entry) *maker {
	m := newImage(t)
	for _, l := range layers {
		a := archive(t, l...)
		m.layer(layerGzip, a, gzipped(a))
	}
	return m
}

func (m *maker) blob(mediaType string, b []byte) descriptor {
	d := digestOf(b)
	m.blobs[d] = b
	return descriptor{"mediaType": mediaType, "digest": d, "size": len(b)}
}

func (m *maker) layer(mediaType string, unpacked, packed []byte) descriptor {
	d := m.blob(mediaType, packed)
	m.layers = append(m.layers, d)
	m.diffs = append(m.diffs, digestOf(unpacked))
	return d
}

func (m *maker) json(mediaType string, v any) descriptor {
	b, err := json.Marshal(v)
	if err != nil {
		m.t.Fatal(err)
	}
	return m.blob(mediaType, b)
}

// manifest is the image's descriptor.
func (m *maker) manifest() descriptor {
	config := m.json(ociConfig, map[string]any{"os": "linux", "architecture": m.arch, "config": m.config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": append([]string{}, m.diffs...)}})
	return m.json(ociManifest, map[string]any{"schemaVersion": 2, "mediaType": ociManifest, "config": config, "layers": append([]descriptor{}, m.layers...)})
}

func (m *maker) index(of ...descriptor) descriptor {
	return m.json(ociIndex, map[string]any{"schemaVersion": 2, "mediaType": ociIndex, "manifests": of})
}

func forPlatform(d descriptor, os, arch string) descriptor {
	d["platform"] = map[string]any{"os": os, "architecture": arch}
	return d
}

// layout writes an OCI layout that names root, and returns its directory.
func (m *maker) layout(root ...descriptor) string {
	m.t.Helper()
	dir := m.t.TempDir()
	blobs := filepath.Join(dir, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		m.t.Fatal(err)
	}
	for d, b := range m.blobs {
		if err := os.WriteFile(filepath.Join(blobs, strings.TrimPrefix(d, "sha256:")), b, 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": root})
	if err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "index.json"), index, 0o600); err != nil {
		m.t.Fatal(err)
	}
	return dir
}

// push puts everything into a registry, and root under a tag.
func (m *maker) push(base, repository, tag string, root descriptor) {
	m.t.Helper()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	m.pushWith(&http.Client{Transport: tr}, base, repository, tag, root)
}

func (m *maker) pushWith(client *http.Client, base, repository, tag string, root descriptor) {
	m.t.Helper()
	put := func(method, url, mediaType string, body []byte) bool {
		req, err := http.NewRequestWithContext(m.t.Context(), method, url, bytes.NewReader(body))
		if err != nil {
			m.t.Fatal(err)
		}
		req.Header.Set("Content-Type", mediaType)
		resp, err := client.Do(req)
		if err != nil {
			m.t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode < 300
	}
	left := []string{}
	for d, b := range m.blobs {
		if !put("POST", fmt.Sprintf("%s/v2/%s/blobs/uploads/?digest=%s", base, repository, d), "application/octet-stream", b) {
			m.t.Fatalf("blob %s was not taken", d)
		}
		if bytes.Contains(b, []byte("schemaVersion")) {
			left = append(left, d)
		}
	}
	for range len(left) { // what an index names must be there first
		left = slices.DeleteFunc(left, func(d string) bool {
			mediaType := ociManifest
			if bytes.Contains(m.blobs[d], []byte(`"manifests"`)) {
				mediaType = ociIndex
			}
			return put("PUT", fmt.Sprintf("%s/v2/%s/manifests/%s", base, repository, d), mediaType, m.blobs[d])
		})
	}
	if len(left) > 0 || !put("PUT", fmt.Sprintf("%s/v2/%s/manifests/%s", base, repository, tag), root["mediaType"].(string), m.blobs[root["digest"].(string)]) {
		m.t.Fatalf("the manifests %q or their root were not taken", left)
	}
}

// cache is a directory for a store, removed at the end whatever modes are in it.
func cache(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "images")
	t.Cleanup(func() {
		if err := image.RemoveTree(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func open(t testing.TB, o image.Options) *image.Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = cache(t)
	}
	s, err := image.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// anyLayout allows every layout of this host.
var anyLayout = []string{"oci:/*"}

// get is an image that must be had.
func get(t testing.TB, s *image.Store, ref string) *image.Image {
	t.Helper()
	img, err := s.Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := img.Close(); err != nil {
			t.Error(err)
		}
	})
	return img
}

// unpackedTree is the image of some layers, and its tree.
func unpackedTree(t testing.TB, layers ...[]entry) *image.Image {
	t.Helper()
	m := made(t, layers...)
	return get(t, open(t, image.Options{Allow: anyLayout}), "oci:"+m.layout(m.manifest()))
}

// listing is what is in a tree: names, and what they are.
func listing(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			out[name] = "dir"
		case d.Type()&os.ModeSymlink != 0:
			out[name], err = os.Readlink(path)
			out[name] = "-> " + out[name]
		case d.Type().IsRegular():
			var b []byte
			b, err = os.ReadFile(path)
			out[name] = string(b)
		default:
			out[name] = d.Type().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// leftNothing checks that nothing of a failed fetch is left in a cache.
func leftNothing(t testing.TB, dir string) {
	t.Helper()
	for _, part := range []string{"images", "locks", "refs", "tmp"} {
		entries, err := os.ReadDir(filepath.Join(dir, part))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			t.Errorf("%s/%s was left behind", part, e.Name())
		}
	}
}

// fix puts the right checksum into the first header of an archive.
func fix(a []byte) {
	copy(a[148:156], "        ")
	sum := 0
	for _, b := range a[:512] {
		sum += int(b)
	}
	copy(a[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

// sparse is an archive with one file of size bytes, none of them in it, as GNU
// tar writes it.
func sparse(t testing.TB, size int64) []byte {
	t.Helper()
	a := archive(t, file("hole", ""))
	a[156] = 'S'
	copy(a[257:265], "ustar  \x00")
	for i := range 8 { // the size, in base 256
		a[483+4+i] = byte(size >> (8 * (7 - i)))
	}
	a[483] = 0x80
	copy(a[386:398], fmt.Sprintf("%011o\x00", 0)) // a piece of nothing, at the end
	copy(a[398:410], fmt.Sprintf("%011o\x00", 0))
	fix(a)
	return a
}
