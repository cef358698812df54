package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/secret"
)

// ErrNotRunning says that no process serves the run: it has ended, or died.
var ErrNotRunning = errors.New("no rein works on this run")

// Client asks one run. Its methods must not be called concurrently.
type Client struct {
	conn net.Conn
	in   *bufio.Reader
}

// Dial connects to the run whose directory is dir. ErrNotRunning when nobody
// serves it. A server of another user than ours, or root, is not asked.
func Dial(ctx context.Context, dir string) (*Client, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", through(d))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ErrNotRunning
	}
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	peer, err := peerOf(c.(*net.UnixConn))
	if err == nil && !admitted(peer) && os.Geteuid() != 0 {
		err = fmt.Errorf("it belongs to uid %d", peer.UID)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), c.Close())
	}
	return &Client{conn: c, in: bufio.NewReaderSize(c, 64<<10)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Status asks how the run is.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.do(ctx, Request{Method: MethodStatus}, &s)
	return s, err
}

// Limit sets a limit, up or down. Amount is in the unit of the limit.
func (c *Client) Limit(ctx context.Context, l budget.Limit, amount int64) (ch Change, err error) {
	err = c.do(ctx, Request{Method: MethodLimit, Limit: l, Amount: amount}, &ch)
	return ch, err
}

// Pending asks what waits for a person.
func (c *Client) Pending(ctx context.Context) (list []Pending, err error) {
	err = c.do(ctx, Request{Method: MethodPending}, &list)
	return list, err
}

// Approve answers what is pending.
func (c *Client) Approve(ctx context.Context, a Answer) error {
	return c.do(ctx, Request{Method: MethodApprove, ID: a.ID, Hash: a.Hash, Decision: a.Decision, Scope: a.Scope, Reason: a.Reason}, nil)
}

// Stop has the run end as if it had been interrupted.
func (c *Client) Stop(ctx context.Context, reason string) error {
	return c.do(ctx, Request{Method: MethodStop, Reason: reason}, nil)
}

// Allow has a host be reached. It is refused when another rule denies it.
func (c *Client) Allow(ctx context.Context, h Host) (ch NetworkChange, err error) {
	err = c.do(ctx, Request{Method: MethodAllow, Host: h.Host, Port: h.Port, Proto: h.Proto}, &ch)
	return ch, err
}

// Deny has a host be reached no more; open connections to it are closed.
func (c *Client) Deny(ctx context.Context, h Host) (ch NetworkChange, err error) {
	err = c.do(ctx, Request{Method: MethodDeny, Host: h.Host, Port: h.Port, Proto: h.Proto}, &ch)
	return ch, err
}

// Rotate changes a secret to a value; the zero Value: to what it is now where the
// run has it from, which may be a program that takes a while.
func (c *Client) Rotate(ctx context.Context, name string, value secret.Value) error {
	return c.do(ctx, Request{Method: MethodRotate, Secret: name, Value: value.Reveal()}, nil)
}

// answering bounds a request without a deadline of its own, and reading one that
// has the run read a secret.
const (
	answering = 15 * time.Second
	reading   = 75 * time.Second
)

func (c *Client) do(ctx context.Context, r Request, into any) error {
	r.V = Version
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	end := time.Now().Add(answering)
	if r.Method == MethodRotate {
		end = time.Now().Add(reading)
	}
	if at, ok := ctx.Deadline(); ok && at.Before(end) {
		end = at
	}
	c.conn.SetDeadline(end)
	defer context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Now()) })()
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		return c.cut(ctx, err)
	}
	answer, err := c.line()
	if err != nil {
		return c.cut(ctx, err)
	}
	return ParseResponse(answer, into)
}

// cut says why there is no answer.
func (c *Client) cut(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("the run did not answer: %w", err)
}

// line reads one line of at most MaxResponse bytes.
func (c *Client) line() ([]byte, error) {
	var out []byte
	for {
		part, err := c.in.ReadSlice('\n')
		if len(out)+len(part) > MaxResponse {
			return nil, fmt.Errorf("the answer is longer than %d bytes", MaxResponse)
		}
		out = append(out, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return out, err
		}
	}
}

// ParseResponse reads one line of a server, and its result into into, which may
// be nil. The server's refusal is an *Error.
func ParseResponse(line []byte, into any) error {
	var r Response
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("the answer is no JSON object: %w", err)
	}
	switch {
	case r.V != Version:
		return fmt.Errorf("the answer is of version %d, not %d", r.V, Version)
	case !r.OK && r.Error == nil:
		return errors.New("the answer has neither a result nor an error")
	case !r.OK:
		return r.Error
	case into == nil:
		return nil
	case len(r.Result) == 0:
		return errors.New("the answer has no result")
	}
	if err := json.Unmarshal(r.Result, into); err != nil {
		return fmt.Errorf("the answer's result: %w", err)
	}
	return nil
}
