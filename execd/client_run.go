package execd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Run runs a command and returns its outcome. each, when not nil, is called
// with every event but pings, in order, from this goroutine; output events do
// not outlive the call. A failing command is an outcome, not an error. With
// Background the outcome is empty and each learns the id from EventInit.
//
// An error is *Error when the daemon refused the command. Any other, ErrCut
// above all, means that what became of the command is not known. A context
// that ends leaves the command running; Interrupt ends it.
func (c *Client) Run(ctx context.Context, req RunRequest, each func(Event)) (Outcome, error) {
	return c.run(ctx, "/command", req, each)
}

// run posts a command to a route that answers with its events.
func (c *Client) run(ctx context.Context, route string, req RunRequest, each func(Event)) (Outcome, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return Outcome{}, fmt.Errorf("execd: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.opts.Load().BaseURL+route, bytes.NewReader(b))
	if err != nil {
		return Outcome{}, fmt.Errorf("execd: %w", err)
	}
	r.Header.Set("Accept", "text/event-stream")
	started := time.Now()
	resp, err := c.do(r, "application/json")
	if err != nil {
		return Outcome{}, err
	}
	defer resp.Body.Close()
	outcome, err := readEvents(resp.Body, each)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return Outcome{}, err
	}
	switch {
	case req.Background && !outcome.ours: // complete means started; how it ends is not known
		outcome.Outcome = Outcome{}
	case outcome.StartedAt.IsZero(): // not our daemon
		outcome.StartedAt = started.UTC()
		if outcome.DurationMS == 0 {
			outcome.DurationMS = time.Since(started).Milliseconds()
		}
		// It says -1 of a command that a signal ended, and no more of one that it
		// ended at its timeout.
		if outcome.killed && req.Timeout > 0 && time.Since(started).Milliseconds() >= req.Timeout {
			outcome.KilledBy = KilledByTimeout
		}
	}
	// Our daemon ends the stream here, so that the connection can be used
	// again; OpenSandbox's would keep us waiting for a second.
	if outcome.ours {
		io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorBody))
	}
	return outcome.Outcome, nil
}

// maxEventLine bounds one event: 1 MiB of output in base64, twice, and room.
const maxEventLine = 8 << 20

// readOutcome is an outcome and whether the daemon is ours.
type readOutcome struct {
	Outcome
	ours   bool
	killed bool // another daemon's command ended by a signal
}

// readEvents reads a stream up to its terminal event.
func readEvents(r io.Reader, each func(Event)) (readOutcome, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	var seen readOutcome
	var long []byte
	var output outputParser
	for {
		line, err := br.ReadSlice('\n')
		if err == bufio.ErrBufferFull || len(long) > 0 {
			if len(long)+len(line) > maxEventLine {
				return seen, fmt.Errorf("execd: an event is longer than %d bytes", maxEventLine)
			}
			long = append(long, line...)
			if err == bufio.ErrBufferFull {
				continue
			}
			line = long
		}
		if len(line) > 0 {
			e, ok := output.parse(line)
			if !ok {
				var pErr error
				if e, ok, pErr = parseEvent(line); pErr != nil {
					return seen, pErr
				}
			}
			if ok {
				if each != nil && e.Type != EventPing {
					each(e)
				}
				if done := seen.add(e); done {
					return seen, notStarted(e)
				}
			}
		}
		long = long[:0]
		if err == io.EOF {
			return seen, ErrCut
		}
		if err != nil {
			return seen, fmt.Errorf("%w: %w", ErrCut, err)
		}
	}
}

// notStarted is the error in which another daemon says that a command could not
// be started: words in place of an exit code.
func notStarted(e Event) error {
	if e.Error == nil || e.Rein != nil || !strings.HasPrefix(e.Error.Value, "fork/exec ") {
		return nil
	}
	return &Error{Status: http.StatusBadRequest, Code: e.Error.Name, Message: e.Error.Value}
}

// parseEvent reads one line: a JSON object, with or without the prefix of
// server-sent events. Blank lines, comments and other fields are none.
func parseEvent(line []byte) (e Event, ok bool, err error) {
	line = bytes.TrimSpace(line)
	if rest, found := bytes.CutPrefix(line, []byte("data:")); found {
		line = bytes.TrimSpace(rest)
	}
	if len(line) == 0 || line[0] != '{' {
		return Event{}, false, nil
	}
	var wire struct {
		Event
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(line, &wire); err != nil {
		return Event{}, false, fmt.Errorf("execd: malformed event: %w", err)
	}
	if wire.Type == "" {
		if wire.Code == "" && wire.Message == "" {
			return Event{}, false, nil
		}
		// An older daemon's way to fail in the middle of a stream.
		return Event{}, false, &Error{Code: wire.Code, Message: wire.Message}
	}
	return wire.Event, true, nil
}

// add takes what an event says of the outcome and reports whether it is the
// terminal one. Against a daemon that knows no outcomes, output is counted and
// the exit code is taken from the event as OpenSandbox's clients do.
func (o *readOutcome) add(e Event) (done bool) {
	switch e.Type {
	case EventStdout, EventStderr:
		out := &o.Stdout
		if e.Type == EventStderr {
			out = &o.Stderr
		}
		if e.Rein != nil && e.Rein.Data != nil {
			out.Bytes += int64(len(e.Rein.Data))
			out.Lines += int64(bytes.Count(e.Rein.Data, []byte("\n")))
			return false
		}
		out.Bytes += int64(len(e.Text))
		out.Lines++
		if e.Text != "\n" {
			out.Bytes++ // the newline that is not sent
		}
		return false
	case EventComplete, EventError:
	default:
		return false
	}
	if e.Rein != nil && e.Rein.Outcome != nil {
		o.Outcome, o.ours = *e.Rein.Outcome, true
		return true
	}
	o.DurationMS = e.ExecutionTime
	switch {
	case e.Type == EventComplete:
		zero := 0
		o.ExitCode = &zero
	case e.Error != nil:
		n, err := strconv.Atoi(e.Error.Value)
		switch {
		case err == nil && n >= 0:
			o.ExitCode = &n
		case err == nil:
			o.killed, o.Signal = true, signalIn(e.Error.Traceback)
		}
	}
	return true
}

// IsNotFound reports whether err says that a command or file does not exist.
func IsNotFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusNotFound
}
