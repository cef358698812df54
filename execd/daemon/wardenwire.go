package daemon

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Messages to a warden are a length (4 bytes, little endian) and a payload, the
// first byte accompanied by the descriptors. Messages from it are 8 bytes: kind
// and value.

// maxWardenMessage is above what execve accepts (2 MiB with default stacks).
const maxWardenMessage = 16 << 20

// wardenRequest asks a warden to start a program. No string holds a NUL byte.
type wardenRequest struct {
	Switch   bool
	Input    wardenInput
	Merge    bool // standard error goes where standard output goes
	UID, GID uint32
	Dir      string
	Path     string
	Args     []string
	Env      []string
}

// wardenInput is what a program reads: nothing; a pipe, whose descriptor follows
// those of the outputs; or a terminal, the only descriptor, which is all three
// and controls the program's session.
type wardenInput byte

const (
	inputNone wardenInput = iota
	inputPipe
	inputTerminal
)

// descriptors is how many accompany the request.
func (i wardenInput) descriptors() int { return [...]int{2, 3, 1}[i] }

// Bits of the first byte of a request, above those of wardenInput.
const (
	requestSwitch = 1 << 2
	requestMerge  = 1 << 3
)

func (r wardenRequest) append(b []byte) []byte {
	first := byte(r.Input)
	if r.Switch {
		first |= requestSwitch
	}
	if r.Merge {
		first |= requestMerge
	}
	b = append(b, first)
	b = binary.LittleEndian.AppendUint32(b, r.UID)
	b = binary.LittleEndian.AppendUint32(b, r.GID)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Args)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Env)))
	for _, list := range [][]string{{r.Dir, r.Path}, r.Args, r.Env} {
		for _, s := range list {
			b = append(append(b, s...), 0)
		}
	}
	return b
}

var errWardenRequest = errors.New("malformed request to a warden")

func parseWardenRequest(b []byte) (wardenRequest, error) {
	var r wardenRequest
	if len(b) < 17 {
		return r, errWardenRequest
	}
	r.Switch, r.Merge, r.Input = b[0]&requestSwitch != 0, b[0]&requestMerge != 0, wardenInput(b[0]&3)
	if r.Input > inputTerminal || b[0]>>4 != 0 {
		return r, errWardenRequest
	}
	r.UID = binary.LittleEndian.Uint32(b[1:])
	r.GID = binary.LittleEndian.Uint32(b[5:])
	nargs, nenv := binary.LittleEndian.Uint32(b[9:]), binary.LittleEndian.Uint32(b[13:])
	b = b[17:]
	n := 2 + uint64(nargs) + uint64(nenv)
	if uint64(bytes.Count(b, []byte{0})) != n || len(b) == 0 || b[len(b)-1] != 0 {
		return r, errWardenRequest
	}
	fields := make([]string, 0, n)
	for len(b) > 0 {
		i := bytes.IndexByte(b, 0)
		fields = append(fields, string(b[:i]))
		b = b[i+1:]
	}
	r.Dir, r.Path = fields[0], fields[1]
	r.Args, r.Env = fields[2:2+nargs], fields[2+nargs:]
	return r, nil
}

// receive reads one message. io.EOF means that the daemon is gone.
func (w *wardenProc) receive() ([]byte, []int, error) {
	if w.buf == nil {
		w.buf = make([]byte, 64<<10)
	}
	var fds []int
	have, want := 0, 4
	for have < want {
		oob := make([]byte, unix.CmsgSpace(4*4))
		n, noob, _, _, err := unix.Recvmsg(wardenFD, w.buf[have:], oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("recvmsg: %w", err)
		}
		if n == 0 {
			return nil, nil, io.EOF
		}
		got, err := parseRights(oob[:noob])
		if err != nil {
			return nil, nil, err
		}
		fds = append(fds, got...)
		have += n
		if have >= 4 {
			size := binary.LittleEndian.Uint32(w.buf)
			if size > maxWardenMessage {
				return nil, nil, errWardenRequest
			}
			want = 4 + int(size)
			if want > len(w.buf) {
				w.buf = append(w.buf, make([]byte, want-len(w.buf))...)
			}
		}
	}
	if have != want {
		return nil, nil, errWardenRequest // the daemon sends one at a time
	}
	return w.buf[4:want], fds, nil
}

func parseRights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range msgs {
		got, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return nil, err
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

// wardenMessage is the size of a warden's message.
const wardenMessage = 8

func appendMessage(b []byte, kind, value int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(kind))
	return binary.LittleEndian.AppendUint32(b, uint32(value))
}

func (w *wardenProc) send(kind, value int) error { return w.sendAll(appendMessage(nil, kind, value)) }

// sendAll writes messages to the daemon. They fit the socket's buffer at once.
func (w *wardenProc) sendAll(b []byte) error {
	for {
		_, err := unix.SendmsgN(wardenFD, b, nil, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}
