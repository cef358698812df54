package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
)

var (
	_ sandbox.Networker = (*Provider)(nil)
	_ sandbox.Attacher  = (*Provider)(nil)
)

// networkRequest is the body of POST /network. A document's origin is no part
// of it as it is written: only who owns the socket says it.
type networkRequest struct {
	Network policy.Document `json:"network"`
	Origin  policy.Origin   `json:"origin,omitempty"`
}

func (r networkRequest) document() policy.Document {
	r.Network.Origin = r.Origin
	return r.Network
}

type networkReply struct {
	Generation uint64 `json:"generation"`
}

// SetNetwork has the keeper put another policy in force.
func (p *Provider) SetNetwork(ctx context.Context, id string, d policy.Document) (uint64, error) {
	const op = "change the network"
	var r networkReply
	err := p.ask(ctx, op, id, http.MethodPost, "/network", networkRequest{Network: d, Origin: d.Origin}, &r)
	return r.Generation, p.asLost(op, id, err)
}

// attachProtocol is what a connection becomes after GET /attach: lines of JSON,
// asked from the keeper and answered from the owner. The sandbox has its owner
// as long as the connection is open.
const attachProtocol = "rein-owner"

// maxAttachLine bounds a line, in bytes, of the protocol of owners. A name has
// at most 253 bytes; the rest of a question is rein's own words.
const maxAttachLine = 16 << 10

// maxAsked is how many questions may be open at one owner.
const maxAsked = 64

// attachAsk is a line from the keeper: one of its three.
type attachAsk struct {
	ID       uint64            `json:"id"`
	Question *sandbox.Question `json:"question,omitempty"`
	Begin    *inference.Ask    `json:"begin,omitempty"`
	End      *inference.Ended  `json:"end,omitempty"`
}

// attachAnswer is a line from the owner: to a question, or to a begin.
type attachAnswer struct {
	ID     uint64           `json:"id"`
	Answer policy.Answer    `json:"answer,omitempty"`
	Grant  *inference.Grant `json:"grant,omitempty"`
	Failed bool             `json:"failed,omitempty"`
}

// decodeLine reads one line of the protocol: one JSON value with the fields it
// has and no others.
func decodeLine(line []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value in a line")
	}
	return nil
}

// Attach makes the caller an owner of the sandbox until the Closer is closed.
func (p *Provider) Attach(ctx context.Context, id string, owner sandbox.Owner) (io.Closer, error) {
	const op = "attach"
	can := url.Values{}
	if owner.Ask != nil {
		can.Set("answers", "true")
	}
	if owner.Meter != nil {
		can.Set("meter", "true")
	}
	conn, r, err := p.upgrade(ctx, op, id, (&url.URL{Path: "/attach", RawQuery: can.Encode()}).String())
	if err != nil {
		return nil, p.asLost(op, id, err)
	}
	o := newOwnership(conn, owner)
	o.start(r)
	return o, nil
}

func newOwnership(conn net.Conn, owner sandbox.Owner) *ownership {
	o := &ownership{conn: conn, ask: owner.Ask, slots: make(chan struct{}, maxAsked)}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	o.metering = newMetering(o, owner.Meter)
	return o
}

func (o *ownership) start(r *bufio.Reader) {
	o.running.Go(func() { o.serve(r) })
	o.running.Go(o.metering.serve)
}

// upgrade sends a request that turns the connection into another protocol.
func (p *Provider) upgrade(ctx context.Context, op, id, path string) (net.Conn, *bufio.Reader, error) {
	conn, err := p.connect(ctx, op, id)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	r := bufio.NewReaderSize(conn, 4096)
	resp, err := roundTrip(conn, r, http.MethodGet, path, nil)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, nil, &sandbox.Error{Kind: sandbox.KindLost, Op: op, Subject: id, Err: err}
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer conn.Close()
		return nil, nil, controlFailure(op, id, resp)
	}
	return conn, r, nil
}

// ownership is the owner's end of the connection.
type ownership struct {
	conn    net.Conn
	ask     func(context.Context, sandbox.Question) policy.Answer
	slots   chan struct{}
	ctx     context.Context // ends with the connection
	cancel  context.CancelFunc
	running sync.WaitGroup
	writing sync.Mutex

	metering *metering
}

// serve answers until the connection ends, or says what it must not.
func (o *ownership) serve(r *bufio.Reader) {
	defer o.cancel()
	defer o.conn.Close()
	defer close(o.metering.lines)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxAttachLine)
	for lines.Scan() {
		var q attachAsk
		if decodeLine(lines.Bytes(), &q) != nil {
			return
		}
		if q.Question == nil {
			if q.Begin == nil && q.End == nil || !o.metering.take(q) {
				return
			}
			continue
		}
		if q.Begin != nil || q.End != nil || o.ask == nil {
			return
		}
		select {
		case o.slots <- struct{}{}:
		default: // the keeper asks no more at once
			return
		}
		o.running.Go(func() {
			defer func() { <-o.slots }()
			o.answer(attachAnswer{ID: q.ID, Answer: o.ask(o.ctx, *q.Question)})
		})
	}
}

func (o *ownership) answer(a attachAnswer) {
	b, err := json.Marshal(a)
	if err != nil { // of a number and a text
		return
	}
	o.writing.Lock()
	defer o.writing.Unlock()
	_, _ = o.conn.Write(append(b, '\n')) // a connection that has ended asks nothing any more
}

// detachPatience is how long the keeper may take to let an owner go.
const detachPatience = 2 * time.Second

// Close gives the sandbox up, and returns when no question is being answered and
// the keeper, unless it hangs, has let the owner go: with the last one the network
// is closed then, and not soon after.
func (o *ownership) Close() error {
	o.cancel()
	if half, ok := o.conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		o.conn.Close()
	}
	_ = o.conn.SetReadDeadline(time.Now().Add(detachPatience)) // fails where it has ended already
	o.running.Wait()                                           // serve closes the connection
	return nil
}
