package daemon

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// place is the part of the file system that a file operation may touch. With a
// root nothing outside it can be reached, whatever links there are and however
// they change meanwhile; without one, names are the system's own.
type place struct {
	root *os.Root // nil: the whole system
}

// openPlace opens a directory as a place.
func openPlace(dir string) (place, error) {
	if dir == "/" {
		return place{}, nil
	}
	root, err := os.OpenRoot(dir)
	return place{root: root}, err
}

// beneath returns the place that is a directory of this one.
func (p place) beneath(dir string) (place, error) {
	if p.root == nil {
		return openPlaceAt(dir)
	}
	root, err := p.root.OpenRoot(p.local(dir))
	return place{root: root}, err
}

func openPlaceAt(dir string) (place, error) {
	root, err := os.OpenRoot(dir)
	return place{root: root}, err
}

// local turns a clean absolute path of the place into what its root takes.
func (p place) local(name string) string {
	if p.root == nil {
		return name
	}
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return filepath.FromSlash(name)
}

func (p place) close() error {
	if p.root == nil {
		return nil
	}
	return p.root.Close()
}

func (p place) stat(name string) (fs.FileInfo, error) {
	if p.root == nil {
		return os.Stat(name)
	}
	return p.root.Stat(p.local(name))
}
