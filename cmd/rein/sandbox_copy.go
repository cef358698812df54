package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
	"github.com/spf13/cobra"
)

const copyHelp = `Copies a file or a directory into or out of a sandbox. One of the two is ID:PATH; a
relative PATH is beneath the sandbox's working directory, which is "ID:". Into a directory that
exists the source is put under its own name; otherwise the destination is the copy's
name.

  rein sandbox cp ./src sb-1:/workspace/src
  rein sandbox cp sb-1:/workspace/out.txt .

Symbolic links and special files are left out and named. So are files in a directory
whose names are not UTF-8; then the exit code is 1. What comes out of a sandbox was
written by whatever ran there: look at it before you run it.`

// copyLimits bound a copy.
type copyLimits struct {
	files int
	bytes config.Size
}

// copyDepth bounds how deep a directory is read inside a sandbox.
const copyDepth = 64

func (a *app) sandboxCopyCommand() *cobra.Command {
	var p place
	l := copyLimits{files: 50_000, bytes: 1 << 30}
	cmd := &cobra.Command{
		Use: "cp SOURCE DESTINATION", Short: "copy files into or out of a sandbox", Long: copyHelp,
		Args: exactly("SOURCE", "DESTINATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			fromID, from := splitRemote(args[0])
			toID, to := splitRemote(args[1])
			if (fromID == "") == (toID == "") {
				return usage("rein sandbox cp ID:PATH LOCAL, or rein sandbox cp LOCAL ID:PATH; a local name with a colon is written ./a:b",
					"exactly one of SOURCE and DESTINATION must be in a sandbox")
			}
			return a.withSandbox(cmd, p, fromID+toID, func(sb *attached) error {
				c := &copier{app: a, sb: sb, limits: l, access: sandbox.Access{Tool: "sandbox cp"}}
				if fromID != "" {
					return c.out(cmd.Context(), from, to)
				}
				return c.in(cmd.Context(), from, to)
			})
		},
	}
	p.flags(cmd)
	cmd.Flags().IntVar(&l.files, "max-files", l.files, "refuse to copy more than `N` files")
	cmd.Flags().Var(textValue[config.Size, *config.Size]{&l.bytes, "size"}, "max-bytes", "refuse to copy more bytes")
	return cmd
}

// splitRemote splits ID:PATH; a local path has no id. "ID:" is the sandbox's
// working directory.
func splitRemote(arg string) (id, rest string) {
	if id, rest, ok := strings.Cut(arg, ":"); ok && isSandboxID(id) {
		return id, cmp.Or(rest, ".")
	}
	return "", arg
}

// copier is one copy.
type copier struct {
	app    *app
	sb     *attached
	limits copyLimits
	access sandbox.Access
	files  int
	bytes  int64
	lost   int // files and directories whose names could not be carried
}

// take counts one file of size bytes, or refuses it.
func (c *copier) take(size int64) error {
	c.files++
	c.bytes += size
	switch {
	case c.files > c.limits.files:
		return usage("--max-files raises it", "more than %d files", c.limits.files)
	case c.bytes > int64(c.limits.bytes):
		return usage("--max-bytes raises it", "more than %s", c.limits.bytes)
	}
	return nil
}

func (c *copier) skip(name, kind string) { c.app.note("left out: %s (%s)", name, kind) }

// lose counts and names a file, or a directory with all in it, that could not be
// carried over because its name is no text.
func (c *copier) lose(name string) {
	c.lost++
	c.app.note("not copied: %s (its name is not UTF-8)", escaped(name))
}

// escaped is name in quotes, with \xff for a byte that is not UTF-8, and \ufffd
// for what a listing has in the place of one.
func escaped(name string) string {
	return strings.ReplaceAll(strconv.Quote(name), "\uFFFD", `\ufffd`)
}

// out copies from the sandbox to the host.
func (c *copier) out(ctx context.Context, from, to string) error {
	info, err := c.sb.Stat(ctx, from, c.access)
	if err != nil {
		return err
	}
	dir, name := filepath.Split(filepath.Clean(to))
	if st, err := os.Stat(to); err == nil && st.IsDir() {
		dir, name = to, path.Base(path.Clean(info.Path))
	}
	if !filepath.IsLocal(name) || name == "." {
		return usage("name the copy, as in ./copy", "%q cannot be the name of the copy", name)
	}
	if dir == "" {
		dir = "."
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return absent(dir, err)
	}
	defer root.Close()
	switch info.Type {
	case "file":
		if err := c.take(info.Size); err != nil {
			return err
		}
		return c.fileOut(ctx, root, info.Path, name, modeOf(info.Mode))
	case "directory":
		return c.directoryOut(ctx, root, info.Path, name)
	}
	return usage("only files and directories can be copied", "%s is a %s", from, info.Type)
}

// directoryOut copies a directory. Its listing comes from the sandbox, so no
// name in it is trusted: everything is created beneath root, whatever it says.
func (c *copier) directoryOut(ctx context.Context, root *os.Root, from, name string) error {
	list, err := c.sb.List(ctx, from, copyDepth, c.access)
	if err != nil {
		return err
	}
	for _, f := range list { // refused before anything is written
		if f.Type == "file" {
			if err := c.take(f.Size); err != nil {
				return err
			}
		}
	}
	if err := root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	prefix := strings.TrimSuffix(string([]rune(from)), "/") + "/" // as a listing has it
	names := listedNames{copier: c, taken: map[string]bool{}, lost: map[string]bool{}}
	for _, f := range list {
		rel, ok := strings.CutPrefix(f.Path, prefix)
		if !ok || !filepath.IsLocal(rel) {
			return fmt.Errorf("the sandbox lists %q beneath %q", f.Path, from)
		}
		f.Path = path.Join(from, rel)
		if ok, err := names.reachable(ctx, f); err != nil {
			return err
		} else if !ok {
			continue
		}
		at := path.Join(name, rel)
		switch f.Type {
		case "directory":
			err = root.MkdirAll(at, 0o755)
		case "file":
			err = c.fileOut(ctx, root, f.Path, at, modeOf(f.Mode))
		default:
			c.skip(f.Path, f.Type)
		}
		if err != nil {
			return err
		}
	}
	return c.incomplete(fmt.Sprintf("rein sandbox exec %s -- tar -C %s -cf - . >all.tar", c.sb.ID(), quote([]string{from})))
}

// incomplete is the error of a copy that left names out.
func (c *copier) incomplete(hint string) error {
	if c.lost == 0 {
		return nil
	}
	return withHint(fmt.Errorf("not everything was copied: %d names are not UTF-8", c.lost), hint)
}

// listedNames tells the entries of one listing that can be asked for from those
// that cannot. A listing is JSON and has U+FFFD for each byte that is not
// UTF-8, so such a name is not the file's, or it is that of another file.
type listedNames struct {
	*copier
	taken map[string]bool // names that were found to be a file's own
	lost  map[string]bool // directories that were not
}

func (n listedNames) reachable(ctx context.Context, f execd.FileInfo) (bool, error) {
	if !strings.ContainsRune(f.Path, utf8.RuneError) {
		return true, nil
	}
	if !n.taken[f.Path] { // of two that look alike one at most is what it seems
		info, err := n.sb.Stat(ctx, f.Path, n.access)
		if err == nil && info.Type == f.Type {
			n.taken[f.Path] = true
			return true, nil
		}
		if err != nil && sandbox.KindOf(err) != sandbox.KindNotFound {
			return false, err
		}
	}
	if f.Type == "directory" {
		n.lost[f.Path] = true
	}
	if !n.lost[path.Dir(f.Path)] {
		n.lose(f.Path)
	}
	return false, nil
}

// fileOut copies one file, which appears complete or not at all.
func (c *copier) fileOut(ctx context.Context, root *os.Root, from, name string, mode fs.FileMode) error {
	part := path.Join(path.Dir(name), ".rein-part-"+path.Base(name))
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = c.sb.Download(ctx, from, &bounded{w: f, left: int64(c.limits.bytes)}, c.access)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(part))
	}
	return nil
}

// bounded is a writer that refuses to take more than it has left: a file may
// be longer than its listing said.
type bounded struct {
	w    io.Writer
	left int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, usage("--max-bytes raises it", "more bytes than --max-bytes allows")
	}
	n, err := b.w.Write(p)
	b.left -= int64(n)
	return n, err
}

// modeOf is the permissions execd writes as octal digits, without setuid,
// setgid and sticky.
func modeOf(digits int) fs.FileMode {
	var m fs.FileMode
	for shift := 0; shift < 9; shift += 3 {
		m |= fs.FileMode(digits%10&7) << shift
		digits /= 10
	}
	return m
}

// in copies from the host to the sandbox.
func (c *copier) in(ctx context.Context, from, to string) error {
	st, err := os.Stat(from)
	if err != nil {
		return absent(from, err)
	}
	if info, err := c.sb.Stat(ctx, to, c.access); err == nil && info.Type == "directory" {
		abs, err := filepath.Abs(from)
		if err != nil {
			return err
		}
		to = path.Join(to, filepath.Base(abs))
	} else if err != nil && sandbox.KindOf(err) != sandbox.KindNotFound {
		return err
	}
	switch {
	case st.Mode().IsRegular():
		f, err := os.Open(from)
		if err != nil {
			return absent(from, err)
		}
		return c.fileIn(ctx, f, to)
	case st.IsDir():
		return c.directoryIn(ctx, from, to)
	}
	return usage("only files and directories can be copied", "%s is neither", from)
}

// directoryIn copies a directory.
func (c *copier) directoryIn(ctx context.Context, from, to string) error {
	root, err := os.OpenRoot(from)
	if err != nil {
		return absent(from, err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !utf8.ValidString(name) { // JSON would make another name of it
			c.lose(path.Join(from, name))
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		at := path.Join(to, name)
		switch {
		case d.IsDir():
			return c.sb.Mkdir(ctx, at, 0o755, c.access)
		case !d.Type().IsRegular():
			c.skip(path.Join(from, name), d.Type().String())
			return nil
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		return c.fileIn(ctx, f, at)
	})
	if err != nil {
		return err
	}
	return c.incomplete("rename them, and copy again")
}

// fileIn copies one file and closes it.
func (c *copier) fileIn(ctx context.Context, f *os.File, to string) error {
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := c.take(st.Size()); err != nil {
		return err
	}
	_, err = c.sb.Upload(ctx, to, f, sandbox.WriteOptions{Access: c.access, Mode: st.Mode().Perm()})
	return err
}
