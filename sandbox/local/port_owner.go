package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/execd"
)

const (
	// portOwnerTimeout bounds the question which command holds a port: a
	// connection waits for it.
	portOwnerTimeout = 500 * time.Millisecond
	// idleOwners are the connections to execd that wait for the next question.
	idleOwners = 8
)

// portOwner asks execd which command holds a port of the sandbox. It does so on
// connections of its own, one question after the other: each switch between
// goroutines that net/http's client makes is time for which a connection of the
// sandbox is held.
type portOwner struct {
	gateway atomic.Pointer[egress.Gateway]
	token   string
	idle    chan *ownerConn
	lasts   atomic.Bool // execd has said that it can tell later, too
}

// ownerConn is a connection to execd.
type ownerConn struct {
	net.Conn
	in *bufio.Reader
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
	ctx, cancel := context.WithTimeout(ctx, portOwnerTimeout)
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
	return p.askOn(ctx, &ownerConn{c, bufio.NewReader(c)}, s)
}

// askOn puts the question on c, and keeps c for the next one or closes it.
func (p *portOwner) askOn(ctx context.Context, c *ownerConn, s egress.Socket) (owner execd.PortOwner, err error) {
	again := false
	defer func() {
		if !again {
			c.Close() // it was read, or nobody knows where it stands
		}
	}()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	q := url.Values{"local": {s.Local.String()}, "remote": {s.Remote.String()}}
	if _, err := fmt.Fprintf(c, "GET /rein/port?%s HTTP/1.1\r\nHost: execd\r\n%s: %s\r\n\r\n", q.Encode(), execd.TokenHeader, p.token); err != nil {
		return owner, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return owner, err
	}
	const most = 4 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return owner, err
	}
	if resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, &owner)
	} else {
		err = fmt.Errorf("execd answered %s", resp.Status)
	}
	if err == nil && !resp.Close && len(body) < most && stop() {
		select {
		case p.idle <- c:
			again = true
		default:
		}
	}
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
