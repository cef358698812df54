package layout

import (
	"bytes"
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The size budgets. Generated files have none.
const (
	maxFileLines = 500
	maxFuncLines = 80 // not in tests, where a table may be long
)

// sizes checks the budgets.
func (t *Tree) sizes() []string {
	var faults []string
	for _, f := range t.sources() {
		if ast.IsGenerated(f.Syntax) {
			continue
		}
		if n := bytes.Count(f.Text, []byte("\n")); n > maxFileLines {
			faults = append(faults, fmt.Sprintf("%s has %d lines, more than %d: it probably holds two nouns; give the second its own file, or its own package", f.Name, n, maxFileLines))
		}
		if f.Test() {
			continue
		}
		for _, decl := range f.Syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			n := f.Set.Position(fn.End()).Line - f.Set.Position(fn.Pos()).Line + 1
			if n > maxFuncLines {
				faults = append(faults, fmt.Sprintf("%s: %s has %d lines, more than %d: name its steps as functions, or turn its cases into a table", f.line(fn.Pos()), fn.Name.Name, n, maxFuncLines))
			}
		}
	}
	return faults
}

// comments checks that every package says what it is.
func (t *Tree) comments() []string {
	described := map[string]bool{}
	for _, f := range t.sources() {
		pkg := f.Package()
		described[pkg] = described[pkg] || !f.Test() && len(f.Syntax.Doc.Text()) > 0
	}
	var faults []string
	for pkg, ok := range described {
		if !ok {
			faults = append(faults, fmt.Sprintf("package %s has no package comment: say in the file named like the package what it is and what it is not", pkg))
		}
	}
	slices.Sort(faults)
	return faults
}

// names refuses packages whose name would fit any project.
func (t *Tree) names() []string {
	var faults []string
	for _, f := range t.sources() {
		name := path.Base(f.Package())
		switch strings.TrimSuffix(name, "s") {
		case "util", "utility", "common", "helper", "misc", "shared", "lib", "base", "type":
			fault := fmt.Sprintf("package %s: %q would fit any project; move the code to its caller, or name the noun it is about", f.Package(), name)
			if !slices.Contains(faults, fault) {
				faults = append(faults, fault)
			}
		}
	}
	return faults
}

// The ways to read the process's surroundings: package, and the members that
// do (all of them when empty).
var ambientReads = map[string][]string{
	"os":      {"Getenv", "LookupEnv", "Environ", "ExpandEnv", "UserHomeDir", "UserConfigDir", "UserCacheDir", "Args"},
	"syscall": {"Getenv", "Environ"},
	"flag":    nil,

	"github.com/spf13/pflag": nil,
	"github.com/spf13/cobra": nil,
}

// configPlace matches a literal that is nothing but where configuration or
// state lies; a hint may mention it.
var configPlace = regexp.MustCompile("^[\"`](XDG_[A-Z_]+|/etc/rein[^ ]*)[\"`]$")

// ambient checks that environment, arguments and configuration files are read
// by commands only. bench is a command too.
func (t *Tree) ambient() []string {
	const instead = "only cmd/ reads it: take a value in the package's options, with what the zero value means"
	var faults []string
	for _, f := range t.sources() {
		if f.Test() || strings.HasPrefix(f.Name, "cmd/") || strings.HasPrefix(f.Name, "bench/") {
			continue
		}
		local := map[string]string{} // name in this file → import path
		for _, spec := range f.Syntax.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if _, ok := ambientReads[name]; !ok {
				continue
			}
			local[path.Base(name)] = name
			if spec.Name != nil {
				local[spec.Name.Name] = name
			}
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				id, ok := n.X.(*ast.Ident)
				if !ok || local[id.Name] == "" {
					return true
				}
				members := ambientReads[local[id.Name]]
				if members == nil || slices.Contains(members, n.Sel.Name) {
					faults = append(faults, fmt.Sprintf("%s: %s.%s reads the process's surroundings; %s", f.line(n.Pos()), id.Name, n.Sel.Name, instead))
				}
			case *ast.BasicLit:
				if configPlace.MatchString(n.Value) {
					faults = append(faults, fmt.Sprintf("%s: %s is where configuration lies; %s", f.line(n.Pos()), n.Value, instead))
				}
			}
			return true
		})
	}
	return faults
}

// Paths of the machines rein happens to be written on, put together here so that
// this file does not hold them.
var foreign = []string{"/wo" + "rk/", "/tmp/" + "team", ".lib" + "rary/"}

// paths refuses them in every file.
func (t *Tree) paths() []string {
	var faults []string
	for _, f := range t.Files {
		for i, line := range bytes.Split(f.Text, []byte("\n")) {
			for _, p := range foreign {
				if bytes.Contains(line, []byte(p)) {
					faults = append(faults, fmt.Sprintf("%s:%d: %q is a path of somebody's machine: use one relative to the tree, or a temporary directory", f.Name, i+1, p))
				}
			}
		}
	}
	return faults
}

// dependencies checks that every imported module was decided about.
func (t *Tree) dependencies() []string {
	var decided []string
	for _, f := range t.Files {
		if f.Name == "docs/design-decisions.md" {
			for _, m := range regexp.MustCompile("`([^` ]+)`").FindAllSubmatch(f.Text, -1) {
				decided = append(decided, string(m[1]))
			}
		}
	}
	var faults []string
	for _, f := range t.sources() {
		for _, spec := range f.Syntax.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			host, _, _ := strings.Cut(name, "/")
			if !strings.Contains(host, ".") || strings.HasPrefix(name, t.Module+"/") {
				continue
			}
			short := strings.TrimPrefix(name, "github.com/")
			if !slices.ContainsFunc(decided, func(d string) bool { return short == d || strings.HasPrefix(short, d+"/") }) {
				faults = append(faults, fmt.Sprintf("%s: nobody decided about %s: add the module with its reason to docs/design-decisions.md, or do without", f.line(spec.Pos()), name))
			}
		}
	}
	return faults
}

var link = regexp.MustCompile(`\]\(([^)#: ]+)(?:#[^)]*)?\)`)

// links checks that what documents point at inside the tree is there.
func (t *Tree) links() []string {
	there := map[string]bool{}
	for _, f := range t.Files {
		for name := f.Name; name != "."; name = path.Dir(name) {
			there[name] = true
		}
	}
	var faults []string
	for _, f := range t.Files {
		if path.Ext(f.Name) != ".md" {
			continue
		}
		for _, m := range link.FindAllSubmatch(f.Text, -1) {
			if target := path.Join(f.Package(), string(m[1])); !there[target] {
				faults = append(faults, fmt.Sprintf("%s points at %s, which is not there", f.Name, target))
			}
		}
	}
	return faults
}
