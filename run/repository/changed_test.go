package repository_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/run/repository"
)

// git runs git as in an empty home.
func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// A repository that git made: how many of its files have changed, also in a
// directory of it and in a linked worktree, whatever the index's version.
func TestChanged(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err) // installed there; elsewhere git is optional
		}
		t.Skip("git is not here to make a repository")
	}
	for _, version := range []string{"2", "3", "4"} {
		dir := t.TempDir()
		git(t, dir, "init", "-q", "-b", "main")
		git(t, dir, "config", "index.version", version)
		for _, name := range []string{"a", "ab/c", "ab/cd", "sub/x", "sub/y", strings.Repeat("long/", 30) + "z"} {
			write(t, filepath.Join(dir, name), "text of "+name+"\n")
		}
		if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		git(t, dir, "add", ".")
		git(t, dir, "commit", "-qm", "x")
		tree := filepath.Join(t.TempDir(), "tree")
		git(t, dir, "worktree", "add", "-q", "-b", "other", tree)
		count := func(dir string, want int) {
			t.Helper()
			if n, err := repository.Changed(context.Background(), dir); err != nil || n != want {
				t.Errorf("version %s: %s: %d, %v; want %d", version, filepath.Base(dir), n, err, want)
			}
		}
		count(dir, 0)
		count(tree, 0)
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "a"), old, old); err != nil { // touched, and the same
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "untracked"), "")
		count(dir, 0)
		write(t, filepath.Join(dir, "sub/x"), "TEXT of sub/x\n") // of the same size
		count(dir, 1)
		count(filepath.Join(dir, "sub"), 1)
		count(filepath.Join(dir, "ab"), 0)
		if err := errors.Join(os.Remove(filepath.Join(dir, "ab/c")), os.Chmod(filepath.Join(dir, "ab/cd"), 0o755),
			os.Remove(filepath.Join(dir, "link")), os.Symlink("b", filepath.Join(dir, "link"))); err != nil {
			t.Fatal(err)
		}
		count(dir, 4)
		write(t, filepath.Join(tree, "a"), "longer than it was before\n")
		count(tree, 1)
		git(t, dir, "update-index", "--assume-unchanged", "sub/x")
		count(dir, 3)
		main, err := repository.Read(filepath.Join(dir, "sub"))
		linked, err2 := repository.Read(tree)
		if err != nil || err2 != nil || main.Ref != "refs/heads/main" || linked.Ref != "refs/heads/other" || len(main.Commit) != 40 || linked.Commit != main.Commit {
			t.Errorf("%+v, %v; %+v, %v", main, err, linked, err2)
		}
	}
}

// A .git that leads to a repository which knows nothing of it is none.
func TestForgedWorktree(t *testing.T) {
	dir, forged := t.TempDir(), t.TempDir()
	write(t, filepath.Join(dir, ".git/HEAD"), id+"\n")
	for name, text := range map[string]string{
		"the repository itself": "gitdir: " + dir + "/.git\n", "nothing": "gitdir: /gone\n", "no line": "x", "a device": "gitdir: /dev/zero\n", "empty": "",
	} {
		write(t, filepath.Join(forged, ".git"), text)
		if h, err := repository.Read(forged); !errors.Is(err, repository.ErrNone) {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

func FuzzParseIndex(f *testing.F) {
	entry := func(name string) string {
		e := strings.Repeat("\x00", 24) + "\x00\x00\x81\xa4" + strings.Repeat("\x00", 12) + strings.Repeat("i", 20) + "\x00\x01" + name
		return e + strings.Repeat("\x00", 8-len(e)%8)
	}
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x02"+entry("a")+entry("a/long name")+strings.Repeat("s", 20)), 20)
	f.Add([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01"+entry("\x00a")+strings.Repeat("s", 20)), 20)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		if size != 20 {
			size = 32
		}
		entries, err := repository.ParseIndex(data, size)
		if err != nil {
			return
		}
		if len(entries)*(42+size) > len(data) {
			t.Fatalf("%d files of %d bytes", len(entries), len(data))
		}
		for _, e := range entries {
			if e.Path == "" || strings.Contains(e.Path, "\x00") || len(e.ID) != size {
				t.Fatalf("%+v", e)
			}
		}
	})
}
