package local

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// forbidden are tries of what the filter is against, each in a process of its own.
var forbidden = map[string]func(){
	"a program":       func() { syscall.Exec("/bin/true", []string{"true"}, nil) },
	"another process": func() { unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0) },
	"a fork": func() {
		if runtime.GOARCH == "amd64" {
			unix.RawSyscall(57, 0, 0, 0)
		}
		unix.Unshare(unix.CLONE_NEWUSER)
	},
	"shared memory":     func() { unix.RawSyscall(unix.SYS_SHMAT, 0, 0, 0) },
	"memory to execute": func() { unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON) },
	"a packet socket":   func() { unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0) },
	"a namespace":       func() { unix.Unshare(unix.CLONE_NEWUSER) },
	"another's memory":  func() { unix.PtraceAttach(os.Getppid()) },
	"io_uring":          func() { unix.RawSyscall(unix.SYS_IO_URING_SETUP, 1, 0, 0) },
}

// tryVariable tells a child what to try.
const tryVariable = "REIN_TEST_FORBIDDEN"

func TestKeeperFilter(t *testing.T) {
	if try := os.Getenv(tryVariable); try != "" {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := filterKeeper(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{}) // on another thread, which has the filter as well
		go func() { defer close(done); forbidden[try]() }()
		<-done
		os.Exit(0)
	}
	t.Parallel()
	for name := range forbidden {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("/proc/self/exe", "-test.run", "^TestKeeperFilter$")
			cmd.Env = []string{tryVariable + "=" + name}
			out, err := cmd.CombinedOutput()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSYS {
				t.Errorf("%v, want SIGSYS: %s", err, out)
			}
		})
	}
}
