// Package layout holds the house rules that a compiler does not: which package
// may import which, where the environment may be read, how large a file may
// grow. Its test checks the tree it lies in, and every message says what to do
// instead.
package layout

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A Tree is a module's files, read once.
type Tree struct {
	Module string // module path, from go.mod
	Ranks  Ranks  // from the table in docs/architecture.md
	Files  []File // sorted by name
}

// File is one file of the tree. Syntax is set for Go files of the module
// itself, and nil for others and for those of modules nested in it.
type File struct {
	Name   string // slash-separated, relative to the root
	Text   []byte
	Syntax *ast.File
	Set    *token.FileSet
}

// Package is the directory of the file, which is its package's path inside the
// module.
func (f File) Package() string { return path.Dir(f.Name) }

// Test reports whether the file is compiled for tests only.
func (f File) Test() bool { return strings.HasSuffix(f.Name, "_test.go") }

func (f File) line(p token.Pos) string {
	return fmt.Sprintf("%s:%d", f.Name, f.Set.Position(p).Line)
}

// maxText bounds what is read of one file: larger ones are data.
const maxText = 1 << 20

// Read reads the tree at root, which holds go.mod and docs/architecture.md.
func Read(root fs.FS) (*Tree, error) {
	t := &Tree{}
	var nested []string
	set := token.NewFileSet()
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case ".git", "bin", "node_modules":
				return fs.SkipDir
			}
			if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil && name != "." {
				nested = append(nested, name+"/")
			}
			return nil
		}
		info, err := d.Info()
		if err != nil || !d.Type().IsRegular() || info.Size() > maxText {
			return err
		}
		f := File{Name: name, Set: set}
		if f.Text, err = fs.ReadFile(root, name); err != nil {
			return err
		}
		if path.Ext(name) == ".go" && !strings.Contains(name, "testdata/") && !within(name, nested) {
			if f.Syntax, err = parser.ParseFile(set, name, f.Text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
				return err
			}
		}
		t.Files = append(t.Files, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, f := range t.Files {
		switch f.Name {
		case "go.mod":
			line, _, _ := bytes.Cut(f.Text, []byte("\n"))
			t.Module = strings.TrimSpace(strings.TrimPrefix(string(line), "module "))
		case "docs/architecture.md":
			if t.Ranks, err = ParseRanks(f.Text); err != nil {
				return nil, err
			}
		}
	}
	if t.Module == "" || t.Ranks == nil {
		return nil, fmt.Errorf("go.mod or docs/architecture.md is missing: this is not the root of the tree")
	}
	return t, nil
}

func within(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(name, dir) })
}

// Check returns everything in the tree that breaks a rule, one message each.
func (t *Tree) Check() []string {
	return slices.Concat(t.imports(), t.comments(), t.names(), t.ambient(), t.sizes(), t.paths(), t.links(), t.dependencies())
}

// sources returns the Go files of this module.
func (t *Tree) sources() []File {
	return slices.DeleteFunc(slices.Clone(t.Files), func(f File) bool { return f.Syntax == nil })
}
