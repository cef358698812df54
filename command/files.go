package command

import (
	"path"
	"strings"
)

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
	if by, ok := builders[path.Base(first)]; ok {
		files = append(files, by...)
		for i, w := range c.Words[1:] {
			if w.Literal && (w.Text == "-f" || w.Text == "--file") && i+2 < len(c.Words) && c.Words[i+2].Literal {
				files = append(files, c.Words[i+2].Text)
			}
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
