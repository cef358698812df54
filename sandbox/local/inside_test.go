package local_test

import (
	endian "encoding/binary"
	"fmt"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/sandbox"
)

// A user namespace would give any program every capability inside it, and with
// them file systems without a limit.
func TestNoUserNamespaces(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			box, err := sandbox.Create(t.Context(), provider(t, runtime), sandbox.Spec{TTL: 2 * time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			r, err := box.Run(t.Context(), sandbox.Command{Shell: "unshare --help >/dev/null && LC_ALL=C unshare --user true"})
			if err != nil {
				t.Fatal(err)
			}
			said := string(r.Stderr.Head)
			// EPERM; where a count of zero forbids it, ENOSPC (namespaces(7)).
			if !strings.Contains(said, "Operation not permitted") && !strings.Contains(said, "No space left on device") {
				t.Errorf("unshare --user: %q", said)
			}
		})
	}
}

// Where the limit of processes is one that a command may raise, it is none.
func TestProcessLimitStays(t *testing.T) {
	box, err := sandbox.Create(t.Context(), provider(t, "runc"), sandbox.Spec{TTL: 2 * time.Minute, Resources: sandbox.Resources{PIDs: 64}},
		sandbox.Options{Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		r, err := box.Run(t.Context(), sandbox.Command{Shell: "ulimit -Su $(ulimit -Hu); [ $(ulimit -Su) -le 192 ]"})
		if err != nil {
			t.Fatal(err)
		}
		if r.ExitCode == nil || *r.ExitCode != 0 {
			t.Fatalf("it raised its own limit: %q %q", r.Stdout.Head, r.Stderr.Head)
		}
	}
}

// Empty files take memory that no size counts.
func TestFilesAreBounded(t *testing.T) {
	box, err := sandbox.Create(t.Context(), provider(t, "runc"), sandbox.Spec{TTL: 2 * time.Minute, Resources: sandbox.Resources{Disk: 64 << 20}},
		sandbox.Options{Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	r, err := box.Run(t.Context(), sandbox.Command{Shell: "df --output=itotal / /dev/shm /run/rein /dev | tail -n +2"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"16384", "16384", "147456", "16384"}
	if got := strings.Fields(string(r.Stdout.Head)); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("files: %v, not %v", got, want)
	}
}

// exit32 is an x86 program in the ELF format of 32 bits: exit(7) by int 0x80.
var exit32 = []byte("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x02\x00\x03\x00\x01\x00\x00\x00\x54\x80\x04\x08\x34\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x34\x00\x20\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
	"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x80\x04\x08\x00\x80\x04\x08\x64\x00\x00\x00\x64\x00\x00\x00\x05\x00\x00\x00\x00\x10\x00\x00" +
	"\xb8\x01\x00\x00\x00\xbb\x07\x00\x00\x00\xcd\x80\x00\x00\x00\x00")

// callProgram is a static x86-64 program in the ELF format: it makes one system
// call with the same six arguments and exits with its errno.
func callProgram(nr, arg uint32) []byte {
	const base, header = 0x400000, 64 + 56 // the ELF header and one program header
	le := endian.LittleEndian
	imm := func(code []byte, op []byte, v uint32) []byte { return le.AppendUint32(append(code, op...), v) }
	code := imm(nil, []byte{0xb8}, nr)                                                               // mov eax, nr
	for _, mov := range [][]byte{{0xbf}, {0xbe}, {0xba}, {0x41, 0xba}, {0x41, 0xb8}, {0x41, 0xb9}} { // edi, esi, edx, r10d, r8d, r9d
		code = imm(code, mov, arg)
	}
	code = append(code, 0x0f, 0x05, 0x89, 0xc7, 0xf7, 0xdf) // syscall; mov edi, eax; neg edi
	code = imm(code, []byte{0xb8}, 60)                      // exit
	code = append(code, 0x0f, 0x05)
	size := uint64(header + len(code))
	b := []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x3e\x00\x01\x00\x00\x00")
	b = le.AppendUint64(b, base+header)                                                     // entry
	b = le.AppendUint64(b, 64)                                                              // program headers
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0) // sections: none
	b = le.AppendUint32(le.AppendUint32(b, 1), 5)                                           // PT_LOAD, r-x
	for _, v := range []uint64{0, base, base, size, size, 0x1000} {                         // offset, addresses, sizes, alignment
		b = le.AppendUint64(b, v)
	}
	return append(b, code...)
}

// What only an administrator has use for is closed under runc, also where one
// uid has to do and execd keeps CAP_SYS_ADMIN. Without the filter the answers
// would come from the kernel: EFAULT, EBADF, EINVAL, success.
func TestAdministratorsCallsAreClosed(t *testing.T) {
	if goruntime.GOARCH != "amd64" {
		t.Skip("the programs are for x86-64")
	}
	box, err := sandbox.Create(t.Context(), provider(t, "runc"), sandbox.Spec{TTL: 2 * time.Minute}, sandbox.Options{Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		nr, arg uint32
		want    syscall.Errno
	}{
		"getppid":         {unix.SYS_GETPPID, 0, 0}, // not an administrator's: the program works
		"perf_event_open": {unix.SYS_PERF_EVENT_OPEN, 0, syscall.EPERM},
		"bpf":             {unix.SYS_BPF, 0, syscall.EPERM},
		"mount":           {unix.SYS_MOUNT, 0, syscall.EPERM},
		"umount2":         {unix.SYS_UMOUNT2, 0, syscall.EPERM},
		"open_tree":       {unix.SYS_OPEN_TREE, 0, syscall.EPERM},
		"fsopen":          {unix.SYS_FSOPEN, 0, syscall.EPERM},
		"setns":           {unix.SYS_SETNS, 1<<32 - 1, syscall.EPERM},
		"unshare":         {unix.SYS_UNSHARE, 0, syscall.EPERM},
		"quotactl":        {unix.SYS_QUOTACTL, 0, syscall.EPERM},
		"fanotify_init":   {unix.SYS_FANOTIFY_INIT, 1<<32 - 1, syscall.EPERM},
		"clone":           {unix.SYS_CLONE, unix.CLONE_NEWUSER, syscall.EPERM},
		"clone3":          {unix.SYS_CLONE3, 0, syscall.ENOSYS},
	} {
		if _, err := box.WriteFile(t.Context(), "/tmp/"+name, callProgram(c.nr, c.arg), sandbox.WriteOptions{Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		r, err := box.Run(t.Context(), sandbox.Command{Shell: "/tmp/" + name + "; echo $?"})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.TrimSpace(string(r.Stdout.Head))
		if name == "getppid" { // minus the pid of its parent, as an exit code
			if got == "0" || got == "" {
				t.Errorf("getppid: %q %q", got, r.Stderr.Head)
			}
		} else if got != strconv.Itoa(int(c.want)) {
			t.Errorf("%s: errno %s, want %d (%v)", name, got, c.want, c.want)
		}
	}
}

// The kernel's entry for 32-bit programs is closed in both runtimes.
func TestNo32BitPrograms(t *testing.T) {
	if goruntime.GOARCH != "amd64" {
		t.Skip("the program is for x86")
	}
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			box, err := sandbox.Create(t.Context(), provider(t, runtime), sandbox.Spec{TTL: 2 * time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := box.WriteFile(t.Context(), "/tmp/exit32", exit32, sandbox.WriteOptions{Mode: 0o755}); err != nil {
				t.Fatal(err)
			}
			r, err := box.Run(t.Context(), sandbox.Command{Shell: "/tmp/exit32"})
			if err != nil {
				t.Fatal(err)
			}
			refused := r.Signal == "SIGSYS" || r.ExitCode != nil && (*r.ExitCode == 126 || *r.ExitCode == 128+int(syscall.SIGSYS))
			if !refused {
				t.Errorf("it ran: %+v %q", r.Outcome, r.Stderr.Head)
			}
		})
	}
}

// headless is a process whose first thread has ended: the kernel shows it as a
// zombie, and the others go on.
const headless = `python3 -c '
import ctypes, threading, time
def beat():
    while True:
        with open("/tmp/beat", "a") as f: f.write("%f\n" % time.time())
        time.sleep(0.02)
threading.Thread(target=beat).start()
ctypes.CDLL(None).pthread_exit(None)
'`

// Such a process ends with its command, and stands still in a pause.
func TestHeadlessProcess(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			box, err := sandbox.Create(t.Context(), provider(t, runtime), sandbox.Spec{TTL: 2 * time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			size := func() string {
				r, err := box.Run(t.Context(), sandbox.Command{Shell: "stat -c %s /tmp/beat; rm -f /tmp/beat"})
				if err != nil || !r.OK() {
					t.Fatalf("%v %s", err, r.Stderr.Head)
				}
				return string(r.Stdout.Head)
			}
			wait := "until [ -s /tmp/beat ]; do sleep 0.01; done"
			if r, err := box.Run(t.Context(), sandbox.Command{Shell: "setsid " + headless + " & " + wait}); err != nil || !r.OK() {
				t.Fatalf("%v %+v %s", err, r.Outcome, r.Stderr.Head)
			}
			size()
			if r, err := box.Run(t.Context(), sandbox.Command{Shell: "sleep 0.2; ! ls /tmp/beat"}); err != nil || !r.OK() {
				t.Errorf("it outlived its command: %v %s", err, r.Stdout.Head)
			}

			if _, err := box.Run(t.Context(), sandbox.Command{CallID: "headless", Shell: headless, Background: true}); err != nil {
				t.Fatal(err)
			}
			if _, err := box.Run(t.Context(), sandbox.Command{Shell: wait}); err != nil {
				t.Fatal(err)
			}
			if err := box.Pause(t.Context(), sandbox.PauseOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond) // the length of the pause is what is measured
			if err := box.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			// Some beats more, so that one of them is certainly from afterwards.
			r, err := box.Run(t.Context(), sandbox.Command{Shell: `sleep 0.3; awk 'NR > 1 && $1 - last > gap { gap = $1 - last } { last = $1 } END { print gap + 0 }' /tmp/beat`})
			var gap float64
			if _, scanErr := fmt.Sscan(string(r.Stdout.Head), &gap); err != nil || scanErr != nil || gap < 0.4 {
				t.Errorf("the longest gap is %v s for a pause of 0.5 s: %v %s", gap, err, r.Stderr.Head)
			}
		})
	}
}
