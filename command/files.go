package command

import (
	"path"
	"slices"
	"strings"
)

// maxDirs bounds the directories that a line may be in.
const maxDirs = 32

// Executes lists the files the command line reads as programs, each once.
// Where it changes directory first, the file beneath that is listed as well,
// for each of the directories it may be in by then.
func (s *Script) Executes() []string {
	var files []string
	dirs := []string{""}
	seen := map[string]bool{}
	for _, c := range s.simple {
		for _, to := range c.directories() {
			for _, d := range slices.Clone(dirs) {
				if in := beneath(d, to); len(dirs) < maxDirs && !slices.Contains(dirs, in) {
					dirs = append(dirs, in)
				}
			}
		}
		for _, f := range c.Executes {
			for _, d := range dirs {
				if name := beneath(d, f); !seen[name] {
					seen[name] = true
					files = append(files, name)
				}
			}
		}
	}
	return files
}

func beneath(dir, f string) string {
	if dir == "" || path.IsAbs(f) {
		return f
	}
	return path.Join(dir, f)
}

// directories are where a command goes, or lets another begin.
func (c *Simple) directories() []string {
	var dirs []string
	name := path.Base(c.Name())
	changes := name == "cd" || name == "pushd"
	_, builds := builders[name]
	begins := builds || c.Form == Wrapper
	if len(c.Words) == 0 {
		return nil
	}
	for i, w := range c.Words[1:] {
		before := c.Words[i].Text // i counts from the word before
		long, value, assigned := strings.Cut(w.Text, "=")
		switch {
		case !w.Literal || w.Text == "":
		case changes && !strings.HasPrefix(w.Text, "-"), begins && i > 0 && (before == "-C" || before == "--chdir" || before == "--directory"):
			dirs = append(dirs, w.Text)
		case !begins:
		case assigned && (long == "--chdir" || long == "--directory"):
			dirs = append(dirs, value)
		case strings.HasPrefix(w.Text, "-C") && len(w.Text) > 2:
			dirs = append(dirs, w.Text[2:])
		}
	}
	return dirs
}

// executes are the files that a program is known to read as one.
func executes(c Simple) []string {
	if len(c.Words) == 0 {
		return nil
	}
	first := c.Words[0].Text
	var files []string
	if strings.Contains(first, "/") && programName(first) == first {
		files = append(files, first)
	}
	by, ok := builders[path.Base(first)]
	if !ok {
		return files
	}
	files = append(files, by...)
	for i, w := range c.Words[1:] {
		before := c.Words[i].Text // i counts from the word before
		long, value, assigned := strings.Cut(w.Text, "=")
		switch {
		case !w.Literal:
		case i > 0 && (before == "-f" || before == "--file" || before == "--makefile"):
			files = append(files, w.Text)
		case assigned && (long == "--file" || long == "--makefile"):
			files = append(files, value)
		case strings.HasPrefix(w.Text, "-f") && len(w.Text) > 2:
			files = append(files, w.Text[2:])
		}
	}
	return files
}

// builders run what stands in a file of a fixed name.
var builders = map[string][]string{
	"make":   {"Makefile", "makefile", "GNUmakefile"},
	"gmake":  {"Makefile", "makefile", "GNUmakefile"},
	"just":   {"justfile", "Justfile"},
	"npm":    {"package.json"},
	"yarn":   {"package.json"},
	"pnpm":   {"package.json"},
	"rake":   {"Rakefile"},
	"task":   {"Taskfile.yml"},
	"tox":    {"tox.ini"},
	"nox":    {"noxfile.py"},
	"cmake":  {"CMakeLists.txt"},
	"meson":  {"meson.build"},
	"gradle": {"build.gradle", "build.gradle.kts"},
	"mvn":    {"pom.xml"},
}
