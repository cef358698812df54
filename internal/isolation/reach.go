package isolation

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func textAddress() uintptr { return reflect.ValueOf(seize).Pointer() }

// Reaching for what is the host's, by every name that is not a path of the
// sandbox's own.

func dialUnix(name func(Host) string) func(Host) error {
	return func(h Host) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrUnix{Name: name(h)})
	}
}

// ownAbstract meets a listener of its own by an abstract name.
func ownAbstract(Host) error {
	const name = "@rein-isolation-own"
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: name}), unix.Listen(fd, 1)); err != nil {
		return err
	}
	return dialUnix(func(Host) string { return name })(Host{})
}

func sharedMemory(h Host) error {
	_, err := unix.SysvShmGet(h.SharedKey, 0, 0)
	return err
}

func ownSharedMemory(Host) error {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		return err
	}
	_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	return err
}

func queue(h Host) error {
	name, err := unix.BytePtrFromString(h.Queue)
	if err != nil {
		return err
	}
	return syscallOf(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_RDONLY)
}

func userKey(h Host) error {
	_, err := unix.KeyctlSearch(unix.KEY_SPEC_USER_KEYRING, "user", h.Key, 0)
	return err
}

// hostProcess looks for a process of the host by its environment.
func hostProcess(h Host) error {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return err
	}
	for _, name := range files {
		if b, err := os.ReadFile(name); err == nil && bytes.Contains(b, []byte(h.Marker)) {
			return nil
		}
	}
	return errors.New("not there")
}

// descriptors reports one that is no stream and nothing the program made.
func descriptors(Host) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist): // that of the listing itself
		case err != nil:
			return err
		case strings.HasPrefix(to, "pipe:"), strings.HasPrefix(to, "anon_inode:"), strings.HasPrefix(to, "host:["), strings.HasPrefix(to, "/proc/"), to == "/dev/null":
		default:
			return nil
		}
	}
	return errors.New("none")
}

// climb looks for a directory above the root, from every descriptor and the
// working directory.
func climb(h Host) error {
	if h.Where == Namespaces { // where it works: a descriptor from before a chroot
		outside, err := os.Open("/")
		if err != nil {
			return err
		}
		defer outside.Close()
		if err := errors.Join(unix.Chroot("/tmp"), unix.Chdir("/")); err != nil {
			return err
		}
	}
	var root unix.Stat_t
	if err := unix.Stat("/", &root); err != nil {
		return err
	}
	above := func(dir int) bool {
		var st unix.Stat_t
		err := unix.Fstatat(dir, strings.Repeat("../", 40), &st, 0)
		return err == nil && (st.Dev != root.Dev || st.Ino != root.Ino)
	}
	for fd := range 1024 {
		if above(fd) {
			return nil
		}
	}
	if above(unix.AT_FDCWD) {
		return nil
	}
	return errors.New("the root")
}

// follow enters a directory by a magic link of /proc and climbs from there.
func follow(link string) func(Host) error {
	return func(Host) error {
		if err := unix.Chdir(link); err != nil {
			return err
		}
		return climb(Host{Where: Sandbox})
	}
}

// devices looks for a device that no program needs.
func devices(h Host) error {
	known := map[string]bool{"null": true, "zero": true, "full": true, "random": true, "urandom": true, "tty": true, "ptmx": true, "console": true}
	found := ""
	err := filepath.WalkDir("/dev", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // what cannot be listed is not to be had
		}
		if d.Type()&fs.ModeDevice != 0 && !known[d.Name()] && !strings.HasPrefix(name, "/dev/pts/") {
			found += name + " "
		}
		return nil
	})
	if found != "" && h.Where == TheHost {
		return nil
	}
	if found = strings.TrimSpace(found); found == "" {
		found = "none"
	}
	return errors.Join(err, errors.New(found))
}

// readable reports whether any of the files or directories has content.
func readable(names ...string) func(Host) error {
	return func(Host) error {
		for _, name := range names {
			if openFile(name, os.O_RDONLY) == nil {
				return nil
			}
		}
		return errors.New("nothing")
	}
}

// runInMemory runs a program that is in no file system, and says what rights it
// has.
func runInMemory(h Host) error {
	fd, err := unix.MemfdCreate("rein-isolation", 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "memory")
	defer f.Close()
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	if _, err := f.Write(program); err != nil {
		return err
	}
	cmd, out := again(Host{Where: h.Where, Trial: bearing})
	cmd.Path = fmt.Sprintf("/proc/self/fd/%d", fd)
	if err := cmd.Run(); err != nil {
		return err
	}
	_, got, ok := strings.Cut(out.String(), `"got":"`)
	got, _, closed := strings.Cut(got, `"`)
	if !ok || !closed {
		return fmt.Errorf("it said %q", out)
	}
	if got == Possible {
		return nil
	}
	return errors.New(got)
}

// rights fails when the process has no capability and can gain none.
func rights() error {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.Trim(strings.TrimSpace(value), "0")
		if strings.HasPrefix(name, "Cap") && value != "" || name == "NoNewPrivs" && value != "1" {
			return nil
		}
	}
	return errors.New("no rights")
}
