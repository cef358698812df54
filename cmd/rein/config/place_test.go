package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rein-sh/rein/cmd/rein/config"
)

// A file that names a program to run, which a hostile repository would like
// rein to read.
const hostile = "models:\n  m: {vendor: openai, model: x, key: {command: [/tmp/evil]}}\n"

func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		name  string
		setUp func(t *testing.T, dir string) config.Places
		want  string // of the error; empty: nothing is read and nothing is wrong
	}{
		{"nothing anywhere", func(t *testing.T, dir string) config.Places {
			return config.Places{ConfigHome: filepath.Join(dir, "home")}
		}, ""},
		{"files of a repository are not looked at", func(t *testing.T, dir string) config.Places {
			for _, name := range []string{"config.yaml", "rein.yaml", ".rein.yaml", ".rein/config.yaml", ".config/rein/config.yaml", "rein/config.yaml"} {
				write(t, filepath.Join(dir, "repo", name), hostile)
				write(t, filepath.Join(dir, name), hostile)
			}
			return config.Places{ConfigHome: filepath.Join(dir, "home"), Workspaces: []string{filepath.Join(dir, "repo")}}
		}, ""},
		{"configuration home inside the workspace", func(t *testing.T, dir string) config.Places {
			write(t, filepath.Join(dir, "repo", ".config", "rein", "config.yaml"), hostile)
			return config.Places{ConfigHome: filepath.Join(dir, "repo", ".config"), Workspaces: []string{filepath.Join(dir, "repo")}}
		}, "lies in the workspace"},
		{"a link out of the configuration home into the workspace", func(t *testing.T, dir string) config.Places {
			write(t, filepath.Join(dir, "repo", "c.yaml"), hostile)
			link(t, filepath.Join(dir, "repo", "c.yaml"), filepath.Join(dir, "home", "rein", "config.yaml"))
			return config.Places{ConfigHome: filepath.Join(dir, "home"), Workspaces: []string{filepath.Join(dir, "repo")}}
		}, "lies in the workspace"},
		{"a link out of the workspace", func(t *testing.T, dir string) config.Places {
			write(t, filepath.Join(dir, "home", "rein", "config.yaml"), hostile)
			link(t, filepath.Join(dir, "home"), filepath.Join(dir, "repo", "cfg"))
			return config.Places{ConfigHome: filepath.Join(dir, "repo", "cfg"), Workspaces: []string{filepath.Join(dir, "repo")}}
		}, "lies in the workspace"},
		{"the workspace named through a link", func(t *testing.T, dir string) config.Places {
			write(t, filepath.Join(dir, "repo", "rein", "config.yaml"), hostile)
			link(t, filepath.Join(dir, "repo"), filepath.Join(dir, "alias"))
			return config.Places{ConfigHome: filepath.Join(dir, "repo"), Workspaces: []string{filepath.Join(dir, "alias")}}
		}, "lies in the workspace"},
		{"named explicitly in the workspace", func(t *testing.T, dir string) config.Places {
			write(t, filepath.Join(dir, "repo", "c.yaml"), hostile)
			return config.Places{Explicit: filepath.Join(dir, "repo", "c.yaml"), Workspaces: []string{filepath.Join(dir, "repo")}}
		}, "lies in the workspace"},
		{"configuration home above the workspace", func(t *testing.T, dir string) config.Places {
			write(t, filepath.Join(dir, "rein", "config.yaml"), hostile)
			mkdir(t, filepath.Join(dir, "rein", "a", "repo"))
			return config.Places{ConfigHome: dir, Workspaces: []string{filepath.Join(dir, "rein", "a", "repo")}}
		}, "lies above the workspace"},
		{"named explicitly above the workspace", func(t *testing.T, dir string) config.Places {
			write(t, filepath.Join(dir, "c.yaml"), "target: default\n")
			mkdir(t, filepath.Join(dir, "repo"))
			return config.Places{Explicit: filepath.Join(dir, "c.yaml"), Workspaces: []string{filepath.Join(dir, "repo")}}
		}, ""},
		{"relative configuration home", func(t *testing.T, dir string) config.Places {
			return config.Places{ConfigHome: ".config"}
		}, "not an absolute path"},
		{"anyone may write", func(t *testing.T, dir string) config.Places {
			path := filepath.Join(dir, "home", "rein", "config.yaml")
			write(t, path, hostile)
			if err := os.Chmod(path, 0o666); err != nil {
				t.Fatal(err)
			}
			return config.Places{ConfigHome: filepath.Join(dir, "home")}
		}, "anyone may write"},
		{"a pipe", func(t *testing.T, dir string) config.Places {
			path := filepath.Join(dir, "home", "rein", "config.yaml")
			mkdir(t, filepath.Dir(path))
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			return config.Places{ConfigHome: filepath.Join(dir, "home")}
		}, "not a regular file"},
		{"named and missing", func(t *testing.T, dir string) config.Places {
			return config.Places{Explicit: filepath.Join(dir, "none.yaml")}
		}, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := config.Load(c.setUp(t, t.TempDir()))
			if c.want == "" {
				if err != nil || len(f.Config.Models) > 0 {
					t.Errorf("read %+v, %v; want nothing", f, err)
				}
				return
			}
			e, ok := errors.AsType[*config.PlaceError](err)
			if !ok || !strings.Contains(e.Error(), c.want) {
				t.Fatalf("error is %v, want a *config.PlaceError with %q", err, c.want)
			}
			if e.Hint == "" {
				t.Error("there is no hint")
			}
		})
	}
}

// A configuration of another user is refused; root's is not.
func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file of another user")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "rein", "config.yaml")
	write(t, path, "target: default\n")
	if _, err := config.Load(config.Places{ConfigHome: dir}); err != nil {
		t.Errorf("root's own file: %v", err)
	}
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load(config.Places{ConfigHome: dir})
	if err == nil || !strings.Contains(err.Error(), "belongs to uid 12345") {
		t.Errorf("error is %v, want the owner refused", err)
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, name string) {
	t.Helper()
	mkdir(t, filepath.Dir(name))
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{config.Example, hostile, "", "---\n", "a: b", "targets: {a: {mounts: [{source: x}]}}", "limits: {max_steps: 1}\n", "? a\n: b\n", "a: &x\n  *x : y", "- - -"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := config.Decode("f", data)
		if err != nil {
			if e, ok := errors.AsType[*config.Error](err); !ok || len(e.Problems) == 0 {
				t.Fatalf("error %v is no *config.Error with problems", err)
			}
			return
		}
		if err := config.Validate(file, known); err == nil {
			config.Settings(file, file.Config)
		}
	})
}
