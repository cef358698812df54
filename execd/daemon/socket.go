package daemon

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/internal/sockdiag"
)

// askKernel asks what the kernel knows of one connection, by both of its ends.
// It costs microseconds however many sockets there are, where the tables in
// /proc cost tens of milliseconds. Not every kernel can say.
func askKernel(s execd.Socket) (sockdiag.Answer, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return sockdiag.Answer{}, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	about := sockdiag.Connection(s)
	if err := unix.Sendto(fd, sockdiag.Question(about), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return sockdiag.Answer{}, os.NewSyscallError("sendto", err)
	}
	// The kernel answers within the request.
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
	if err != nil {
		return sockdiag.Answer{}, os.NewSyscallError("recvfrom", err)
	}
	return sockdiag.Read(b[:n], about)
}
