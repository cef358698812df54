package local

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rein-sh/rein/sandbox"
)

func TestPlanCgroup(t *testing.T) {
	all := []string{"cpu", "io", "memory", "pids"}
	for _, tc := range []struct {
		name        string
		host        cgroupHost
		mode        string
		controllers []string
		remedy      string // part of it
	}{
		{"v1 as root", cgroupHost{Root: true, Writable: all}, "v1", wantedControllers, ""},
		{"v1 with memory only", cgroupHost{Root: true, Writable: []string{"memory"}}, "v1", []string{"memory"}, ""},
		{"v1 as a user", cgroupHost{}, "", nil, "run rein as root"},
		{"v2 as root", cgroupHost{Unified: true, Root: true, Writable: all}, "v2", wantedControllers, ""},
		{"v2 as root, read-only", cgroupHost{Unified: true, Root: true}, "", nil, "Delegate"},
		{"v2 delegated by systemd", cgroupHost{Unified: true, Systemd: true, Writable: all}, "v2 systemd", wantedControllers, ""},
		{"v2 with part delegated", cgroupHost{Unified: true, Systemd: true, Writable: []string{"memory", "pids"}}, "v2 systemd", []string{"memory", "pids"}, ""},
		{"v2 with nothing delegated", cgroupHost{Unified: true, Systemd: true}, "", nil, "Delegate"},
		{"v2 without systemd", cgroupHost{Unified: true, Writable: all}, "", nil, "Delegate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := planCgroup(tc.host)
			if plan.Mode != tc.mode || !slices.Equal(plan.Controllers, tc.controllers) {
				t.Errorf("plan is %q with %v, want %q with %v", plan.Mode, plan.Controllers, tc.mode, tc.controllers)
			}
			if (plan.Mode == "") != (plan.Reason != "" && plan.Remedy != "") {
				t.Errorf("a plan without mode, and only that, has reason and remedy: %+v", plan)
			}
			if !strings.Contains(plan.Remedy, tc.remedy) {
				t.Errorf("remedy %q does not contain %q", plan.Remedy, tc.remedy)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	refused := errors.New("operation not permitted")
	good := hostFacts{MaxUserNamespaces: "100", Landlock: true, Filter: true}
	with := func(change func(*hostFacts)) hostFacts { f := good; change(&f); return f }
	for _, tc := range []struct {
		name   string
		facts  hostFacts
		remedy string // of the first problem; empty: no problem
		fatal  bool
	}{
		{"nothing wrong", good, "", false},
		{"Ubuntu 24.04", with(func(f *hostFacts) { f.AppArmorRestricts, f.Namespaces, f.Keep = "1", refused, "/opt/rein" }), "profile rein /opt/rein", true},
		{"Ubuntu 24.04 with a profile", with(func(f *hostFacts) { f.AppArmorRestricts = "1" }), "", false},
		{"Ubuntu 24.04 as root", with(func(f *hostFacts) { f.AppArmorRestricts, f.Root = "1", true }), "", false},
		{"Debian switch", with(func(f *hostFacts) { f.UnprivilegedClone, f.Namespaces = "0", refused }), "kernel.unprivileged_userns_clone=1", true},
		{"Debian switch as root", with(func(f *hostFacts) { f.UnprivilegedClone, f.Root = "0", true }), "", false},
		{"no user namespaces", with(func(f *hostFacts) { f.MaxUserNamespaces, f.Namespaces = "0", refused }), "user.max_user_namespaces", true},
		{"in a container", with(func(f *hostFacts) { f.Namespaces = refused }), "--security-opt", true},
		{"no tun", with(func(f *hostFacts) { f.Tun = errors.New("no such file") }), "modprobe tun", false},
		{"no landlock", with(func(f *hostFacts) { f.Landlock = false }), "landlock", false},
		{"no filter", with(func(f *hostFacts) { f.Filter = false }), "amd64", false},
		{"broken runtime", with(func(f *hostFacts) { f.Runtime = errors.New("exec format error") }), "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ps := problemsOf(tc.facts)
			if len(ps) == 0 {
				if tc.remedy != "" || tc.fatal {
					t.Fatal("no problem is seen")
				}
				return
			}
			if len(ps) > 1 || !strings.Contains(ps[0].Remedy, tc.remedy) || ps[0].Fatal != tc.fatal || (tc.remedy == "" && !tc.fatal) {
				t.Errorf("problems: %+v", ps)
			}
		})
	}
}

func TestCheckInside(t *testing.T) {
	for _, good := range []string{"/workspace", "/home/user/x", "/srv/data", "/runner"} {
		if err := checkInside(good, hostReserved); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "/", "relative", "/a/../b", "/a/", "/etc", "/etc/x", "/usr/local", "/run/rein", "/proc/1", "/.rein/execd", "/a\nb"} {
		if checkInside(bad, hostReserved) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestCheckID(t *testing.T) {
	for _, bad := range []string{"", "sb-..", "sb-a/b", "../x", "new-123", "sb-" + strings.Repeat("a", 60), "sb-A"} {
		if checkID("get", bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if err := checkID("get", "sb-01jdx0c5m3w2y0q1"); err != nil {
		t.Error(err)
	}
}

func TestStateDirOfOthers(t *testing.T) {
	dir := t.TempDir()
	if _, err := New(Options{StateDir: dir}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{StateDir: dir}); sandbox.KindOf(err) != sandbox.KindDenied {
		t.Errorf("a directory that others may write: %v", err)
	}
	if _, err := New(Options{StateDir: "relative"}); sandbox.KindOf(err) != sandbox.KindInvalid {
		t.Errorf("a relative directory: %v", err)
	}
}
