package layout_test

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rein-sh/rein/internal/layout"
)

// The tree itself keeps the rules.
func TestTree(t *testing.T) {
	tree, err := layout.Read(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range tree.Check() {
		t.Error(fault)
	}
	for _, pkg := range []string{"secret", "sandbox", "internal/layout"} {
		if _, ok := tree.Ranks[pkg]; !ok {
			t.Errorf("package %s was not read", pkg)
		}
	}
}

const table = "| rank | packages | |\n|---|---|---|\n" +
	"| 0 | `secret`, `audit` | |\n| 1 | `execd` | |\n| 2 | `execd/daemon` | |\n| 3 | `sandbox` | |\n| 8 | `cmd/rein` | |\n"

// good is a small tree that keeps every rule; each case of TestBreaches adds
// one file that breaks one.
func good() fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range map[string]string{
		"go.mod":                   "module example.org/m\n",
		"docs/architecture.md":     table,
		"docs/design-decisions.md": "| `owner/name` | reason |\n",
		"secret/secret.go":         "// Package secret.\npackage secret\n",
		"audit/audit.go":           "// Package audit.\npackage audit\n\nimport _ \"example.org/m/secret\"\n",
		"execd/execd.go":           "// Package execd.\npackage execd\n\nimport _ \"example.org/m/secret\"\n",
		"execd/daemon/daemon.go":   "// Package daemon.\npackage daemon\n\nimport _ \"example.org/m/execd\"\n",
		"sandbox/sandbox.go":       "// Package sandbox.\npackage sandbox\n\nimport (\n\t_ \"example.org/m/audit\"\n\t_ \"github.com/owner/name/part\"\n)\n",
		"sandbox/sandbox_test.go":  "package sandbox\n\nimport _ \"example.org/m/cmd/rein/config\"\n",
		"cmd/rein/main.go":         "// Command rein.\npackage main\n\nimport _ \"example.org/m/cmd/rein/config\"\n",
		"cmd/rein/config/c.go":     "// Package config.\npackage config\n\nimport \"os\"\n\nvar Home = os.Getenv(\"XDG_CONFIG_HOME\")\n",
		"examples/embed/go.mod":    "module example.org/other\n",
		"examples/embed/main.go":   "package main\n",
		"secret/testdata/bad.go":   "this is no Go\n",
	} {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

func TestGood(t *testing.T) {
	tree, err := layout.Read(good())
	if err != nil {
		t.Fatal(err)
	}
	if faults := tree.Check(); len(faults) > 0 {
		t.Fatalf("faults in a good tree: %q", faults)
	}
}

func TestBreaches(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"upwards", "secret/up.go", "package secret\n\nimport _ \"example.org/m/sandbox\"\n",
			"secret/up.go:3: secret (rank 0) imports sandbox (rank 3); it may import lower ranks only"},
		{"peer", "secret/peer.go", "package secret\n\nimport (\n\t_ \"example.org/m/audit\"\n\t_ \"github.com/owner/name/part\"\n)\n",
			"secret (rank 0) imports audit (rank 0)"},
		{"only", "execd/daemon/s.go", "package daemon\n\nimport _ \"example.org/m/secret\"\n",
			"execd/daemon imports secret, but of ours it may only import execd, evidence/clue, internal/seccomp, internal/sockdiag"},
		{"unknown", "gadget/gadget.go", "// Package gadget.\npackage gadget\n",
			"package gadget has no rank: give it one in the table of docs/architecture.md"},
		{"comment", "bare/bare.go", "package bare\n", "package bare has no package comment"},
		{"drawer", "internal/utils/u.go", "// Package utils.\npackage utils\n", "would fit any project"},
		{"environment", "sandbox/env.go", "package sandbox\n\nimport \"os\"\n\nvar home = os.Getenv(\"HOME\")\n",
			"sandbox/env.go:5: os.Getenv reads the process's surroundings; only cmd/ reads it"},
		{"renamed", "sandbox/env.go", "package sandbox\n\nimport sys \"os\"\n\nvar args = sys.Args\n", "sys.Args reads"},
		{"flag", "sandbox/flag.go", "package sandbox\n\nimport \"flag\"\n\nvar v = flag.Bool(\"v\", false, \"\")\n", "flag.Bool reads"},
		{"configuration", "sandbox/conf.go", "package sandbox\n\nconst file = \"/etc/rein/config.yaml\"\n", "is where configuration lies"},
		{"long file", "sandbox/long.go", "package sandbox\n" + strings.Repeat("//\n", 500), "has 501 lines, more than 500"},
		{"long function", "sandbox/fn.go", "package sandbox\n\nfunc f() {\n" + strings.Repeat("\t_ = 0\n", 79) + "}\n",
			"sandbox/fn.go:3: f has 81 lines, more than 80"},
		{"path", "docs/x.md", "see\n/wo" + "rk/main\n", "docs/x.md:2: "},
		{"dependency", "secret/dep.go", "package secret\n\nimport _ \"example.net/dep/v2/sub\"\n", "nobody decided about example.net/dep/v2/sub"},
		{"link", "docs/x.md", "[good](architecture.md#a) [out](https://example.org) [bad](../gone.md)\n", "docs/x.md points at gone.md, which is not there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := good()
			fsys[c.file] = &fstest.MapFile{Data: []byte(c.text)}
			tree, err := layout.Read(fsys)
			if err != nil {
				t.Fatal(err)
			}
			if faults := strings.Join(tree.Check(), "\n"); !strings.Contains(faults, c.want) {
				t.Errorf("got %q, want it to contain %q", faults, c.want)
			}
		})
	}
}

func TestRanks(t *testing.T) {
	for _, c := range []struct{ name, doc, want string }{
		{"empty", "no table", "there is no table of ranks"},
		{"twice", "| 0 | `a` |\n| 1 | `b`, `a` |\n", "package a has two ranks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := layout.ParseRanks([]byte(c.doc)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want %q", err, c.want)
			}
		})
	}
}
