package wrap_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/wrap"
)

func TestBuiltInRecipes(t *testing.T) {
	t.Parallel()
	all, err := wrap.Recipes()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Errorf("%d recipes", len(all))
	}
	for _, r := range all {
		if r.From != "" || r.Replaces != "" || r.Install == nil {
			t.Errorf("%+v", r)
		}
	}
}

// whole is a recipe with something of everything.
const whole = `
name: mine
title: Mine
install: {package: "@acme/mine", version: 1.2.3, scripts: [dep], node: "20"}
command: [mine]
headless: {args: [--model, "{{.Model}}"], env: {QUIET: "1"}}
interactive: {env: {QUIET: "0"}}
model: acme-1
vendors:
  - name: acme
    host: api.example.com
    base: /v1
    route: door
    calls:
      - {methods: [POST], path: /v1/responses, api: openai-responses}
      - {methods: [GET], path: /v1/models}
    key_env: [ACME_KEY]
    variables: [ACME_KEY]
    as: header
    field: x-api-key
    logins:
      - {name: account, refused: its tokens are bound to the device}
    env: {ACME_URL: "{{.BaseURL}}"}
files:
  - path: .mine/config.json
    content: '{"model": {{json .Model}}, "url": "{{if .BaseURL}}{{.BaseURL}}{{end}}"}'
`

func TestDecode(t *testing.T) {
	t.Parallel()
	r, err := wrap.Decode("mine.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	v := r.Vendors[0]
	if r.Install.Package != "@acme/mine" || v.Calls[0].API != inference.Responses || v.As != vault.Header || r.Interactive.Env["QUIET"] != "0" {
		t.Errorf("%+v", r)
	}
	got, err := wrap.Values{Model: `a"b`, BaseURL: "http://10.0.0.1/"}.Expand(r.Files[0].Content)
	if want := `{"model": "a\"b", "url": "http://10.0.0.1/"}`; got != want || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

// Each is one change of the recipe above, with what is said of it, where, and how
// it is to be written.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, new, at, says, hint string }{
		"unknown key":        {"title: Mine", "titel: Mine", "3:1", `unknown key "titel"`, `"title"`},
		"unknown inner key":  {"base: /v1", "bsae: /v1", "12:5", `unknown key "bsae" in vendors[0]`, `"base"`},
		"unknown call key":   {"path: /v1/models", "path: /v1/models, apis: x", "16:44", `unknown key "apis"`, `"api"`},
		"twice":              {"model: acme-1", "model: acme-1\nmodel: b", "9:1", "already defined", ""},
		"no mapping":         {"install: {package: \"@acme/mine\", version: 1.2.3, scripts: [dep], node: \"20\"}", "install: [a]", "4:10", "install is no list", ""},
		"anchor":             {"model: acme-1", "model: &a acme-1", "8:8", "anchors", "quotes"},
		"kind":               {"command: [mine]", "command: {a: b}", "5:11", "must not be a mapping", ""},
		"name":               {"name: mine", "name: Mine", "2:1", "no name of a recipe", "lower-case"},
		"no command":         {"command: [mine]", "command: []", "5:1", "no program", "command: ["},
		"value of a command": {"command: [mine]", `command: ["{{.Bni}}/mine"]`, "5:11", "no value .Bni", "{{.Bin}}"},
		"template":           {"{{.Model}}\"], env", "{{.Model\"], env", "6:", "unclosed action", "{{.Model}}"},
		"value":              {"{{.Model}}\"], env", "{{.Modle}}\"], env", "6:", "no value .Modle", "{{.Model}}"},
		"inner value":        {"{{.Model}}\"], env", "{{.Model.X}}\"], env", "6:", "no value .Model.X", ""},
		"function":           {"{{.Model}}\"], env", "{{printf .Model}}\"], env", "6:", `no function "printf"`, "json"},
		"range":              {"{{.Model}}\"], env", "{{range .Model}}{{end}}\"], env", "6:", "holds no", ""},
		"host":               {"api.example.com", "API.example.com", "11:5", "not how the host is written", "api.example.com"},
		"address":            {"api.example.com", "192.0.2.1", "11:5", "vendors[0].host", ""},
		"wildcard":           {"api.example.com", `"*.example.com"`, "11:5", "vendors[0].host", ""},
		"base":               {"base: /v1", "base: v1/", "12:5", "no beginning of paths", "/v1"},
		"route":              {"route: door", "route: window", "13:5", "no route", "door"},
		"methods":            {"{methods: [GET], path", "{path", "16:10", "no method", "POST"},
		"method":             {"[GET]", "[get]", "16:20", "no method that can pass", "POST"},
		"every path":         {"/v1/models", "/v1/*", "16:26", "every path", "cannot do without"},
		"all paths":          {"/v1/models", `"*"`, "16:26", "is no path", ""},
		"api":                {"openai-responses", "openai", "15:48", "is no API", "openai-chat"},
		"free":               {"path: /v1/models", "path: /v1/models, free: true", "16:44", "can be free", "api"},
		"form":               {"as: header", "as: basic", "19:5", "not carried", "bearer"},
		"field":              {"field: x-api-key", "field: Host", "20:5", "vendors[0].field", ""},
		"no field":           {"    field: x-api-key\n", "", "10:5", "in which field", "x-api-key"},
		"login":              {"refused: its tokens are bound to the device", "note: x", "22:10", "not said how it is used", "refused"},
		"login both":         {"refused: its", "variable: X, refused: its", "22:10", "and yet", ""},
		"variable of a mode": {"env: {ACME_URL", "env: {QUIET: \"2\", ACME_URL", "23:11", "QUIET is also set by headless.env", ""},
		"variable of a key":  {"env: {ACME_URL", "env: {ACME_KEY: x, ACME_URL", "18:17", "ACME_KEY is also set by vendors[0].env", ""},
		"program's variable": {"variables: [ACME_KEY]", "variables: [PATH]", "18:17", "programs run by PATH", ""},
		"workspace":          {"path: .mine/config.json", "path: /workspace/.mine", "25:5", "a recipe writes nothing", ""},
		"layer":              {"path: .mine/config.json", "path: /opt/rein/agent/x", "25:5", "a recipe writes nothing", ""},
		"upwards":            {"path: .mine/config.json", "path: ../x", "25:5", "clean path", ""},
		"templated path":     {"path: .mine/config.json", "path: '{{.Work}}/x'", "25:5", "no template", ""},
		"package":            {"@acme/mine", "--global", "4:11", "no package of npm", ""},
		"version":            {"1.2.3", "^1.2.3", "4:34", "is no version", "1.2.3"},
		"node":               {`node: "20"`, `node: ">=20"`, "4:66", "no version of Node.js", "20"},
		"script":             {"[dep]", `["*"]`, "4:60", "no package", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(whole, c.old, c.new, 1)
			if text == whole {
				t.Fatal("nothing was changed")
			}
			_, err := wrap.Decode("mine.yaml", []byte(text))
			e, ok := errors.AsType[*wrap.Error](err)
			if !ok {
				t.Fatalf("%v", err)
			}
			if len(e.Problems) != 1 || !strings.Contains(err.Error(), c.says) || !strings.Contains(e.Hint(), c.hint) {
				t.Errorf("%v (%s)", err, e.Hint())
			}
			if at := strings.TrimPrefix(err.Error(), "mine.yaml:"); !strings.HasPrefix(at, c.at) {
				t.Errorf("%v: not at %s", err, c.at)
			}
		})
	}
}

// The page shows a recipe that is one.
func TestDocumentedRecipe(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/wrap.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\nname:")
	text, _, ok := strings.Cut(rest, "```")
	if r, err := wrap.Decode("wrap.md", []byte("name:"+text)); !ok || err != nil || len(r.Vendors) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestOwnRecipes(t *testing.T) {
	t.Parallel()
	machine, own := t.TempDir(), t.TempDir()
	put(t, machine, "codex.yaml", "name: codex\ntitle: The machine's\ncommand: [codex]\n")
	put(t, machine, "mine.yaml", whole)
	put(t, own, "codex.yaml", "name: codex\ntitle: Mine\ncommand: [codex]\n")
	put(t, own, "broken.yaml", "name: broken\n")
	put(t, own, "notes.txt", "no recipe")
	r, err := wrap.Find("codex", machine, own, filepath.Join(own, "none"))
	if err != nil || r.Title != "Mine" || r.From != filepath.Join(own, "codex.yaml") || r.Replaces != filepath.Join(machine, "codex.yaml") {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err = wrap.Find("codex", machine); err != nil || r.Replaces != wrap.BuiltIn {
		t.Errorf("%+v, %v", r, err)
	}
	all, err := wrap.Recipes(machine, own)
	if e, ok := errors.AsType[*wrap.Error](err); !ok || len(e.Problems) != 2 || !strings.Contains(err.Error(), "broken.yaml") {
		t.Errorf("%v", err)
	}
	if len(all) < 6 {
		t.Errorf("%d beside a faulty one", len(all))
	}
	_, err = wrap.Find("codx", machine, own)
	if e, ok := errors.AsType[*wrap.UnknownError](err); !ok || !strings.Contains(e.Hint(), `"codex"`) {
		t.Errorf("%v", err)
	}
	if _, err := wrap.Find("../own/codex", machine, own); err == nil {
		t.Error("a path was taken for a name")
	}
}

func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// What another could have written is not read.
func TestUntrustedRecipes(t *testing.T) {
	t.Parallel()
	for says, spoil := range map[string]func(file string) error{
		"anyone may write":   func(file string) error { return os.Chmod(file, 0o606) },
		"not a regular file": func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) },
		"larger than":        func(file string) error { return os.Truncate(file, 1<<20) },
		"is called":          func(file string) error { return os.WriteFile(file, []byte(whole), 0o600) },
		"neither you": func(file string) error {
			if os.Geteuid() != 0 {
				return os.ErrPermission // it takes root to give a file away
			}
			return os.Chown(file, 12345, 12345)
		},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := put(t, dir, "codex.yaml", "name: codex\ntitle: Mine\ncommand: [codex]\n")
			if err := spoil(file); errors.Is(err, os.ErrPermission) {
				t.Skip("needs root")
			} else if err != nil {
				t.Fatal(err)
			}
			_, err := wrap.Find("codex", dir)
			if e, ok := errors.AsType[*wrap.Error](err); !ok || !strings.Contains(err.Error(), says) || len(e.Problems) != 1 {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := wrap.Find("codex", "."); err == nil {
		t.Error("a directory that depends on where rein is started was taken")
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	r := wrap.Command([]string{"sh", "-c", "echo {{.Key}}"})
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	got, err := wrap.Values{Key: "k"}.Expand(r.Headless.Args[1])
	if got != "echo {{.Key}}" || err != nil || r.Install != nil || len(r.Vendors) > 0 {
		t.Errorf("%q, %v", got, err)
	}
	if err := wrap.Command(nil).Check(); err == nil {
		t.Error("nothing was found to be a command")
	}
}

func TestPlace(t *testing.T) {
	t.Parallel()
	for p, want := range map[string]string{".a/b": "/home/u/.a/b", "/etc/a": "/etc/a", "/src/a": "", "/proc/1/mem": ""} {
		got, err := wrap.File{Path: p}.Place("/home/u", "/src")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", p, got, err)
		}
	}
	if got, err := (wrap.File{Path: ".x"}).Place("/src/home", "/src"); err == nil {
		t.Errorf("%s is in the workspace", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("name: a\ntitle: b\ncommand: [c]\nenv: {A: '{{if .Model}}x{{else}}y{{end}}'}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := wrap.Decode("r.yaml", data)
		if err != nil {
			return
		}
		if err := r.Check(); err != nil {
			t.Errorf("it was read, but %v", err)
		}
		for _, text := range r.Env {
			if _, err := (wrap.Values{}).Expand(text); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
