package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// Check is one acceptance check: a command that exits 0 when the work is good,
// or what a file must be like. Exactly one of Shell, Argv and File is set.
//
// Checks run when nothing else of the sandbox's user runs any more. A command
// has the environment of the sandbox, Env and an empty home and temporary
// directory of its own: what the worker left in its home, its caches or its
// shell has no part in it.
type Check struct {
	Name string
	// Shell is run by a shell. Argv is started without one: its first word is an
	// absolute path, or a name that is looked for in those directories of the
	// sandbox's PATH whose programs its user cannot change.
	Shell string
	Argv  []string
	// Cwd is relative to the workspace; empty is the workspace.
	Cwd string
	Env map[string]string
	// File is looked at by rein itself; nothing in the sandbox runs for it.
	File    *FileCheck
	Timeout time.Duration // 0 means 5 minutes
}

// FileCheck is what a regular file must be like. A file that has to be absent,
// or of which nothing but its presence is asked, is not read.
type FileCheck struct {
	Path   string // relative to the workspace, or absolute
	Absent bool   // it must not exist, whatever it is
	// MinBytes and MaxBytes bound its size; MaxBytes 0 is no bound.
	MinBytes, MaxBytes int64
	// Contains are texts that must be in it, Matches regular expressions (RE2)
	// that must match; both read at most MaxCheckedFile.
	Contains []string
	Matches  []string
	// SHA256 of its content, in hexadecimal.
	SHA256 string
	// Schema is a JSON Schema (draft 2020-12) that its JSON must keep to; it
	// refers to nothing outside itself.
	Schema json.RawMessage
}

// Bounds of file checks.
const (
	MaxCheckedFile = 64 << 20 // bytes of a file that is searched
	MaxCheckedJSON = 8 << 20  // bytes of a file that is judged by a schema
	maxSchema      = 1 << 20
	maxJSONDepth   = 200
)

// reads reports whether the content of the file is asked for.
func (f *FileCheck) reads() bool {
	return len(f.Contains)+len(f.Matches) > 0 || f.SHA256 != "" || len(f.Schema) > 0
}

// Validate says what is wrong with the check, as a *UsageError.
func (c Check) Validate() error {
	bad := func(format string, args ...any) error {
		return &UsageError{Field: "acceptance check " + c.Name, Reason: fmt.Sprintf(format, args...)}
	}
	n := 0
	for _, set := range []bool{c.Shell != "", len(c.Argv) > 0, c.File != nil} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return bad("it needs exactly one of Shell, Argv and File")
	case len(c.Argv) > 0 && (c.Argv[0] == "" || strings.Contains(c.Argv[0], "/") && !path.IsAbs(c.Argv[0])):
		return bad("its program %q is neither an absolute path nor a name", c.Argv[0])
	case slices.ContainsFunc(append([]string{c.Shell, c.Cwd}, c.Argv...), func(s string) bool { return strings.Contains(s, "\x00") }):
		return bad("it holds a NUL byte")
	case c.Cwd != "" && !filepath.IsLocal(c.Cwd):
		return bad("its directory %q is not in the workspace", c.Cwd)
	case c.File != nil:
		if err := c.File.check(); err != nil {
			return bad("%s", err)
		}
	}
	return nil
}

func (f *FileCheck) check() error {
	switch {
	case f.Path == "" || !path.IsAbs(f.Path) && !filepath.IsLocal(f.Path):
		return fmt.Errorf("its file %q is neither absolute nor in the workspace", f.Path)
	case misnamed(f.Path):
		return errors.New("of its file, " + noUTF8)
	case f.Absent && (f.reads() || f.MinBytes != 0 || f.MaxBytes != 0):
		return errors.New("nothing can be asked of a file that must be absent")
	case f.MinBytes < 0 || f.MaxBytes < 0 || f.MaxBytes > 0 && f.MinBytes > f.MaxBytes:
		return fmt.Errorf("no file has %d bytes or more and %d or fewer", f.MinBytes, f.MaxBytes)
	case f.SHA256 != "" && !hex64.MatchString(f.SHA256):
		return fmt.Errorf("%q is no SHA-256 in hexadecimal", f.SHA256)
	}
	for _, m := range f.Matches {
		if _, err := regexp.Compile(m); err != nil {
			return fmt.Errorf("%q is no regular expression: %w", m, err)
		}
	}
	if len(f.Schema) > 0 {
		_, err := f.schema()
		return err
	}
	return nil
}

var hex64 = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// schema reads the schema. One that refers to itself without getting on in what
// it judges would never end, and is refused.
func (f *FileCheck) schema() (*jsonschema.Resolved, error) {
	if len(f.Schema) > maxSchema {
		return nil, fmt.Errorf("its schema is longer than %d bytes", maxSchema)
	}
	if err := shallow(f.Schema); err != nil {
		return nil, fmt.Errorf("its schema: %w", err)
	}
	s := &jsonschema.Schema{}
	if err := json.Unmarshal(f.Schema, s); err != nil {
		return nil, fmt.Errorf("its schema: %w", err)
	}
	if endless(f.Schema) {
		return nil, errors.New("its schema refers to itself without an end")
	}
	r, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: false})
	if err != nil {
		return nil, fmt.Errorf("its schema: %w", err)
	}
	return r, nil
}

// shallow refuses JSON that is nested deeper than maxJSONDepth, or malformed.
func shallow(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	depth := 0
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > maxJSONDepth {
				return fmt.Errorf("it is nested deeper than %d", maxJSONDepth)
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// endless reports whether a schema's references come round to the same value
// without getting on in it. A reference that is no pointer into the schema (to
// an anchor or an id) is taken for one to all of it.
func endless(schema []byte) bool {
	var root any
	if json.Unmarshal(schema, &root) != nil {
		return false
	}
	open, done := map[string]bool{}, map[string]bool{}
	var round func(v any) bool
	round = func(v any) bool {
		m, ok := v.(map[string]any)
		if !ok {
			return false
		}
		for _, key := range []string{"$ref", "$dynamicRef"} {
			ref, ok := m[key].(string)
			if !ok || done[ref] {
				continue
			}
			if open[ref] {
				return true
			}
			target, ok := pointer(root, ref)
			if !ok {
				target = root
			}
			open[ref] = true
			if round(target) {
				return true
			}
			delete(open, ref)
			done[ref] = true
		}
		return slices.ContainsFunc(inPlace(m), round)
	}
	var anywhere func(v any) bool
	anywhere = func(v any) bool {
		switch v := v.(type) {
		case []any:
			return slices.ContainsFunc(v, anywhere)
		case map[string]any:
			return round(v) || slices.ContainsFunc(slices.Collect(maps.Values(v)), anywhere)
		}
		return false
	}
	return anywhere(root)
}

// inPlace are the schemas in m that judge the same value as m does.
func inPlace(m map[string]any) []any {
	var out []any
	for _, key := range []string{"not", "if", "then", "else"} {
		out = append(out, m[key])
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		if list, ok := m[key].([]any); ok {
			out = append(out, list...)
		}
	}
	if named, ok := m["dependentSchemas"].(map[string]any); ok {
		out = slices.AppendSeq(out, maps.Values(named))
	}
	return out
}

// pointer follows a reference such as #/$defs/a.
func pointer(root any, ref string) (any, bool) {
	at, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, false
	}
	v := root
	for part := range strings.SplitSeq(strings.TrimPrefix(at, "/"), "/") {
		if part == "" {
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]; !ok {
			return nil, false
		}
	}
	return v, true
}

// MaxRetry bounds Options.Retry.
const MaxRetry = 10

// checkAcceptance judges what decides whether the work is accepted.
func (o *Options) checkAcceptance() error {
	for i := range o.Accept {
		if err := o.Accept[i].Validate(); err != nil {
			return err
		}
	}
	switch {
	case o.Retry < 0 || o.Retry > MaxRetry:
		return &UsageError{Field: "retry", Reason: fmt.Sprintf("%d is not from 0 to %d", o.Retry, MaxRetry)}
	case o.Fresh && o.Workspace.Dir == "":
		return &UsageError{Field: "fresh", Reason: "there is no workspace to make the checks' sandbox from", hint: "name a workspace, or run the checks in the run's own sandbox"}
	case (o.Fresh || o.Retry > 0) && len(o.Accept) == 0:
		return &UsageError{Field: "acceptance", Reason: "there are no checks to run anew or again"}
	}
	return nil
}
