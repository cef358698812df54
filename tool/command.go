package tool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/sandbox"
)

// runTool has no maximum in its schema where a limit of the run is one: that may
// be changed, and the schema may not.
func (b *builtin) runTool() Tool {
	def, most := whole(b.began.CallTimeout), whole(b.began.MaxCallTimeout)
	return Tool{Definition: Definition{
		Name: RunCommand,
		Description: fmt.Sprintf("Run one shell command in the sandbox and wait for its end. Each command is a fresh process in %s: commands share files, not variables or the directory; "+
			"stdin is empty, so nothing may ask questions. "+
			"It is killed, with everything it started, after %d s (timeout_seconds may ask for up to %d); timeout is then true and the output up to there is kept. "+
			"Longer work: background true returns at once with an id and the path of its log, and a later call with wait set to that id waits for its end; "+
			"while it runs background.running is true and exit_code null. "+
			"ok is true only for exit code 0. On a non-zero exit read stderr first and do not repeat the same command. "+
			"At most %s and %d lines of output are shown: its beginning, its end, and from between the lines that look decisive (errors, failed tests and the like); "+
			"what was left out is counted in omitted and where it was, and all of it is in the file named by spill: read that with read_file from the line named there, or search it with a command. "+
			"With output \"tail\" only the last lines are shown (lines, default %d), with the spill's path and line count. Colours and overwritten progress are not shown. "+
			"binary names streams that are no text, of which U+FFFD stands for bytes that cannot be shown: look at such data with od or base64. Prefer quiet commands. Use read_file for files over 1 MB. "+
			"Processes that a command leaves behind are killed when it ends, unless it is in the background.",
			b.cwd, def, most, kib(b.began.OutputBytes), b.began.OutputLines, DefaultTailLines),
		Schema: objectSchema(nil,
			property{"command", `{"type":"string","minLength":1,"description":"one shell command; required unless wait is given"}`},
			property{"timeout_seconds", fmt.Sprintf(`{"type":"integer","minimum":1,"description":"default %d, at most %d; with background at most what is left of the task's time; with wait how long to wait"}`,
				def, most)},
			property{"cwd", `{"type":"string","minLength":1,"description":"directory to start in; default is the workspace"}`},
			property{"output", `{"type":"string","enum":["preview","tail"],"description":"what is shown of long output; default preview"}`},
			property{"lines", fmt.Sprintf(`{"type":"integer","minimum":1,"description":"with output tail: how many lines, default %d"}`, DefaultTailLines)},
			property{"background", `{"type":"boolean","description":"return at once and let it run on"}`},
			property{"wait", `{"type":"string","minLength":1,"description":"id of a background command: wait for its end instead of starting one"}`}),
	}, Run: b.run}
}

type runArgs struct {
	Command    string  `json:"command"`
	Timeout    float64 `json:"timeout_seconds"`
	Cwd        string  `json:"cwd"`
	Output     string  `json:"output"`
	Lines      float64 `json:"lines"`
	Background bool    `json:"background"`
	Wait       string  `json:"wait"`
}

// DefaultTailLines is how many lines output "tail" shows.
const DefaultTailLines = 50

// last is how many lines are shown of the end alone; 0 where the preview is.
func (a runArgs) last(c Call) int {
	switch {
	case a.Output != "tail":
		return 0
	case a.Lines > 0:
		return int(min(a.Lines, float64(c.limits.OutputLines)))
	}
	return DefaultTailLines
}

// minCapture is the least of a command's output that is brought out of the
// sandbox, in bytes. It is more than is shown, because masks and cuts at lines
// need some room, and much less than execd would send.
const minCapture = 256 << 10

func (b *builtin) run(ctx context.Context, c Call) Result {
	args, err := decode[runArgs](c)
	if err != nil {
		return Fail(OpArguments, CodeInvalidArguments, err.Error(), "")
	}
	switch {
	case args.Lines != 0 && args.Output != "tail":
		return Fail(OpArguments, CodeInvalidArguments, "arguments/lines: it goes with output \"tail\"", "leave it out, or add \"output\": \"tail\"")
	case args.Wait != "" && (args.Command != "" || args.Background || args.Cwd != ""):
		return Fail(OpArguments, CodeInvalidArguments, "arguments/wait: it goes with nothing but timeout_seconds and output", "to start a command leave wait out")
	case args.Wait == "" && args.Command == "":
		return Fail(OpArguments, CodeInvalidArguments, "arguments/command: it is missing", "give a command, or wait for one in the background")
	}
	timeout, res := b.timeout(c, args)
	if res != nil {
		return *res
	}
	if args.Wait != "" {
		return b.wait(ctx, c, args, timeout)
	}
	r, err := b.runCommand(ctx, sandbox.Command{
		CallID: c.ID, Tool: RunCommand, Shell: args.Command, Cwd: args.Cwd, Timeout: timeout,
		Background: args.Background, Progress: c.Progress, Capture: max(minCapture, 4*c.limits.OutputBytes),
	})
	shown := b.shown(c, r, args.last(c))
	if err != nil {
		shown.Err = Explain(OpRun, b.Sandbox.ID(), err)
	}
	shown.Diagnosis = b.diagnose(ctx, &shown, args.Cwd)
	return shown
}

// timeout is how long this call may take. Work in the background may take what
// is left of the run, if the sandbox is not about to end before that.
func (b *builtin) timeout(c Call, args runArgs) (time.Duration, *Result) {
	asked := seconds(args.Timeout)
	if args.Background {
		return b.backgroundTimeout(c, asked)
	}
	if most := c.limits.MaxCallTimeout; asked > most {
		if !c.Begun { // that had begun when it might
			r := Fail(OpArguments, CodeTimeoutTooLong, fmt.Sprintf("arguments/timeout_seconds: %d is more than %d", whole(asked), whole(most)),
				"ask for less, or run the command with background and wait for it")
			return 0, &r
		}
		asked = most
	}
	return b.callTimeout(asked, asked > 0 && args.Wait == "", c.Begun)
}

func (b *builtin) backgroundTimeout(c Call, asked time.Duration) (time.Duration, *Result) {
	left := b.Budget.Remaining()
	if asked == 0 || asked > left {
		asked = left
	}
	if asked <= 0 {
		r := b.explain(OpRun, &budget.Breach{Limit: budget.LimitWallTime, Flag: budget.LimitWallTime.Flag(),
			Used: int64(c.limits.MaxWallTime), Max: int64(c.limits.MaxWallTime)})
		return 0, &r
	}
	if c.Begun || b.Left == nil {
		return asked, nil
	}
	// What it prints gives the sandbox more time, so only the end that is near
	// bounds it: nearer than a call may take by default.
	if left = b.Left(); left >= c.limits.CallTimeout {
		return asked, nil
	}
	return fits(asked, left, true)
}

// callTimeout is how long a call that asks for so long may take, 0 or less being
// the default. It ends before the sandbox has to: all of it, where it needs all
// of what it asks for, is not begun when less is left, and another is given
// less. One that had begun before rein died is not refused for the sandbox's
// end, as it is only asked for.
func (b *builtin) callTimeout(asked time.Duration, all, begun bool) (time.Duration, *Result) {
	timeout, err := b.Budget.CallTimeout(asked)
	if err != nil {
		r := b.explain(OpRun, err)
		return 0, &r
	}
	if begun || b.Left == nil {
		return timeout, nil
	}
	return fits(timeout, b.Left(), all)
}

// leastCall is the least time in which a command that asked for none is begun.
const leastCall = time.Second

// fits is a timeout that ends before the sandbox has to. A call that was asked
// to take longer is not begun, since it would be cut short.
func fits(timeout, left time.Duration, asked bool) (time.Duration, *Result) {
	if timeout <= left || !asked && left >= leastCall {
		return min(timeout, left), nil
	}
	e := &Error{Class: Classify(OpRun, CodeExpiring), Code: CodeExpiring,
		Message: "the sandbox ends soon, since nothing new came out of it; no call is begun any more", Hint: "give your final answer"}
	if left >= leastCall {
		e.Message = fmt.Sprintf("the sandbox ends soon, since nothing new came out of it: %d s are left for a call, and this one may take %d s", whole(left), whole(timeout))
		e.Hint = fmt.Sprintf("begin what takes at most %d s, with timeout_seconds where a tool has it; a result that is new gives the sandbox more time", whole(left))
	}
	return 0, &Result{Err: e}
}

// wait polls a background command: its result when it has ended in time, else
// what it has printed so far.
func (b *builtin) wait(ctx context.Context, c Call, args runArgs, timeout time.Duration) Result {
	id := args.Wait
	short, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := b.Sandbox.Wait(short, id)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return b.explain(OpWait, err)
	}
	status, fault := b.Sandbox.Status(ctx, id)
	if fault != nil {
		return b.explain(OpWait, fault)
	}
	bg := &Background{ID: id, LogPath: status.LogPath, Running: status.Running, Bytes: status.Bytes, Lines: status.Lines}
	if !status.Running {
		if status.Result != nil {
			r = *status.Result
		}
		res := b.shown(c, r, args.last(c))
		res.Background = bg
		if res.Stdout == "" && res.Stderr == "" && status.Bytes > 0 {
			b.showLog(ctx, c, &res, status, args.last(c))
		}
		res.Diagnosis = b.diagnose(ctx, &res, "")
		return res
	}
	res := Result{Background: bg, OutputBytes: status.Bytes}
	b.showLog(ctx, c, &res, status, args.last(c))
	return res
}

// showLog shows the end of a background command's log as stdout: both streams,
// in the order they came.
func (b *builtin) showLog(ctx context.Context, c Call, res *Result, status sandbox.CommandStatus, last int) {
	from := max(0, status.Bytes-int64(c.limits.OutputBytes))
	data, _, err := b.Sandbox.Logs(ctx, status.CallID, from)
	if err != nil {
		res.Err = Explain(OpWait, b.Sandbox.ID(), err)
		return
	}
	data = data[:min(len(data), c.limits.OutputBytes)]
	shown := evidence.Show(evidence.Stream{
		Bytes: from + int64(len(data)), Lines: max(status.Lines, 1), Tail: data,
	}, evidence.Stream{}, evidence.Options{Bytes: c.limits.OutputBytes, Lines: c.limits.OutputLines, Last: last, Masker: b.Masker})
	res.Stdout, res.Stderr = shown.Stdout.Text, ""
	res.account(shown)
}

// result turns the result of a command into that of the call.
func (b *builtin) result(c Call, r sandbox.Result) Result { return b.shown(c, r, 0) }

// shown is result with no more than so many lines of the end; 0 for a preview.
func (b *builtin) shown(c Call, r sandbox.Result, last int) Result {
	stdout, stderr := r.Printed()
	res := Result{
		OK: r.OK(), ExitCode: r.ExitCode, Timeout: r.TimedOut(), DurationMS: r.DurationMS, Signal: r.Signal,
		OOMKilled: r.OOMKilled, StdoutHeldOpen: r.HeldOpen, PipeStatus: r.PipeStatus, Network: r.Network,
		OutputBytes: stdout.Bytes + stderr.Bytes, Known: r.Known,
	}
	res = res.FewerRecords(MaxNetwork)
	if r.Background {
		res.Background = &Background{ID: r.CallID, LogPath: r.LogPath, Running: true}
		return res
	}
	shown := evidence.Show(evidence.Stream(stdout), evidence.Stream(stderr),
		evidence.Options{Bytes: c.limits.OutputBytes, Lines: c.limits.OutputLines, Last: last, Masker: b.Sandbox.Masker()})
	res.Stdout, res.Stderr = shown.Stdout.Text, shown.Stderr.Text
	res.account(shown)
	if r.Spill != nil {
		res.Kept = &Spill{Path: r.Spill.Path, Bytes: r.Spill.Bytes, Lines: r.Spill.Lines}
		if res.Truncated || last > 0 || !r.Spill.Complete {
			res.Spill = res.Kept
		}
	}
	res.shorten = b.shortenOutput(c, r, last)
	res.Err = exitError(r)
	return res
}

// account fills in what was left out, and what is no text.
func (r *Result) account(p evidence.Preview) {
	r.Binary = nil
	if p.Stdout.Binary {
		r.Binary = append(r.Binary, "stdout")
	}
	if p.Stderr.Binary {
		r.Binary = append(r.Binary, "stderr")
	}
	if r.Truncated = p.Truncated(); r.Truncated {
		r.Omitted = &Omitted{Stdout: count(p.Stdout), Stderr: count(p.Stderr)}
	}
}

func count(s evidence.Shown) Count {
	return Count{Bytes: s.Omitted.Bytes, Lines: s.Omitted.Lines, Stripped: s.Stripped}
}
