package sandboxtest_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

var update = flag.Bool("update", false, "rewrite docs/capabilities.md")

// columns are the runs of the suite that the page shows.
var columns = []struct{ name, title, how string }{
	{"memory", "memory", "the in-memory provider of tests: `go test ./sandbox/sandboxtest`"},
	{"local-gvisor", "local, gVisor", "sandboxes of gVisor, as root: `go test ./sandbox/local`"},
	{"local-gvisor-image", "… on an image", "the same, with the files of an OCI image instead of the host's"},
	{"local-gvisor-user", "… as a user", "the same, as an ordinary user, on a host that delegates no cgroup to it"},
	{"local-runc", "local, runc", "sandboxes of runc, as root: `go test ./sandbox/local`"},
	{"local-runc-image", "… on an image", "the same, with the files of an OCI image instead of the host's"},
	{"local-runc-user", "… as a user", "the same, as an ordinary user, on a host that delegates no cgroup to it"},
	{"opensandbox-fake", "opensandbox, scripted server", "a server in the test's process, whose execd is like OpenSandbox's and whose machines are in memory: `go test ./sandbox/opensandbox`"},
	{"opensandbox-fake-own", "… with rein-execd", "the same, with rein's execd put into the sandboxes"},
	{"opensandbox-real", "opensandbox, real server", "a real server on Docker: `make test-opensandbox`"},
	{"opensandbox-real-own", "… with rein-execd", "the same, with rein's execd put into the sandboxes"},
}

const page = "../../docs/capabilities.md"

// TestCapabilitiesPage checks that the page shows what the runs of the suite
// have left in docs/verified. make verify runs them all again.
func TestCapabilitiesPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), "<!-- capabilities -->\n")
	_, after, ok2 := strings.Cut(rest, "<!-- end -->")
	if !ok1 || !ok2 {
		t.Fatal("the page has no place for the table")
	}
	want := before + "<!-- capabilities -->\n" + table(t) + "<!-- end -->" + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want, string(text)); d != "" {
		t.Errorf("the page is not what docs/verified gives; go test ./sandbox/sandboxtest -run TestCapabilitiesPage -update\n%s", d)
	}
}

func table(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| capability |")
	rule := "|---|"
	shown := make([]sandboxtest.Summary, len(columns))
	for i, c := range columns {
		fmt.Fprintf(&b, " %s |", c.title)
		rule += "---|"
		text, err := os.ReadFile(filepath.Join("../../docs/verified", c.name+".json"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(text, &shown[i])
		}
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(looksAt(shown[i]), counted(shown[i])); d != "" {
			t.Errorf("%s: the suite has other cases than when it was run last; make verify runs it again\n%s", c.name, d)
		}
	}
	b.WriteString("\n" + rule + "\n")
	for _, name := range sandbox.Capabilities {
		fmt.Fprintf(&b, "| `%s` |", name)
		for _, s := range shown {
			fmt.Fprintf(&b, " %s |", cell(s, name))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for i, c := range columns {
		how := c.how
		if w := shown[i].With; w != "" {
			how += ", with " + w
		}
		fmt.Fprintf(&b, "%d. %s: %s\n", i+1, strings.TrimPrefix(c.title, "… "), how)
	}
	return b.String()
}

// looksAt is how many cases of today's suite a run with these capabilities has,
// for each of them.
func looksAt(s sandboxtest.Summary) map[sandbox.Capability]int {
	counts := map[sandbox.Capability]int{}
	for name := range s.Capabilities {
		counts[name] = 0
	}
	for _, c := range sandboxtest.Cases() {
		needs := slices.Compact(slices.Sorted(slices.Values(c.Needs)))
		if slices.ContainsFunc(needs, func(n sandbox.Capability) bool { return !s.Capabilities[n].Available }) {
			continue
		}
		for _, n := range needs {
			counts[n]++
		}
	}
	return counts
}

// counted is how many cases a run did have.
func counted(s sandboxtest.Summary) map[sandbox.Capability]int {
	counts := map[sandbox.Capability]int{}
	for name, shown := range s.Capabilities {
		counts[name] = shown.Passed + shown.Failed + shown.Skipped
	}
	return counts
}

func cell(s sandboxtest.Summary, c sandbox.Capability) string {
	shown, ok := s.Capabilities[c]
	switch {
	case !ok:
		return "not run"
	case !shown.Available:
		return "–"
	case shown.Failed > 0:
		return fmt.Sprintf("**%d of %d fail**, %s", shown.Failed, shown.Passed+shown.Failed, shown.EnforcedBy)
	case shown.Passed == 0:
		return shown.EnforcedBy + ", no case"
	}
	return fmt.Sprintf("%s, %d", shown.EnforcedBy, shown.Passed)
}
