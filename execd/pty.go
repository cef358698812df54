package execd

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"
)

// Bounds of terminals.
const (
	MaxTerminals   = 16
	TerminalReplay = 1 << 20          // bytes of output kept for who attaches later
	TerminalIdle   = 10 * time.Minute // after which one that has ended, or never began, is forgotten
	TerminalStall  = 1 << 20          // bytes that wait for a slow reader before the program does
	maxTerminalMsg = TerminalReplay + 64<<10
)

// TerminalRequest is the body of POST /pty.
type TerminalRequest struct {
	Cwd string `json:"cwd,omitempty"`
	// Command is shell text; empty is an interactive shell.
	Command string `json:"command,omitempty"`
	// Envs adds to the environment; rein's addition. TERM is xterm-256color
	// unless it is given.
	Envs map[string]string `json:"envs,omitempty"`
}

// TerminalStatus is the answer of GET /pty/{id}.
type TerminalStatus struct {
	ID      string `json:"session_id"`
	Running bool   `json:"running"`
	// Offset counts the bytes of output so far.
	Offset int64 `json:"output_offset"`
	// ExitCode is set when the program has ended: 128 plus the signal's number
	// when one ended it. Rein's addition.
	ExitCode *int `json:"exit_code,omitempty"`
}

// First bytes of the binary frames of a terminal's socket.
const (
	FrameInput  = 0x00 // to the daemon
	FrameStdout = 0x01
	FrameStderr = 0x02 // with pipes
	FrameReplay = 0x03 // 8 bytes of offset, big endian, then output from there
	// FrameReplayStderr is FrameReplay of standard error, for who asks with
	// apart=1; rein's addition. Others get both streams as FrameReplay.
	FrameReplayStderr = 0x04
)

// TerminalMessage is a text frame of a terminal's socket, in either direction.
type TerminalMessage struct {
	// Type is stdin, signal, resize, ping and (rein's addition) eof to the
	// daemon; connected, exit, error and pong from it.
	Type     string `json:"type"`
	Data     string `json:"data,omitempty"`
	Signal   string `json:"signal,omitempty"`
	Cols     int    `json:"cols,omitempty"`
	Rows     int    `json:"rows,omitempty"`
	ID       string `json:"session_id,omitempty"`
	Mode     string `json:"mode,omitempty"` // pty or pipe
	ExitCode *int   `json:"exit_code,omitempty"`
	Code     string `json:"code,omitempty"`
	Error    string `json:"error,omitempty"`
	// Status, of an error before the program has started, is the status that it
	// has in an answer (rein's addition).
	Status int `json:"status,omitempty"`
}

// CloseTakenOver is the close code of a socket that another has taken over.
const CloseTakenOver = 4001

// Codes of a terminal besides those of other answers.
const (
	CodeAlreadyConnected = "ALREADY_CONNECTED" // 409
	CodeSessionGone      = "SESSION_GONE"
	CodeStartFailed      = "START_FAILED"
	CodeStdinFailed      = "STDIN_WRITE_FAILED"
	CodeInvalidFrame     = "INVALID_FRAME"
	CodeTakenOver        = "TAKEN_OVER"
)

// CreateTerminal makes a terminal. Its program starts when it is first attached
// to. CodeTooMany beyond MaxTerminals.
func (c *Client) CreateTerminal(ctx context.Context, req TerminalRequest) (string, error) {
	var id SessionID
	if err := c.call(ctx, http.MethodPost, "/pty", nil, req, &id); err != nil {
		return "", err
	}
	if id.ID == "" {
		return "", errors.New("execd: the answer to POST /pty names no terminal")
	}
	return id.ID, nil
}

// TerminalStatus returns what is known of a terminal; CodeSessionNotFound when
// there is none with this id.
func (c *Client) TerminalStatus(ctx context.Context, id string) (TerminalStatus, error) {
	var st TerminalStatus
	err := c.call(ctx, http.MethodGet, "/pty/"+url.PathEscape(id), nil, nil, &st)
	return st, err
}

// DeleteTerminal ends a terminal and everything that runs in it.
func (c *Client) DeleteTerminal(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/pty/"+url.PathEscape(id), nil, nil, nil)
}

// AttachOptions say how to attach to a terminal.
type AttachOptions struct {
	// Pipe gives the program pipes and no terminal, when this starts it.
	Pipe bool
	// Cols and Rows are the terminal's size when this starts it; 0: 80 by 24.
	Cols, Rows int
	// Since, when not negative, asks for kept output from this offset on.
	Since int64
	// Takeover detaches who is attached; else that is CodeAlreadyConnected.
	Takeover bool
}

// Terminal is a connection to a terminal. Next is called by one goroutine, the
// other methods by any.
type Terminal struct {
	ws *websocket.Conn
	// Pipe says that the program has pipes.
	Pipe bool
}

// TerminalEvent is one of: output, kept output from an offset, the end.
type TerminalEvent struct {
	Data   []byte // valid until the next call
	Stderr bool   // with pipes
	// Replay says that Data is kept output from Offset on.
	Replay bool
	Offset int64
	// ExitCode is set when the program has ended: nothing follows.
	ExitCode *int
}

// ErrTakenOver is the end of a connection to a terminal that another took over.
var ErrTakenOver = errors.New("execd: the terminal has been attached to by another")

// Attach connects to a terminal, starting its program if that has not begun.
func (c *Client) Attach(ctx context.Context, id string, o AttachOptions) (*Terminal, error) {
	q := url.Values{"apart": {"1"}}
	if o.Pipe {
		q.Set("pty", "0")
	}
	if o.Since >= 0 {
		q.Set("since", strconv.FormatInt(o.Since, 10))
	}
	if o.Takeover {
		q.Set("takeover", "1")
	}
	if o.Cols > 0 && o.Rows > 0 {
		q.Set("cols", strconv.Itoa(o.Cols))
		q.Set("rows", strconv.Itoa(o.Rows))
	}
	opts := c.opts.Load()
	header := http.Header{}
	maps.Copy(header, opts.Header)
	if !opts.Token.IsZero() {
		header.Set(TokenHeader, opts.Token.Reveal())
	}
	ws, resp, err := websocket.Dial(ctx, opts.BaseURL+"/pty/"+url.PathEscape(id)+"/ws?"+q.Encode(),
		&websocket.DialOptions{HTTPClient: c.http, HTTPHeader: header})
	if err != nil {
		if resp != nil && resp.StatusCode >= 300 && resp.Body != nil {
			defer resp.Body.Close()
			return nil, responseError(resp)
		}
		return nil, fmt.Errorf("execd: %w", err)
	}
	ws.SetReadLimit(maxTerminalMsg)
	return &Terminal{ws: ws, Pipe: o.Pipe}, nil
}

// Next returns what comes next. The error is ErrTakenOver, an *Error of the
// daemon, or one of the connection, after which the program goes on without it.
func (t *Terminal) Next(ctx context.Context) (TerminalEvent, error) {
	for {
		kind, b, err := t.ws.Read(ctx)
		if err != nil {
			if websocket.CloseStatus(err) == CloseTakenOver {
				return TerminalEvent{}, ErrTakenOver
			}
			if ctx.Err() != nil {
				return TerminalEvent{}, context.Cause(ctx)
			}
			return TerminalEvent{}, fmt.Errorf("execd: terminal: %w", err)
		}
		if kind == websocket.MessageBinary {
			if e, ok := outputFrame(b); ok {
				return e, nil
			}
			continue
		}
		var m TerminalMessage
		if err := json.Unmarshal(b, &m); err != nil {
			return TerminalEvent{}, fmt.Errorf("execd: terminal: malformed message: %w", err)
		}
		switch m.Type {
		case "connected":
			t.Pipe = m.Mode == "pipe"
		case "exit":
			code := -1
			if m.ExitCode != nil {
				code = *m.ExitCode
			}
			return TerminalEvent{ExitCode: &code}, nil
		case "error":
			switch m.Code {
			case CodeTakenOver:
				return TerminalEvent{}, ErrTakenOver
			case CodeStdinFailed, CodeInvalidFrame: // the program reads no more, or the daemon is older
				continue
			}
			return TerminalEvent{}, terminalError(m)
		}
	}
}

// terminalError is the error that a message tells of. That a program could not
// be started is the request's fault, where nothing else is said.
func terminalError(m TerminalMessage) *Error {
	e := &Error{Code: m.Code, Message: m.Error}
	switch {
	case m.Status >= 400 && m.Status < 600:
		e.Status = m.Status
	case m.Code == CodeStartFailed:
		e.Status = http.StatusUnprocessableEntity
	}
	return e
}

// outputFrame reads a binary frame of a daemon.
func outputFrame(b []byte) (TerminalEvent, bool) {
	if len(b) == 0 {
		return TerminalEvent{}, false
	}
	switch b[0] {
	case FrameStdout, FrameStderr:
		return TerminalEvent{Data: b[1:], Stderr: b[0] == FrameStderr}, true
	case FrameReplay, FrameReplayStderr:
		if len(b) < 9 {
			return TerminalEvent{}, false
		}
		return TerminalEvent{Data: b[9:], Stderr: b[0] == FrameReplayStderr, Replay: true, Offset: int64(binary.BigEndian.Uint64(b[1:]) &^ (1 << 63))}, true
	}
	return TerminalEvent{}, false
}

// Write types p.
func (t *Terminal) Write(ctx context.Context, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), 32<<10)
		if err := t.ws.Write(ctx, websocket.MessageBinary, append([]byte{FrameInput}, p[:n]...)); err != nil {
			return fmt.Errorf("execd: terminal: %w", err)
		}
		p = p[n:]
	}
	return nil
}

func (t *Terminal) send(ctx context.Context, m TerminalMessage) error {
	b, err := json.Marshal(m)
	if err == nil {
		err = t.ws.Write(ctx, websocket.MessageText, b)
	}
	if err != nil {
		return fmt.Errorf("execd: terminal: %w", err)
	}
	return nil
}

// CloseInput ends the input of a program with pipes.
func (t *Terminal) CloseInput(ctx context.Context) error {
	return t.send(ctx, TerminalMessage{Type: "eof"})
}

// Resize says how large the terminal is.
func (t *Terminal) Resize(ctx context.Context, cols, rows int) error {
	return t.send(ctx, TerminalMessage{Type: "resize", Cols: cols, Rows: rows})
}

// Signal sends a signal, such as "SIGINT", to what is in the foreground.
func (t *Terminal) Signal(ctx context.Context, name string) error {
	return t.send(ctx, TerminalMessage{Type: "signal", Signal: name})
}

// Close ends the connection and leaves the program running.
func (t *Terminal) Close() error {
	err := t.ws.CloseNow()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
