// Package patch writes, reads and applies patches in git's format: unified
// diffs with new, deleted, mode-changed, symbolic-link and binary files, such
// as git apply takes. It runs no program and trusts no patch.
package patch

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// Bounds of one file in a patch.
const (
	MaxFile = 64 << 20 // bytes of either side
	maxText = 8 << 20  // bytes of either side shown as lines; larger ones are binary
)

// Mode is git's mode of a file; the zero value is "does not exist".
type Mode uint32

// The modes git knows for files.
const (
	Absent     Mode = 0
	Regular    Mode = 0o100644
	Executable Mode = 0o100755
	Link       Mode = 0o120000
)

// Side is a file before or after a change. Data of a link is its target.
type Side struct {
	Mode Mode
	Data []byte
}

// Kind says what happens to a file.
type Kind string

// The kinds of change.
const (
	Added    Kind = "added"
	Deleted  Kind = "deleted"
	Modified Kind = "modified"
	Moded    Kind = "mode" // nothing but the mode
)

// KindOf classifies the change from old to new.
func KindOf(old, new Side) Kind {
	switch {
	case old.Mode == Absent:
		return Added
	case new.Mode == Absent:
		return Deleted
	case bytes.Equal(old.Data, new.Data) && (old.Mode == Link) == (new.Mode == Link):
		return Moded
	}
	return Modified
}

// noBlob is the id git gives to a side that does not exist.
const noBlob = "0000000000000000000000000000000000000000"

// blob is git's id of a file's content.
func (s Side) blob() string {
	if s.Mode == Absent {
		return noBlob
	}
	h := sha1.New() // git's format, no security rests on it
	fmt.Fprintf(h, "blob %d\x00", len(s.Data))
	h.Write(s.Data)
	return hex.EncodeToString(h.Sum(nil))
}

func (s Side) text() bool {
	return len(s.Data) <= maxText && bytes.IndexByte(s.Data, 0) < 0
}

// checkPath refuses names that lead outside the tree, name its root, or touch
// a repository's own files.
func checkPath(name string) error {
	if name == "" || name == "." || path.IsAbs(name) || path.Clean(name) != name || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%q is not a plain relative path", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		switch strings.ToLower(strings.TrimRight(part, ". ")) {
		case "":
			return fmt.Errorf("%q leads outside the tree", name)
		case ".git", "git~1":
			return fmt.Errorf("%q belongs to a repository's own files", name)
		}
	}
	return nil
}

// checkLink refuses a symbolic link at name that leads outside the tree, or may:
// what ".." behind a name leads to depends on whether that is a link, too.
func checkLink(name, target string) error {
	if target == "" || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return fmt.Errorf("the link %q leads outside the tree", name)
	}
	named := false
	for part := range strings.SplitSeq(target, "/") {
		if part == ".." && named {
			return fmt.Errorf("the link %q to %q may lead outside the tree: it goes up again after a name", name, target)
		}
		named = named || part != ".." && part != "." && part != ""
	}
	if to := path.Join(path.Dir(name), target); to == ".." || strings.HasPrefix(to, "../") {
		return fmt.Errorf("the link %q leads outside the tree", name)
	}
	return nil
}

// quote writes a name as git does: C-quoted when a byte of it is a control
// character, a quote, a backslash or not ASCII.
func quote(name string) string {
	var b strings.Builder
	plain := true
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
			plain = false
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
			plain = false
		default:
			b.WriteByte(c)
		}
	}
	if plain {
		return name
	}
	return `"` + b.String() + `"`
}

var errQuote = errors.New("badly quoted name")

// unquote reads a name at the start of s and returns what follows it. An
// unquoted name ends at a tab or the end.
func unquote(s string) (name, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		name, rest, _ = strings.Cut(s, "\t")
		return name, rest, nil
	}
	var b []byte
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return string(b), s[i+1:], nil
		case '\\':
			if i+1 >= len(s) {
				return "", "", errQuote
			}
			i++
			if j := strings.IndexByte(`abtnvfr"\`, s[i]); j >= 0 {
				b = append(b, "\a\b\t\n\v\f\r\"\\"[j])
				continue
			}
			if i+2 >= len(s) || s[i] < '0' || s[i] > '3' || s[i+1] < '0' || s[i+1] > '7' || s[i+2] < '0' || s[i+2] > '7' {
				return "", "", errQuote
			}
			b = append(b, (s[i]-'0')<<6|(s[i+1]-'0')<<3|(s[i+2]-'0'))
			i += 2
		default:
			if c < utf8.RuneSelf && c < 0x20 {
				return "", "", errQuote
			}
			b = append(b, c)
		}
	}
	return "", "", errQuote
}
