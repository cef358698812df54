package local

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What a process began and was killed before it said whose it is goes too, and
// what another is making at this moment stays.
func TestSweepOfWhatWasNeverFinished(t *testing.T) {
	p, err := New(Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	begin := func(name string, age time.Duration) string {
		t.Helper()
		dir := filepath.Join(p.liveDir(), "new-"+name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(dir, at, at); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	oldDir := begin("old", 2*makingTime)
	newDir := begin("young", 0)
	self, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	minDir := begin(strings.Replace(unbornName(self)[len("new-"):], "*", "mine", 1), 0)
	self.Start-- // of somebody who had this number before
	goneDir := begin(strings.Replace(unbornName(self)[len("new-"):], "*", "his", 1), 0)
	const born, gone = "sb-born", "sb-gone"
	if err := p.register(born); err != nil {
		t.Fatal(err)
	}
	bornIDs, err := p.reserveIDs(born)
	if err != nil {
		t.Fatal(err)
	}
	goneIDs, err := p.reserveIDs(gone) // its creator was killed right then, its directory is removed
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Sweep(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for path, stays := range map[string]bool{
		oldDir: false, newDir: true, minDir: true, goneDir: false,
		p.dir(born): true, p.idsPath(bornIDs): true, p.idsPath(goneIDs): false,
	} {
		if _, err := os.Lstat(path); (err == nil) != stays {
			t.Errorf("%s: stays %v, want %v", path, err == nil, stays)
		}
	}
}

// A process lives while any thread of it does. When it is killed, its first
// thread may be the first to go; the file system then calls it a zombie while
// what it holds, a sandbox's namespaces among it, is still there.
func TestEndOfAProcessWithoutItsFirstThread(t *testing.T) {
	const program = `import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("begun", flush=True)
ctypes.CDLL(None).pthread_exit(None)`
	cmd := exec.Command("python3", "-c", program)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatal(line, err)
	}
	for id.alive() {
		runtime.Gosched()
	}
	if err := endProcess(t.Context(), id, false); err != nil {
		t.Error(err)
	}
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(id.PID), "task", "*"))
	if err != nil || len(threads) > 1 {
		t.Errorf("it is called ended with the threads %v (%v)", threads, err)
	}
	cmd.Process.Kill() // whatever endProcess did
	cmd.Wait()
}
