package daemon

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// What the daemon says beforehand of its wardens is what they report: more
// would be a false alarm, less would leave it without commands.
func TestExpectedHolds(t *testing.T) {
	for _, user := range []*User{nil, {UID: 61234, GID: 61235}} {
		opts := OSOptions{Warden: []string{"/proc/self/exe", "warden"}, Dir: t.TempDir(), User: user, MaxProcesses: 4096}
		m, err := NewOS(opts)
		if err != nil {
			t.Fatal(err)
		}
		w, err := m.take()
		if err != nil {
			t.Errorf("as user %+v: %v (%q)", user, err, m.Reduced())
		} else {
			holds := w.holds
			if user == nil {
				holds &^= holdsGroups // nothing is expected of its own groups
			}
			if holds != m.expect {
				t.Errorf("as user %+v wardens hold %#x, and %#x was expected", user, holds, m.expect)
			}
			m.release(w)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The same with other rights than the test has.
func TestExpectedHoldsElsewhere(t *testing.T) {
	ways := map[string]string{
		"no new privileges": "setpriv --no-new-privs",
		"user namespace":    "unshare --user --map-root-user", // without setgroups
	}
	if os.Geteuid() == 0 {
		for name, way := range map[string]string{
			"groups":                     "setpriv --groups 7,8",
			"no group":                   "setpriv --clear-groups",
			"no capabilities":            "setpriv --bounding-set -all --inh-caps -all",
			"no capabilities, groups":    "setpriv --groups 7 --bounding-set -all --inh-caps -all",
			"docker --cap-drop SETPCAP":  "setpriv --bounding-set -setpcap --inh-caps -all --no-new-privs",
			"docker --cap-drop SETGID":   "setpriv --groups 7 --bounding-set -setgid --inh-caps -all",
			"without SYS_RESOURCE":       "setpriv --bounding-set -sys_resource --inh-caps -all",
			"no special root":            "setpriv --securebits +noroot,+noroot_locked",
			"ambient, no special root":   "setpriv --securebits +noroot --inh-caps +setpcap,+setgid --ambient-caps +setpcap,+setgid",
			"ordinary user":              "setpriv --reuid 61236 --regid 61236 --groups 7",
			"ordinary user, capable":     "setpriv --reuid 61236 --regid 61236 --groups 7 --inh-caps +setpcap,+setgid,+setuid --ambient-caps +setpcap,+setgid,+setuid",
			"ordinary user, empty bound": "setpriv --reuid 61236 --regid 61236 --clear-groups --bounding-set -all --inh-caps -all",
		} {
			ways[name] = way
		}
	}
	dir, err := os.MkdirTemp("/tmp", "execd-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	program := copyOfTest(t, dir)
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append(strings.Fields(way), program, "-test.run", "^TestExpectedHolds$", "-test.v")
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = append(os.Environ(), "TMPDIR="+dir)
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), "unshare failed") && os.Geteuid() != 0 && os.Getenv("CI") != "true" {
				t.Skipf("user namespaces are not allowed here: %s", out)
			}
			if err != nil || !strings.Contains(string(out), "--- PASS: TestExpectedHolds") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// copyOfTest is this test's program where every user can run it.
func copyOfTest(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := dir + "/test"
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
