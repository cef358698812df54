package patch

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Write writes the change of one file from old to new. Nothing is written when
// they are equal. It refuses names and links that lead outside the tree, a
// repository's own files, and sides above MaxFile.
func Write(w io.Writer, name string, old, new Side) error {
	if err := checkPath(name); err != nil {
		return err
	}
	if new.Mode == Link {
		if err := checkLink(name, string(new.Data)); err != nil {
			return err
		}
	}
	if len(old.Data) > MaxFile || len(new.Data) > MaxFile {
		return fmt.Errorf("%q is larger than %d MiB", name, MaxFile>>20)
	}
	if old.Mode == new.Mode && bytes.Equal(old.Data, new.Data) {
		return nil
	}
	var b bytes.Buffer
	if old.Mode != Absent && new.Mode != Absent && (old.Mode == Link) != (new.Mode == Link) {
		// A file that becomes a link, or the reverse, is two changes, as in git.
		write(&b, name, old, Side{})
		write(&b, name, Side{}, new)
	} else {
		write(&b, name, old, new)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func write(b *bytes.Buffer, name string, old, new Side) {
	a, z := quote("a/"+name), quote("b/"+name)
	fmt.Fprintf(b, "diff --git %s %s\n", a, z)
	switch {
	case old.Mode == Absent:
		fmt.Fprintf(b, "new file mode %06o\n", new.Mode)
	case new.Mode == Absent:
		fmt.Fprintf(b, "deleted file mode %06o\n", old.Mode)
	case old.Mode != new.Mode:
		fmt.Fprintf(b, "old mode %06o\nnew mode %06o\n", old.Mode, new.Mode)
	}
	if bytes.Equal(old.Data, new.Data) && old.Mode != Absent && new.Mode != Absent {
		return
	}
	fmt.Fprintf(b, "index %s..%s", old.blob(), new.blob())
	if old.Mode == new.Mode {
		fmt.Fprintf(b, " %06o", new.Mode)
	}
	b.WriteByte('\n')
	if len(old.Data) == 0 && len(new.Data) == 0 {
		return // an empty file came or went
	}
	if !old.text() || !new.text() {
		b.WriteString("GIT binary patch\n")
		writeLiteral(b, new.Data)
		writeLiteral(b, old.Data)
		return
	}
	from, to := header(a, name), header(z, name)
	if old.Mode == Absent {
		from = "/dev/null"
	}
	if new.Mode == Absent {
		to = "/dev/null"
	}
	fmt.Fprintf(b, "--- %s\n+++ %s\n", from, to)
	text := diff.Diff("a", old.Data, "b", new.Data)
	for range 3 { // its own header
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	b.Write(text)
}

// header is a name in a --- or +++ line: git ends one that holds a space with
// a tab, so that the name's end is known.
func header(quoted, name string) string {
	if strings.Contains(name, " ") {
		return quoted + "\t"
	}
	return quoted
}
