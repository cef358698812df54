package daemon

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/internal/sockdiag"
)

// kernel is asked what it knows of one connection, by both of its ends. That costs
// microseconds however many sockets there are, where the tables in /proc cost tens
// of milliseconds. Not every kernel can say. The zero value is ready; it may be used
// concurrently.
type kernel struct {
	mu sync.Mutex
	fd int // of the last question, 0 when there is none or nobody knows where it stands
}

func (k *kernel) ask(s execd.Socket) (sockdiag.Answer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	about := sockdiag.Connection(s)
	b, err := k.exchange(sockdiag.Question(about))
	if err != nil {
		k.closeLocked()
		return sockdiag.Answer{}, err
	}
	return sockdiag.Read(b, about)
}

func (k *kernel) exchange(question []byte) ([]byte, error) {
	if k.fd == 0 {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
		if err != nil {
			return nil, os.NewSyscallError("socket", err)
		}
		k.fd = fd
	}
	if err := unix.Sendto(k.fd, question, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	// The kernel answers within the request.
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(k.fd, b, unix.MSG_DONTWAIT)
	if err != nil {
		return nil, os.NewSyscallError("recvfrom", err)
	}
	return b[:n], nil
}

func (k *kernel) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closeLocked()
}

func (k *kernel) closeLocked() {
	if k.fd != 0 {
		_ = unix.Close(k.fd) // it holds nothing
		k.fd = 0
	}
}
