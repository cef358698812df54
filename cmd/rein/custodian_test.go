package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/secret"
)

// A command that withdraws a key has its time and no more, whatever it has started,
// and what is told of it does not have the key.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	const key = "ghp_WithdrawWithdrawWithdrawWithdraw0123"
	dir := t.TempDir()
	for _, c := range []struct {
		name, script string
		timeout      time.Duration
		says, output string
	}{
		{"read", "read -r k; echo $k >" + dir + "/read; echo done with $k", time.Minute, "withdrawn", "done with [secret:key]"},
		{"not read", "true", time.Minute, "withdrawn", ""},
		{"failed", "echo no >&2; exit 4", time.Minute, "NOT withdrawn: exit code 4", "no"},
		{"killed", "kill -TERM $$", time.Minute, "NOT withdrawn: signal: terminated", ""},
		{"too late", "echo begun; sleep 1000 & sleep 1000", 200 * time.Millisecond, "NOT withdrawn: no end within 0s", "begun"},
		{"left behind", "sleep 1000 &", time.Minute, "withdrawn", ""},
		{"much", "yes $(cat) | head -c 100000", time.Minute, "withdrawn", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			q := &custodian{a: &app{}, custody: custody{Secret: "key", Revoke: []string{"/bin/sh", "-c", c.script}}, key: secret.New("key", key), timeout: c.timeout}
			v := q.withdraw(t.Context())
			if v.Says() != c.says || c.output != "" && v.Output != c.output || strings.Contains(v.Output, "Withdraw") || len(v.Output) > maxRevokeTold {
				t.Errorf("%s: %+v", v.Says(), v)
			}
		})
	}
	t.Cleanup(func() {
		if got, err := os.ReadFile(filepath.Join(dir, "read")); err != nil || string(got) != key+"\n" {
			t.Errorf("it read %q, %v", got, err)
		}
	})
	absent := &custodian{a: &app{}, custody: custody{Secret: "key", Revoke: []string{filepath.Join(dir, "none")}}, key: secret.New("key", key), timeout: time.Minute}
	if v := absent.withdraw(t.Context()); v.OK || v.ExitCode != nil || !strings.Contains(v.Error, "no such file") {
		t.Errorf("%+v", v)
	}
}
