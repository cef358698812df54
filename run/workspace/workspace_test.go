package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/run/workspace"
)

// lay writes files: a name ending in a slash is a directory, a content that
// begins with "-> " a link.
func lay(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		full := filepath.Join(dir, name)
		parent := filepath.Dir(full)
		if strings.HasSuffix(name, "/") {
			parent = full
		}
		if err := os.MkdirAll(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(to, full)
		} else if parent != full {
			err = os.WriteFile(full, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func scan(t *testing.T, dir string, o workspace.Options) *workspace.Tree {
	t.Helper()
	tree, err := workspace.Scan(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

func paths(tree *workspace.Tree) []string {
	var out []string
	for _, e := range tree.Entries {
		out = append(out, e.Path)
	}
	return out
}

func TestScan(t *testing.T) {
	dir := lay(t, map[string]string{
		"main.go": "package main\n", ".gitignore": "*.log\n/build/\n", ".reinignore": "!keep.log\n",
		"x.log": "1", "keep.log": "2", "build/out": "3", "sub/build/out": "4", "sub/.gitignore": "out\n",
		".git/config": "secret", "sub/.git": "gitdir: x", ".env": "KEY=1", "empty/": "",
		"in": "-> main.go", "up": "-> sub/../main.go", "out": "-> ../x", "abs": "-> /etc/passwd",
	})
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "main.go"), 0o4755); err != nil {
		t.Fatal(err)
	}
	tree := scan(t, dir, workspace.Options{Secret: func(p string) bool { return p == ".env" }})
	want := []string{".gitignore", ".reinignore", "empty", "in", "keep.log", "main.go", "sub", "sub/.gitignore", "sub/build", "up"}
	if d := cmp.Diff(want, paths(tree)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"build", "sub/build/out", "x.log"}, tree.Ignored); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{".env"}, tree.Secrets); d != "" {
		t.Error(d)
	}
	var skipped []string
	for _, s := range tree.Skipped {
		skipped = append(skipped, s.Path)
	}
	if d := cmp.Diff([]string{"abs", "fifo", "out"}, skipped); d != "" {
		t.Error(d)
	}
	i := slices.IndexFunc(tree.Entries, func(e *workspace.Entry) bool { return e.Path == "main.go" })
	if p := tree.Entries[i].Perm; p != 0o755 {
		t.Errorf("permissions are %o", p)
	}
	all := scan(t, dir, workspace.Options{NoIgnore: true})
	if got := paths(all); !slices.Contains(got, "x.log") || slices.Contains(got, ".git") {
		t.Errorf("got %q", got)
	}
}

func TestNamesThatAreNoUTF8(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "a\xff"), nil, 0o644), os.WriteFile(filepath.Join(dir, "a\ufffd"), nil, 0o644), os.Symlink("a\xff", filepath.Join(dir, "link")),
		os.Mkdir(filepath.Join(dir, "d\xff"), 0o755), os.WriteFile(filepath.Join(dir, "é"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	tree, err := workspace.Scan(t.Context(), dir, workspace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if tree.Files != 1 || len(tree.Skipped) != 4 {
		t.Errorf("%d files, left out: %+v", tree.Files, tree.Skipped)
	}
}

func TestReadHashesAndNoticesChange(t *testing.T) {
	dir := lay(t, map[string]string{"a": "one", "b": "two"})
	tree := scan(t, dir, workspace.Options{})
	for _, e := range tree.Entries {
		r, err := tree.Read(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	before := tree.Hash()
	if data, err := tree.Content(tree.Entries[0]); err != nil || string(data) != "one" {
		t.Errorf("got %q, %v", data, err)
	}
	for _, text := range []string{"ONE", "longer", ""} {
		os.WriteFile(filepath.Join(dir, "a"), []byte(text), 0o644)
		if _, err := tree.Content(tree.Entries[0]); !errors.Is(err, workspace.ErrChanged) {
			t.Errorf("%q: got %v", text, err)
		}
	}
	r, err := tree.Read(tree.Entries[0])
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadAll(r); err == nil {
		t.Error("a file that shrank was read without complaint")
	}
	if before != tree.Hash() {
		t.Error("the tree's hash changed with the host's file")
	}
}

// A file replaced by a link or a FIFO after the scan is not followed.
func TestReadAfterSwap(t *testing.T) {
	dir := lay(t, map[string]string{"a": "one", "b": "two", "c": "three"})
	tree := scan(t, dir, workspace.Options{})
	os.Remove(filepath.Join(dir, "a"))
	os.Symlink("/etc/passwd", filepath.Join(dir, "a"))
	os.Remove(filepath.Join(dir, "b"))
	syscall.Mkfifo(filepath.Join(dir, "b"), 0o644)
	os.Remove(filepath.Join(dir, "c"))
	os.Symlink("b", filepath.Join(dir, "c"))
	for _, e := range tree.Entries {
		if r, err := tree.Read(e); err == nil {
			r.Close()
			t.Errorf("%s was opened", e.Path)
		}
	}
}

func TestTooLarge(t *testing.T) {
	dir := lay(t, map[string]string{"big/a": strings.Repeat("x", 600), "big/b": strings.Repeat("x", 600), "small": "y"})
	_, err := workspace.Scan(context.Background(), dir, workspace.Options{MaxBytes: 1000})
	e, ok := errors.AsType[*workspace.TooLargeError](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	if e.Bytes != 1201 || e.Largest[0].Path != "big" || e.Largest[0].Bytes != 1200 || e.Largest[0].Files != 2 {
		t.Errorf("got %+v", e)
	}
}

// TestPatternsAsGit compares with git itself.
func TestPatternsAsGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err) // installed there; elsewhere git is optional
		}
		t.Skip("there is no git to compare with")
	}
	ignore := strings.Join([]string{
		"# comment", `\#hash`, `\!bang`, "*.o", "!keep.o", "/top", "dir/", "a/b", "doc/*.txt", "**/deep", "x/**", "m/**/n",
		"q?", "[a-c]1", "[!a-c]2", "space ", `tail\ `, "foo/**/", "*.tmp/", "/lit.x", "UPPER", "p/q/", "!p/q/keep", "[", "/", "!",
	}, "\n")
	names := []string{
		"#hash", "!bang", "z.o", "keep.o", "s/z.o", "top", "s/top", "dir/f", "s/dir/f", "a/b", "s/a/b", "a/b/c", "doc/x.txt",
		"doc/s/x.txt", "s/doc/x.txt", "deep", "s/s/deep", "x/w", "x/y/z", "s/x/y", "m/n", "m/1/n", "m/3/2/n", "qz", "q", "qzz",
		"a1", "d1", "a2", "d2", "space", "tail ", "foo/a/b", "foo/a", "foo/x/y/z", "r.tmp/f", "r.tmpx", "litax", "lit.x", "upper",
		"UPPER", "p/q/keep", "p/q2", "dirf", "s/s/dir/x", "bracket[", "s/dir2/dir/f",
	}
	files := map[string]string{".gitignore": ignore}
	for _, n := range names {
		files[n] = "x"
	}
	delete(files, "a/b") // a directory here
	delete(files, "foo/a")
	dir := lay(t, files)
	run := func(in string, args ...string) string {
		cmd := exec.Command(git, args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(in)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		var out, fault bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &fault
		if err := cmd.Run(); err != nil && fault.Len() > 0 {
			t.Fatalf("git %v: %v %s", args, err, &fault)
		}
		return out.String()
	}
	run("", "init", "-q")
	git1 := strings.Split(strings.TrimSuffix(run("", "ls-files", "-z", "--others", "--exclude-standard"), "\x00"), "\x00")
	var ours []string
	for _, e := range scan(t, dir, workspace.Options{}).Entries {
		if e.Type != workspace.Dir {
			ours = append(ours, e.Path)
		}
	}
	slices.Sort(git1)
	slices.Sort(ours)
	if d := cmp.Diff(git1, ours); d != "" {
		t.Error(d)
	}
}

func TestCovers(t *testing.T) {
	p := workspace.Compile("*_test.go\n/vendor/\n")
	for name, want := range map[string]bool{"a_test.go": true, "x/a_test.go": true, "vendor/a.go": true, "x/vendor/a.go": false, "a.go": false} {
		if p.Covers(name) != want {
			t.Errorf("%s: got %v", name, !want)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add("*.o\n!a\n/b/**\n", "x/y.o")
	f.Add("[\n\\\n**/**/**\n", "a/b/c/d")
	f.Fuzz(func(t *testing.T, text, name string) {
		p := workspace.Compile(text)
		p.Match(name, true)
		p.Covers(name)
	})
}
