package config

import (
	"errors"
	"slices"
	"strings"
)

// broken is a place of a file that could not be read as what it should be: what
// is judged of the values in its section would follow from that alone.
type broken string

// section is what holds the place: the mapping it is in, or itself at the top.
func (b broken) section() string {
	p := string(b)
	for strings.HasSuffix(p, "]") {
		p = parent(p)
	}
	if up := parent(p); up != "" {
		return up
	}
	return p
}

// explains reports whether the fault of a value at path may be for nothing but b.
func (b broken) explains(path string) bool {
	switch top, _, _ := strings.Cut(string(b), "."); {
	case b == "": // any key, so that any name may be missing
		return slices.Contains([]string{"target", "model", "fresh", "retry"}, path)
	case top == "targets" && path == "target",
		top == "checks" && (path == "fresh" || path == "retry"), // of a file of checks
		top == "models" && (path == "model" || strings.HasSuffix(path, ".fallback")):
		return true
	}
	return beneath(path, b.section()) || beneath(string(b), path)
}

// beneath reports whether a dotted path is path or leads on from it.
func beneath(p, path string) bool {
	rest, ok := strings.CutPrefix(p, path)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// together is all that is wrong with a file: what could not be read, and what was
// and is wrong in value, but not what may follow from the former.
func (v *validator) together() error {
	all := v.file.faults
	for i, p := range v.problems {
		explained := false
		for _, b := range v.file.broken {
			explained = explained || b.explains(v.at[i])
		}
		if !explained {
			all = append(all[:len(all):len(all)], p)
		}
	}
	return asError(all)
}

// partial returns f beside an error that is about some of its places, nil beside
// one for which there is nothing to be judged.
func partial(f *File, err error) *File {
	if _, ok := errors.AsType[*Error](err); ok && len(f.faults) == 0 {
		return nil
	}
	return f
}
