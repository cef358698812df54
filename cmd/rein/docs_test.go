package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/run"
)

var update = flag.Bool("update", false, "rewrite the output shown in the documentation")

// TestDocs checks that the pages show what the program really prints: what
// follows <!-- rein ... --> up to <!-- end --> is the output of that command.
func TestDocs(t *testing.T) {
	for _, name := range []string{"cli.md", "configuration.md"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("..", "..", "docs", name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := render(t, string(text))
			if *update && got != string(text) {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("the page shows something else than the program prints; go test ./cmd/rein -run TestDocs -update\n%s", diff)
			}
		})
	}
}

// render replaces every shown output by the real one.
func render(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "<!-- ")
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		marker, rest, ok1 := strings.Cut(rest, " -->\n")
		_, after, ok2 := strings.Cut(rest, "<!-- end -->")
		if !ok1 || !ok2 {
			t.Fatalf("no end of <!-- %s", marker)
		}
		lang, shown := "", ""
		if marker == "config" {
			lang, shown = "yaml", config.Example
		} else {
			shown = printed(t, strings.Fields(marker)...)
		}
		fmt.Fprintf(&out, "<!-- %s -->\n```%s\n%s\n```\n<!-- end -->", marker, lang, strings.TrimSpace(shown))
		text = after
	}
}

// printed runs a command line without configuration and returns its stdout.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	home := t.TempDir()
	var stdout, stderr bytes.Buffer
	code := execute(t.Context(), args[1:], strings.NewReader(""), &stdout, &stderr, []string{"HOME=" + home})
	if code != 0 {
		t.Fatalf("%s: exit code %d\n%s", strings.Join(args, " "), code, &stderr)
	}
	return stdout.String()
}

// Every limit has the flag that a breach of it names, and a key in the
// configuration.
func TestLimitsHaveFlags(t *testing.T) {
	a := &app{env: environment{}, out: newOutput(&bytes.Buffer{}), err: newOutput(&bytes.Buffer{})}
	cmd := a.runCommand()
	schema, err := config.Schema(known())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range budget.Standard().List() {
		l := s.Limit
		if cmd.Flags().Lookup(strings.TrimPrefix(l.Flag(), "--")) == nil {
			t.Errorf("rein run has no flag %s", l.Flag())
		}
		if key := strings.ReplaceAll(strings.TrimPrefix(l.Flag(), "--"), "-", "_"); !bytes.Contains(schema, []byte(`"`+key+`"`)) {
			t.Errorf("the configuration has no limits.%s", key)
		}
	}
}

// The page lists every code a run can end with.
func TestExitCodes(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "exit-codes.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code    int
		reasons []run.Reason
	}{
		{exitOK, []run.Reason{run.Done}}, {exitFailure, []run.Reason{run.Failed}}, {exitUsage, []run.Reason{run.Misused}},
		{exitNotAccepted, []run.Reason{run.Refused}}, {exitBudget, []run.Reason{run.OverBudget}}, {exitStuck, []run.Reason{run.Stuck, run.NoProgress}},
		{exitNeedsHuman, []run.Reason{run.NeedsHuman}}, {exitLost, []run.Reason{run.Lost}}, {exitModel, []run.Reason{run.NoModel}},
		{exitInterrupted, []run.Reason{run.Interrupted}}, {exitExec, nil}, {exitTimeout, nil},
	} {
		if !bytes.Contains(page, fmt.Appendf(nil, "| %d |", c.code)) {
			t.Errorf("the page does not list %d", c.code)
		}
		for _, r := range c.reasons {
			if r.ExitCode() != c.code {
				t.Errorf("reason %s exits with %d, want %d", r, r.ExitCode(), c.code)
			}
		}
	}
}

// A sandbox ends up with the limits and the image of its target, and nothing
// of the host's environment.
func TestSpecOf(t *testing.T) {
	s := specOf(withTargetDefaults(config.Target{Resources: config.Resources{Memory: 1 << 30}, Mounts: []config.Mount{{Source: "/a", Target: "/b"}}}))
	if s.Image != "host" || s.Cwd != "/workspace" || s.Resources.Memory != 1<<30 || len(s.Env) != 0 || s.Mounts[0].Writable {
		t.Errorf("spec is %+v", s)
	}
}

// The page describes every key of the configuration.
func TestKeysAreDescribed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := config.Schema(known())
	if err != nil {
		t.Fatal(err)
	}
	var schema node
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	keys := schema.keys()
	if len(keys) < 40 {
		t.Fatalf("the schema has the keys %q only", keys)
	}
	for _, key := range keys {
		if !regexp.MustCompile(`(?m)(^|[ {])` + key + `:( |$)`).Match(page) {
			t.Errorf("the page does not show %s:", key)
		}
	}
}

// node is a JSON Schema, as far as it has keys.
type node struct {
	Properties           map[string]node
	AdditionalProperties json.RawMessage
	Items                *node
}

func (n node) keys() []string {
	var all []string
	for name, p := range n.Properties {
		all = append(append(all, name), p.keys()...)
	}
	var values node
	if json.Unmarshal(n.AdditionalProperties, &values) == nil {
		all = append(all, values.keys()...)
	}
	if n.Items != nil {
		all = append(all, n.Items.keys()...)
	}
	return all
}
