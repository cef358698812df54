package leak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
)

// refusals are the errors of the kernel, and what each is.
var refusals = []struct {
	errno   syscall.Errno
	outcome Outcome
}{
	{syscall.ECONNREFUSED, Reset}, {syscall.ECONNRESET, Reset}, {syscall.EPIPE, Reset}, {syscall.ECONNABORTED, Reset}, {syscall.ENOTCONN, Reset},
	{syscall.EHOSTUNREACH, Unreachable}, {syscall.ENETUNREACH, Unreachable}, {syscall.ENOPROTOOPT, Unreachable}, {syscall.EPROTO, Unreachable},
	{syscall.EADDRNOTAVAIL, Unreachable}, {syscall.ENETDOWN, Unreachable}, {syscall.EHOSTDOWN, Unreachable},
	{syscall.EPERM, Forbidden}, {syscall.EACCES, Forbidden},
	{syscall.EAFNOSUPPORT, Unsupported}, {syscall.EPROTONOSUPPORT, Unsupported}, {syscall.ESOCKTNOSUPPORT, Unsupported}, {syscall.EOPNOTSUPP, Unsupported},
	{syscall.ENOSYS, Unsupported}, {syscall.EINVAL, Unsupported}, {syscall.EMSGSIZE, Unsupported}, {syscall.ENOTTY, Unsupported}, {syscall.ENXIO, Absent},
	{syscall.ENOENT, Absent}, {syscall.ENODEV, Absent}, {syscall.ENOTDIR, Absent},
}

// refused says which refusal an error is.
func refused(err error) seen {
	words := err.Error()
	var errno syscall.Errno
	if errors.As(err, &errno) {
		for _, r := range refusals {
			if r.errno == errno {
				return seen{outcome: r.outcome, words: words}
			}
		}
		return seen{outcome: Open, words: "an error nobody expects: " + words}
	}
	var name *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &name) && (name.IsNotFound || !name.IsTimeout):
		return seen{outcome: NoName, words: words}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		strings.HasSuffix(words, "http: server closed idle connection"): // net/http's word for one that ended before the request was sent
		return seen{outcome: Reset, words: words}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return seen{outcome: Silent, words: words}
	case errors.Is(err, fs.ErrNotExist):
		return seen{outcome: Absent, words: words}
	}
	return seen{outcome: Open, words: "an error nobody expects: " + words}
}

// datagramRefused is what a datagram socket is told when its datagram was
// refused: the port is unreachable.
func datagramRefused(err error) seen {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return seen{outcome: Unreachable, words: err.Error()}
	}
	return refused(err)
}

func open(format string, args ...any) seen {
	return seen{outcome: Open, words: fmt.Sprintf(format, args...)}
}

func notTried(format string, args ...any) seen {
	return seen{missing: true, words: "not tried: " + fmt.Sprintf(format, args...)}
}
