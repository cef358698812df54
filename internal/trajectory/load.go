package trajectory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rein-sh/rein/model/script"
)

// Trajectory is the scripted work on one project.
type Trajectory struct {
	Name   string
	Script *script.Script
}

// Load reads the scripts of a directory.
func Load(dir fs.FS) ([]Trajectory, error) {
	names, err := fs.Glob(dir, "*.yaml")
	if err != nil {
		return nil, err
	}
	var all []Trajectory
	for _, name := range names {
		data, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		s, err := script.Load(data, name)
		if err != nil {
			return nil, err
		}
		all = append(all, Trajectory{Name: strings.TrimPrefix(s.Name(), "script/"), Script: s})
	}
	return all, nil
}

// libraries are the projects that are a part of a standard library of this
// host: real code, of which no copy need be kept. By the trajectory's name.
var libraries = map[string][]string{
	"go-csv":       {"encoding/csv"},
	"go-tabwriter": {"text/tabwriter"},
	"go-list":      {"container/list", "container/heap", "container/ring"},
	"py-shlex":     {"shlex.py"},
	"py-text":      {"textwrap.py", "string.py", "fnmatch.py"},
	"py-diff":      {"difflib.py"},
	"py-sched":     {"sched.py", "heapq.py", "bisect.py", "cmd.py"},
}

// Project puts the project of a trajectory into dir. Those that are kept here
// are in projects.
func (t Trajectory) Project(dir, projects string) error {
	parts, ok := libraries[t.Name]
	kind, name, _ := strings.Cut(t.Name, "-")
	if !ok {
		name, _, _ = strings.Cut(name, "-")
		return os.CopyFS(dir, os.DirFS(filepath.Join(projects, kind+"-"+name)))
	}
	if kind == "go" {
		return goProject(dir, parts)
	}
	return pythonProject(dir, parts)
}

// goProject copies packages of Go's standard library: one at the top, several
// into directories of their names.
func goProject(dir string, packages []string) error {
	root, err := goroot()
	if err != nil {
		return err
	}
	for _, p := range packages {
		to := dir
		if len(packages) > 1 {
			to = filepath.Join(dir, filepath.Base(p))
		}
		if err := os.CopyFS(to, os.DirFS(filepath.Join(root, "src", filepath.FromSlash(p)))); err != nil {
			return err
		}
	}
	mod := fmt.Sprintf("module %s\n\ngo 1.26\n", filepath.Base(packages[0]))
	return os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644)
}

// goroot is where the go command has its standard library.
func goroot() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	return strings.TrimSpace(string(out)), err
}

// pythonProject copies modules of Python's standard library.
func pythonProject(dir string, modules []string) error {
	found, err := filepath.Glob("/usr/lib/python3.*/shlex.py")
	if err != nil || len(found) == 0 {
		return errors.Join(err, errors.New("there is no Python 3 in /usr/lib: apt-get install python3"))
	}
	for _, m := range modules {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(found[0]), m))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, m), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
