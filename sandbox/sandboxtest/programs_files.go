package sandboxtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"time"
)

// each calls f with every remaining argument and its resolved path.
func (p *process) each(follow bool, f func(name, rel string) error) int {
	if len(p.args) == 0 {
		return p.fail(1, "missing operand")
	}
	code := 0
	for _, name := range p.args {
		rel, err := p.shell.files.rel(p.path(name), follow)
		if err == nil {
			err = f(name, rel)
		}
		if err != nil {
			code = p.complain(name, err)
		}
	}
	return code
}

func mkdir(p *process) int {
	_, parents := p.flags("m")['p']
	root := p.shell.files.root
	return p.each(false, func(_, rel string) error {
		if parents {
			return root.MkdirAll(rel, 0o755)
		}
		return root.Mkdir(rel, 0o755)
	})
}

func rm(p *process) int {
	flags := p.flags("")
	_, deep := flags['r']
	_, force := flags['f']
	if force && len(p.args) == 0 {
		return 0
	}
	root := p.shell.files.root
	return p.each(false, func(_, rel string) error {
		info, err := root.Lstat(rel)
		switch {
		case err != nil && force && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case rel == ".":
			return errors.New("refusing to remove /")
		case info.IsDir() && !deep:
			return errors.New("is a directory")
		case info.IsDir():
			return root.RemoveAll(rel)
		}
		return root.Remove(rel)
	})
}

func touch(p *process) int {
	p.flags("")
	root := p.shell.files.root
	return p.each(true, func(_, rel string) error {
		f, err := root.OpenFile(rel, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		now := time.Now()
		return errors.Join(f.Close(), root.Chtimes(rel, now, now))
	})
}

func chmod(p *process) int {
	if len(p.args) < 2 {
		return p.fail(1, "missing operand")
	}
	var mode fs.FileMode
	var add bool
	switch m := p.args[0]; m {
	case "+x", "a+x", "u+x":
		add = true
	default:
		n, err := strconv.ParseUint(m, 8, 12)
		if err != nil {
			return p.fail(1, "invalid mode: %q", m)
		}
		mode = fs.FileMode(n) & fs.ModePerm
	}
	p.args = p.args[1:]
	root := p.shell.files.root
	return p.each(true, func(_, rel string) error {
		if !add {
			return root.Chmod(rel, mode)
		}
		info, err := root.Stat(rel)
		if err != nil {
			return err
		}
		return root.Chmod(rel, info.Mode().Perm()|0o111)
	})
}

// pair is the resolved source and destination of cp, mv and ln; a destination
// that is a directory gets the source's name.
func (p *process) pair(followSource bool) (from, to string, err error) {
	if len(p.args) != 2 {
		return "", "", errors.New("needs a source and a destination")
	}
	if from, err = p.shell.files.rel(p.path(p.args[0]), followSource); err != nil {
		return "", "", err
	}
	if to, err = p.shell.files.rel(p.path(p.args[1]), true); err != nil {
		return "", "", err
	}
	if info, err := p.shell.files.root.Stat(to); err == nil && info.IsDir() {
		to = path.Join(to, path.Base(p.path(p.args[0])))
	}
	return from, to, nil
}

func mv(p *process) int {
	p.flags("")
	from, to, err := p.pair(false)
	if err == nil {
		err = p.shell.files.root.Rename(from, to)
	}
	if err != nil {
		return p.complain("cannot move", err)
	}
	return 0
}

// cp copies files, and with -r or -a directories of files.
func cp(p *process) int {
	flags := p.flags("")
	_, deep := flags['r']
	if _, ok := flags['a']; ok {
		deep = true
	}
	from, to, err := p.pair(true)
	if err == nil {
		err = p.copy(from, to, deep)
	}
	if err != nil {
		return p.complain("cannot copy", err)
	}
	return 0
}

func (p *process) copy(from, to string, deep bool) error {
	root := p.shell.files.root
	info, err := root.Lstat(from)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir() && !deep:
		return errors.New("is a directory")
	case info.IsDir():
		entries, err := fs.ReadDir(root.FS(), from)
		if err != nil {
			return err
		}
		if err := root.MkdirAll(to, info.Mode().Perm()); err != nil {
			return err
		}
		for _, e := range entries {
			if err := p.copy(path.Join(from, e.Name()), path.Join(to, e.Name()), true); err != nil {
				return err
			}
		}
		return nil
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(from)
		if err != nil {
			return err
		}
		return root.Symlink(target, to)
	}
	in, err := root.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func ln(p *process) int {
	flags := p.flags("")
	_, symbolic := flags['s']
	_, force := flags['f']
	root := p.shell.files.root
	from, to, err := p.pair(false)
	if _, ok := flags['n']; ok && len(p.args) == 2 { // replace a link to a directory
		to, err = p.shell.files.rel(p.path(p.args[1]), false)
	}
	if err == nil && force {
		if err = root.Remove(to); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil && symbolic {
		err = root.Symlink(p.args[0], to)
	} else if err == nil {
		err = root.Link(from, to)
	}
	if err != nil {
		return p.complain("cannot link", err)
	}
	return 0
}

func readlink(p *process) int {
	p.flags("")
	return p.each(false, func(_, rel string) error {
		target, err := p.shell.files.root.Readlink(rel)
		if err == nil {
			fmt.Fprintln(p.stdout, target)
		}
		return err
	})
}

// ls lists one name a line, with -a also hidden ones, with -l mode and size.
func ls(p *process) int {
	flags := p.flags("")
	_, all := flags['a']
	_, long := flags['l']
	if len(p.args) == 0 {
		p.args = []string{"."}
	}
	show := func(name string, info fs.FileInfo) {
		if long {
			fmt.Fprintf(p.stdout, "%s %d ", info.Mode(), info.Size())
		}
		fmt.Fprintln(p.stdout, name)
	}
	return p.each(false, func(name, rel string) error {
		info, err := p.shell.files.root.Lstat(rel)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			show(name, info)
			return nil
		}
		entries, err := fs.ReadDir(p.shell.files.root.FS(), rel)
		if err != nil {
			return err
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || e.Name()[0] == '.' && !all {
				continue // gone meanwhile, or hidden
			}
			show(e.Name(), info)
		}
		return nil
	})
}
