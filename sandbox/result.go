package sandbox

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/rein-sh/rein/evidence/clue"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/secret"
)

// callOutcome is what is recorded of a result.
func callOutcome(c Command, r Result, err error) CallOutcome {
	return CallOutcome{
		Tool: c.Tool, OK: err == nil && r.OK(), ExitCode: r.ExitCode, Timeout: r.TimedOut(), DurationMS: r.DurationMS,
		Signal: r.Signal, KilledBy: r.KilledBy, OOMKilled: r.OOMKilled, HeldOpen: r.HeldOpen, PipeStatus: r.PipeStatus,
		OutputBytes: r.Stdout.Bytes + r.Stderr.Bytes,
		Stdout:      OutputSize{r.Stdout.Bytes, r.Stdout.Lines}, Stderr: OutputSize{r.Stderr.Bytes, r.Stderr.Lines},
		Truncated: omitted(r.Stdout)+omitted(r.Stderr) > 0 && c.Stdout == nil && c.Stderr == nil && !r.Background,
		Spill:     r.Spill, Known: r.Known, Background: r.Background, Failure: failure(err),
	}
}

// omitted is how much of an output was left out.
func omitted(o execd.Output) int64 { return o.Bytes - int64(len(o.Head)) - int64(len(o.Tail)) }

// explain sets Why: the cause of a failure in a few words, and what was denied
// to the command meanwhile.
func (o *CallOutcome) explain(callID string, err error) {
	var why []string
	switch {
	case o.Failure != nil:
		why = append(why, fmt.Sprintf("%s: %s", o.Failure.Kind, o.Failure.Message))
	case o.Background || o.OK:
	case o.Timeout:
		why = append(why, fmt.Sprintf("timeout after %d ms", o.DurationMS))
	case o.KilledBy != "":
		why = append(why, o.KilledBy)
	case o.OOMKilled:
		why = append(why, "out of memory")
	case o.Signal != "":
		why = append(why, o.Signal)
	case o.ExitCode == nil:
		why = append(why, "exit code not known")
	default:
		why = append(why, fmt.Sprintf("exit code %d", *o.ExitCode))
	}
	for _, n := range o.Network {
		if n.Verdict == "deny" && n.Of(callID) && len(why) < 4 {
			target := n.Name
			if target == "" {
				target = n.Address
			}
			if n.Port != 0 {
				target = fmt.Sprintf("%s:%d", target, n.Port)
			}
			why = append(why, fmt.Sprintf("denied %s %s (%s)", n.Proto, target, n.Reason))
		}
	}
	o.Why = strings.Join(why, "; ")
}

// mask masks captured output.
func (s *Sandbox) mask(r *Result) {
	if s.opt.Masker == nil {
		return
	}
	r.printed = &[2]execd.Output{r.Stdout, r.Stderr}
	s.maskOutput(&r.Stdout)
	s.maskOutput(&r.Stderr)
}

func (s *Sandbox) maskOutput(o *execd.Output) {
	m := s.opt.Masker
	if omitted(*o) <= 0 { // a value may lie across head and tail
		whole := append(o.Head[:len(o.Head):len(o.Head)], o.Tail...)
		masked := m.Bytes(whole)
		if bytes.Equal(masked, whole) {
			return
		}
		o.Bytes += int64(len(masked) - len(whole))
		o.Lines += newlines(masked) - newlines(whole)
		o.Head, o.Tail, o.HeadLines = masked, nil, newlines(masked)
		return
	}
	// What may be a piece of a value is counted as left out.
	_, end := m.Partial(o.Head)
	start, _ := m.Partial(o.Tail)
	head, tail := o.Head[:len(o.Head)-end], o.Tail[start:]
	maskedHead, maskedTail := m.Bytes(head), m.Bytes(tail)
	o.Bytes += int64(len(maskedHead) - len(head) + len(maskedTail) - len(tail))
	o.Lines += newlines(maskedHead) - newlines(head) + newlines(maskedTail) - newlines(tail)
	o.Head, o.Tail, o.HeadLines = maskedHead, maskedTail, newlines(maskedHead)
	o.Kept = maskKept(o.Kept, m)
}

// maskKept masks the pieces of an output that were kept of what was left out.
func maskKept(kept []clue.Piece, m *secret.Masker) []clue.Piece {
	masked := make([]clue.Piece, len(kept))
	for i, k := range kept {
		start, end := m.Partial(k.Data)
		end = max(start, len(k.Data)-end)
		masked[i] = clue.Piece{Offset: k.Offset + int64(start), Line: k.Line + newlines(k.Data[:start]), Data: m.Bytes(k.Data[start:end])}
	}
	return masked
}

func newlines(b []byte) int64 { return int64(bytes.Count(b, []byte("\n"))) }

// capture bounds the output of a daemon that does not do so itself: of each
// stream the head and the tail, half of max together.
type capture struct {
	max     int
	streams [2]execd.Output
}

func newCapture(limit int) *capture { return &capture{max: limit / 2} }

func (c *capture) add(stderr bool, data []byte) {
	o := &c.streams[0]
	if stderr {
		o = &c.streams[1]
	}
	room := min(max(c.max/5-len(o.Head), 0), len(data))
	if len(o.Tail) > 0 {
		room = 0
	}
	o.Head = append(o.Head, data[:room]...)
	o.Tail = append(o.Tail, data[room:]...)
	if most := c.max - c.max/5; len(o.Tail) > 2*most {
		o.Tail = append(o.Tail[:0], o.Tail[len(o.Tail)-most:]...)
	}
}

// outputs adds what was kept to the counts.
func (c *capture) outputs(stdout, stderr execd.Output) (execd.Output, execd.Output) {
	for i, o := range []*execd.Output{&stdout, &stderr} {
		kept := c.streams[i]
		most := c.max - c.max/5
		o.Head, o.Tail = kept.Head, kept.Tail[max(0, len(kept.Tail)-most):]
		o.HeadLines = newlines(kept.Head)
	}
	return stdout, stderr
}
