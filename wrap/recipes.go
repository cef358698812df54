package wrap

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rein-sh/rein/internal/spelling"
	"github.com/rein-sh/rein/wrap/layer"
)

//go:embed recipes/*.yaml
var builtIn embed.FS

// maxRecipe bounds a recipe's file, in bytes.
const maxRecipe = 64 << 10

// Recipes are all that are known, by name: the built-in ones and those of dirs,
// files NAME.yaml, of which a later directory's replaces an earlier one's and any
// replaces a built-in one (Recipe.Replaces says what). A directory that does not
// exist has none. Directories are the host's own: never one of a workspace. The
// error is *Error with every fault, beside the recipes that have none.
func Recipes(dirs ...string) ([]Recipe, error) {
	names := map[string]bool{}
	entries, err := builtIn.ReadDir("recipes")
	if err != nil {
		return nil, err
	}
	faults := &Error{}
	for _, dir := range dirs {
		more, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults.add(Problem{File: dir, Message: reason(err), Hint: "make it readable, or remove it"})
		}
		entries = append(entries, more...)
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok {
			names[name] = true
		}
	}
	var out []Recipe
	for _, name := range slices.Sorted(maps.Keys(names)) {
		r, err := find(name, dirs)
		if e, ok := errors.AsType[*Error](err); ok {
			faults.Problems = append(faults.Problems, e.Problems...)
		} else if err != nil {
			return nil, err
		} else if r != nil {
			out = append(out, *r)
		}
	}
	return out, faults.orNil()
}

// UnknownError is the name of an agent that no recipe has.
type UnknownError struct {
	Name  string
	Known []string
}

func (e *UnknownError) Error() string { return fmt.Sprintf("there is no recipe for %q", e.Name) }

// Hint names what was meant.
func (e *UnknownError) Hint() string {
	if n := spelling.Nearest(e.Name, e.Known); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return "known: " + strings.Join(e.Known, ", ")
}

// Find is the recipe of that name, as Recipes has it. Faults of others do not
// matter. Errors are *UnknownError and *Error.
func Find(name string, dirs ...string) (Recipe, error) {
	if !recipeName.MatchString(name) {
		return Recipe{}, unknown(name, dirs)
	}
	r, err := find(name, dirs)
	switch {
	case err != nil:
		return Recipe{}, err
	case r == nil:
		return Recipe{}, unknown(name, dirs)
	}
	return *r, nil
}

func unknown(name string, dirs []string) error {
	e := &UnknownError{Name: name}
	all, _ := Recipes(dirs...) // a faulty one is no help
	for _, r := range all {
		e.Known = append(e.Known, r.Name)
	}
	return e
}

// find is nil without an error when nobody has the recipe.
func find(name string, dirs []string) (*Recipe, error) {
	var found *Recipe
	data, err := builtIn.ReadFile("recipes/" + name + ".yaml")
	if err == nil {
		r, err := Decode("recipe "+name, data)
		if err != nil {
			return nil, err
		}
		found = &r
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, dir := range dirs {
		file := filepath.Join(dir, name+".yaml")
		data, err := readRecipe(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := Decode(file, data)
		if err != nil {
			return nil, err
		}
		if r.Name != name {
			return nil, one(Problem{File: file, Message: fmt.Sprintf("name: the recipe is called %q", r.Name), Hint: "call the file " + r.Name + ".yaml, or the recipe " + name})
		}
		r.From = file
		if found != nil {
			r.Replaces = cmp.Or(found.From, BuiltIn)
		}
		found = &r
	}
	return found, nil
}

// BuiltIn is Recipe.Replaces of one that takes the place of a built-in recipe.
const BuiltIn = "the built-in recipe"

// readRecipe reads a file that nobody else can have written: what it says is
// trusted. What was opened is what is judged.
func readRecipe(file string) ([]byte, error) {
	bad := func(hint, format string, args ...any) ([]byte, error) {
		return nil, one(Problem{File: file, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	if !filepath.IsAbs(file) {
		return bad("name an absolute directory", "its directory depends on where rein is started")
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold us
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return bad("make it readable, or remove it", "%s", reason(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return bad("", "%s", reason(err))
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch uid := uint32(os.Geteuid()); {
	case !info.Mode().IsRegular():
		return bad("remove it", "not a regular file")
	case !ok:
		return bad("", "its owner cannot be told")
	case st.Uid != uid && st.Uid != 0:
		return bad("copy it, so that it is yours", "it belongs to uid %d, neither you (uid %d) nor root", st.Uid, uid)
	case info.Mode().Perm()&0o002 != 0:
		return bad("chmod o-w "+file, "anyone may write to it")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxRecipe+1))
	if err != nil {
		return bad("", "%s", reason(err))
	}
	return data, nil
}

func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// Command is the recipe of any program: it is looked for in the target, installs
// nothing, and has no models unless the caller adds vendors.
func Command(argv []string) Recipe {
	r := Recipe{Name: "command", Title: "any command"}
	if len(argv) > 0 {
		r.Command = literal(argv[:1])
		r.Headless.Args = literal(argv[1:])
		r.Interactive = &Mode{Args: literal(argv[1:])}
	}
	return r
}

// literal makes templates of texts that say them as they are.
func literal(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		if out[i] = t; strings.Contains(t, "{{") {
			out[i] = fmt.Sprintf("{{%q}}", t)
		}
	}
	return out
}

// Layer is the package as the store of layers takes it.
func (i Install) Layer() layer.Package {
	return layer.Package{Name: i.Package, Version: i.Version, Scripts: i.Scripts, Node: i.Node}
}
