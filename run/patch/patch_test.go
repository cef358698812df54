package patch_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/run/patch"
)

type tree map[string]patch.Side

func file(s string) patch.Side { return patch.Side{Mode: patch.Regular, Data: []byte(s)} }
func exe(s string) patch.Side  { return patch.Side{Mode: patch.Executable, Data: []byte(s)} }
func link(s string) patch.Side { return patch.Side{Mode: patch.Link, Data: []byte(s)} }

func noise(n int) string {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	b[0] = 0
	return string(b)
}

var (
	lines  = strings.Repeat("same\n", 30) + "old\n" + strings.Repeat("same\n", 30) + "x\ny\nz\n"
	lines2 = "first\n" + strings.Repeat("same\n", 30) + "new\nnewer\n" + strings.Repeat("same\n", 30) + "x\nz"
)

// cases are trees before and after; between them they have every kind of change.
var cases = []struct {
	name     string
	old, new tree
}{
	{"nothing", tree{"a": file("a\n")}, tree{"a": file("a\n")}},
	{"text", tree{"dir/a": file(lines)}, tree{"dir/a": file(lines2)}},
	{"added", tree{}, tree{"new/deep/file": file("one\ntwo\n"), "noeol": file("x"), "empty": file("")}},
	{"deleted", tree{"gone/a": file("one\n"), "empty": file(""), "stay": file("s\n")}, tree{"stay": file("s\n")}},
	{"mode", tree{"s": file("#!/bin/sh\n"), "t": exe("x\n")}, tree{"s": exe("#!/bin/sh\n"), "t": file("y\n")}},
	{"binary", tree{"b": file(noise(1)), "c": file("text\n"), "d": file(noise(99))}, tree{"b": file(noise(5000)), "c": file(noise(27))}},
	{"to empty", tree{"a": file("a\n"), "b": file(noise(9))}, tree{"a": file(""), "b": file("")}},
	{"crlf and bytes", tree{"a": file("a\r\nb\r\n\xff\xfe\n")}, tree{"a": file("a\r\nB\r\n\xff\xfd\n")}},
	{"names", tree{"sp ace": file("a\n"), "t\tab": file("a\n"), "ü\n\"q\\": file("a\n")},
		tree{"sp ace": file("b\n"), "t\tab": file("b\n"), "ü\n\"q\\": file("b\n"), " b/ a": file("c\n")}},
	{"links", tree{"l": link("a"), "m": file("m\n"), "n": link("a"), "a": file("a\n")},
		tree{"l": link("b"), "m": link("a"), "n": file("n\n"), "a": file("a\n"), "d/up": link("../a")}},
	{"looks like a patch", tree{"a": file("--- x\n+++ y\n@@ -1 +1 @@\n")}, tree{"a": file("-- x\n++ y\ndiff --git a/x b/x\n")}},
}

// lay writes a tree to a new directory.
func lay(t *testing.T, tr tree) string {
	t.Helper()
	dir := t.TempDir()
	for name, s := range tr {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch s.Mode {
		case patch.Link:
			err = os.Symlink(string(s.Data), full)
		case patch.Executable:
			err = os.WriteFile(full, s.Data, 0o755)
		default:
			err = os.WriteFile(full, s.Data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// take reads a directory back.
func take(t *testing.T, dir string) tree {
	t.Helper()
	tr := tree{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		if d.Type() == fs.ModeSymlink {
			target, err := os.Readlink(p)
			tr[name] = link(target)
			return err
		}
		data, err := os.ReadFile(p)
		info, _ := d.Info()
		if tr[name] = file(string(data)); info.Mode()&0o100 != 0 {
			tr[name] = exe(string(data))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func between(t testing.TB, old, new tree) []byte {
	t.Helper()
	var b bytes.Buffer
	for name, s := range old {
		if err := patch.Write(&b, name, s, new[name]); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range new {
		if _, ok := old[name]; !ok {
			if err := patch.Write(&b, name, patch.Side{}, s); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.Bytes()
}

func yes(patch.Concern) (bool, error) { return true, nil }

func TestApplyGivesTheNewTree(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := lay(t, c.old)
			p := between(t, c.old, c.new)
			applied := func() bool {
				was, err := patch.Applied(t.Context(), dir, bytes.NewReader(p))
				return err == nil && was
			}
			if applied() && len(p) > 0 {
				t.Error("applied, it says, before")
			}
			if _, err := patch.Apply(context.Background(), dir, bytes.NewReader(p), yes); err != nil {
				t.Fatalf("%v\n%s", err, p)
			}
			if !applied() {
				t.Error("not applied, it says")
			}
			if d := cmp.Diff(c.new, take(t, dir)); d != "" {
				t.Errorf("%s\n%s", d, p)
			}
		})
	}
}

func TestGitAppliesIt(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err) // installed there; elsewhere git is optional
		}
		t.Skip("there is no git to compare with")
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := lay(t, c.old)
			p := between(t, c.old, c.new)
			if len(p) == 0 {
				return
			}
			cmd := exec.Command(git, "apply", "--whitespace=nowarn", "-")
			cmd.Dir, cmd.Stdin = dir, bytes.NewReader(p)
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s\n%s", err, out, p)
			}
			if d := cmp.Diff(c.new, take(t, dir)); d != "" {
				t.Errorf("%s\n%s", d, p)
			}
		})
	}
}

func TestApplyToChangedFile(t *testing.T) {
	p := between(t, tree{"a": file(lines)}, tree{"a": file(strings.Replace(lines, "old\n", "new\n", 1))})
	t.Run("moved", func(t *testing.T) {
		dir := lay(t, tree{"a": file("added above\n" + lines)})
		if _, err := patch.Apply(context.Background(), dir, bytes.NewReader(p), nil); err != nil {
			t.Fatal(err)
		}
		want := "added above\n" + strings.Replace(lines, "old\n", "new\n", 1)
		if got := take(t, dir)["a"]; string(got.Data) != want {
			t.Errorf("got %q", got.Data)
		}
	})
	t.Run("conflict", func(t *testing.T) {
		before := tree{"a": file(strings.Replace(lines, "old\n", "theirs\n", 1))}
		dir := lay(t, before)
		_, err := patch.Apply(context.Background(), dir, bytes.NewReader(p), nil)
		if !errors.Is(err, patch.ErrMismatch) {
			t.Errorf("got %v", err)
		}
		if d := cmp.Diff(before, take(t, dir)); d != "" {
			t.Error(d)
		}
	})
}

// head is a hand-made patch that creates name with one line.
func head(name, mode, line string) string {
	return "diff --git a/" + name + " b/" + name + "\nnew file mode " + mode +
		"\nindex " + strings.Repeat("0", 40) + ".." + strings.Repeat("1", 40) +
		"\n--- /dev/null\n+++ b/" + name + "\n@@ -0,0 +1 @@\n+" + line + "\n"
}

func TestHostilePatchesChangeNothing(t *testing.T) {
	outside := t.TempDir()
	base := tree{"a": file("a\n"), "out": link(outside), "d/f": file("f\n"), "self": link("d")}
	good := string(between(t, tree{}, tree{"zzz": file("new\n")}))
	for _, c := range []struct{ name, patch string }{
		{"dotdot", head("../x", "100644", "x")},
		{"dotdot inside", head("d/../../x", "100644", "x")},
		{"absolute", strings.ReplaceAll(head("Z", "100644", "x"), "Z", "/tmp/x")},
		{"git directory", head(".git/config", "100644", "x")},
		{"git directory in other case", head("d/.GIT/hooks/pre-commit", "100755", "x")},
		{"through a link out", head("out/x", "100644", "x")},
		{"through a link within", head("self/x", "100644", "x")},
		{"device mode", head("dev", "060000", "x")},
		{"setuid mode", head("s", "104755", "x")},
		{"beneath a file", head("a/x", "100644", "x")},
		{"link out", strings.Replace(head("l", "120000", "../../etc"), "+../../etc\n", "+../../etc\n\\ No newline at end of file\n", 1)},
		{"false hash", head("h", "100644", "x")},
		{"creates what exists", string(between(t, tree{}, tree{"a": file("b\n")}))},
		{"deletes what is not there", string(between(t, tree{"q": file("b\n")}, tree{}))},
		{"twice", string(between(t, tree{}, tree{"q": file("b\n")})) + string(between(t, tree{}, tree{"q": file("c\n")}))},
		{"link and beneath it", string(between(t, tree{}, tree{"n": link("d")})) + string(between(t, tree{}, tree{"n/x": file("c\n")}))},
		{"garbage", "hello\n"},
		{"rename", "diff --git a/a b/c\nsimilarity index 100%\nrename from a\nrename to c\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := lay(t, base)
			before := take(t, dir)
			_, err := patch.Apply(context.Background(), dir, strings.NewReader(good+c.patch), yes)
			if err == nil {
				t.Error("it was applied")
			}
			if d := cmp.Diff(before, take(t, dir)); d != "" {
				t.Errorf("after %v:\n%s", err, d)
			}
			if names, _ := os.ReadDir(outside); len(names) > 0 {
				t.Errorf("outside: %v", names)
			}
		})
	}
}

func TestConcerns(t *testing.T) {
	for _, c := range []struct {
		name string
		side patch.Side
		kind string
	}{
		{".husky/pre-commit", file("x\n"), "hook"},
		{".github/workflows/ci.yml", file("x\n"), "ci"},
		{"sub/.gitlab-ci.yml", file("x\n"), "ci"},
		{"Jenkinsfile", file("x\n"), "ci"},
		{"bin/tool", exe("x\n"), "executable"},
		{".bashrc", file("x\n"), "dotfile"},
		{"l", link("a"), "link"},
		{"plain.go", file("x\n"), ""},
		{"src/hooks/use.ts", file("x\n"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := between(t, tree{}, tree{c.name: c.side})
			var got []patch.Concern
			note := func(c patch.Concern) (bool, error) { got = append(got, c); return true, nil }
			if _, err := patch.Apply(context.Background(), t.TempDir(), bytes.NewReader(p), note); err != nil {
				t.Fatal(err)
			}
			if c.kind == "" {
				if len(got) > 0 {
					t.Errorf("got %v", got)
				}
				return
			}
			if len(got) != 1 || got[0].Kind != c.kind {
				t.Fatalf("got %v, want %s", got, c.kind)
			}
			for _, confirm := range []func(patch.Concern) (bool, error){nil, func(patch.Concern) (bool, error) { return false, nil }} {
				dir := lay(t, tree{"a": file("a\n")})
				if _, err := patch.Apply(context.Background(), dir, bytes.NewReader(p), confirm); !errors.Is(err, patch.ErrDeclined) {
					t.Errorf("got %v", err)
				}
				if d := cmp.Diff(tree{"a": file("a\n")}, take(t, dir)); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func TestApplyKeepsPermissions(t *testing.T) {
	dir := lay(t, tree{"a": file("a\n")})
	if err := os.Chmod(filepath.Join(dir, "a"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := between(t, tree{"a": file("a\n")}, tree{"a": exe("b\n")})
	if _, err := patch.Apply(context.Background(), dir, bytes.NewReader(p), yes); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "a"))
	if err != nil || info.Mode() != 0o700 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
}

func TestWriteRefuses(t *testing.T) {
	for name, s := range map[string]patch.Side{
		"../x": file("x"), "/x": file("x"), ".git/x": file("x"), "a//b": file("x"),
		"l": link("/etc/passwd"), "d/l": link("../../x"),
	} {
		if err := patch.Write(io.Discard, name, patch.Side{}, s); err == nil {
			t.Errorf("%s was written", name)
		}
	}
}

// FuzzRead: whatever a patch says, reading it ends, and applying it stays
// within the directory.
func FuzzRead(f *testing.F) {
	for _, c := range cases {
		f.Add(between(f, c.old, c.new))
	}
	f.Add([]byte(head("../x", "100644", "x")))
	f.Add([]byte("diff --git \"a/\\303\" \"b/\\303\"\nold mode 100644\nnew mode 100755\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "root")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		before := tree{"a": file(lines), "out": link("..")}
		for name, s := range before {
			if s.Mode == patch.Link {
				os.Symlink(string(s.Data), filepath.Join(dir, name))
			} else {
				os.WriteFile(filepath.Join(dir, name), s.Data, 0o644)
			}
		}
		_, err := patch.Apply(context.Background(), dir, bytes.NewReader(p), yes)
		if names, _ := os.ReadDir(parent); len(names) != 1 {
			t.Fatalf("something appeared outside: %v", names)
		}
		if err != nil {
			if d := cmp.Diff(before, take(t, dir)); d != "" {
				t.Fatalf("after %v:\n%s", err, d)
			}
		}
	})
}

// A link that goes up behind a name leads wherever that name does: out of the
// tree, when it is a link as well.
func TestLinkBehindALink(t *testing.T) {
	t.Parallel()
	for target, ok := range map[string]bool{
		"../../..": true, "../x/./y": true, "x": true, "./../x": true, "a..b/..c": true,
		"up/../x": false, "../up/../../x": false, "./up/..": false, "../../../..": false, "/x": false,
	} {
		err := patch.Write(io.Discard, "a/b/c/l", patch.Side{}, link(target))
		if (err == nil) != ok {
			t.Errorf("%s: %v", target, err)
		}
	}
	dir := t.TempDir()
	var p bytes.Buffer
	if err := patch.Write(&p, "a/b/c/up", patch.Side{}, link("../../..")); err != nil {
		t.Fatal(err)
	}
	p.WriteString("diff --git a/a/b/c/x b/a/b/c/x\nnew file mode 120000\nindex 0000000000000000000000000000000000000000..6dcbbb8e73ad1c933f04b45cae721bbf0752432e\n--- /dev/null\n+++ b/a/b/c/x\n@@ -0,0 +1 @@\n+up/../x\n\\ No newline at end of file\n")
	yes := func(patch.Concern) (bool, error) { return true, nil }
	if _, err := patch.Apply(t.Context(), dir, &p, yes); err == nil || !strings.Contains(err.Error(), "may lead outside") {
		t.Errorf("it is applied: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "a")); err == nil {
		t.Error("a part of it is")
	}
}
