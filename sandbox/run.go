package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
)

// Run runs one command and returns when it has ended, or at once when it is in
// the background. Stdin of a command is at end-of-file.
//
// An error means that it is not known that the command ran, or how it ended:
//
//   - KindInvalid, KindNotFound, KindDenied, KindUnsupported: it was refused;
//     nothing ran.
//   - KindLost: the sandbox ended under it; the cause names the provider's
//     reason.
//   - KindUnavailable: the connection was lost. Run has asked by call id and the
//     call never began, or (with Stdout or Stderr) the Result is complete but
//     the output is not. Run never runs a call again.
//   - KindTimeout: the connection was lost and execd could not say what became
//     of the call; or ctx ended first, and its error is in the chain. Then an
//     interrupt was sent and its outcome awaited for at most InterruptTimeout;
//     when that arrived the Result holds it. A command in a session of another's
//     execd is ended by closing its connection, and nothing is awaited.
//
// Without Stdout and Stderr the output is captured at the source: at most
// c.Capture bytes of both streams, head and tail. Captured output is
// masked with Options.Masker as it leaves: where a mask changes the length,
// Bytes, Lines and HeadLines of that stream are changed with it, so that what
// was left out is still Bytes - len(Head) - len(Tail); the record has the true
// counts. Next to an omission the beginning or end of a value that may have
// been cut is left out, too.
//
// With Stdout or Stderr set they receive the exact bytes, unmasked: who shows
// them wraps them with secret.Masker.Writer.
func (s *Sandbox) Run(ctx context.Context, c Command) (Result, error) {
	c, err := s.prepare(ctx, c)
	if err != nil {
		return Result{}, err
	}
	if err := s.append(audit.KindCallIntent, c.CallID, s.callIntent(c)); err != nil {
		return Result{}, err
	}
	start, since := s.opt.Now(), s.networkSeen()
	s.begin(c.CallID)
	s.settle(c.CallID) // the outcome is recorded here, whoever else asks for it
	call := &call{sandbox: s, command: c, begun: time.Now(), started: make(chan struct{}), broken: make(chan struct{})}
	r, err := call.run(ctx)
	outcome := callOutcome(c, r, err)
	outcome.Verified = call.verified
	if outcome.DurationMS == 0 && (err != nil || r.Background) { // else execd has measured it, and the answer may have been long under way
		outcome.DurationMS = s.since(start)
	}
	var anchorErr error
	r.Network, anchorErr = s.network(ctx, c.CallID, since, &outcome)
	outcome.explain(c.CallID, err)
	recordErr := s.append(audit.KindCallOutcome, c.CallID, outcome)
	if r.Background {
		s.leave(r.CallID)
	} else {
		s.finish(c.CallID)
	}
	s.mask(&r)
	return r, also(err, anchorErr, recordErr)
}

// prepare fills in what a command leaves open and refuses what cannot be run.
func (s *Sandbox) prepare(ctx context.Context, c Command) (Command, error) {
	if err := s.reachable(ctx, "run"); err != nil {
		return c, err
	}
	if err := ctx.Err(); err != nil {
		return c, &Error{Kind: KindTimeout, Op: "run", Subject: c.CallID, Err: context.Cause(ctx)}
	}
	if c.CallID == "" {
		c.CallID = "call-" + strings.ToLower(rand.Text())
	}
	if c.Tool == "" {
		c.Tool = "host"
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Capture == 0 || c.Capture > execd.MaxCapture {
		c.Capture = execd.MaxCapture
	}
	bad := func(format string, args ...any) (Command, error) {
		return c, &Error{Kind: KindInvalid, Op: "run", Subject: c.CallID, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case !execd.ValidID(c.CallID):
		c.CallID = ""
		return bad("a call id has 1 to 64 letters, digits, '-' or '_'")
	case c.Capture < 0:
		return bad("%d bytes cannot be captured", c.Capture)
	case c.Timeout < time.Millisecond:
		return bad("%v is no timeout", c.Timeout)
	case strings.TrimSpace(c.Shell) == "":
		return bad("the command is empty")
	case strings.Contains(c.Shell, "\x00"):
		return bad("the command holds a NUL byte, which no shell takes")
	case len(c.Argv) > 0 && (c.Session != "" || c.Argv[0] == "" || strings.Contains(strings.Join(c.Argv, ""), "\x00")):
		return bad("a program and its arguments have a name, hold no NUL byte, and are started in no session")
	case c.Fixed && len(c.Argv) == 0:
		return bad("only a program that is given as Argv can be looked for where it is fixed")
	case c.Session != "" && len(c.Env) > 0 && !s.features.Sessions:
		return c, &Error{Kind: KindUnsupported, Op: "run", Subject: c.CallID, Err: errors.New("this sandbox's execd takes no variables for a command in a session"),
			Hint: "export them in the command"} // else they would be left out without a word
	case c.Background && c.Session != "":
		return bad("a session runs nothing in the background")
	case c.Background && (c.Stdout != nil || c.Stderr != nil):
		return bad("a command in the background streams nothing: its output is in its log")
	}
	return c, nil
}

// maxSummary is how much of a command is recorded.
const maxSummary = 2 << 10

func (s *Sandbox) callIntent(c Command) CallIntent {
	sum := sha256.Sum256([]byte(c.Shell))
	return CallIntent{Tool: c.Tool, Session: c.Session, Command: s.summary(c.Shell), Bytes: len(c.Shell), SHA256: hex.EncodeToString(sum[:]), Cwd: c.Cwd,
		Env: names(c.Env), TimeoutMS: c.Timeout.Milliseconds(), Background: c.Background, Repeat: c.Repeat}
}

// summary is what is recorded of a command's text.
func (s *Sandbox) summary(shell string) string {
	summary := s.opt.Masker.String(shell) // before the cut, which could split a value
	if len(summary) > maxSummary {
		cut := maxSummary
		for !utf8.RuneStart(summary[cut]) {
			cut--
		}
		summary = summary[:cut] + "…"
	}
	return summary
}

// call is one command on its way.
type call struct {
	sandbox *Sandbox
	command Command

	begun    time.Time     // when it was sent
	id       string        // execd's id of it
	known    bool          // the id had been used before
	verified bool          // the outcome was asked for
	ended    bool          // and the command had ended
	started  chan struct{} // closed when execd has said the id
	broken   chan struct{} // closed when a writer failed
	writeErr error
	bytes    int64 // output received

	interrupted bool // we have ended it
	capture     *capture
}

func (c *call) request() execd.RunRequest {
	cmd, f := c.command, c.sandbox.features
	req := execd.RunRequest{Command: cmd.Shell, Cwd: cmd.Cwd, Background: cmd.Background,
		Timeout: cmd.Timeout.Milliseconds(), Envs: c.environment()}
	if req.Cwd == "" && !f.CallIDs && cmd.Session == "" { // another daemon's working directory is its own
		req.Cwd = c.sandbox.Info().Cwd
	}
	if f.CallIDs {
		req.Rein = &execd.RunOptions{ID: cmd.CallID, Spill: f.Spill, Raw: c.streaming()}
		if f.Capture && !c.streaming() {
			req.Rein.Capture = int64(cmd.Capture)
		}
		if f.Argv {
			req.Rein.Argv, req.Rein.Fixed = cmd.Argv, cmd.Fixed
		}
	}
	if !c.streaming() && !(f.CallIDs && f.Capture) {
		c.capture = newCapture(cmd.Capture)
	}
	return req
}

func (c *call) streaming() bool { return c.command.Stdout != nil || c.command.Stderr != nil }

// run runs the command and makes sure of its outcome.
func (c *call) run(ctx context.Context) (Result, error) {
	s := c.sandbox
	c.id = c.command.CallID
	stream, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	looking, stopLooking := context.WithCancel(ctx)
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() { defer close(watched); c.watch(ctx, looking, done, cancel) }()
	outcome, err := c.send(stream)
	close(done)
	stopLooking()
	<-watched

	r := Result{CallID: c.id, SandboxID: s.id, Outcome: outcome, Known: c.known}
	// An error inside the stream says that something went wrong with a command
	// that had begun: no more than a stream that was cut.
	if e, ok := errors.AsType[*execd.Error](err); err != nil && (!ok || undecided(e)) {
		r, err = c.verify(ctx, r, err)
	} else if ok {
		return r, s.fault(ctx, "run", c.command.CallID, err)
	}
	if err == nil && c.command.Background && !c.ended {
		r.Outcome, r.Background = execd.Outcome{}, true
		r.LogPath, err = s.logPath(ctx, c.id)
	}
	if c.capture != nil {
		r.Stdout, r.Stderr = c.capture.outputs(r.Stdout, r.Stderr)
	}
	if err != nil {
		return r, err
	}
	c.blame(ctx, &r)
	return r, c.fate(ctx, r)
}

// send has execd run the command.
func (c *call) send(ctx context.Context) (execd.Outcome, error) {
	client := c.sandbox.client
	if c.command.Session != "" {
		return client.RunInSession(ctx, c.command.Session, c.request(), c.event)
	}
	return client.Run(ctx, c.request(), c.event)
}

// fate is the error of a call whose outcome is known, but is not its own.
func (c *call) fate(ctx context.Context, r Result) error {
	s := c.sandbox
	switch {
	case r.KilledBy == execd.KilledByShutdown:
		if lost := s.lost(ctx, "run"); lost != nil {
			return lost
		}
		return &Error{Kind: KindLost, Op: "run", Subject: s.id, Err: errors.New("execd was shut down")}
	case c.writeErr != nil:
		return &Error{Kind: KindHost, Op: "run", Subject: c.id, Err: c.writeErr}
	case r.KilledBy == execd.KilledByInterrupt && ctx.Err() != nil:
		return &Error{Kind: KindTimeout, Op: "run", Subject: c.id, Err: context.Cause(ctx)}
	}
	return nil
}

// event takes one event of the stream.
func (c *call) event(e execd.Event) {
	switch e.Type {
	case execd.EventInit:
		if !c.sandbox.features.CallIDs && e.Text != "" {
			c.id = e.Text
		}
		c.known = e.Rein != nil && e.Rein.Known
		select {
		case <-c.started:
		default:
			close(c.started)
		}
	case execd.EventStdout, execd.EventStderr:
		data := outputOf(e)
		c.bytes += int64(len(data))
		if c.command.Progress != nil {
			c.command.Progress(c.bytes)
		}
		if c.capture != nil {
			c.capture.add(e.Type == execd.EventStderr, data)
			return
		}
		w := c.command.Stdout
		if e.Type == execd.EventStderr {
			w = c.command.Stderr
		}
		if w == nil || c.writeErr != nil {
			return
		}
		if _, err := w.Write(data); err != nil {
			c.writeErr = err
			close(c.broken)
		}
	}
}

// outputOf is the bytes of an output event; plain OpenSandbox sends lines
// without their newline, and an empty line as one.
func outputOf(e execd.Event) []byte {
	if e.Rein != nil && e.Rein.Data != nil {
		return e.Rein.Data
	}
	return append(bytes.TrimSuffix([]byte(e.Text), []byte("\n")), '\n')
}
