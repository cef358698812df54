package isolation_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/internal/isolation"
)

var update = flag.Bool("update", false, "rewrite the table in the documentation")

// controls are their words in the documentation.
var controls = map[isolation.Control]string{
	isolation.Own: "in namespaces of its own", isolation.Outside: "on the host", isolation.Root: "on the host, as root", isolation.Beside: "inside, on its own",
}

// The page shows what the trials expect, and the tests of sandbox/local check that
// it is so.
func TestDocs(t *testing.T) {
	name := filepath.Join("..", "..", "docs", "isolation.md")
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- trials -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", name)
	}
	want := before + begin + table() + end + after
	if *update && want != string(page) {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(page), want); diff != "" {
		t.Errorf("go test ./internal/isolation -run TestDocs -update\n%s", diff)
	}
}

func table() string {
	var b, notes strings.Builder
	area := ""
	noted := 0
	for _, t := range isolation.Trials() {
		if t.Area != area {
			area = t.Area
			fmt.Fprintf(&b, "\n### %s\n\n| tried | runc | runc, rein is not root | gVisor | control |\n|---|---|---|---|---|\n", area)
		}
		gvisor := shown(t.Want.GVisor)
		if t.Note != "" {
			noted++
			gvisor += fmt.Sprintf(" (%d)", noted)
			fmt.Fprintf(&notes, "%d. %s: %s.\n", noted, t.Name, t.Note)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", t.Name, shown(t.Want.Runc), shown(t.Want.OneID), gvisor, controls[t.Control])
	}
	return b.String() + "\n" + notes.String() + "\n"
}

// shown marks what is no word of ours.
func shown(outcome string) string {
	if strings.ToUpper(outcome) == outcome || strings.HasPrefix(outcome, "/") {
		return "`" + outcome + "`"
	}
	return outcome
}

func TestTrialsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, trial := range isolation.Trials() {
		if seen[trial.Name] {
			t.Errorf("%q is there twice", trial.Name)
		}
		seen[trial.Name] = true
		if trial.Area == "" || trial.Want.Runc == "" || trial.Want.OneID == "" || trial.Want.GVisor == "" || len(trial.Works) == 0 || controls[trial.Control] == "" {
			t.Errorf("%+v lacks something", trial)
		}
		// An outcome that the control may have too shows nothing, but where what is
		// the program's own has to work.
		for _, works := range trial.Works {
			for _, want := range []string{trial.Want.Runc, trial.Want.GVisor} {
				if works == want && want != isolation.Possible && !shared[trial.Name] {
					t.Errorf("%s: %s is what the control may say", trial.Name, want)
				}
			}
		}
	}
}

// shared are trials of which some kernels know nothing, as gVisor's does not.
var shared = map[string]bool{
	"a system call of x32": true, "the same by one thread of several": true, "mount by x32": true, "a 32-bit program": true, "move_mount": true,
	"a socket to the hypervisor (vsock)": true, "the kernel's cryptography (AF_ALG)": true, "AF_KEY": true, "Bluetooth": true, "TIPC": true, "CAN": true, "XDP": true,
}

// On the host itself nothing is tried that could change it, whatever the program
// is told.
func TestHostIsSpared(t *testing.T) {
	if _, err := os.Lstat("/.rein/execd"); err == nil {
		t.Skip("inside a sandbox nothing has to be spared: there the trials are made, by TestIsolation of sandbox/local")
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	initial := strings.Join(strings.Fields(string(ids)), " ") == "0 0 4294967295"
	for _, where := range []isolation.Where{"", isolation.Sandbox, isolation.Namespaces} {
		if where == isolation.Namespaces && !initial {
			continue // it would be true
		}
		for _, trial := range []string{"", "a raw socket"} {
			in, err := json.Marshal(isolation.Host{Where: where, Trial: trial})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := isolation.Main(bytes.NewReader(in), &out); err == nil || out.Len() > 0 {
				t.Errorf("told that this is %q, it tried %q: %v %s", where, trial, err, out.String())
			}
		}
	}
	in, err := json.Marshal(isolation.Host{Where: isolation.TheHost, Trial: "mount a tmpfs"})
	if err != nil {
		t.Fatal(err)
	}
	if err := isolation.Main(bytes.NewReader(in), &bytes.Buffer{}); err == nil {
		t.Error("it mounted on the host")
	}
}
