package repository_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/run/repository"
)

const id = "0123456789abcdef0123456789abcdef01234567"

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  repository.Head
		bad   bool
	}{
		"branch":    {map[string]string{"HEAD": "ref: refs/heads/main\n", "refs/heads/main": id + "\n"}, repository.Head{Commit: id, Ref: "refs/heads/main"}, false},
		"packed":    {map[string]string{"HEAD": "ref: refs/heads/a/b\n", "packed-refs": "# pack-refs\n" + id + " refs/heads/a/b\n^" + id + "\n"}, repository.Head{Commit: id, Ref: "refs/heads/a/b"}, false},
		"detached":  {map[string]string{"HEAD": id + "\n"}, repository.Head{Commit: id}, false},
		"new":       {map[string]string{"HEAD": "ref: refs/heads/main\n"}, repository.Head{Ref: "refs/heads/main"}, false},
		"leads out": {map[string]string{"HEAD": "ref: refs/../../../etc/passwd\n"}, repository.Head{}, true},
		"nonsense":  {map[string]string{"HEAD": "ref: refs/heads/main\n", "refs/heads/main": "root:x:0\n"}, repository.Head{}, true},
		"too long":  {map[string]string{"HEAD": strings.Repeat("a", 5000)}, repository.Head{}, true},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			full := filepath.Join(dir, ".git", file)
			if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := repository.Read(dir); (err != nil) != c.bad || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := repository.Read(t.TempDir()); !errors.Is(err, repository.ErrNone) {
		t.Errorf("no repository: %v", err)
	}
}

func FuzzParseHead(f *testing.F) {
	f.Add([]byte("ref: refs/heads/main\n"))
	f.Add([]byte(id))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := repository.ParseHead(data)
		if err == nil && (h.Ref == "") == (h.Commit == "") {
			t.Fatalf("%q gives %+v", data, h)
		}
		if err == nil && h.Ref != "" && !filepath.IsLocal(h.Ref) {
			t.Fatalf("%q leads out", h.Ref)
		}
		repository.FindPacked(data, "refs/heads/main")
	})
}
