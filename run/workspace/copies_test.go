package workspace_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/rein-sh/rein/run/workspace"
)

// What is kept is there whatever becomes of the workspace, also for another
// process; what is not is refused once it has changed.
func TestKeep(t *testing.T) {
	dir := lay(t, map[string]string{"a": "one", "b": "two", "c": "three", "d": "four"})
	tree := scan(t, dir, workspace.Options{})
	copies := filepath.Join(t.TempDir(), "copies")
	a, b, c, d := tree.Entries[0], tree.Entries[1], tree.Entries[2], tree.Entries[3]
	without, err := tree.Keep(copies, []*workspace.Entry{b, c, a}, 7)
	if err != nil || len(without) != 1 || without[0] != c {
		t.Fatalf("%v, %v", without, err)
	}
	half, err := tree.Read(a)
	if err != nil {
		t.Fatal(err)
	}
	io.ReadFull(half, make([]byte, 1))
	half.Close()
	for _, e := range tree.Entries {
		if text, err := read(tree, e); err != nil || len(text) != int(e.Size) {
			t.Errorf("%s: %q, %v", e.Path, text, err)
		}
	}
	if items, err := os.ReadDir(copies); err != nil || len(items) != 2 {
		t.Errorf("%v, %v", items, err)
	}
	for name, text := range map[string]string{"a": "ONE", "b": "longer", "c": "THREE"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	later, err := workspace.Restore(tree.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	if _, err := later.Keep(copies, nil, 0); err != nil {
		t.Fatal(err)
	}
	for _, tree := range []*workspace.Tree{tree, later} {
		for e, want := range map[*workspace.Entry]string{a: "one", b: "two", c: "", d: "four"} {
			text, err := read(tree, e)
			data, err2 := tree.Content(e)
			if want == "" && (!errors.Is(err, workspace.ErrChanged) || !errors.Is(err2, workspace.ErrChanged)) {
				t.Errorf("%s: %v, %v", e.Path, err, err2)
			}
			if want != "" && (text != want || string(data) != want || err != nil || err2 != nil) {
				t.Errorf("%s: %q, %v; %q, %v", e.Path, text, err, data, err2)
			}
		}
	}
	// A copy that was spoilt is none.
	if err := os.WriteFile(filepath.Join(copies, b.SHA256), []byte("TWO"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := tree.Content(b); !errors.Is(err, workspace.ErrChanged) {
		t.Errorf("%q, %v", data, err)
	}
	if text, err := read(tree, b); !errors.Is(err, workspace.ErrChanged) {
		t.Errorf("%q, %v", text, err)
	}
}

func read(t *workspace.Tree, e *workspace.Entry) (string, error) {
	r, err := t.Read(e)
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return string(data), err
}
