package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// controlTimeout bounds one question to a keeper. They are answered from
// memory, but for a pause and its end, which take execd.PauseTimeout at most and
// wait for one another.
const controlTimeout = 2 * execd.PauseTimeout

// connect opens a connection to a sandbox's keeper.
func (p *Provider) connect(ctx context.Context, op, id string) (net.Conn, error) {
	if err := checkID(op, id); err != nil {
		return nil, err
	}
	dir, err := os.Open(p.dir(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound(op, id)
	}
	if err != nil {
		return nil, &sandbox.Error{Kind: sandbox.KindHost, Op: op, Subject: id, Err: err}
	}
	defer dir.Close()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socketPath(dir))
	if err == nil {
		return conn, nil
	}
	e := &sandbox.Error{Kind: sandbox.KindLost, Op: op, Subject: id, Err: fmt.Errorf("its keeper does not answer: %w", err)}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		e.Err = errors.New("its keeper is gone")
		e.Hint = "rein sandbox kill " + id
	}
	return nil, e
}

// ask sends one request of the control protocol and decodes the answer.
func (p *Provider) ask(caller context.Context, op, id, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(caller, controlTimeout)
	defer cancel()
	conn, err := p.connect(ctx, op, id)
	if err != nil {
		return unlessGivenUp(caller, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	resp, err := roundTrip(conn, bufio.NewReader(conn), method, path, body)
	if err != nil {
		return unlessGivenUp(caller, &sandbox.Error{Kind: sandbox.KindLost, Op: op, Subject: id, Err: fmt.Errorf("ask its keeper: %w", errors.Join(err, ctx.Err()))})
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return controlFailure(op, id, resp)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<20)).Decode(into); err != nil {
		return &sandbox.Error{Kind: sandbox.KindInternal, Op: op, Subject: id, Err: fmt.Errorf("its keeper's answer: %w", err)}
	}
	return nil
}

// unlessGivenUp is err, but where the caller has given up, which says nothing
// about the keeper.
func unlessGivenUp(caller context.Context, err error) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind == sandbox.KindLost && caller.Err() != nil {
		e.Kind = sandbox.KindTimeout
		e.Hint = ""
	}
	return err
}

// roundTrip writes one request and reads one response on an open connection.
func roundTrip(conn net.Conn, r *bufio.Reader, method, path string, body any) (*http.Response, error) {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequest(method, "http://keeper"+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	return http.ReadResponse(r, req)
}

func controlFailure(op, id string, resp *http.Response) error {
	var ce controlError
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&ce); err != nil {
		ce = controlError{Kind: sandbox.KindInternal, Error: "keeper answered " + resp.Status}
	}
	if ce.Kind == sandbox.KindNotFound {
		return notFound(op, id)
	}
	return &sandbox.Error{Kind: ce.Kind, Op: op, Subject: id, Err: errors.New(ce.Error), Hint: ce.Hint}
}

// Endpoint reaches a port through the sandbox's keeper.
func (p *Provider) Endpoint(ctx context.Context, id string, port int) (sandbox.Endpoint, error) {
	if port < 1 || port > 65535 {
		return sandbox.Endpoint{}, &sandbox.Error{Kind: sandbox.KindInvalid, Op: "reach", Subject: id,
			Err: fmt.Errorf("port %d is not between 1 and 65535", port)}
	}
	var token tokenReply
	if err := p.ask(ctx, "reach", id, http.MethodGet, "/token", nil, &token); err != nil {
		return sandbox.Endpoint{}, err
	}
	ep := sandbox.Endpoint{
		BaseURL: "http://" + id + ".sandbox.invalid:" + strconv.Itoa(port),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return p.dial(ctx, id, port)
		},
	}
	if port == execd.Port {
		ep.Header = http.Header{}
		ep.Header.Set(execd.TokenHeader, token.Token)
	}
	return ep, nil
}

// dial opens a connection to a port inside the sandbox. The address in the
// base URL is never resolved.
func (p *Provider) dial(ctx context.Context, id string, port int) (net.Conn, error) {
	conn, r, err := p.upgrade(ctx, "reach", id, "/dial?port="+strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	return &tunnelConn{Conn: conn, r: r}, nil
}

// tunnelConn reads what arrived together with the keeper's answer first.
type tunnelConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *tunnelConn) Read(b []byte) (int, error) {
	if c.r != nil {
		if c.r.Buffered() > 0 {
			return c.r.Read(b)
		}
		c.r = nil
	}
	return c.Conn.Read(b)
}

// CloseWrite passes a half-close on.
func (c *tunnelConn) CloseWrite() error { return c.Conn.(*net.UnixConn).CloseWrite() }

// NetworkRecords asks the keeper for the sandbox's network record.
func (p *Provider) NetworkRecords(ctx context.Context, id string, after uint64) (sandbox.NetworkLog, error) {
	var log sandbox.NetworkLog
	err := p.ask(ctx, "read the network record", id, http.MethodGet, "/network?after="+strconv.FormatUint(after, 10), nil, &log)
	return log, err
}
