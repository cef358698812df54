// Package sockdiag is what Linux is asked of a single TCP connection by its two
// ends over NETLINK_SOCK_DIAG (sock_diag(7)), and what rein's gVisor is: Linux
// tells the inode of its socket, gVisor who made it.
package sockdiag

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Connection is one, as the machine that is asked sees it.
type Connection struct{ Local, Remote netip.AddrPort }

// Maker is who made a connection.
type Maker struct {
	// PID is of the process, or its ancestor, that the first process of the
	// machine started, as that one knows it; 0 when it may have been one of
	// several.
	PID int
	// At is when, in nanoseconds of CLOCK_MONOTONIC.
	At int64
}

// Answer is what a kernel knows of a connection: one of the two.
type Answer struct {
	Inode uint32
	Maker *Maker
}

// ErrNone says that the kernel knows no such connection. A kernel that cannot
// tell says the same.
var ErrNone = os.NewSyscallError("sock_diag", unix.ENOENT)

var errCut = errors.New("the kernel's answer is cut")

// Type is a message's type, of questions and answers.
const Type = unix.SOCK_DIAG_BY_FAMILY

// AttrMaker is the attribute with the Maker. Linux has none of that number
// (linux/inet_diag.h).
const AttrMaker = 0x3e1

// The layout of struct inet_diag_req_v2 and struct inet_diag_msg: the ports,
// addresses, interface and cookie of a socket stand at different places.
const (
	requestSize = 56
	requestID   = 8
	answerSize  = 72
	answerID    = 4
	answerInode = 68
	idSize      = 48
	makerSize   = 16
)

// Question is the message that asks for a connection in whatever state.
func Question(c Connection) []byte {
	order := binary.NativeEndian
	b := make([]byte, unix.NLMSG_HDRLEN+requestSize)
	order.PutUint32(b, uint32(len(b)))
	order.PutUint16(b[4:], Type)
	order.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[unix.NLMSG_HDRLEN:]
	r[0], r[1] = unix.AF_INET, unix.IPPROTO_TCP
	local, remote := c.Local.Addr().Unmap(), c.Remote.Addr().Unmap()
	if local.Is6() {
		r[0] = unix.AF_INET6
	}
	order.PutUint32(r[4:], ^uint32(0)) // every state
	id := r[requestID:]
	binary.BigEndian.PutUint16(id, c.Local.Port())
	binary.BigEndian.PutUint16(id[2:], c.Remote.Port())
	copy(id[4:], local.AsSlice())
	copy(id[20:], remote.AsSlice())
	order.PutUint64(id[40:], ^uint64(0)) // no cookie
	return b
}

// ReadQuestion reads a Question without the header of the message.
func ReadQuestion(b []byte) (Connection, bool) {
	if len(b) < requestSize || b[1] != unix.IPPROTO_TCP {
		return Connection{}, false
	}
	size := 4
	switch b[0] {
	case unix.AF_INET:
	case unix.AF_INET6:
		size = 16
	default:
		return Connection{}, false
	}
	id := b[requestID:]
	end := func(port, addr []byte) netip.AddrPort {
		a, _ := netip.AddrFromSlice(addr[:size])
		return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(port))
	}
	return Connection{end(id, id[4:]), end(id[2:], id[20:])}, true
}

// Body is the answer to a question without the header of its message: it says
// of no socket but who made it, which is in an attribute of its own.
func Body(question []byte) []byte {
	b := make([]byte, answerSize)
	b[0] = question[0]
	copy(b[answerID:], question[requestID:requestID+idSize])
	return b
}

// Bytes are the value of AttrMaker.
func (m Maker) Bytes() []byte {
	b := make([]byte, makerSize)
	binary.NativeEndian.PutUint64(b, uint64(m.PID))
	binary.NativeEndian.PutUint64(b[8:], uint64(m.At))
	return b
}

// Read reads the message that answers the question for c. The error is ErrNone,
// or another of the kernel. A listener is found in place of a connection that
// is gone, and is not it.
func Read(b []byte, c Connection) (Answer, error) {
	order := binary.NativeEndian
	if len(b) < unix.NLMSG_HDRLEN+4 {
		return Answer{}, errCut
	}
	body := b[unix.NLMSG_HDRLEN:]
	switch order.Uint16(b[4:]) {
	case unix.NLMSG_ERROR:
		return Answer{}, os.NewSyscallError("sock_diag", unix.Errno(-int32(order.Uint32(body))))
	case Type:
	default:
		return Answer{}, errors.New("the kernel answers something else")
	}
	if len(body) < answerSize {
		return Answer{}, errCut
	}
	if binary.BigEndian.Uint16(body[answerID:]) != c.Local.Port() || binary.BigEndian.Uint16(body[answerID+2:]) != c.Remote.Port() {
		return Answer{}, ErrNone
	}
	if m := maker(body[answerSize:]); m != nil {
		return Answer{Maker: m}, nil
	}
	if inode := order.Uint32(body[answerInode:]); inode != 0 {
		return Answer{Inode: inode}, nil
	}
	return Answer{}, ErrNone
}

// maker is what the attributes say of it; nil when there is nothing.
func maker(attrs []byte) *Maker {
	order := binary.NativeEndian
	for len(attrs) >= unix.SizeofNlAttr {
		n, kind := int(order.Uint16(attrs)), order.Uint16(attrs[2:])
		if n < unix.SizeofNlAttr || n > len(attrs) {
			return nil
		}
		if value := attrs[unix.SizeofNlAttr:n]; kind == AttrMaker && len(value) == makerSize {
			return &Maker{PID: int(order.Uint64(value)), At: int64(order.Uint64(value[8:]))}
		}
		const align = unix.NLMSG_ALIGNTO
		attrs = attrs[min((n+align-1)&^(align-1), len(attrs)):]
	}
	return nil
}
