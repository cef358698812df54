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
	"strings"
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

// trial builds the program that tries everything, linked statically: it runs in
// an image that holds nothing.
func trial(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "trial")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", name, "../../internal/isolation/testdata/trial")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return name
}

// Every attempt is refused in the way that is documented, in every kind of
// sandbox, and the same attempt works where no sandbox refuses it.
func TestIsolation(t *testing.T) {
	program := trial(t)
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

// Where a socket of the host in a mount could be connected to, the mount is
// refused: under runc, when it is writable, or rein is no root.
func TestMountWithSocket(t *testing.T) {
	for _, kind := range []string{"socket", "fifo"} {
		dir, err := os.MkdirTemp("/var/tmp", "rein-mount-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		name := dir + "/below/" + kind
		err = errors.Join(os.Chmod(dir, 0o777), os.Mkdir(dir+"/below", 0o755))
		if kind == "fifo" {
			err = errors.Join(err, unix.Mkfifo(name, 0o600))
		} else {
			l, listenErr := net.Listen("unix", name)
			if err = errors.Join(err, listenErr); err == nil {
				defer l.Close()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		linked := dir + ".link"
		t.Cleanup(func() { os.Remove(linked) })
		if err := os.Symlink(dir, linked); err != nil {
			t.Fatal(err)
		}
		for _, runtime := range runtimes {
			for _, m := range []sandbox.Mount{{Source: dir}, {Source: dir, Writable: true}, {Source: linked, Writable: true}} {
				m.Target = "/data"
				t.Run(fmt.Sprintf("%s %s writable=%v linked=%v", runtime, kind, m.Writable, m.Source == linked), func(t *testing.T) {
					refused := ""
					if runtime == "runc" && (m.Writable || os.Geteuid() != 0) {
						refused = m.Source + "/below/" + kind + " is a "
					}
					if box := created(t, provider(t, runtime), sandbox.Spec{TTL: time.Minute, Mounts: []sandbox.Mount{m}}, refused); box != nil {
						if err := box.Kill(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
	}
}

// An image's own /proc, /sys and /dev, and a working directory that leads to a
// descriptor, are replaced or refused: what lies over them is the sandbox's.
func TestImageReplacesPlaces(t *testing.T) {
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}
	}
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o777} }
	program := trial(t)
	for _, c := range []struct {
		name, refused, cwd string
		has                []tar.Header
	}{
		{name: "links", has: []tar.Header{link("proc", "/tmp"), link("sys", "proc/self/cwd"), link("dev", "/proc/self/fd"), link("etc/resolv.conf", "/proc/self/cwd/x")}, cwd: "/proc/self/fd/7"},
		{name: "files", has: []tar.Header{file("proc"), file("sys"), file("dev"), link("job", "/proc")}, cwd: "/job/../proc/self/fd/7"},
		{name: "links below", has: []tar.Header{link("proc/keys", "/etc/passwd"), link("proc/kcore", "/proc/1/mem"), link("sys/firmware", "/tmp"), link("dev/shm", "/etc")}},
		{name: "etc is a link into proc", has: []tar.Header{link("etc", "proc/self")}, refused: "/etc"},
		{name: "the working directory is a link to a descriptor", has: []tar.Header{link("job", "/proc/self/fd/7")}, cwd: "/job", refused: "/job"},
	} {
		ref := newImage(t, v1.Config{WorkingDir: c.cwd}, layerWith(t, c.has...))
		for _, runtime := range runtimes {
			t.Run(runtime+" "+c.name, func(t *testing.T) {
				box := created(t, withImages(t, runtime), sandbox.Spec{Image: ref, TTL: time.Minute}, c.refused)
				if box == nil {
					return
				}
				if cwd := box.Info().Cwd; cwd != "/workspace" {
					t.Errorf("commands run in %s", cwd)
				}
				if notes := strings.Join(box.Info().Notes, "\n"); strings.Contains(notes, "working directory \"/proc/self/fd/7\": /proc is part of the sandbox itself") != (c.cwd != "") {
					t.Errorf("its notes are %q", notes)
				}
				rows := trialsInside(t, box, program, isolation.Host{Only: []string{masked, maskedSys, ownDescriptor, "a device"}})
				for _, trial := range isolation.Trials() {
					row, tried := rows[trial.Name]
					if tried && row.Got != wanted(trial.Want, runtime) {
						t.Errorf("%s: %q, want %q", trial.Name, row.Got, wanted(trial.Want, runtime))
					}
				}
				if len(rows) != 4 {
					t.Errorf("%d of 4 were tried", len(rows))
				}
			})
		}
	}
}

// Trials that show what lies over an image.
const (
	masked        = "read masked files of /proc"
	maskedSys     = "read masked parts of /sys"
	ownDescriptor = "a directory above the root"
)

// A working directory that a caller names leads no further than one that a
// command changes to.
func TestWorkingDirectoryStaysInside(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			p := provider(t, runtime)
			for _, cwd := range []string{"/proc/self/fd/7", "/proc/1/root", "/dev/fd/7", "/sys/../proc/self/cwd"} {
				if info, err := p.Create(t.Context(), sandbox.Spec{Cwd: cwd, TTL: time.Minute}); sandbox.KindOf(err) != sandbox.KindInvalid {
					t.Errorf("a sandbox in %s: %+v %v", cwd, info, err)
				}
			}
			box, err := sandbox.Create(t.Context(), p, sandbox.Spec{TTL: time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			root, err := box.Run(t.Context(), sandbox.Command{Shell: "stat -c %d:%i /"})
			if err != nil {
				t.Fatal(err)
			}
			for fd := range 12 {
				for _, cwd := range []string{"/proc/self/fd/%d", "/proc/1/fd/%d", "/proc/self/fd/%d/../../.."} {
					r, err := box.Run(t.Context(), sandbox.Command{Cwd: fmt.Sprintf(cwd, fd), Shell: "stat -c %d:%i ../../../../../../../.."})
					if err == nil && r.OK() && string(r.Stdout.Head) != string(root.Stdout.Head) {
						t.Errorf("from "+cwd+" a command gets out: %q, not %q", fd, r.Stdout.Head, root.Stdout.Head)
					}
				}
			}
		})
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
