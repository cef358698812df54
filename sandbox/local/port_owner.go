package local

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/execd"
)

// idleOwners are the connections to execd that wait for the next question.
const idleOwners = 8

// portOwner asks execd which command holds a port of the sandbox. It does so on
// connections of its own, one question after the other on each.
type portOwner struct {
	gateway atomic.Pointer[egress.Gateway]
	token   string
	idle    chan *ownerConn
	lasts   atomic.Bool // execd has said that it can tell later, too
}

// ownerConn is a connection to execd.
type ownerConn struct {
	net.Conn
	questions *execd.PortOwners // nil: none was asked
}

func newPortOwner(token string) *portOwner {
	return &portOwner{token: token, idle: make(chan *ownerConn, idleOwners)}
}

func (p *portOwner) use(g *egress.Gateway) { p.gateway.Store(g) }

// find is the gateway's egress.Options.Owner. What execd says comes from the
// sandbox: what cannot be an id of a call is nobody's.
func (p *portOwner) find(ctx context.Context, s egress.Socket) string {
	g := p.gateway.Load()
	if g == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, execd.PortOwnerTimeout)
	defer cancel()
	owner, err := p.ask(ctx, g, s)
	if err != nil {
		return ""
	}
	p.lasts.Store(owner.Lasting)
	if !execd.ValidID(owner.ID) {
		return ""
	}
	return owner.ID
}

// ask asks on a connection that is idle, and on a new one where execd has closed
// that meanwhile.
func (p *portOwner) ask(ctx context.Context, g *egress.Gateway, s egress.Socket) (execd.PortOwner, error) {
	select {
	case c := <-p.idle:
		if owner, err := p.askOn(ctx, c, s); err == nil {
			return owner, nil
		}
	default:
	}
	c, err := g.DialContext(ctx, execd.Port)
	if err != nil {
		return execd.PortOwner{}, err
	}
	return p.askOn(ctx, &ownerConn{Conn: c}, s)
}

// askOn puts the question on c, and keeps c for the next one or closes it.
func (p *portOwner) askOn(ctx context.Context, c *ownerConn, s egress.Socket) (owner execd.PortOwner, err error) {
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if c.questions == nil {
		c.questions, err = execd.NewPortOwners(c, p.token)
	}
	if err == nil {
		owner, err = c.questions.Ask(execd.Socket(s))
	}
	if err == nil && stop() {
		select {
		case p.idle <- c:
			return owner, nil
		default:
		}
	}
	c.Close() // there are enough, or nobody knows where it stands
	return owner, err
}

// close closes what is idle. Nothing is asked any more.
func (p *portOwner) close() {
	for {
		select {
		case c := <-p.idle:
			c.Close()
		default:
			return
		}
	}
}
