package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
)

const person = `{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"boss":{"$ref":"#"}},"additionalProperties":false}`

func TestFileChecks(t *testing.T) {
	t.Parallel()
	const hello = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03" // of "hello\n"
	files := map[string]string{"hello": "hello\n", "boss.json": `{"name":"a","boss":{"name":"b"}}`, "odd.json": `{"name":1}`,
		"deep.json": strings.Repeat("[", 300) + strings.Repeat("]", 300), "link": "-> hello"}
	for _, c := range []struct {
		check run.FileCheck
		want  string // "" passes
	}{
		{run.FileCheck{Path: "hello"}, ""},
		{run.FileCheck{Path: "none"}, "none is not there"},
		{run.FileCheck{Path: "none", Absent: true}, ""},
		{run.FileCheck{Path: "hello", Absent: true}, "hello is there"},
		{run.FileCheck{Path: "dir"}, "no regular file"},
		{run.FileCheck{Path: "link", Contains: []string{"hello"}}, "no regular file"},
		{run.FileCheck{Path: "hello", MinBytes: 6, MaxBytes: 6}, ""},
		{run.FileCheck{Path: "hello", MinBytes: 7}, "6 bytes, fewer than 7"},
		{run.FileCheck{Path: "hello", MaxBytes: 5}, "6 bytes, more than 5"},
		{run.FileCheck{Path: "hello", Contains: []string{"ell", "lo\n"}, Matches: []string{`^h.*o`, `(?m)^hello$`}}, ""},
		{run.FileCheck{Path: "hello", Contains: []string{"hello", "bye"}}, `does not contain "bye"`},
		{run.FileCheck{Path: "hello", Matches: []string{`^bye`}}, `matches "^bye"`},
		{run.FileCheck{Path: "hello", SHA256: strings.ToUpper(hello)}, ""},
		{run.FileCheck{Path: "hello", SHA256: strings.Repeat("0", 64)}, "has the SHA-256 " + hello},
		{run.FileCheck{Path: "boss.json", Schema: json.RawMessage(person)}, ""},
		{run.FileCheck{Path: "odd.json", Schema: json.RawMessage(person)}, "not what its schema asks for"},
		{run.FileCheck{Path: "hello", Schema: json.RawMessage(person)}, "no JSON"},
		{run.FileCheck{Path: "deep.json", Schema: json.RawMessage(`{"type":"array","items":{"$ref":"#"}}`)}, "nested deeper"},
	} {
		t.Run(fmt.Sprintf("%s %s", c.check.Path, c.want), func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.Workspace.Dir = lay(t, files)
			o.Accept = []run.Check{{File: &c.check}}
			rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
				shell(t, ctx, s, "mkdir dir")
				return done("made")
			})
			got := rep.Checks[0]
			if got.Passed != (c.want == "") || !strings.Contains(got.Stderr, c.want) || (rep.Accepted == run.Yes) != got.Passed {
				t.Errorf("%s: %+v", rep.Accepted, got)
			}
		})
	}
}

func TestChecksThatMakeNoSense(t *testing.T) {
	file := func(f run.FileCheck) run.Check { return run.Check{File: &f} }
	for name, c := range map[string]run.Check{
		"nothing":             {},
		"two":                 {Shell: "true", File: &run.FileCheck{Path: "a"}},
		"relative program":    {Argv: []string{"./check"}},
		"empty program":       {Argv: []string{"", "a"}},
		"NUL":                 {Argv: []string{"true", "a\x00b"}},
		"directory outside":   {Shell: "true", Cwd: "../x"},
		"file outside":        file(run.FileCheck{Path: "../x"}),
		"no file":             file(run.FileCheck{}),
		"absent with content": file(run.FileCheck{Path: "a", Absent: true, Contains: []string{"x"}}),
		"sizes":               file(run.FileCheck{Path: "a", MinBytes: 5, MaxBytes: 4}),
		"expression":          file(run.FileCheck{Path: "a", Matches: []string{"("}}),
		"hash":                file(run.FileCheck{Path: "a", SHA256: "abc"}),
		"schema":              file(run.FileCheck{Path: "a", Schema: json.RawMessage(`{"type":7}`)}),
		"endless schema":      file(run.FileCheck{Path: "a", Schema: json.RawMessage(`{"$ref":"#"}`)}),
		"endless by two":      file(run.FileCheck{Path: "a", Schema: json.RawMessage(`{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}},"$ref":"#/$defs/a"}`)}),
		"schema elsewhere":    file(run.FileCheck{Path: "a", Schema: json.RawMessage(`{"$ref":"https://example.com/s.json"}`)}),
	} {
		o := options(t)
		o.Accept = []run.Check{c}
		if _, err := run.Do(t.Context(), o, worker(nil)); err == nil {
			t.Errorf("%s is accepted", name)
		} else if _, err := os.Stat(filepath.Join(o.StateDir, "runs")); err == nil {
			t.Errorf("%s: a run was begun", name)
		}
	}
}

// What is protected is again as it was when the checks run, and is reported.
func TestProtectedIsRestored(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]string{
		"changed":            "echo exit 0 > tests/check.sh",
		"removed":            "rm tests/check.sh",
		"a directory":        "rm tests/check.sh; mkdir tests/check.sh; echo x > tests/check.sh/y",
		"a link":             "rm tests/check.sh; ln -s ../good tests/check.sh",
		"the directory gone": "rm -r tests",
		"added":              "echo x > tests/more.sh",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.Workspace.Dir = lay(t, map[string]string{"tests/check.sh": "test -e made", "good": "exit 0"})
			o.Protect = []string{"tests/"}
			o.Accept = []run.Check{{File: &run.FileCheck{Path: "tests/check.sh", Contains: []string{"test -e made"}}},
				{File: &run.FileCheck{Path: "tests/more.sh", Absent: true}}}
			rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
				if res := shell(t, ctx, s, spoil); !res.OK {
					t.Errorf("%+v", res)
				}
				return done("made")
			})
			if rep.Accepted != run.No || !rep.Checks[0].Passed || !rep.Checks[1].Passed {
				t.Errorf("%s: %+v, warnings %q", rep.Accepted, rep.Checks, rep.Warnings)
			}
			if !strings.Contains(recorded(t, rep), `"kind":"`+string(audit.KindRestore)+`"`) {
				t.Error("it is not recorded")
			}
			if rep.Protected == nil {
				t.Error("it is not reported")
			}
		})
	}
}

// A check runs what the worker made, and that has no part in the checks after it:
// not by protected files, by what it leaves in its home, nor by what runs on.
func TestCheckAgainstTheNext(t *testing.T) {
	t.Parallel()
	for _, fresh := range []bool{false, true} {
		for name, c := range map[string]struct {
			spoil string
			warn  string
		}{
			"changes":  {"echo exit 0 > tests/check.sh", "the check first changed tests/check.sh, which is protected; it was put back for the next"},
			"moves":    {"mv tests was; ln -s was tests; echo exit 0 > was/check.sh", "the check first deleted tests/check.sh"},
			"deletes":  {"rm -r tests", "the check first deleted tests/check.sh"},
			"adds":     {"echo touch made > tests/before.sh", "the check first added tests/before.sh"},
			"its home": {"echo touch made > $HOME/before.sh", ""},
		} {
			t.Run(fmt.Sprintf("%s, fresh %v", name, fresh), func(t *testing.T) {
				t.Parallel()
				o := options(t)
				o.Workspace.Dir = lay(t, map[string]string{"tests/check.sh": "for f in tests/before.sh $HOME/before.sh; do test ! -e $f || . $f; done; test -e made", "build.sh": "exit 0"})
				o.Protect, o.Fresh = []string{"tests/"}, fresh
				o.Accept = []run.Check{{Name: "first", Shell: "sh build.sh"}, {Name: "second", Shell: "sh tests/check.sh"},
					{File: &run.FileCheck{Path: "tests/check.sh", Contains: []string{"test -e made"}}}}
				rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
					shell(t, ctx, s, "cat > build.sh <<'E'\n"+c.spoil+"\nE")
					return done("made")
				})
				if rep.Accepted != run.No || len(rep.Checks) != 3 || !rep.Checks[0].Passed || rep.Checks[1].Passed || !rep.Checks[2].Passed {
					t.Errorf("%s: %+v", rep.Accepted, rep.Checks)
				}
				for _, p := range rep.Protected {
					if !p.Unchanged {
						t.Errorf("the worker is said to have changed %s", p.Path)
					}
				}
				if told := strings.Join(rep.Warnings, "\n"); !strings.Contains(told, c.warn) || c.warn == "" && strings.Contains(told, "protected") {
					t.Errorf("warnings %q", rep.Warnings)
				}
				if got := strings.Contains(recorded(t, rep), `"check":"first"`); got != (c.warn != "") {
					t.Errorf("it is recorded: %v", got)
				}
			})
		}
	}
}

// Only those protected files that a check changed and that are not named one by one
// are counted.
func TestCheckAgainstManyFiles(t *testing.T) {
	t.Parallel()
	for _, n := range []int{20, 23} {
		o := options(t)
		files := map[string]string{}
		for i := range n {
			files[fmt.Sprintf("tests/%02d", i)] = "x"
		}
		o.Workspace.Dir = lay(t, files)
		o.Protect = []string{"tests/"}
		o.Accept = []run.Check{{Name: "first", Shell: "rm tests/*"}, {Name: "second", Shell: "test -e tests/00"}}
		rep := do(t, o, func(context.Context, *run.Session) (run.Outcome, error) { return done("made") })
		told := strings.Join(rep.Warnings, "\n")
		if strings.Count(told, "it was put back for the next") != 20 || strings.Contains(told, "more protected files") != (n > 20) || n > 20 && !strings.Contains(told, "3 more protected files") {
			t.Errorf("of %d: %s", n, told)
		}
	}
}

// Checks in a sandbox of their own see the inputs and the patch, and nothing
// else that the worker made of its own.
func TestFreshSandbox(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"a.txt": "one\n", "gone": "x", "kept/deep": "k", ".gitignore": "built\n"})
	o.Fresh, o.Protect = true, []string{"kept/"}
	has := func(path, text string) run.Check {
		return run.Check{File: &run.FileCheck{Path: path, Contains: []string{text}}}
	}
	not := func(path string) run.Check { return run.Check{File: &run.FileCheck{Path: path, Absent: true}} }
	o.Accept = []run.Check{has("a.txt", "two"), has("new/b", "b"), not("gone"), not("built"), not("/tmp/left"), {Argv: []string{"test", "-e", "new/b"}}}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		shell(t, ctx, s, "echo two > a.txt; rm gone; mkdir new; echo b > new/b; echo o > built; echo l > /tmp/left")
		return done("made")
	})
	if rep.Accepted != run.Yes || rep.Reason != run.Done {
		t.Errorf("%s: %s: %+v", rep.Accepted, rep.Conclusion, rep.Checks)
	}
	if n := strings.Count(recorded(t, rep), `"kind":"`+string(audit.KindKilled)+`"`); n != 2 {
		t.Errorf("%d sandboxes were destroyed", n)
	}
}

// A check's home is new, empty and gone afterwards.
func TestHomeOfChecks(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Accept = []run.Check{{Shell: `case "$HOME" in /tmp/rein-check-*) ;; *) exit 1;; esac; test -d "$TMPDIR" && ls -a "$HOME" && test "$A" = b`, Env: map[string]string{"A": "b"}}}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		shell(t, ctx, s, "echo > ~/.profile")
		return done("made")
	})
	if rep.Accepted != run.Yes || strings.Contains(rep.Checks[0].Stdout, "profile") {
		t.Errorf("%+v", rep.Checks)
	}
}
