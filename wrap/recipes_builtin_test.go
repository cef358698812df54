package wrap_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/wrap"
)

// TestRecipesExpand expands what the built-in recipes place and set: each reaches
// its model at the door, and is read by a reader that there is.
func TestRecipesExpand(t *testing.T) {
	all, err := wrap.Recipes()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			if wrap.Readers[r.Results] == nil {
				t.Errorf("no reader %q", r.Results)
			}
			if r.OwnSandbox == "" || r.Model == "" || len(r.Vendors) == 0 || r.Interactive == nil {
				t.Error("something of it is not said")
			}
			for _, v := range r.Vendors {
				place(t, r, v)
			}
		})
	}
}

// place expands everything for one vendor.
func place(t *testing.T, r wrap.Recipe, v wrap.Vendor) {
	t.Helper()
	origin := "http://10.88.0.1:3129/" + v.Host
	values := wrap.Values{Model: "m-1", BaseURL: origin + v.Base, Origin: origin, Home: "/home/user", Work: "/workspace", Key: "placeholder"}
	told := ""
	for _, list := range []map[string]string{r.Env, v.Env} {
		for name, text := range list {
			value, err := values.Expand(text)
			if err != nil {
				t.Errorf("%s: %s", name, err)
			}
			told += value + "\n"
		}
	}
	for _, f := range append(append([]wrap.File{}, r.Files...), v.Files...) {
		content, err := values.Expand(f.Content)
		if err != nil {
			t.Errorf("%s: %s", f.Path, err)
		}
		if filepath.Ext(f.Path) == ".json" && !json.Valid([]byte(content)) {
			t.Errorf("%s is no JSON: %s", f.Path, content)
		}
		told += content
	}
	if !strings.Contains(told, origin) {
		t.Errorf("%s: nothing says where %s is", v.Name, v.Host)
	}
}

// Codex is not asked whether it wants the model that it offers in a terminal.
func TestNoOffer(t *testing.T) {
	all, err := wrap.Recipes()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		for _, f := range r.Files {
			if r.Name == "codex" && !strings.Contains(f.Content, "[notice.model_migrations]\n\""+r.Model+"\" = ") {
				t.Errorf("%s offers another model than %s: %s", r.Name, r.Model, f.Content)
			}
		}
	}
}

// TestScripts loads the scripts by which the agents are tried.
func TestScripts(t *testing.T) {
	for name := range wrap.Readers {
		file := "testdata/scripts/" + name + ".yaml"
		data, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := script.Load(data, file); err != nil {
			t.Error(err)
		}
	}
}
