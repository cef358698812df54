package sandboxtest_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

func options() sandbox.Options {
	return sandbox.Options{Log: audit.New(io.Discard, audit.Options{})}
}

// The rows of the suite are sound, and unsound ones are noticed.
func TestCheck(t *testing.T) {
	cases := sandboxtest.Cases()
	if err := sandboxtest.Check(cases); err != nil {
		t.Error(err)
	}
	if len(cases) < 60 {
		t.Errorf("only %d cases", len(cases))
	}
	bad := []sandboxtest.Case{{Name: "x", Needs: []sandbox.Capability{"exce"}}}
	if err := sandboxtest.Check(bad); err == nil || !strings.Contains(err.Error(), "exce") {
		t.Errorf("a capability that does not exist: %v", err)
	}
	if sandboxtest.Check(append(cases[:1:1], cases[0])) == nil {
		t.Error("two cases of one name")
	}
}

// Under a simulated clock hours pass at once.
func TestSimulatedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		sb, err := sandbox.Create(t.Context(), m, sandbox.Spec{TTL: time.Hour}, options())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		r, err := sb.Run(t.Context(), sandbox.Command{Shell: "echo a; sleep 1200; echo b", Timeout: 30 * time.Minute})
		if err != nil || !r.OK() || string(r.Stdout.Head) != "a\nb\n" {
			t.Fatalf("result %+v, %v", r, err)
		}
		if took := time.Since(start); took < 20*time.Minute || took > 21*time.Minute {
			t.Errorf("sleep 1200 took %v", took)
		}
		end, err := sb.Renew(t.Context(), time.Now().Add(2*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(end) - time.Second)
		if _, err := m.Get(t.Context(), sb.ID()); err != nil {
			t.Errorf("a second before its end: %v", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := m.Get(t.Context(), sb.ID()); sandbox.KindOf(err) != sandbox.KindNotFound {
			t.Errorf("a second after its end: %v", err)
		}
		if _, err := sb.Run(t.Context(), sandbox.Command{Shell: "true"}); sandbox.KindOf(err) != sandbox.KindLost {
			t.Errorf("a run after the end: %v", err)
		}
		sb.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
}

// No way of naming a file or a program leads out of a sandbox's directory.
func TestConfined(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	host := filepath.Join(dir, "host-file")
	if err := os.WriteFile(host, []byte("of the host"), 0o755); err != nil {
		t.Fatal(err)
	}
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: dir})
	defer m.Close()
	sb, err := sandbox.Create(t.Context(), m, sandbox.Spec{TTL: time.Minute}, options())
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	for _, shell := range []string{
		"cat HOST", "cat < HOST", "echo x > HOST", "echo x >> HOST", "cat ../../../../../../../../HOST", "HOST", "bash HOST", "source HOST",
		". HOST", "cd /; cat ..HOST", "ln -s HOST l; cat l", "ln -s HOST l2; echo x > l2", "ln -s ../../../../../../..HOST l3; cat l3",
		"ln HOST l4 && cat l4", "cp HOST c && cat c", "mv HOST m", "rm HOST", "chmod 600 HOST", "touch HOST", "mkdir HOST.d",
		"test -e HOST", "[[ -f HOST ]]", "cd DIR", "ls DIR", "echo DIR/*| grep host", "command -v HOST", "type HOST",
		"builtin command -v HOST", "ln -s DIR d; echo x > d/made", "tee HOST < /dev/null", "read l < HOST", "mapfile < HOST && echo $MAPFILE",
		"echo x > /tmp/sh-interp-escape; cat DIR/sh-interp-escape", "cat <(echo hi)", "exec cat HOST", "exec 3< HOST", "env HOST", "printf x | tee HOST",
	} {
		shell = strings.ReplaceAll(strings.ReplaceAll(shell, "HOST", host), "DIR", dir)
		r, err := sb.Run(t.Context(), sandbox.Command{Shell: shell, Timeout: 5 * time.Second})
		if err != nil {
			t.Errorf("%s: %v", shell, err)
			continue
		}
		if r.OK() || strings.Contains(string(r.Stdout.Head)+string(r.Stderr.Head), "of the host") {
			t.Errorf("%s: succeeded with %q", shell, r.Stdout.Head)
		}
	}
	if b, err := os.ReadFile(host); err != nil || string(b) != "of the host" {
		t.Errorf("the file of the host is now %q, %v", b, err)
	}
	if _, err := os.Stat("/tmp/sh-interp-escape"); err == nil {
		t.Error("a file was made in the host's /tmp")
	}
	if err := sb.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left on the host: %v, %v", entries, err)
	}
}

func TestMemoryRefuses(t *testing.T) {
	t.Parallel()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	for name, spec := range map[string]sandbox.Spec{
		"image":  {TTL: time.Minute, Image: "debian"},
		"limits": {TTL: time.Minute, Resources: sandbox.Resources{PIDs: 64}},
		"mounts": {TTL: time.Minute, Mounts: []sandbox.Mount{{Source: "/tmp", Target: "/mnt"}}},
	} {
		if _, err := m.Create(t.Context(), spec); sandbox.KindOf(err) != sandbox.KindUnsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.Create(t.Context(), sandbox.Spec{TTL: time.Minute}); sandbox.KindOf(err) != sandbox.KindUnavailable {
		t.Errorf("a closed provider: %v", err)
	}
}

func BenchmarkMemoryCreateKill(b *testing.B) {
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: b.TempDir()})
	defer m.Close()
	for b.Loop() {
		info, err := m.Create(b.Context(), sandbox.Spec{TTL: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Kill(b.Context(), info.ID); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMemoryRun(b *testing.B) {
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: b.TempDir()})
	defer m.Close()
	sb, err := sandbox.Create(b.Context(), m, sandbox.Spec{TTL: time.Hour}, options())
	if err != nil {
		b.Fatal(err)
	}
	defer sb.Close()
	for b.Loop() {
		if _, err := sb.Run(b.Context(), sandbox.Command{Shell: "echo x"}); err != nil {
			b.Fatal(err)
		}
	}
}
