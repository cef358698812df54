package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxMembers bounds the files in a docker-archive: a manifest, and a few for
// each layer.
const maxMembers = 16384

// archive is an image in a file that "docker save" wrote. Its layers are
// checked against the configuration, whose digest is Docker's image ID.
type archive struct {
	s       *Store
	ref     Reference
	file    *os.File
	members map[string]member
}

// member is where a file in the archive is, or what it is another name of.
type member struct {
	offset, size int64
	link         string
}

// saved is an entry of manifest.json.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (s *Store) openArchive(r Reference) (source, error) {
	f, err := os.OpenFile(r.place, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, notThere(err)
	}
	a := &archive{s: s, ref: r, file: f, members: map[string]member{}}
	if err := a.scan(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return a, nil
}

// scan finds the members. The reader seeks over their content.
func (a *archive) scan() error {
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &fault{kind: KindInvalid, err: errors.New("it is no regular file")}
	}
	magic := make([]byte, 2)
	if n, _ := a.file.ReadAt(magic, 0); n == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		return unsupported("gunzip it first", "it is compressed as a whole")
	}
	in := tar.NewReader(a.file)
	for n := 0; ; n++ {
		h, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return noArchive("docker-archive", err)
		}
		if n == maxMembers {
			return tooLarge("an archive of more than %d files", maxMembers)
		}
		if most := a.s.o.Limits.Path; len(h.Name) > most || len(h.Linkname) > most {
			return tooLarge("a name of %d bytes, more than %d", max(len(h.Name), len(h.Linkname)), most)
		}
		at, err := a.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		name := path.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			if at+h.Size > info.Size() {
				return corrupt("the archive is cut")
			}
			a.members[name] = member{offset: at, size: h.Size}
		case tar.TypeSymlink: // of older Docker, for a layer that occurs twice
			a.members[name] = member{link: path.Join(path.Dir(name), h.Linkname)}
		case tar.TypeLink:
			a.members[name] = member{link: path.Clean(h.Linkname)}
		}
	}
}

// find returns a member, also by another name.
func (a *archive) find(name string) (member, error) {
	at := path.Clean(name)
	for range 4 {
		m, ok := a.members[at]
		if !ok {
			break
		}
		if m.link == "" {
			return m, nil
		}
		at = m.link
	}
	return member{}, corrupt("%.200q is not in the archive", name)
}

func (a *archive) read(name string) ([]byte, error) {
	m, err := a.find(name)
	if err != nil {
		return nil, err
	}
	if m.size > a.s.o.Limits.Manifest {
		return nil, tooLarge("%.200q has %d bytes, more than %d", name, m.size, a.s.o.Limits.Manifest)
	}
	raw := make([]byte, m.size)
	_, err = a.file.ReadAt(raw, m.offset)
	return raw, err
}

func (a *archive) close() { a.file.Close() }

func (a *archive) head(ctx context.Context) (string, error) {
	p, err := a.plan(ctx)
	if err != nil {
		return "", err
	}
	return p.documents[0], nil
}

func (a *archive) plan(context.Context) (*plan, error) {
	entry, err := a.pick()
	if err != nil {
		return nil, err
	}
	raw, err := a.read(entry.Config)
	if err != nil {
		return nil, err
	}
	out := &plan{digest: digestOf(raw)}
	out.documents = []string{out.digest}
	ids, err := a.s.configure(out, raw)
	if err != nil {
		return nil, err
	}
	if len(ids) != len(entry.Layers) {
		return nil, corrupt("the configuration names %d layers, the archive %d", len(ids), len(entry.Layers))
	}
	for i, name := range entry.Layers {
		m, err := a.find(name)
		if err != nil {
			return nil, err
		}
		out.layers = append(out.layers, layer{size: m.size, diffID: ids[i], packing: packingAny,
			open: func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(io.NewSectionReader(a.file, m.offset, m.size)), nil
			}})
	}
	return out, a.s.weigh(out.layers)
}

// pick reads manifest.json and finds the entry that is meant.
func (a *archive) pick() (saved, error) {
	raw, err := a.read("manifest.json")
	if err != nil {
		return saved{}, fmt.Errorf("it is no docker-archive: %w", err)
	}
	if !json.Valid(raw) {
		return saved{}, corrupt("manifest.json is no JSON")
	}
	all, err := list[saved](raw, a.s.o.Limits.IndexEntries, "images")
	if err != nil {
		return saved{}, fmt.Errorf("manifest.json: %w", err)
	}
	var names []string
	for _, e := range all {
		for _, t := range e.RepoTags {
			r, err := parseRegistry(t, false)
			if err == nil && r.String() == a.ref.tag {
				return e, nil
			}
		}
		names = append(names, e.RepoTags...)
	}
	slices.Sort(names)
	switch {
	case len(all) == 0:
		return saved{}, &fault{kind: KindNotFound, err: errors.New("the archive is empty")}
	case a.ref.tag != "":
		return saved{}, &fault{kind: KindNotFound, hint: "name one that it has", err: fmt.Errorf("the archive has no such image, only %.300s", orNone(names))}
	case len(all) > 1:
		return saved{}, bad("add :REFERENCE", "the archive has %d images: %.300s", len(all), strings.Join(names, ", "))
	}
	return all[0], nil
}
