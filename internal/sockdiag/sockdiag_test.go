package sockdiag_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/internal/sockdiag"
)

func connection(local, remote string) sockdiag.Connection {
	return sockdiag.Connection{Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote)}
}

// message has the body and attributes behind a header.
func message(kind uint16, body []byte, attrs ...[]byte) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint16(b[4:], kind)
	b = append(b, body...)
	for _, a := range attrs {
		b = append(b, a...)
	}
	return b
}

func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofNlAttr+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

// A question says both ends in both families, and its answer who made the
// connection, also behind what else a kernel tells.
func TestQuestionAndAnswer(t *testing.T) {
	for _, c := range []sockdiag.Connection{connection("10.0.0.2:40000", "198.18.0.1:443"), connection("[fd00::2]:1", "[2001:db8::1]:65535")} {
		q := sockdiag.Question(c)[unix.NLMSG_HDRLEN:]
		if got, ok := sockdiag.ReadQuestion(q); !ok || got != c {
			t.Errorf("%v is read as %v, %t", c, got, ok)
		}
		want := sockdiag.Maker{PID: 1 << 15, At: 1 << 60}
		b := message(sockdiag.Type, sockdiag.Body(q), attr(7, []byte("other")), attr(sockdiag.AttrMaker, want.Bytes()))
		if a, err := sockdiag.Read(b, c); err != nil || a.Maker == nil || *a.Maker != want {
			t.Errorf("%v: %+v %v", c, a, err)
		}
		if _, err := sockdiag.Read(message(sockdiag.Type, sockdiag.Body(q)), c); !errors.Is(err, sockdiag.ErrNone) {
			t.Errorf("nobody made it: %v", err)
		}
		other := c
		other.Remote = netip.AddrPortFrom(c.Remote.Addr(), 7)
		if _, err := sockdiag.Read(b, other); !errors.Is(err, sockdiag.ErrNone) {
			t.Errorf("the answer about %v is one about %v: %v", c, other, err)
		}
	}
}

func TestKernelRefuses(t *testing.T) {
	errno := int32(unix.ENOENT)
	no := binary.NativeEndian.AppendUint32(nil, uint32(-errno))
	if _, err := sockdiag.Read(message(unix.NLMSG_ERROR, no), sockdiag.Connection{}); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}

// FuzzRead checks that whatever comes is read within its bounds.
func FuzzRead(f *testing.F) {
	c := connection("10.0.0.2:40000", "198.18.0.1:443")
	q := sockdiag.Question(c)
	f.Add(q)
	f.Add(message(sockdiag.Type, sockdiag.Body(q[unix.NLMSG_HDRLEN:]), attr(sockdiag.AttrMaker, sockdiag.Maker{PID: 2, At: 3}.Bytes())))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := sockdiag.Read(b, c); err == nil && a.Maker == nil && a.Inode == 0 {
			t.Error("an answer that says nothing")
		}
		if got, ok := sockdiag.ReadQuestion(b); ok {
			if again, ok := sockdiag.ReadQuestion(sockdiag.Question(got)[unix.NLMSG_HDRLEN:]); !ok || again != got && got.Local.Addr().Is4() == got.Remote.Addr().Is4() {
				t.Errorf("%v becomes %v", got, again)
			}
		}
	})
}
