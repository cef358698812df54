package run_test

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// furnished makes sandboxes whose working directory is not empty, as images do.
type furnished struct {
	sandbox.Provider
	files      map[string]string
	entrypoint []string
}

func (p furnished) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	info, err := p.Provider.Create(ctx, spec)
	info.Entrypoint = p.entrypoint
	if err != nil {
		return info, err
	}
	box, err := sandbox.Attach(ctx, p.Provider, info.ID, sandbox.Options{Log: audit.New(io.Discard, audit.Options{})})
	if err != nil {
		return info, err
	}
	defer box.Close()
	for name, text := range p.files {
		if _, err := box.WriteFile(ctx, info.Cwd+"/"+name, []byte(text), sandbox.WriteOptions{}); err != nil {
			return info, err
		}
	}
	return info, nil
}

// What an image has in the working directory is no part of the work, unless the
// worker changes it.
func TestFilesThatWereThere(t *testing.T) {
	o := options(t)
	o.Provider = furnished{Provider: o.Provider, files: map[string]string{
		"hello.txt": "hello\n", "conf.ini": "a=1\n", "gone.txt": "x\n", "lib/deep/x.py": "x\n", ".env": "KEY=1\n", "main.sh": "the image's\n",
		"node_modules/a/index.js": "a\n",
	}}
	o.Workspace.Dir = lay(t, map[string]string{"main.sh": "echo main\n", "kept.sh": "echo kept\n", ".gitignore": "node_modules/\n"})
	o.Protect, o.Accept = []string{"lib/", "hello.txt", ".env"}, []run.Check{{Shell: "true"}}
	rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		if r := shell(t, ctx, s, "echo b=2 >> conf.ini; rm gone.txt; echo new > new.txt; echo '# more' >> main.sh; echo b > node_modules/a/b.js"); !r.OK {
			t.Errorf("%+v %v", r, r.Err)
		}
		return done("")
	})
	got := paths(rep.Patch.Files, func(c run.Change) string { return c.Kind + " " + c.Path })
	slices.Sort(got)
	if d := cmp.Diff([]string{"added conf.ini", "added new.txt", "modified main.sh"}, got); d != "" {
		t.Error(d)
	}
	if rep.Reason != run.Done || len(rep.Patch.Skipped) > 0 {
		t.Errorf("%s, skipped %+v, protected %+v", rep.Reason, rep.Patch.Skipped, rep.Protected)
	}
	text, err := os.ReadFile(rep.Patch.Path)
	if err != nil || !strings.Contains(string(text), "+a=1\n+b=2\n") {
		t.Errorf("%v in %s", err, text)
	}
}

// What the image starts is part of what happened.
func TestEntrypointThatFails(t *testing.T) {
	for _, c := range []struct {
		entrypoint []string
		want       string
	}{
		{[]string{"sh", "-c", "echo no config with hunter2hunter2; exit 7"}, "exit code 7: no config with [secret:key]"},
		{[]string{"/no/such/program"}, "/no/such/program, failed: exit code 127"},
		{[]string{"sh", "-c", "true"}, ""},
	} {
		o := options(t)
		o.Provider = furnished{Provider: o.Provider, entrypoint: c.entrypoint}
		o.Masker = secret.NewMasker(secret.New("key", "hunter2hunter2"))
		rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
			_, err := s.Sandbox().Wait(ctx, sandbox.EntrypointID)
			if err != nil {
				t.Error(err)
			}
			return done("")
		})
		got := strings.Join(rep.Warnings, "\n")
		if c.want == "" && strings.Contains(got, "image starts") || !strings.Contains(got, c.want) {
			t.Errorf("%q: warnings %q, want %q", c.entrypoint, got, c.want)
		}
	}
}
