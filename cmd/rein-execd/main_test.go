package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/secret"
)

// program builds the daemon once, as it is shipped.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rein-execd-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "rein-execd")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, os.Chmod(dir, 0o755)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func built(t testing.TB) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// box is a rein-execd that is pid 1 of its own namespaces.
type box struct {
	*execd.Client
	cmd   *exec.Cmd
	addr  string
	pid   int // of the daemon, as the test sees it
	ready time.Duration
}

// boot starts the daemon in a pid and mount namespace; with SameUser also in a
// user namespace with a single id, where no other user exists.
func boot(t testing.TB, b execd.Boot) *box {
	t.Helper()
	path := built(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.Listen = l.Addr().String()
	l.Close()
	b.Token = "tok"
	if b.Cwd == "" {
		b.Home, b.Cwd = "/run/work", "/run/work"
		b.Owned = []string{"/run/work"}
	}
	flags := "-pmf"
	if b.SameUser {
		flags = "-Urpmf"
	}
	d := &box{addr: b.Listen}
	d.cmd = exec.Command("unshare", flags, "--mount-proc", "--kill-child", "sh", "-c", `mount -t tmpfs t /run && exec "$0"`, path)
	d.cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOST_SECRET=of the host"}
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := d.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	d.cmd.Stderr = &stderr
	start := time.Now()
	if err := d.cmd.Start(); err != nil {
		missing(t, "needs unshare: %v", err)
	}
	t.Cleanup(func() { d.cmd.Process.Kill(); d.cmd.Wait() })
	if err := json.NewEncoder(stdin).Encode(b); err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if line != execd.ReadyLine+"\n" {
		d.cmd.Wait()
		if strings.Contains(stderr.String(), "unshare") {
			missing(t, "namespaces are not allowed here: %s", &stderr)
		}
		t.Fatalf("first line %q, %v, standard error: %s", line, err, &stderr)
	}
	d.ready = time.Since(start)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	d.pid, _ = strconv.Atoi(strings.TrimSpace(string(children)))
	d.Client = execd.NewClient(execd.Options{BaseURL: "http://" + d.addr, Token: secret.New("token", "tok")})
	t.Cleanup(d.Close)
	return d
}

// missing skips a test for want of something of the machine, which CI must have.
func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func (d *box) sh(t testing.TB, command string) (string, execd.Outcome) {
	t.Helper()
	o, err := d.Run(t.Context(), execd.RunRequest{Command: command, Timeout: 20_000, Rein: &execd.RunOptions{Capture: 1 << 16}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(o.Stdout.Head) + string(o.Stdout.Tail), o
}

// modes are the ways the daemon runs, by what this machine allows.
func modes() map[string]execd.Boot {
	m := map[string]execd.Boot{"same user": {SameUser: true}}
	if os.Geteuid() == 0 {
		m["other user"] = execd.Boot{UID: 61500, GID: 61501}
	}
	return m
}

func TestFirstProcess(t *testing.T) {
	for name, b := range modes() {
		t.Run(name, func(t *testing.T) {
			b.Env = map[string]string{"FROM_BOOT": "yes"}
			d := boot(t, b)
			if link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", d.pid)); os.Geteuid() == 0 && (err != nil || link != "/dev/null") {
				t.Errorf("standard input is %s, %v", link, err)
			}
			out, _ := d.sh(t, "echo $FROM_BOOT; env | grep -c HOST_SECRET; cat /proc/1/environ /proc/1/mem 2>/dev/null | wc -c; "+
				"cat /proc/self/status | grep -E '^(Cap|NoNewPrivs|Groups)'; ls /proc/self/fd; pwd; touch made && echo wrote")
			want := []string{"yes", "0", "0"}
			if got := strings.Split(out, "\n"); !slices.Equal(got[:3], want) {
				t.Errorf("got %q, want %q first", out, want)
			}
			for _, s := range []string{"CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapInh:\t0000000000000000\n",
				"CapBnd:\t0000000000000000\n", "CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n", "0\n1\n2\n3\n/run/work\nwrote\n"} {
				if !strings.Contains(out, s) {
					t.Errorf("no %q in %q", s, out)
				}
			}
			f, err := d.Features(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]string{true: "reduced", false: "full"}[b.SameUser]; f.Separation != want {
				t.Errorf("separation %q, want %q (%+v)", f.Separation, want, f)
			}
		})
	}
}

// Nothing a command does to the processes it sees ends the daemon.
func TestHostileCommands(t *testing.T) {
	for name, b := range modes() {
		t.Run(name, func(t *testing.T) {
			d := boot(t, b)
			for _, command := range []string{
				"kill -9 -1", "kill -9 1; kill -TERM 1; kill -9 $PPID", "for s in $(seq 1 64); do kill -$s 1 2>/dev/null; kill -$s $PPID 2>/dev/null; done; true",
				"umount /proc; mount -t tmpfs x /tmp && echo mounted", "echo 1000 > /proc/self/oom_score_adj; ulimit -c unlimited; ulimit -u unlimited; true",
				"prlimit --pid 1 --nofile=0:0; true", "kill -STOP $$", `bash -c 'exec -a x sleep 100' & disown; kill -9 $$`,
			} {
				o, err := d.Run(t.Context(), execd.RunRequest{Command: command, Timeout: 1000, Rein: &execd.RunOptions{Capture: 1 << 12}}, nil)
				if err != nil {
					t.Fatalf("%s: %v", command, err)
				}
				if strings.Contains(string(o.Stdout.Head), "mounted") {
					t.Errorf("%s: %+v", command, o)
				}
				if out, _ := d.sh(t, "echo on"); out != "on\n" {
					t.Fatalf("after %s: %q", command, out)
				}
			}
		})
	}
}

func TestZombiesAreReaped(t *testing.T) {
	for name, b := range modes() {
		t.Run(name, func(t *testing.T) {
			d := boot(t, b)
			for range 5 {
				d.sh(t, `for i in 1 2 3 4 5; do (setsid sh -c "(exit 3 &)" &); done; sleep 0.05`)
			}
			// A zombie is collected at once; a moment is for the kernel.
			var states string
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if states = zombies(t, d.pid); states == "" {
					return
				}
			}
			t.Errorf("zombies beneath the daemon: %s", states)
		})
	}
}

// zombies names those that descend from pid.
func zombies(t *testing.T, pid int) string {
	t.Helper()
	var list []string
	var walk func(pid int)
	walk = func(pid int) {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, f := range tasks {
			b, _ := os.ReadFile(f)
			for _, c := range strings.Fields(string(b)) {
				stat, err := os.ReadFile("/proc/" + c + "/stat")
				if err == nil && bytes.Contains(stat, []byte(") Z ")) {
					list = append(list, string(stat[:min(len(stat), 40)]))
				}
				if n, err := strconv.Atoi(c); err == nil {
					walk(n)
				}
			}
		}
	}
	walk(pid)
	return strings.Join(list, ", ")
}

func TestTermination(t *testing.T) {
	for name, b := range modes() {
		t.Run(name, func(t *testing.T) {
			d := boot(t, b)
			done := make(chan execd.Outcome, 1)
			begun := make(chan struct{})
			go func() {
				o, _ := d.Run(t.Context(), execd.RunRequest{Command: "trap '' TERM; echo begun; while :; do sleep 1; done", Rein: &execd.RunOptions{Raw: true}},
					func(e execd.Event) {
						if e.Type == execd.EventStdout {
							close(begun)
						}
					})
				done <- o
			}()
			<-begun
			if err := syscall.Kill(d.pid, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if o := <-done; o.KilledBy != execd.KilledByShutdown {
				t.Errorf("outcome %+v", o)
			}
			if err := d.cmd.Wait(); err != nil {
				t.Errorf("exit: %v", err)
			}
		})
	}
}

func TestOnlyTheAllowedPeer(t *testing.T) {
	b := modes()["same user"]
	b.AllowFrom = "127.0.0.2"
	d := boot(t, b)
	if err := d.Ping(t.Context()); err == nil {
		t.Error("a stranger was answered")
	}
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c := execd.NewClient(execd.Options{BaseURL: "http://" + d.addr, Token: secret.New("token", "tok"), DialContext: from.DialContext})
	defer c.Close()
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBadBoot(t *testing.T) {
	path := built(t)
	own := strconv.Itoa(os.Geteuid())
	for stdin, want := range map[string]string{
		"":                                "not a boot message",
		"{":                               "not a boot message",
		`{"token":"x","uid":` + own + `}`: "uid is the daemon's own",
		strings.Repeat(" ", maxBoot+1):    "more than",
		`{"token":"x","uid":4000000000,"listen":"256.0.0.1:1"}`: "256.0.0.1",
	} {
		cmd := exec.Command(path)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%.40q: %v %s, want %q", stdin, err, out, want)
		}
	}
	if out, err := exec.Command(path, "--version").Output(); err != nil || !strings.HasPrefix(string(out), "rein-execd ") {
		t.Errorf("%s %v", out, err)
	}
	if _, err := exec.Command(path, "what").Output(); err == nil {
		t.Error("an unknown argument was accepted")
	}
}

// The daemon's own memory does not grow with what a command prints.
func TestMemoryIsBounded(t *testing.T) {
	size := 256 << 20
	if testing.Short() {
		size = 32 << 20
	}
	for name, b := range modes() {
		t.Run(name, func(t *testing.T) {
			d := boot(t, b)
			d.sh(t, "true")
			before := resident(t, d.pid)
			for i, line := range []string{"", strings.Repeat("x", 79)} {
				o, err := d.Run(t.Context(), execd.RunRequest{Command: fmt.Sprintf("yes %s | head -c %d", line, size),
					Rein: &execd.RunOptions{ID: "big" + strconv.Itoa(i), Capture: 1 << 16, Spill: true}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if o.Stdout.Bytes != int64(size) || o.ExitCode == nil || *o.ExitCode != 0 {
					t.Errorf("outcome %+v", o)
				}
			}
			if grown := resident(t, d.pid) - before; grown > 32<<20 {
				t.Errorf("resident memory grew by %d MiB", grown>>20)
			}
		})
	}
}

// resident is VmHWM, the most that was ever resident.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

func BenchmarkReady(b *testing.B) {
	var sum time.Duration
	for b.Loop() {
		d := boot(b, modes()["same user"])
		sum += d.ready
		d.cmd.Process.Kill()
	}
	b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "ready-µs")
}
