package repository

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// repo is a repository that was found.
type repo struct {
	top    string   // the directory that is checked out
	prefix string   // from there to the one that was asked about; "" for itself
	git    *os.Root // HEAD and the index
	common *os.Root // references; the same unless it is a linked worktree
}

func (r *repo) close() {
	if r.common != r.git {
		r.common.Close()
	}
	r.git.Close()
}

// find looks for .git in dir and above it, as far as directories are of the same
// owner: elsewhere others could have put it.
func find(dir string) (*repo, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	owner, err := ownerOf(dir)
	if err != nil {
		return nil, err
	}
	for top := dir; ; top = filepath.Dir(top) {
		if now, err := ownerOf(top); err != nil || now != owner {
			return nil, ErrNone
		}
		r, err := open(top)
		if err == nil {
			if r.prefix, err = filepath.Rel(top, dir); r.prefix == "." {
				r.prefix = ""
			}
			return r, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if top == filepath.Dir(top) {
			return nil, ErrNone
		}
	}
}

func ownerOf(dir string) (uint32, error) {
	st, err := os.Lstat(dir)
	if err != nil {
		return 0, err
	}
	return st.Sys().(*syscall.Stat_t).Uid, nil
}

// open opens the repository whose top is a directory: fs.ErrNotExist where it is
// none's.
func open(top string) (*repo, error) {
	st, err := os.Lstat(filepath.Join(top, ".git"))
	switch {
	case err != nil:
		return nil, err
	case st.Mode().IsRegular():
		return openWorktree(top)
	case !st.IsDir():
		return nil, ErrNone
	}
	git, err := os.OpenRoot(filepath.Join(top, ".git"))
	if err != nil {
		return nil, err
	}
	if _, err := git.Lstat("HEAD"); err != nil { // only called so
		git.Close()
		return nil, err
	}
	return &repo{top: top, git: git, common: git}, nil
}

// openWorktree opens a linked worktree, if the repository it names knows it.
func openWorktree(top string) (r *repo, err error) {
	own, err := os.OpenRoot(top)
	if err != nil {
		return nil, err
	}
	defer own.Close()
	at, err := line(own, ".git", "gitdir: ")
	if err != nil {
		return nil, ErrNone
	}
	if !filepath.IsAbs(at) {
		at = filepath.Join(top, at)
	}
	git, err := os.OpenRoot(at)
	if err != nil {
		return nil, ErrNone
	}
	defer func() {
		if err != nil {
			git.Close()
		}
	}()
	back, err := line(git, "gitdir", "")
	if err != nil {
		return nil, ErrNone
	}
	if !filepath.IsAbs(back) {
		back = filepath.Join(at, back)
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(back)); err != nil || real != top {
		return nil, ErrNone
	}
	shared, err := line(git, "commondir", "")
	if err != nil || shared != "../.." { // what git makes of worktrees
		return nil, ErrNone
	}
	common, err := os.OpenRoot(filepath.Join(at, shared))
	if err != nil {
		return nil, ErrNone
	}
	return &repo{top: top, git: git, common: common}, nil
}

// line is the text of a file of one line, without what it begins with.
func line(root *os.Root, name, begin string) (string, error) {
	data, err := read(root, name, maxHead)
	if err != nil {
		return "", err
	}
	text, ok := strings.CutPrefix(strings.TrimSuffix(string(data), "\n"), begin)
	if !ok || text == "" || strings.ContainsAny(text, "\x00\n") {
		return "", ErrNone
	}
	return text, nil
}
