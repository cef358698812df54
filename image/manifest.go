package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// plan is everything about an image but its layers' bytes, checked and bounded.
type plan struct {
	digest    string   // what the image is kept under
	documents []string // digests that name it: the root's, of indexes beneath, its own
	config    Config
	layers    []layer
	notes     []string
}

// layer is one layer, as its source has it.
type layer struct {
	digest  string // of the compressed bytes; "" when the source gives none
	size    int64  // compressed bytes
	diffID  string // digest of the archive in it
	packing packing
	remote  bool // reading it takes time that is better spent side by side
	open    func(context.Context) (io.ReadCloser, error)
}

// packing is how a layer is compressed.
type packing int

const (
	packingAny packing = iota // as its first bytes say
	packingNone
	packingGzip
	packingZstd
)

// document is a manifest or an index, as it is stored.
type document struct {
	mediaType string
	digest    string
	raw       []byte
}

// documents is a source of manifests: a registry or a layout.
type documents interface {
	// root returns what the reference names.
	root(context.Context) (document, error)
	// document returns a manifest or an index by its descriptor.
	document(context.Context, descriptor) (document, error)
	// blob opens a blob. Its reader checks nothing.
	blob(context.Context, descriptor) (io.ReadCloser, error)
	// remote reports whether blobs come over a network.
	remote() bool
}

// descriptor is the part of a descriptor that is used.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	URLs        []string          `json:"urls"`
	Annotations map[string]string `json:"annotations"`
	Platform    *v1.Platform      `json:"platform"`
}

// parsed is a manifest or an index; the fields of the other are nil.
type parsed struct {
	MediaType string       `json:"mediaType"`
	Schema    int          `json:"schemaVersion"`
	Config    *descriptor  `json:"config"`
	Layers    []descriptor `json:"-"`
	Manifests []descriptor `json:"-"`

	RawLayers    json.RawMessage `json:"layers"`
	RawManifests json.RawMessage `json:"manifests"`
	FSLayers     json.RawMessage `json:"fsLayers"` // of schema 1
	RootFS       json.RawMessage `json:"rootfs"`   // of a configuration
}

// list reads a JSON array of at most some elements; what is absent or null is
// nil. It stops at one too many: in memory an element is many times as large as
// the few bytes that say it.
func list[T any](raw []byte, most int, what string) ([]T, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	in := json.NewDecoder(bytes.NewReader(raw))
	if t, err := in.Token(); t != json.Delim('[') || err != nil {
		return nil, corrupt("its %s are no list", what)
	}
	out := []T{}
	for in.More() {
		if len(out) == most {
			return nil, tooLarge("more than %d %s", most, what)
		}
		var v T
		if err := in.Decode(&v); err != nil {
			return nil, corrupt("its %s cannot be read: %v", what, err)
		}
		out = append(out, v)
	}
	return out, nil
}

// corrupt is content that is not what it says.
func corrupt(format string, args ...any) error {
	return &fault{kind: KindCorrupt, err: fmt.Errorf(format, args...)}
}

func unsupported(hint, format string, args ...any) error {
	return &fault{kind: KindUnsupported, err: fmt.Errorf(format, args...), hint: hint}
}

func tooLarge(format string, args ...any) error {
	return &fault{kind: KindTooLarge, err: fmt.Errorf(format, args...)}
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// parseDocument reads a manifest or an index. One that could be read as either,
// or as a configuration, is refused: its digest would then name two images.
func parseDocument(d document, l Limits) (*parsed, error) {
	p := &parsed{}
	if err := json.Unmarshal(d.raw, p); err != nil {
		return nil, corrupt("manifest %s is no JSON: %v", d.digest, err)
	}
	var err error
	if p.Layers, err = list[descriptor](p.RawLayers, l.Layers, "layers"); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", d.digest, err)
	}
	if p.Manifests, err = list[descriptor](p.RawManifests, l.IndexEntries, "entries of an index"); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", d.digest, err)
	}
	declared := p.MediaType
	if declared == "" {
		declared = d.mediaType
	}
	if d.mediaType != "" && declared != d.mediaType {
		return nil, corrupt("manifest %s says that it is %q, its source %q", d.digest, declared, d.mediaType)
	}
	index := p.Manifests != nil
	switch {
	case p.Schema == 1 || p.FSLayers != nil:
		return nil, unsupported("push it again with a current tool", "manifest %s is of schema 1, whose layers cannot be checked", d.digest)
	case !index && p.Schema != 2: // which tells it from a configuration
		return nil, corrupt("manifest %s has the schemaVersion %d, not 2", d.digest, p.Schema)
	case p.RootFS != nil:
		return nil, corrupt("manifest %s is both a manifest and a configuration", d.digest)
	case index && (p.Layers != nil || p.Config != nil):
		return nil, corrupt("manifest %s is both an index and a manifest", d.digest)
	}
	switch types.MediaType(declared) {
	case types.OCIImageIndex, types.DockerManifestList:
		if !index {
			p.Manifests = []descriptor{}
		}
	case types.OCIManifestSchema1, types.DockerManifestSchema2, "":
		if index && declared != "" {
			return nil, corrupt("manifest %s is an index and says that it is a manifest", d.digest)
		}
		if !index && p.Config == nil {
			return nil, corrupt("manifest %s has no configuration", d.digest)
		}
	default:
		return nil, unsupported("", "manifest %s is of the unknown kind %.100q", d.digest, declared)
	}
	return p, nil
}

// find follows a source to the manifest for the platform.
func (s *Store) find(ctx context.Context, src documents) (*plan, error) {
	d, err := src.root(ctx)
	if err != nil {
		return nil, err
	}
	out := &plan{documents: []string{d.digest}}
	for depth := 0; ; depth++ {
		p, err := parseDocument(d, s.o.Limits)
		if err != nil {
			return nil, err
		}
		if p.Manifests == nil {
			out.digest = d.digest
			return out, s.fill(ctx, out, src, p)
		}
		if depth == s.o.Limits.IndexDepth {
			return nil, tooLarge("an index in an index, more than %d deep", s.o.Limits.IndexDepth)
		}
		next, err := s.choose(p.Manifests)
		if err != nil {
			return nil, err
		}
		if err := s.bounded(next, "manifest"); err != nil {
			return nil, err
		}
		if d, err = src.document(ctx, next); err != nil {
			return nil, err
		}
		out.documents = append(out.documents, d.digest)
	}
}

// bounded checks a descriptor of something that is read into memory.
func (s *Store) bounded(d descriptor, what string) error {
	switch {
	case !digestPart.MatchString(d.Digest):
		return unsupported("", "the digest %.100q of a %s is no sha256", d.Digest, what)
	case d.Size < 0 || d.Size > s.o.Limits.Manifest:
		return tooLarge("a %s of %d bytes, more than %d", what, d.Size, s.o.Limits.Manifest)
	}
	return nil
}

// otherMachine is the hint for an image that cannot run here.
const otherMachine = "choose an image that is made for this machine, too"

// choose picks the entry for the platform. Entries of other kinds, such as
// attestations, name a platform nobody has.
func (s *Store) choose(entries []descriptor) (descriptor, error) {
	var found []string
	best, fit := descriptor{}, 0
	for _, e := range entries {
		f := 1 // an entry without a platform is as good as none other
		if e.Platform != nil {
			f = fits(s.platform, *e.Platform)
			found = append(found, platformText(*e.Platform))
		}
		if f > fit {
			best, fit = e, f
		}
	}
	if fit == 0 {
		return best, &fault{kind: KindNotFound, hint: otherMachine, err: fmt.Errorf("there is no image for %s, only for %.300s", platformText(s.platform), orNone(found))}
	}
	return best, nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

func platformText(p v1.Platform) string {
	s := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return s
}

// fits says how well an offered platform does: 0 not at all, 1 unnamed, 2
// another variant that runs, 3 the same.
func fits(want, offered v1.Platform) int {
	if want.OS != offered.OS || want.Architecture != offered.Architecture {
		return 0
	}
	plain := map[string]string{"arm64": "v8", "amd64": "v1"}[want.Architecture]
	variant := func(v string) string {
		if v == plain {
			return ""
		}
		return v
	}
	switch w, o := variant(want.Variant), variant(offered.Variant); {
	case w == o:
		return 3
	case o == "", want.Architecture == "arm" && w != "" && o < w:
		return 2 // a plainer one
	case want.Architecture == "arm" && w == "":
		return 2
	}
	return 0
}

// fill reads the configuration and describes the layers.
func (s *Store) fill(ctx context.Context, out *plan, src documents, m *parsed) error {
	switch types.MediaType(m.Config.MediaType) {
	case types.OCIConfigJSON, types.DockerConfigJSON:
	default:
		return unsupported("", "it is no image: its configuration is %.100q", m.Config.MediaType)
	}
	if err := s.bounded(*m.Config, "configuration"); err != nil {
		return err
	}
	raw, err := s.readBlob(ctx, src, *m.Config)
	if err != nil {
		return err
	}
	diffIDs, err := s.configure(out, raw)
	if err != nil {
		return err
	}
	if len(diffIDs) != len(m.Layers) {
		return corrupt("the configuration names %d layers, the manifest %d", len(diffIDs), len(m.Layers))
	}
	for i, d := range m.Layers {
		l, err := describe(d)
		if err != nil {
			return fmt.Errorf("layer %d: %w", i+1, err)
		}
		l.diffID, l.remote = diffIDs[i], src.remote()
		l.open = func(ctx context.Context) (io.ReadCloser, error) { return src.blob(ctx, d) }
		out.layers = append(out.layers, l)
	}
	return s.weigh(out.layers)
}

// readBlob reads a small blob and checks it. Its descriptor is bounded, and so
// is the time.
func (s *Store) readBlob(ctx context.Context, src documents, d descriptor) ([]byte, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	r, err := src.blob(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(verify(r, d.Size, d.Digest)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// describe judges the kind of a layer.
func describe(d descriptor) (layer, error) {
	if !digestPart.MatchString(d.Digest) {
		return layer{}, unsupported("", "the digest %.100q is no sha256", d.Digest)
	}
	if d.Size < 0 {
		return layer{}, corrupt("a size of %d bytes", d.Size)
	}
	l := layer{digest: d.Digest, size: d.Size}
	switch t := types.MediaType(d.MediaType); t {
	case types.OCIUncompressedLayer, types.DockerUncompressedLayer:
		l.packing = packingNone
	case types.OCILayer, types.DockerLayer:
		l.packing = packingGzip
	case types.OCILayerZStd, "application/vnd.docker.image.rootfs.diff.tar.zstd":
		l.packing = packingZstd
	case types.DockerForeignLayer, types.OCIRestrictedLayer, types.OCIUncompressedRestrictedLayer,
		"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd":
		return l, unsupported("", "its bytes are elsewhere than in the registry (%s), which is not followed", t)
	default:
		return l, unsupported("", "the kind %.100q is not known", d.MediaType)
	}
	if len(d.URLs) > 0 {
		return l, unsupported("", "its bytes are elsewhere than in the registry, which is not followed")
	}
	return l, nil
}

// weigh checks how many layers there are and how large they are together.
func (s *Store) weigh(layers []layer) error {
	if len(layers) > s.o.Limits.Layers {
		return tooLarge("%d layers, more than %d", len(layers), s.o.Limits.Layers)
	}
	left := s.o.Limits.Compressed
	for _, l := range layers {
		if left -= l.size; left < 0 {
			return tooLarge("layers of more than %d bytes", s.o.Limits.Compressed)
		}
	}
	return nil
}
