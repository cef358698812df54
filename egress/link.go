package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// socketBuffer is what an AF_PACKET socket is given in each direction; the
// kernel's default of 208 KiB holds three frames of our MTU.
const socketBuffer = 8 << 20

// readSizes are the buffers one frame is read into. A frame takes as many as
// it needs from the front and the others wait for the next one, so that an
// acknowledgement does not cost 64 KiB. Together they hold any frame of our
// MTU; a longer one is cut by the read and dropped as malformed above.
var readSizes = [...]int{256, 4096, buffer.MaxChunkSize}

// link is the stack's device over a descriptor of Ethernet frames. gVisor's
// own (fdbased) ends its read loop at the first frame for another MAC address,
// does not wait for its goroutines, and resolves link addresses, which a wire
// with two ends does not need.
type link struct {
	file  *os.File
	raw   syscall.RawConn
	admit admitFunc
	done  chan struct{} // closed when the read loop has ended

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher
}

// admitFunc decides whether a frame that was read goes up into the stack. pkt
// has its link header set.
type admitFunc func(proto tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) bool

var _ stack.LinkEndpoint = (*link)(nil)

// newLink owns fd, also when it fails. Reading begins with start.
func newLink(fd int, admit admitFunc) (*link, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("fstat: %w", err) // not open: nothing to close
	}
	l := &link{admit: admit, done: make(chan struct{})}
	err := unix.SetNonblock(fd, true) // before NewFile, which looks at it
	l.file = os.NewFile(uintptr(fd), "link")
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT == unix.S_IFSOCK:
		tuneSocket(fd)
	case st.Mode&unix.S_IFMT != unix.S_IFCHR:
		err = errors.New("neither a device nor a socket")
	}
	if err == nil {
		l.raw, err = l.file.SyscallConn()
	}
	if err != nil {
		_ = l.file.Close() // err is why
		return nil, err
	}
	return l, nil
}

// tuneSocket raises a socket's buffers as far as it may: the FORCE options
// need CAP_NET_ADMIN over the socket's namespace, the others stop at the
// host's limit. What cannot be raised only costs throughput. What the host's
// kernel itself sends on the interface is not the sandbox's and is not read,
// where the kernel can tell (4.20); else the source address does.
func tuneSocket(fd int) {
	for _, o := range [][2]int{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, o[0], socketBuffer) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, o[1], socketBuffer)
		}
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
}

func (l *link) start() { go l.read() }

// stop ends the read loop, waits for it and closes the descriptor.
func (l *link) stop() error {
	err := l.file.Close()
	<-l.done
	return err
}

// read takes frames until the descriptor is closed or the device is gone.
func (l *link) read() {
	defer close(l.done)
	var b frameBuffer
	defer b.release()
	for {
		pkt, err := b.next(l.raw)
		switch {
		case errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOBUFS):
			continue // the interface is down for the moment (packet(7)), a signal, a lost frame
		case err != nil:
			return
		}
		l.deliver(pkt)
		pkt.DecRef()
	}
}

func (l *link) deliver(pkt *stack.PacketBuffer) {
	h, ok := pkt.LinkHeader().Consume(header.EthernetMinimumSize)
	if !ok {
		return
	}
	proto := header.Ethernet(h).Type()
	pkt.NetworkProtocolNumber = proto
	if !l.admit(proto, pkt) {
		return
	}
	l.mu.RLock()
	d := l.dispatcher
	l.mu.RUnlock()
	if d != nil {
		d.DeliverNetworkPacket(proto, pkt)
	}
}

// WritePackets implements stack.LinkWriter. A frame the kernel does not take
// is lost, as on a wire.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	list := pkts.AsSlice()
	for _, p := range list {
		l.write(p.AsSlices())
	}
	return len(list), nil
}

// write sends one frame without ever waiting.
func (l *link) write(parts [][]byte) {
	_ = l.raw.Write(func(fd uintptr) bool {
		for {
			_, err := unix.Writev(int(fd), parts)
			if err != unix.EINTR {
				return true
			}
		}
	})
}

// AddHeader implements stack.LinkEndpoint: there is one peer.
func (l *link) AddHeader(pkt *stack.PacketBuffer) {
	encodeEthernet(pkt.LinkHeader().Push(header.EthernetMinimumSize), pkt.NetworkProtocolNumber)
}

func encodeEthernet(b []byte, proto tcpip.NetworkProtocolNumber) {
	header.Ethernet(b).Encode(&header.EthernetFields{SrcAddr: gatewayMAC, DstAddr: sandboxMAC, Type: proto})
}

var gatewayMAC, sandboxMAC = mustMAC(GatewayMAC), mustMAC(SandboxMAC)

func mustMAC(s string) tcpip.LinkAddress {
	a, err := net.ParseMAC(s)
	if err != nil {
		panic(err) // a constant of this package
	}
	return tcpip.LinkAddress(a)
}

// Attach implements stack.LinkEndpoint.
func (l *link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatcher = d
}

// IsAttached implements stack.LinkEndpoint.
func (l *link) IsAttached() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher != nil
}

// Capabilities implements stack.LinkEndpoint. Frames come from memory, not
// from a wire, and those of a veth pair carry no checksum at all: checking it
// would cost throughput and gain nothing.
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

// MTU implements stack.LinkEndpoint.
func (l *link) MTU() uint32 { return MTU }

// SetMTU implements stack.LinkEndpoint; the MTU is a constant.
func (l *link) SetMTU(uint32) {}

// MaxHeaderLength implements stack.LinkEndpoint.
func (l *link) MaxHeaderLength() uint16 { return header.EthernetMinimumSize }

// LinkAddress implements stack.LinkEndpoint.
func (l *link) LinkAddress() tcpip.LinkAddress { return gatewayMAC }

// SetLinkAddress implements stack.LinkEndpoint; the address is a constant.
func (l *link) SetLinkAddress(tcpip.LinkAddress) {}

// ARPHardwareType implements stack.LinkEndpoint.
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// ParseHeader implements stack.LinkEndpoint.
func (l *link) ParseHeader(pkt *stack.PacketBuffer) bool {
	_, ok := pkt.LinkHeader().Consume(header.EthernetMinimumSize)
	return ok
}

// Wait implements stack.LinkEndpoint; stop waits for the read loop.
func (l *link) Wait() {}

// Close implements stack.LinkEndpoint; stop closes the descriptor.
func (l *link) Close() {}

// SetOnCloseAction implements stack.LinkEndpoint; there is none to run.
func (l *link) SetOnCloseAction(func()) {}

// frameBuffer reads frames into the stack's own pooled memory.
type frameBuffer struct {
	views [len(readSizes)]*buffer.View
	iov   [len(readSizes)][]byte
}

// next reads one frame, waiting for it. The caller releases the packet.
func (b *frameBuffer) next(raw syscall.RawConn) (*stack.PacketBuffer, error) {
	for i, v := range b.views {
		if v == nil {
			v = buffer.NewViewSize(readSizes[i])
			b.views[i], b.iov[i] = v, v.AsSlice()
		}
	}
	var n int
	var errno error
	err := raw.Read(func(fd uintptr) bool {
		n, errno = unix.Readv(int(fd), b.iov[:])
		return errno != unix.EAGAIN
	})
	if err == nil {
		err = errno
	}
	if err == nil && n == 0 {
		err = io.EOF // no frame is empty: the other end is closed
	}
	if err != nil {
		return nil, err
	}
	return stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: b.take(n)}), nil
}

// take removes the first n bytes.
func (b *frameBuffer) take(n int) buffer.Buffer {
	var out buffer.Buffer
	for i, v := range b.views {
		if n <= 0 {
			break
		}
		if v.Size() > n {
			v.CapLength(n)
		}
		n -= v.Size()
		_ = out.Append(v) // fails only on a nil view
		b.views[i] = nil
	}
	return out
}

func (b *frameBuffer) release() {
	for _, v := range b.views {
		if v != nil {
			v.Release()
		}
	}
}
