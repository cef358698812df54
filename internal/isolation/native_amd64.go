package isolation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// x32 is the bit of the calls of the x32 ABI (asm/unistd.h).
const x32 = 0x40000000

// native are the trials of other calling conventions. Most are made by programs
// of a few instructions. A filter may end the thread that calls alone, which one
// in Go, having others, would not notice: it must end with it.
func native() []Trial {
	return []Trial{
		{Name: "a system call of x32", Want: Want{Runc: "SIGSYS", GVisor: "ENOSYS"}, Control: Outside, Works: []string{Possible, "ENOSYS"}, do: program(callProgram(syscall64, x32|unix.SYS_GETPID))},
		{Name: "the same by one thread of several", Want: Want{Runc: "SIGSYS", GVisor: "ENOSYS"}, Control: Outside, Works: []string{Possible, "ENOSYS"}, do: call(x32 | unix.SYS_GETPID)},
		{Name: "mount by x32", Want: Want{Runc: "SIGSYS", GVisor: "ENOSYS"}, Control: Outside, Works: []string{"EFAULT", "EPERM", "ENOSYS"}, do: program(callProgram(syscall64, x32|unix.SYS_MOUNT))},
		{Name: "a 32-bit system call", Want: Want{Runc: "SIGSYS", GVisor: "ENOSYS"}, Control: Outside, Works: []string{Possible, "SIGSEGV"}, do: program(callProgram("\xcd\x80", getpid32))},
		{Name: "a 32-bit program", Want: Want{Runc: "SIGSYS", GVisor: "ENOEXEC"}, Control: Outside, Works: []string{Possible, "ENOEXEC"}, do: program(exit32)},
		{Name: "a system call of its own", Want: Want{Runc: Possible, GVisor: Possible}, Control: Outside, do: program(callProgram(syscall64, unix.SYS_GETPID))},
	}
}

// exit32 is an x86 program in the ELF format of 32 bits: exit(0) by int 0x80.
var exit32 = []byte("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x02\x00\x03\x00\x01\x00\x00\x00\x54\x80\x04\x08\x34\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x34\x00\x20\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
	"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x80\x04\x08\x00\x80\x04\x08\x64\x00\x00\x00\x64\x00\x00\x00\x05\x00\x00\x00\x00\x10\x00\x00" +
	"\xb8\x01\x00\x00\x00\xbb\x00\x00\x00\x00\xcd\x80\x00\x00\x00\x00")

// The instruction that makes a system call of 64 bits, and the number of one that
// is made by another (asm/unistd_32.h).
const (
	syscall64 = "\x0f\x05"
	getpid32  = 20
)

// callProgram is a static x86-64 program in the ELF format: it makes one system
// call by an instruction of two bytes, with arguments of zero, and exits with its
// errno.
func callProgram(instruction string, nr uint32) []byte {
	const base, header = 0x400000, 64 + 56 // the ELF header and one program header
	le := binary.LittleEndian
	code := le.AppendUint32([]byte{0xb8}, nr) // mov eax, nr
	for _, clear := range []string{"\x31\xff", "\x31\xf6", "\x31\xd2", "\x4d\x31\xd2", "\x4d\x31\xc0", "\x4d\x31\xc9"} {
		code = append(code, clear...) // xor edi, esi, edx, r10, r8, r9
	}
	code = append(code, instruction...)
	code = append(code, "\x31\xff\x85\xc0\x79\x04\x89\xc7\xf7\xdf"...) // edi = eax < 0 ? -eax : 0
	code = append(code, "\xb8\x3c\x00\x00\x00\x0f\x05"...)             // exit
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

// program runs one, whose exit code is an errno.
func program(text []byte) func(Host) error {
	return func(Host) error {
		name := fmt.Sprintf("/tmp/rein-isolation-%d", os.Getpid())
		defer os.Remove(name)
		if err := os.WriteFile(name, text, 0o700); err != nil {
			return err
		}
		err := exec.Command(name).Run()
		ended, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			return err
		}
		status := ended.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			return errors.New(unix.SignalName(status.Signal()))
		}
		return syscall.Errno(status.ExitStatus())
	}
}
