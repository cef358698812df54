package main

import (
	"encoding/json"
	"os/exec"
	"slices"
	"testing"

	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/secret"
)

// kept is a key with a custodian that withdraws it when it is told to, and says which.
func kept(t *testing.T, name, value string) *minted {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `while read -r o; do case $o in *revoke*) echo '{"outcome":{"secret":"'$0'","ok":true}}';; esac; case $o in *revoke*|*drop*) exit;; esac; done`, value)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &minted{name: name, cmd: cmd, in: in, out: json.NewDecoder(out), key: secret.New(name, value)}
}

// One key is withdrawn by its value, and the others are when all are; one that was
// made before is nobody's twice.
func TestMinting(t *testing.T) {
	t.Parallel()
	var m minting
	for _, value := range []string{"first", "second", "third"} {
		m.add(kept(t, "a", value))
	}
	again := kept(t, "a", "second")
	m.add(again)
	if again.cmd.ProcessState == nil {
		t.Error("two processes have one key")
	}
	m.add(kept(t, "b", "second"))
	names := func(all []run.Revocation) (list []string) {
		for _, v := range all {
			list = append(list, v.Secret)
		}
		return list
	}
	if got := names(m.withdrawOne(t.Context(), "a", secret.New("a", "given"))); len(got) != 0 {
		t.Errorf("withdrawn: %q, of which none was made", got)
	}
	if got := names(m.withdrawOne(t.Context(), "a", secret.New("a", "second"))); !slices.Equal(got, []string{"second"}) {
		t.Errorf("withdrawn: %q", got)
	}
	if got := names(m.withdraw(t.Context())); !slices.Equal(got, []string{"first", "third", "second"}) {
		t.Errorf("withdrawn at the end: %q", got)
	}
	if got := m.withdraw(t.Context()); len(got) != 0 {
		t.Errorf("withdrawn twice: %v", got)
	}
}
