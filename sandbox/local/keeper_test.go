package local_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
)

// keeperOf is the pid of a sandbox's keeper.
func keeperOf(t *testing.T, state, id string) int {
	t.Helper()
	var keeper struct{ PID int }
	b, err := os.ReadFile(filepath.Join(state, "live", id, "keeper.json"))
	if err == nil {
		err = json.Unmarshal(b, &keeper)
	}
	if err != nil {
		t.Fatal(err)
	}
	return keeper.PID
}

// The process that reads a hostile sandbox's frames has nothing to lose.
func TestKeeperIsHardened(t *testing.T) {
	state := t.TempDir()
	p, err := local.New(options("gvisor", state))
	if err != nil {
		t.Fatal(err)
	}
	info, err := p.Create(t.Context(), sandbox.Spec{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill(t.Context(), info.ID)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", keeperOf(t, state, info.ID)))
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		status[name] = strings.Join(strings.Fields(value), " ")
	}
	if status["NoNewPrivs"] != "1" {
		t.Errorf("NoNewPrivs is %s", status["NoNewPrivs"])
	}
	if os.Geteuid() == 0 && strings.HasPrefix(status["Uid"], "0 ") {
		t.Errorf("a keeper started by root still is root: Uid %s", status["Uid"])
	}
	if status["Seccomp"] != "2" || status["Seccomp_filters"] == "0" {
		t.Errorf("Seccomp is %s, with %s filters", status["Seccomp"], status["Seccomp_filters"])
	}
	for _, set := range []string{"CapEff", "CapPrm", "CapAmb"} {
		if strings.Trim(status[set], "0") != "" {
			t.Errorf("%s is %s", set, status[set])
		}
	}
}

func TestMounts(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			p := provider(t, runtime)
			shown := openDir(t)
			if err := os.WriteFile(filepath.Join(shown, "file"), []byte("of the host\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			s, err := sandbox.Create(t.Context(), p, sandbox.Spec{TTL: time.Minute,
				Mounts: []sandbox.Mount{{Source: shown, Target: "/data"}}}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Run(t.Context(), sandbox.Command{Shell: "cat /data/file; touch /data/new"})
			if err != nil || string(r.Stdout.Head) != "of the host\n" || r.OK() || !strings.Contains(string(r.Stderr.Head), "Read-only") {
				t.Errorf("a read-only mount: %q, %q, %v", r.Stdout.Head, r.Stderr.Head, err)
			}
			if err := s.Kill(t.Context()); err != nil {
				t.Error(err)
			}

			private := openDir(t)
			if err := os.Chmod(private, 0o700); err != nil {
				t.Fatal(err)
			}
			hidden := filepath.Join(private, "shown")
			err = errors.Join(os.Mkdir(hidden, 0o755), os.WriteFile(filepath.Join(hidden, "file"), []byte("in a private directory\n"), 0o644))
			if err != nil {
				t.Fatal(err)
			}
			s, err = sandbox.Create(t.Context(), p, sandbox.Spec{TTL: time.Minute,
				Mounts: []sandbox.Mount{{Source: hidden, Target: "/data"}}}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatalf("what others may read, where they cannot go: %v", err)
			}
			if r, err := s.Run(t.Context(), sandbox.Command{Shell: "cat /data/file"}); err != nil || string(r.Stdout.Head) != "in a private directory\n" {
				t.Errorf("%q, %q, %v", r.Stdout.Head, r.Stderr.Head, err)
			}
			if err := s.Kill(t.Context()); err != nil {
				t.Error(err)
			}

			spec := sandbox.Spec{TTL: time.Minute, Mounts: []sandbox.Mount{{Source: private, Target: "/data", Writable: true}}}
			own := os.Geteuid() != 0 && runtime == "runc" // its user is the caller's own id
			if _, err := p.Create(t.Context(), spec); (err == nil) != own || err != nil && sandbox.HintOf(err) == "" {
				t.Errorf("a directory that lets nobody else in: %v", err)
			}
		})
	}
}

// openDir is a directory of the host that everybody may enter and write, below
// directories that everybody may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "rein-mount-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What cannot be honoured is refused, with the reason, and leaves nothing.
func TestRefusals(t *testing.T) {
	p := provider(t, "runc")
	for name, spec := range map[string]sandbox.Spec{
		"an image":               {TTL: time.Minute, Image: "alpine"},
		"a capability":           {TTL: time.Minute, Require: []sandbox.Capability{sandbox.CapKernel}},
		"a path of the system":   {TTL: time.Minute, Cwd: "/etc/work"},
		"a mount over the image": {TTL: time.Minute, Mounts: []sandbox.Mount{{Source: "/var/tmp", Target: "/usr"}}},
	} {
		info, err := p.Create(t.Context(), spec)
		if kind := sandbox.KindOf(err); kind != sandbox.KindUnsupported && kind != sandbox.KindInvalid {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
	if os.Geteuid() != 0 {
		_, err := p.Create(t.Context(), sandbox.Spec{TTL: time.Minute, Require: []sandbox.Capability{sandbox.CapSeparation}})
		if sandbox.KindOf(err) != sandbox.KindUnsupported {
			t.Errorf("separation as an ordinary user: %v", err)
		}
	}
}

// A sandbox that ends by itself is reported with the reason until it is killed.
func TestLost(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			state := t.TempDir()
			p, err := local.New(options(runtime, state))
			if err != nil {
				t.Fatal(err)
			}
			s, err := sandbox.Create(t.Context(), p, sandbox.Spec{TTL: time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			running := make(chan error, 1)
			started := make(chan struct{}, 1)
			go func() {
				_, err := s.Run(t.Context(), sandbox.Command{Shell: "echo started; sleep 30", Stdout: signalWriter(started)})
				running <- err
			}()
			<-started
			for _, c := range childrenByParent()[keeperOf(t, state, s.ID())] {
				unix.Kill(c, unix.SIGKILL)
			}
			if err := <-running; sandbox.KindOf(err) != sandbox.KindLost || !strings.Contains(err.Error(), "runtime_exited") {
				t.Errorf("the command that ran: %v", err)
			}
			info, err := p.Get(t.Context(), s.ID())
			if err != nil || info.State != sandbox.StateLost || info.Reason != "runtime_exited" {
				t.Errorf("the sandbox: %+v, %v", info, err)
			}
			if err := p.Kill(t.Context(), s.ID()); err != nil {
				t.Error(err)
			}
			if _, err := p.Get(t.Context(), s.ID()); sandbox.KindOf(err) != sandbox.KindNotFound {
				t.Errorf("after the kill: %v", err)
			}
			noneLeft(t, state)
		})
	}
}

// signalWriter signals what is written to it.
type signalWriter chan struct{}

func (w signalWriter) Write(p []byte) (int, error) {
	select {
	case w <- struct{}{}:
	default:
	}
	return len(p), nil
}
