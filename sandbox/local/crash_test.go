package local_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
)

// creatorArg makes the test binary a process that uses sandboxes as rein does,
// so that it can be killed as rein can.
const creatorArg = "creator-for-crash-test"

// creator makes a sandbox, runs commands in it until phase says otherwise,
// and kills it. It prints a line as each phase begins.
func creator(runtime, stateDir, bin string) int {
	o := options(runtime, stateDir)
	o.Keep = filepath.Join(bin, "rein-keep")
	p, err := local.New(o)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ctx := context.Background()
	fmt.Println("create")
	s, err := sandbox.Create(ctx, p, sandbox.Spec{TTL: time.Minute}, sandbox.Options{Log: discard()})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("run")
	for range 5 {
		if _, err := s.Run(ctx, sandbox.Command{Shell: "sleep 0.02; head -c 100000 /dev/zero | wc -c"}); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("idle")
	time.Sleep(100 * time.Millisecond) // what is tested is that nothing happens
	fmt.Println("destroy")
	if err := s.Kill(ctx); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("done")
	return 0
}

// process is one process for ever.
type process struct {
	pid   int
	start string
	what  string
}

func (p process) alive() bool { return p.start != "" && startOf(p.pid) == p.start }

// startOf is the start time of a running process, empty for a zombie.
func startOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return ""
	}
	return f[19]
}

// processes are the keepers of a state directory and all beneath them.
func processes(stateDir string) []process {
	var out []process
	children := childrenByParent()
	var walk func(pid int, what string)
	walk = func(pid int, what string) {
		if start := startOf(pid); start != "" {
			out = append(out, process{pid, start, what})
		}
		for _, c := range children[pid] {
			walk(c, "beneath "+what)
		}
	}
	files, _ := filepath.Glob(filepath.Join(stateDir, "live", "*", "keeper.json"))
	for _, f := range files {
		var id struct{ PID int }
		b, err := os.ReadFile(f)
		if err == nil && json.Unmarshal(b, &id) == nil && id.PID != 0 {
			walk(id.PID, "keeper")
		}
	}
	return out
}

func childrenByParent() map[int][]int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range stats {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			ppid, _ := strconv.Atoi(fields[1])
			children[ppid] = append(children[ppid], pid)
		}
	}
	return children
}

// victims picks, of what runs at the moment, the processes a case kills.
var victims = map[string]func(creator process, sandbox []process) []process{
	"rein": func(c process, _ []process) []process { return []process{c} },
	"keeper": func(_ process, ps []process) []process {
		return filter(ps, func(what string) bool { return what == "keeper" })
	},
	"runtime": func(_ process, ps []process) []process {
		return filter(ps, func(what string) bool { return what == "beneath keeper" })
	},
	// The deepest: execd or a command of it under runc, the sentry or its
	// helpers under gVisor.
	"execd": func(_ process, ps []process) []process {
		deep := filter(ps, func(what string) bool { return strings.HasPrefix(what, "beneath beneath") })
		if len(deep) == 0 {
			return nil
		}
		return []process{deep[rand.IntN(len(deep))]}
	},
}

func filter(ps []process, keep func(string) bool) []process {
	var out []process
	for _, p := range ps {
		if keep(p.what) {
			out = append(out, p)
		}
	}
	return out
}

// Whatever is killed at whatever moment, a sweep leaves nothing, and what
// belongs to others goes on.
func TestCrash(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			others := provider(t, runtime)
			other, err := sandbox.Create(t.Context(), others, sandbox.Spec{TTL: 10 * time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			t.Run("kill", func(t *testing.T) { // ends when all that runs in parallel has
				for victim := range victims {
					t.Run(victim, func(t *testing.T) {
						t.Parallel()
						for range 20 {
							crashOnce(t, runtime, victim)
						}
					})
				}
			})
			if r, err := other.Run(t.Context(), sandbox.Command{Shell: "echo unharmed"}); err != nil || !r.OK() {
				t.Errorf("a sandbox of another state directory: %+v, %v", r, err)
			}
			if err := other.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// crashOnce lets a creator work, kills the victim at a random moment of it,
// and sweeps. The moment is random in time and not tied to a phase, so that
// also the middle of each is met.
func crashOnce(t *testing.T, runtime, victim string) {
	state := t.TempDir()
	p, err := local.New(options(runtime, state))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], creatorArg, runtime, state, filepath.Dir(binary("rein")))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	self := process{cmd.Process.Pid, startOf(cmd.Process.Pid), "rein"}
	phase := "start"
	lines := make(chan string, 16)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	moment := time.After(rand.N(600 * time.Millisecond))
waiting:
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				break waiting
			}
			phase = line
		case <-moment:
			break waiting
		}
	}
	seen := processes(state)
	ids := idsIn(state)
	for _, v := range victims[victim](self, seen) {
		if v.alive() {
			unix.Kill(v.pid, unix.SIGKILL)
		}
	}
	if victim == "rein" {
		cmd.Wait()
	} else {
		// It may wait for something that is gone; that must end by itself.
		stop := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		if !stop.Stop() {
			t.Errorf("%s killed in phase %q: rein did not end", victim, phase)
		}
	}
	for range lines {
	}
	seen = append(seen, processes(state)...)
	ids = append(ids, idsIn(state)...)
	if _, err := p.Sweep(t.Context(), true); err != nil {
		t.Errorf("%s killed in phase %q: %v", victim, phase, err)
	}
	for _, s := range seen {
		if s.alive() {
			t.Errorf("%s killed in phase %q: %s (pid %d) is left", victim, phase, s.what, s.pid)
		}
	}
	noneLeft(t, state)
	noCgroupLeft(t, ids)
	if t.Failed() {
		t.FailNow()
	}
}

// idsIn are the sandboxes of a state directory. Each is there before its cgroup.
func idsIn(state string) []string {
	dirs, _ := filepath.Glob(filepath.Join(state, "live", "sb-*"))
	return dirs
}

// noCgroupLeft checks that the sandboxes have no cgroup any more.
func noCgroupLeft(t *testing.T, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		left, _ := filepath.Glob("/sys/fs/cgroup/*/rein-" + filepath.Base(dir))
		flat, _ := filepath.Glob("/sys/fs/cgroup/rein-" + filepath.Base(dir))
		for _, cgroup := range append(left, flat...) {
			t.Errorf("left over: %s", cgroup)
		}
	}
}
