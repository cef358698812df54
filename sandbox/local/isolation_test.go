package local_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/internal/isolation"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
)

// trial is the program that tries everything, linked statically: it runs in an
// image that holds nothing.
var trial = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rein-trial-")
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "trial")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", name, "../../internal/isolation/testdata/trial")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return name, errors.Join(os.Chmod(dir, 0o755), os.Chmod(name, 0o755))
})

// Every attempt is refused in the way that is documented, in every kind of
// sandbox, and the same attempt works where no sandbox refuses it.
func TestIsolation(t *testing.T) {
	program, err := trial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(program)) })
	h := hostTargets(t)
	empty := newImage(t, v1.Config{}, layerWith(t, tar.Header{Typeflag: tar.TypeDir, Name: "home", Mode: 0o755}))
	for _, runtime := range runtimes {
		for _, image := range []string{local.ImageHost, empty} {
			name := runtime + " on an empty image"
			if image == local.ImageHost {
				name = runtime + " on the host's"
			}
			t.Run(name, func(t *testing.T) {
				state := t.TempDir()
				box, err := sandbox.Create(t.Context(), withImagesIn(t, runtime, state), sandbox.Spec{Image: image, TTL: 2 * time.Minute,
					Mounts: []sandbox.Mount{{Source: h.Mount, Target: h.Mount}}}, sandbox.Options{Log: discard()})
				if err != nil {
					t.Fatalf("%v: %s", err, sandbox.HintOf(err))
				}
				fillMount(t, h.Mount)
				h := h
				h.Keeper = socketIn(t, state)
				rows := trialsInside(t, box, program, h)
				works := trialsOutside(t, program, h)
				for _, trial := range isolation.Trials() {
					row, ok := rows[trial.Name]
					want := wanted(trial.Want, runtime)
					if !ok || row.Got != want {
						t.Errorf("%s: %s: %q, want %q", trial.Area, trial.Name, row.Got, want)
					}
					got := works[trial.Name].Got
					if trial.Control == isolation.Beside {
						got = row.Twin
					}
					if trial.Control == isolation.Root && os.Geteuid() != 0 {
						continue
					}
					if !slices.Contains(trial.Works, got) {
						t.Errorf("the control of %s: %s (%s): %q, want %q", trial.Area, trial.Name, trial.Control, got, trial.Works)
					}
				}
			})
		}
	}
}

func wanted(w isolation.Want, runtime string) string {
	switch {
	case runtime == "gvisor":
		return w.GVisor
	case os.Geteuid() != 0:
		return w.OneID
	}
	return w.Runc
}

func trialsInside(t *testing.T, box *sandbox.Sandbox, program string, h isolation.Host) map[string]isolation.Row {
	t.Helper()
	h.Where = isolation.Sandbox
	f, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := box.Upload(t.Context(), "/tmp/trial", f, sandbox.WriteOptions{Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	say, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	r, err := box.Run(t.Context(), sandbox.Command{Argv: []string{"/tmp/trial", string(say)}, Shell: "/tmp/trial", Cwd: "/"})
	if err != nil || !r.OK() {
		t.Fatalf("%v %+v %s", err, r.Outcome, r.Stderr.Head)
	}
	return parseRows(t, slices.Concat(r.Stdout.Head, r.Stdout.Tail))
}

// trialsOutside are the controls: on the host, with a descriptor left open, and
// in namespaces of their own.
func trialsOutside(t *testing.T, program string, h isolation.Host) map[string]isolation.Row {
	t.Helper()
	all := map[string]isolation.Row{}
	for _, where := range []isolation.Where{isolation.TheHost, isolation.Namespaces} {
		h.Where = where
		say, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, string(say))
		if where == isolation.TheHost {
			root, err := os.Open("/")
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			cmd.ExtraFiles = []*os.File{root}
		} else {
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
				UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
			}
		}
		var out, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v: %s", where, err, stderr.String())
		}
		for name, row := range parseRows(t, out.Bytes()) {
			all[name] = row
		}
	}
	return all
}

func parseRows(t *testing.T, b []byte) map[string]isolation.Row {
	t.Helper()
	var rows []isolation.Row
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatalf("%v: %.300s", err, b)
	}
	all := map[string]isolation.Row{}
	for _, row := range rows {
		all[row.Trial] = row
	}
	return all
}

// hostTargets makes what is reached for: all of it lets everybody in.
func hostTargets(t *testing.T) isolation.Host {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	unique := fmt.Sprintf("rein-isolation-%d-%d", os.Getpid(), time.Now().UnixNano())
	dir, err := os.MkdirTemp("/var/tmp", "rein-isolation-")
	must(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := isolation.Host{Abstract: unique, SharedKey: os.Getpid() ^ 0x7265696e, SharedMemory: "/dev/shm/" + unique, Queue: unique, Key: unique,
		Marker: unique, File: dir + "/only-here", Mount: dir + "/mount"}
	must(os.Chmod(dir, 0o755))
	must(os.Mkdir(h.Mount, 0o755))
	for _, name := range []string{h.File, h.SharedMemory} {
		must(os.WriteFile(name, []byte("of the host"), 0o666))
		must(os.Chmod(name, 0o666))
	}
	t.Cleanup(func() { os.Remove(h.SharedMemory) })
	l, err := net.Listen("unix", "@"+h.Abstract)
	must(err)
	t.Cleanup(func() { l.Close() })

	id, err := unix.SysvShmGet(h.SharedKey, 4096, unix.IPC_CREAT|0o666)
	must(err)
	t.Cleanup(func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	queue, err := unix.BytePtrFromString(h.Queue)
	must(err)
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(queue)), unix.O_CREAT|unix.O_RDWR, 0o666, 0, 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() {
		unix.Close(int(fd))
		unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(queue)), 0, 0)
	})
	key, err := unix.AddKey("user", h.Key, []byte("secret"), unix.KEY_SPEC_USER_KEYRING)
	must(err)
	t.Cleanup(func() { unix.KeyctlInt(unix.KEYCTL_UNLINK, key, unix.KEY_SPEC_USER_KEYRING, 0, 0) })

	sleeper := exec.Command("sleep", "600")
	sleeper.Env = []string{"MARKER=" + h.Marker}
	must(sleeper.Start())
	t.Cleanup(func() { sleeper.Process.Kill(); sleeper.Wait() })
	return h
}

// fillMount puts into a directory what a sandbox might be able to use of it, after
// the sandbox has been made: nothing that was there then is all that matters.
func fillMount(t *testing.T, dir string) {
	t.Helper()
	var errs []error
	errs = append(errs, os.WriteFile(dir+"/file", []byte("of the host"), 0o666), os.Chmod(dir+"/file", 0o666))
	l, err := net.Listen("unix", dir+"/socket")
	errs = append(errs, err, os.Chmod(dir+"/socket", 0o666), unix.Mkfifo(dir+"/fifo", 0o666), os.Chmod(dir+"/fifo", 0o666))
	reader, err := os.OpenFile(dir+"/fifo", os.O_RDWR|unix.O_NONBLOCK, 0)
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		reader.Close()
		for _, name := range []string{"/file", "/socket", "/fifo"} {
			os.Remove(dir + name)
		}
	})
}

// socketIn finds the keeper's socket.
func socketIn(t *testing.T, state string) (found string) {
	t.Helper()
	err := filepath.WalkDir(state, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSocket != 0 {
			found = name
		}
		return nil
	})
	if err != nil || found == "" {
		t.Fatalf("there is no keeper's socket in %s: %v", state, err)
	}
	return found
}
