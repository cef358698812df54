package sandboxtest

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// files is a directory seen as "/". Symbolic links are resolved within it, the
// absolute ones too, and os.Root guards that a link swapped meanwhile cannot
// lead outside.
type files struct {
	root *os.Root
}

// rel resolves the symbolic links in name, the last one only if follow is set,
// and returns the path relative to the root.
func (f *files) rel(name string, follow bool) (string, error) {
	rest := strings.Split(strings.Trim(path.Clean(name), "/"), "/")
	done := "."
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		info, err := f.root.Lstat(next)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 || len(rest) == 0 && !follow {
			done = next // what does not exist is reported by the operation
			continue
		}
		if links++; links > 40 {
			return "", syscall.ELOOP
		}
		target, err := f.root.Readlink(next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			done = "."
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

func (f *files) stat(name string, follow bool) (fs.FileInfo, error) {
	rel, err := f.rel(name, follow)
	if err != nil {
		return nil, err
	}
	return f.root.Lstat(rel)
}

func (f *files) open(name string, flag int, perm fs.FileMode) (*os.File, error) {
	rel, err := f.rel(name, true)
	if err != nil {
		return nil, err
	}
	return f.root.OpenFile(rel, flag, perm)
}

func (f *files) readDir(name string) ([]fs.DirEntry, error) {
	rel, err := f.rel(name, true)
	if err != nil {
		return nil, err
	}
	return fs.ReadDir(f.root.FS(), rel)
}
