package sandbox

import (
	"context"
	"fmt"
	"path"

	"github.com/rein-sh/rein/execd"
)

// Inventory is List with the hash of every regular file, computed inside the
// sandbox by execd. A sandbox whose execd is not ours gives no hashes. It takes
// as long as reading the files does: give ctx a deadline that allows for it.
func (s *Sandbox) Inventory(ctx context.Context, dir string, depth int, a Access) ([]execd.FileInfo, error) {
	var infos []execd.FileInfo
	in := FileIntent{Op: "inventory", Path: dir, Range: fmt.Sprintf("depth %d", depth)}
	err := s.file(ctx, a, in, func(ctx context.Context, out *FileOutcome) (err error) {
		infos, err = s.client.ListHashed(ctx, s.root(a), s.abs(dir), depth)
		out.Entries = len(infos)
		return err
	})
	return infos, err
}

// Links describes the symbolic links among name and the directories above it,
// outermost first, as far as they exist. Directories are looked at from a.Root
// down, which is required.
func (s *Sandbox) Links(ctx context.Context, name string, a Access) ([]execd.FileInfo, error) {
	name = path.Clean(s.abs(name))
	if err := checkName("stat", name); err != nil {
		return nil, err // it would not be found in the answer
	}
	var parts []string
	for p := name; p != a.Root && p != "/"; p = path.Dir(p) {
		parts = append([]string{p}, parts...)
	}
	var links []execd.FileInfo
	err := s.file(ctx, a, FileIntent{Op: "stat", Path: name}, func(ctx context.Context, out *FileOutcome) error {
		for len(parts) > 0 {
			infos, err := s.client.Stat(ctx, s.root(a), parts...)
			if isAbsent(err) { // the last does not exist, or is not in a directory
				parts = parts[:len(parts)-1]
				continue
			}
			for _, p := range parts {
				if info := infos[p]; info.Type == "symlink" {
					links = append(links, info)
				}
			}
			return err
		}
		return nil
	})
	return links, err
}
