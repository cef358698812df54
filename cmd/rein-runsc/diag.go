package main

import (
	abi "gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/marshal/primitive"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket/netlink"
	"gvisor.dev/gvisor/pkg/sentry/socket/netlink/nlmsg"
	"gvisor.dev/gvisor/pkg/syserr"

	"github.com/rein-sh/rein/internal/sockdiag"
)

// diag is what NETLINK_SOCK_DIAG, which gVisor has not, tells of single TCP
// connections: who made them (sockdiag.AttrMaker). It is there for what the host
// started in the sandbox, which is the daemon; others find that the kernel has
// no such protocol.
type diag struct{ made *sockdiag.Makers }

var _ netlink.Protocol = diag{}

// tellMakers registers the protocol. It must be called before the runtime starts.
func tellMakers(made *sockdiag.Makers) {
	netlink.RegisterProvider(abi.NETLINK_SOCK_DIAG, func(t *kernel.Task) (netlink.Protocol, *syserr.Error) {
		if t.Parent() != nil {
			return nil, syserr.ErrProtocolNotSupported
		}
		return diag{made}, nil
	})
}

// Protocol implements netlink.Protocol.
func (diag) Protocol() int { return abi.NETLINK_SOCK_DIAG }

// CanSend implements netlink.Protocol.
func (diag) CanSend() bool { return true }

// Receive implements netlink.Protocol.
func (diag) Receive(ctx context.Context, s *netlink.Socket, buf []byte) *syserr.Error {
	return s.ProcessMessages(ctx, buf)
}

// ProcessMessage implements netlink.Protocol: struct inet_diag_req_v2 is
// answered with struct inet_diag_msg and the attribute.
func (d diag) ProcessMessage(_ context.Context, _ *netlink.Socket, msg *nlmsg.Message, ms *nlmsg.MessageSet) *syserr.Error {
	if msg.Header().Type != sockdiag.Type {
		return syserr.ErrInvalidArgument
	}
	question := msg.Buffer()[abi.NetlinkMessageHeaderSize:]
	about, ok := sockdiag.ReadQuestion(question)
	if !ok {
		return syserr.ErrInvalidArgument
	}
	by, ok := d.made.Who(about)
	if !ok {
		return syserr.ErrNoFileOrDir
	}
	body, value := primitive.ByteSlice(sockdiag.Body(question)), primitive.ByteSlice(by.Bytes())
	reply := ms.AddMessage(abi.NetlinkMessageHeader{Type: sockdiag.Type})
	reply.Put(&body)
	reply.PutAttr(sockdiag.AttrMaker, &value)
	return nil
}
