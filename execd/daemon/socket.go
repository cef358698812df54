package daemon

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
)

// diagPatience bounds the wait for the kernel's answer, which it gives within
// the request.
const diagPatience = 100 * time.Millisecond

// The layout of struct inet_diag_req_v2 and struct inet_diag_msg, see
// sock_diag(7).
const (
	diagRequest  = 56
	diagSocketID = 8  // of the request: ports, addresses, interface, cookie
	diagAnswer   = 72 // at least
	diagInode    = 68
)

// errNoSocket says that the kernel knows no such socket. A kernel that cannot
// tell says the same.
var errNoSocket = os.NewSyscallError("sock_diag", unix.ENOENT)

// socketInode asks the kernel for the inode of one connection by both of its
// ends. It costs microseconds however many sockets the kernel has, where its
// tables in /proc cost tens of milliseconds. Not every kernel can say.
func socketInode(s execd.Socket) (uint32, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(diagPatience.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Sendto(fd, diagQuestion(s), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, os.NewSyscallError("sendto", err)
	}
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, b, 0)
	if err != nil {
		return 0, os.NewSyscallError("recvfrom", err)
	}
	return diagReply(b[:n], s)
}

// diagQuestion is the request for one TCP socket in whatever state.
func diagQuestion(s execd.Socket) []byte {
	order := binary.NativeEndian
	b := make([]byte, unix.NLMSG_HDRLEN+diagRequest)
	order.PutUint32(b, uint32(len(b)))
	order.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	order.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[unix.NLMSG_HDRLEN:]
	r[0], r[1] = unix.AF_INET, unix.IPPROTO_TCP
	local, remote := s.Local.Addr().Unmap(), s.Remote.Addr().Unmap()
	if local.Is6() {
		r[0] = unix.AF_INET6
	}
	order.PutUint32(r[4:], ^uint32(0)) // every state
	id := r[diagSocketID:]
	binary.BigEndian.PutUint16(id, s.Local.Port())
	binary.BigEndian.PutUint16(id[2:], s.Remote.Port())
	copy(id[4:], local.AsSlice())
	copy(id[20:], remote.AsSlice())
	order.PutUint64(id[40:], ^uint64(0)) // no cookie
	return b
}

// diagReply reads the answer. A listener is found in place of a connection that
// is gone, and is not it.
func diagReply(b []byte, s execd.Socket) (uint32, error) {
	order := binary.NativeEndian
	if len(b) < unix.NLMSG_HDRLEN+4 {
		return 0, errors.New("the kernel's answer is cut")
	}
	body := b[unix.NLMSG_HDRLEN:]
	switch order.Uint16(b[4:]) {
	case unix.NLMSG_ERROR:
		return 0, os.NewSyscallError("sock_diag", unix.Errno(-int32(order.Uint32(body))))
	case unix.SOCK_DIAG_BY_FAMILY:
	default:
		return 0, errors.New("the kernel answers something else")
	}
	if len(body) < diagAnswer {
		return 0, errors.New("the kernel's answer is cut")
	}
	// family, state, timer and retransmits stand before the id.
	if binary.BigEndian.Uint16(body[6:]) != s.Remote.Port() {
		return 0, errNoSocket
	}
	if inode := order.Uint32(body[diagInode:]); inode != 0 {
		return inode, nil
	}
	return 0, errNoSocket
}
