package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Manifest is a Tree without its files' contents, as JSON.
type Manifest struct {
	Dir     string   `json:"dir"`
	Entries []*Entry `json:"entries"`
	Ignored []string `json:"ignored,omitempty"`
	Secrets []string `json:"secrets,omitempty"`
	Skipped []Skip   `json:"skipped,omitempty"`
	// Rules are the texts of the ignore files: directory → texts, in order.
	Rules map[string][]string `json:"rules,omitempty"`
}

// Manifest describes the tree, so that Restore can make it again in another
// process. All files must have been read.
func (t *Tree) Manifest() Manifest {
	return Manifest{Dir: t.Dir, Entries: t.Entries, Ignored: t.Ignored, Secrets: t.Secrets, Skipped: t.Skipped, Rules: t.texts}
}

// Restore makes the Tree of a manifest, whose directory must still be there.
// Files that have changed since are found when they are read: they are
// ErrChanged to Content.
func Restore(m Manifest) (*Tree, error) {
	t := &Tree{Dir: m.Dir, Entries: m.Entries, Ignored: m.Ignored, Secrets: m.Secrets, Skipped: m.Skipped,
		rules: map[string][]Patterns{}, texts: m.Rules}
	for _, e := range m.Entries {
		if e == nil || !filepath.IsLocal(e.Path) || e.Size < 0 || !slices.Contains([]Type{File, Dir, Link}, e.Type) {
			return nil, errors.New("the manifest has an entry that is none of a workspace")
		}
		if e.Type != Dir {
			t.Files++
			t.Bytes += e.Size
		}
	}
	for dir, texts := range m.Rules {
		for _, text := range texts {
			t.rules[dir] = append(t.rules[dir], Compile(text))
		}
	}
	var err error
	if t.root, err = os.OpenRoot(m.Dir); err != nil {
		return nil, fmt.Errorf("the workspace can no longer be read: %w", err)
	}
	return t, nil
}
