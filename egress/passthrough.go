package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/rein-sh/rein/egress/policy"
)

const (
	helloTimeout = 10 * time.Second // for a client's first message
	retryTimeout = 30 * time.Second // for a server's, and a client's second

	// ruleTLS is the Rule of what is not TLS as RFC 8446 says, or hides where
	// it goes, whatever rule of the policy speaks of its host.
	ruleTLS = "tls.hello"
)

// serveTLS compares the server that a client asks for with the one the
// connection was allowed for, and then carries the bytes as they are.
func serveTLS(ctx context.Context, f *flow) error {
	h, err := f.forwardHello(ctx)
	if err != nil {
		return err
	}
	if h.offers13 {
		if err := f.watchRetry(ctx, h); err != nil {
			return err
		}
	}
	return splice(ctx, f)
}

// forwardHello judges the client's first message and sends it on.
func (f *flow) forwardHello(ctx context.Context) (hello, error) {
	var raw []byte
	var h hello
	err := within(ctx, helloTimeout, func() (err error) {
		raw, h, err = readHello(f.inside)
		return err
	}, f.inside)
	if len(raw) == 0 && err != nil {
		return h, fmt.Errorf("the client said nothing: %w", err)
	}
	return h, f.sendHello(raw, h, err)
}

// sendHello sends on what was read of a client, when it may. bad is what is
// wrong with it.
func (f *flow) sendHello(raw []byte, h hello, bad error) error {
	var err error
	if bad == nil {
		err = f.judgeServer(h.serverName)
	} else {
		err = f.judgeNoHello(bad)
	}
	if err == nil {
		_, err = f.outside.Write(raw)
	}
	return err
}

// judgeNoHello refuses what is not TLS as it should be, unless the policy only
// reports.
func (f *flow) judgeNoHello(bad error) error {
	v := policy.Verdict{Proto: policy.TLS, Rule: ruleTLS,
		Reason: fmt.Sprintf("%s allows TLS only: %v", f.verdict.Rule, explain(bad))}
	const noName = "!" // no policy allows it
	if err := f.judgeServer(noName); err != nil || !f.verdict.Reported {
		return &refusal{v}
	}
	f.gateway.mu.Lock()
	defer f.gateway.mu.Unlock()
	f.verdict.Rule, f.verdict.Reason = v.Rule, v.Reason
	return nil
}

// explain says what an error of reading means.
func explain(err error) error {
	switch {
	case isTimeout(err):
		return fmt.Errorf("its first message was not complete after %v", helloTimeout)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("its first message was cut short")
	}
	return err
}

// watchRetry passes on how a server of TLS 1.3 begins. When it asks for a
// second ClientHello, that has to name the same server.
func (f *flow) watchRetry(ctx context.Context, h hello) error {
	var again bool
	err := within(ctx, retryTimeout, func() (err error) {
		again, err = f.passPrefix()
		return err
	}, f.outside)
	if err != nil || !again {
		return err
	}
	var raw []byte
	var second hello
	err = within(ctx, retryTimeout, func() (err error) {
		raw, second, err = readSecondHello(f.inside, f.outside)
		return err
	}, f.inside)
	switch {
	case err != nil && len(raw) == 0:
		return err
	case err == nil && second.serverName != h.serverName:
		err = errors.New("its second ClientHello names another server than the first")
	}
	return f.sendHello(raw, second, err)
}

// passPrefix passes on a server's first bytes until they show whether it asks
// again, and then all of the record in which it does.
func (f *flow) passPrefix() (again bool, err error) {
	first := make([]byte, 0, retryPrefix)
	for {
		n, err := f.outside.Read(first[len(first):retryPrefix])
		if _, werr := f.inside.Write(first[len(first) : len(first)+n]); werr != nil {
			return false, werr
		}
		first = first[:len(first)+n]
		again, decided := asksAgain(first)
		switch {
		case again:
			size := recordHeader + int64(binary.BigEndian.Uint16(first[recordHeader-2:]))
			_, err := io.CopyN(f.inside, f.outside, size-retryPrefix)
			return true, err
		case decided:
			return false, nil
		case err == io.EOF:
			return false, nil
		case err != nil:
			return false, err
		}
	}
}

// within has reads of c fail after some time, or when ctx ends, while do runs.
func within(ctx context.Context, timeout time.Duration, do func() error, c net.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) }) // else it is closed
	err := do()
	if !stop() {
		return context.Cause(ctx)
	}
	return errors.Join(err, c.SetReadDeadline(time.Time{}))
}
