package egress

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/egress/policy"
)

// unwritableArg makes a process of these tests one that can write no file.
const unwritableArg = "unwritable"

// What cannot be written down does not pass.
func TestHostFileNotWritten(t *testing.T) {
	if args := flag.Args(); len(args) == 2 && args[0] == unwritableArg {
		g, _ := simulated(t, Options{Host: &stillHost{}, HostMeter: hostMeter(t, args[1], HostLimits{})}, anySSH)
		f := begin(t, g)
		signal.Ignore(unix.SIGXFSZ)
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: unix.RLIM_INFINITY}); err != nil {
			t.Fatal(err)
		}
		n, err := f.outside.Write(make([]byte, 100))
		wantRule(t, err, "limit:host")
		if n != 0 {
			t.Errorf("%d bytes were sent", n)
		}
		f.end(err)
		wantRefused(t, g, "limit:host")
		return
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shared")
	out, err := exec.Command("/proc/self/exe", "-test.run=^TestHostFileNotWritten$", unwritableArg, path).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A file that cannot be trusted opens nothing.
func TestHostFileDamaged(t *testing.T) {
	t.Parallel()
	write := func(b []byte, at int64) func(string) error {
		return func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(b, at)
			return errors.Join(err, f.Close())
		}
	}
	instead := func(make func(path string) error) func(string) error {
		return func(path string) error { return errors.Join(os.Remove(path), make(path)) }
	}
	for name, c := range map[string]struct {
		damage func(path string) error
		says   string
		open   bool // it can be opened all the same
	}{
		"counts":    {write([]byte{1}, 30), "damaged", false},
		"magic":     {write([]byte("other"), 0), "damaged", false},
		"zeros":     {write(make([]byte, hostBytes), 0), "damaged", false},
		"slot":      {write([]byte{0}, slotAt(0)), "damaged", true},
		"cut":       {func(path string) error { return os.Truncate(path, 100) }, "damaged", false},
		"empty":     {func(path string) error { return os.Truncate(path, 0) }, "damaged", false},
		"longer":    {write([]byte{1}, hostBytes), "damaged", false},
		"removed":   {os.Remove, "removed", true},
		"directory": {instead(func(path string) error { return os.Mkdir(path, 0o700) }), "removed", false},
		"link": {func(path string) error {
			return errors.Join(os.Rename(path, path+".moved"), os.Symlink(path+".moved", path))
		}, "", false},
		"fifo":      {instead(func(path string) error { return unix.Mkfifo(path, 0o600) }), "removed", false},
		"of others": {func(path string) error { return os.Chmod(path, 0o660) }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "shared")
				m := hostMeter(t, path, HostLimits{})
				g, e := simulated(t, Options{Host: &stillHost{}, HostMeter: m}, anySSH)
				f := begin(t, g)
				if err := c.damage(path); err != nil {
					t.Fatal(err)
				}
				if c.says != "" {
					err := passing(t, g)
					wantRule(t, err, "limit:host")
					if err == nil || !strings.Contains(err.Error(), c.says) {
						t.Errorf("it says %v", err)
					}
					n, err := f.outside.Write(make([]byte, 100))
					wantRule(t, err, "limit:host")
					if n != 0 {
						t.Errorf("%d bytes were sent", n)
					}
					if list := e.get(); len(list) != 1 || list[0].Rule != "limit:host" || list[0].Verdict != verdictDeny {
						t.Errorf("recorded %+v", list)
					}
				}
				f.end(errOver)
				m, err := OpenHostMeter(path, HostLimits{})
				if err == nil {
					m.Close()
				}
				if failed, ok := errors.AsType[*Error](err); c.open && err != nil || !c.open && (!ok || failed.Hint == "" || failed.Subject != path) {
					t.Errorf("opened again: %v", err)
				}
			})
		})
	}
}

// Who waits for the lock in vain admits nothing, and does not wait again.
func TestHostFileStaysLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "shared")
		g, _ := simulated(t, Options{Host: &stillHost{}, HostMeter: hostMeter(t, path, HostLimits{})}, anySSH)
		other, err := openHostFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer other.close()
		if err := other.lock(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []time.Duration{hostPatience, 0} {
			start := time.Now()
			wantRefused(t, g, "limit:host")
			if took := time.Since(start); took < want || took > want+time.Second {
				t.Errorf("it waited for %v, want %v", took, want)
			}
		}
		if err := other.flock(unix.F_UNLCK, 0); err != nil {
			t.Fatal(err)
		}
		begin(t, g).end(errOver)
	})
}

// While one connection waits for the file, others are judged, the policy changes
// and what has ended is on record.
func TestHostFileIsWaitedForAside(t *testing.T) {
	for name, waits := range map[string]func(*testing.T, *Gateway, *flow) *flow{
		"connect": func(t *testing.T, g *Gateway, open *flow) *flow {
			connecting(t, g, ssh)
			return open
		},
		"end": func(_ *testing.T, g *Gateway, open *flow) *flow {
			go open.end(errOver)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "shared")
				g, e := simulated(t, Options{Host: &stillHost{}, HostMeter: hostMeter(t, path, HostLimits{})}, anySSH)
				open := begin(t, g)
				other, err := openHostFile(path)
				if err != nil {
					t.Fatal(err)
				}
				defer other.close()
				if err := other.lock(); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				open = waits(t, g, open)
				synctest.Wait()
				if ended := open == nil; ended != (len(e.get()) == 1) {
					t.Fatalf("recorded %+v", e.get())
				}
				another, refused := g.newFlow(ssh, 1)
				if refused != nil {
					t.Fatal(refused)
				}
				g.SetPolicy(nil)
				wantRule(t, context.Cause(another.ctx), policy.RuleDefault)
				another.end(nil)
				g.Flush()
				if list := e.get(); time.Since(start) != 0 || list[len(list)-1].Rule != policy.RuleDefault {
					t.Errorf("it took %v, and is recorded as %+v", time.Since(start), list)
				}
				time.Sleep(2 * hostPatience)
				if open != nil {
					open.end(nil)
				}
			})
		})
	}
}

func TestHostFileIsFull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shared")
	g, _ := simulated(t, Options{Host: &stillHost{}, HostMeter: hostMeter(t, path, HostLimits{})}, anySSH)
	others, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := unix.Flock_t{Type: unix.F_WRLCK, Start: slotAt(0), Len: hostSlots * slotBytes}
	if err := unix.FcntlFlock(others.Fd(), unix.F_OFD_SETLK, &all); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, g, "limit:host_connections")
	others.Close()
	begin(t, g).end(errOver)
}
