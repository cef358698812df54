package run_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/run/control"
	"github.com/rein-sh/rein/sandbox"
)

// full is a provider whose host has no room for records any more once the policy
// was changed.
type full struct {
	*gateway
	changed func()
}

func (f *full) SetNetwork(ctx context.Context, id string, d policy.Document) (uint64, error) {
	n, err := f.gateway.SetNetwork(ctx, id, d)
	if f.changed != nil {
		f.changed()
	}
	return n, err
}

// descriptor is the test's own descriptor of a file.
func descriptor(t *testing.T, file string) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == file {
			fd, err := strconv.Atoi(e.Name())
			if err != nil {
				t.Fatal(err)
			}
			return fd
		}
	}
	t.Fatal("the log is not open")
	return -1
}

// A change of the network that cannot be recorded is taken back, though what takes
// it back cannot be recorded either.
func TestUnrecordedChangeIsTakenBack(t *testing.T) {
	t.Parallel()
	o := options(t)
	f := &full{gateway: &gateway{Provider: o.Provider}}
	o.Provider = f
	o.Target.Spec.Network = policy.Document{Origin: policy.OriginHost, Rules: []policy.Rule{{Host: "pypi.org"}}}
	rep := asking(t, o, func(ctx context.Context, s *run.Session, c *control.Client) {
		dir, err := filepath.EvalSymlinks(s.Dir())
		if err != nil {
			t.Error(err)
			return
		}
		log := descriptor(t, filepath.Join(dir, run.AuditFile))
		kept, err := unix.FcntlInt(uintptr(log), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(kept)
		null, err := os.Open(os.DevNull) // which nothing is written to
		if err != nil {
			t.Error(err)
			return
		}
		defer null.Close()
		f.changed = func() {
			f.changed = nil
			if err := unix.Dup3(int(null.Fd()), log, unix.O_CLOEXEC); err != nil {
				t.Error(err)
			}
		}
		_, err = c.Allow(ctx, control.Host{Host: "db.example.com"})
		if dup := unix.Dup3(kept, log, unix.O_CLOEXEC); dup != nil {
			t.Error(dup)
		}
		if err == nil {
			t.Error("the change is said to be in force")
		}
		if f.allows("db.example.com", 443) || !f.allows("pypi.org", 443) {
			t.Error("it is not taken back")
		}
	})
	if len(rep.NetworkChanges) != 0 {
		t.Errorf("%+v", rep.NetworkChanges)
	}
}

var _ sandbox.Networker = (*full)(nil)
