package wrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// Options of one agent in one run.
type Options struct {
	Recipe Recipe
	// Vendor is that of Recipe.Vendors which is used; nil: none, and the agent has no
	// model.
	Vendor *Vendor
	// Args are the user's own.
	Args  []string
	Model string
	// Bin is the directory inside with the programs of the agent's layer; empty: it is
	// found on the sandbox's PATH.
	Bin string
	// Fits, when set, is why the agent's program is not for this sandbox, in which
	// Node.js has that version; empty: there is none.
	Fits func(info sandbox.Info, node string) error
	// Variable has the placeholder inside; empty: there is none.
	Variable string
	// Terminal, when set, connects the agent with the user's terminal until it ends.
	// It is started as Recipe.Interactive says then.
	Terminal func(ctx context.Context, s *sandbox.Sandbox, o sandbox.TerminalOptions) (exitCode int, err error)
	// Output, when set, gets what the agent prints to stdout, and Errors what it prints
	// to stderr, masked.
	Output, Errors io.Writer
}

// Bounds of an agent's end.
const (
	// SpentGrace is how long it may go on after it was told that the budget is used
	// up.
	SpentGrace = time.Minute
	// shownEnd is how much of the end of each stream is kept for the report, in bytes.
	shownEnd = 4 << 10
	// prepareTimeout bounds each step before the agent starts.
	prepareTimeout = 30 * time.Second
	// longest is longer than any run: the agent's time is the run's, which can be changed
	// while it works, and its end interrupts it.
	longest = 7 * 24 * time.Hour
	// syncEvery is how often run.Options.Output is brought up to date, and lookEvery
	// how often the record of the network is looked at.
	syncEvery = 10 * time.Second
	lookEvery = time.Second
)

// New returns the worker that runs the agent. It serves one run.
func New(o Options) (run.Worker, error) {
	if len(o.Recipe.Command) == 0 {
		return nil, errors.New("wrap: the recipe has no command")
	}
	if o.Terminal != nil && o.Recipe.Interactive == nil {
		return nil, fmt.Errorf("wrap: %s has no use for a terminal", o.Recipe.Name)
	}
	if o.Recipe.Results != "" && Readers[o.Recipe.Results] == nil {
		return nil, fmt.Errorf("wrap: %s: no reader %q", o.Recipe.Name, o.Recipe.Results)
	}
	return &worker{Options: o}, nil
}

type worker struct {
	Options
	s      *run.Session
	values Values
}

// ErrEnded is what Options.Terminal returns when the user has ended the run.
var ErrEnded = errors.New("ctrl-c was typed twice")

// errSpent ends an agent that goes on although its budget is used up.
var errSpent = fmt.Errorf("it went on for %v after it was told that its budget is used up", SpentGrace)

// Work prepares the sandbox, runs the agent in it and says how it ended.
func (w *worker) Work(ctx context.Context, s *run.Session) (run.Outcome, error) {
	w.s = s
	start, out, err := w.prepare(ctx)
	if err != nil || out != nil {
		if out == nil {
			out = &run.Outcome{Reason: run.Failed, Detail: "the agent could not be prepared"}
		}
		return *out, err
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var tending sync.WaitGroup
	defer tending.Wait()
	defer cancel(nil)
	tending.Go(func() { w.tend(work, cancel) })
	if w.Terminal != nil {
		return w.interactive(work, start)
	}
	return w.headless(work, start)
}

// start is the agent's command line and environment.
type start struct {
	argv []string
	env  map[string]string
}

// prepare finds out about the sandbox, places files and makes the command line. An
// outcome says that it cannot be begun.
func (w *worker) prepare(ctx context.Context) (*start, *run.Outcome, error) {
	box := w.s.Sandbox()
	found, err := box.Run(ctx, sandbox.Command{Tool: "wrap", Timeout: prepareTimeout, Shell: w.question(), Env: w.path()})
	if err != nil {
		return nil, nil, err
	}
	lines := strings.Split(string(found.Stdout.Head), "\n")
	if w.Fits != nil && len(lines) > 2 {
		if err := w.Fits(box.Info(), lines[2]); err != nil {
			return nil, &run.Outcome{Reason: run.Misused, Detail: err.Error()}, err
		}
	}
	if !found.OK() || len(lines) < 4 {
		return nil, &run.Outcome{Reason: run.Misused, Detail: fmt.Sprintf("%s is not in the sandbox", w.Recipe.Command[0]),
			Hint: "leave out --no-install, or use an image that has it"}, nil
	}
	w.values = Values{Model: w.Model, Home: lines[0], Key: lines[1], Work: box.Info().Cwd, Bin: w.Bin}
	if v := w.Vendor; v != nil {
		w.values.Origin = v.origin()
		w.values.BaseURL = w.values.Origin + v.Base
	}
	mode := w.Recipe.Headless
	if w.Terminal != nil {
		mode = *w.Recipe.Interactive
	}
	p := expansion{values: w.values}
	argv := w.Recipe.argv(p.each, mode, w.vendor(), w.Args)
	env := w.path()
	for _, list := range []map[string]string{w.Recipe.Env, w.vendor().Env, mode.Env} {
		for name, value := range list {
			env[name] = p.text(value)
		}
	}
	for _, name := range w.vendor().Variables {
		if name != w.Variable && w.values.Key != "" {
			env[name] = w.values.Key
		}
	}
	for _, f := range slices.Concat(w.Recipe.Files, w.vendor().Files) {
		name, err := f.Place(w.values.Home, w.values.Work)
		content := p.text(f.Content)
		if p.err = cmp.Or(p.err, err); p.err != nil {
			break
		}
		if _, err := box.WriteFile(ctx, name, []byte(content), sandbox.WriteOptions{Access: sandbox.Access{Tool: "wrap"}, Mode: 0o600}); err != nil {
			return nil, nil, err
		}
	}
	if p.err != nil {
		return nil, &run.Outcome{Reason: run.Misused, Detail: fmt.Sprintf("the recipe of %s: %v", w.Recipe.Name, p.err)}, nil
	}
	return &start{argv, env}, nil, nil
}

func (w *worker) vendor() Vendor {
	if w.Vendor == nil {
		return Vendor{}
	}
	return *w.Vendor
}

// path has the layer's programs found before others.
func (w *worker) path() map[string]string {
	if w.Bin == "" {
		return map[string]string{}
	}
	return map[string]string{"PATH": w.Bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
}

// question prints the home directory, the placeholder, the version of Node.js and
// where the program is, and fails when it is nowhere.
func (w *worker) question() string {
	key := `""`
	if w.Variable != "" {
		key = `"$` + w.Variable + `"`
	}
	return fmt.Sprintf(`printf '%%s\n' "$HOME" %s "$(node --version 2>/dev/null)" && command -v -- %s`, key, quote(w.Recipe.Command[0]))
}

// quote makes a text one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func quoted(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = quote(a)
	}
	return strings.Join(words, " ")
}

// tend keeps run.Options.Output up to date, tells of what the network refused, and
// ends an agent that goes on without a budget.
func (w *worker) tend(ctx context.Context, end context.CancelCauseFunc) {
	tick, look := time.NewTicker(syncEvery), time.NewTicker(lookEvery)
	defer tick.Stop()
	defer look.Stop()
	seen := uint64(0)
	spent := w.s.Metered()
	var late <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.s.Sync()
		case <-look.C:
			seen = w.s.Refused(ctx, seen)
		case <-spent:
			spent = nil
			timer := time.NewTimer(SpentGrace)
			defer timer.Stop()
			late = timer.C
		case <-late:
			end(errSpent)
			return
		}
	}
}

// headless runs the agent without a terminal and reads what it prints.
func (w *worker) headless(ctx context.Context, st *start) (run.Outcome, error) {
	id := w.s.NewCallID()
	var reader Reader = silent{}
	if make := Readers[w.Recipe.Results]; make != nil {
		reader = make()
	}
	l := &listener{w: w, id: id, reader: reader}
	begun := time.Now()
	w.s.Emit(run.Event{Kind: run.EventCall, Call: &run.CallEvent{ID: id, Tool: w.Recipe.Name, Summary: evidence.Cut(w.s.Masker().String(quoted(st.argv)), 200)}})
	r, err := w.s.Sandbox().Run(ctx, sandbox.Command{CallID: id, Tool: "wrap", Shell: quoted(st.argv), Argv: st.argv, Env: st.env,
		Timeout: longest, Stdout: l.stream(false), Stderr: l.stream(true)})
	if err != nil && ctx.Err() == nil {
		return run.Outcome{Reason: run.Failed, Detail: "the agent could not be run"}, err
	}
	code := -1
	if r.ExitCode != nil {
		code = *r.ExitCode
	}
	reading := l.end(code, time.Since(begun))
	if failed := w.called(id, st, r, reading); failed != nil {
		return run.Outcome{Reason: run.Failed, Detail: "the agent's end could not be recorded"}, failed
	}
	return w.ended(ctx, r, reading, l)
}

// called records the agent as the one call of its run.
func (w *worker) called(id string, st *start, r sandbox.Result, reading Reading) error {
	res := tool.Result{OK: r.OK(), ExitCode: r.ExitCode, Timeout: r.TimedOut(), Signal: r.Signal, DurationMS: r.DurationMS, CallID: id, SandboxID: w.s.Sandbox().ID(),
		OutputBytes: r.Stdout.Bytes + r.Stderr.Bytes, Network: r.Network, Stdout: reading.Answer}
	if r.Spill != nil {
		res.Spill = &tool.Spill{Path: r.Spill.Path, Bytes: r.Spill.Bytes, Lines: r.Spill.Lines}
	}
	return w.s.Called(tool.Call{ID: id, Name: w.Recipe.Name, Arguments: arguments(st.argv)}, 0, res)
}

// interactive has the user type to the agent.
func (w *worker) interactive(ctx context.Context, st *start) (run.Outcome, error) {
	env := maps.Clone(st.env)
	code, err := w.Terminal(ctx, w.s.Sandbox(), sandbox.TerminalOptions{Command: "exec " + quoted(st.argv), Env: env})
	switch {
	case errors.Is(err, ErrEnded):
		return run.Outcome{Reason: run.Interrupted, Detail: ErrEnded.Error()}, nil
	case err != nil && ctx.Err() != nil:
		return w.cut(ctx)
	case err != nil:
		return run.Outcome{Reason: run.Failed, Detail: "the agent's terminal was lost"}, err
	}
	info := w.agent()
	info.ExitCode = &code
	info.Finished = code == 0
	w.s.Worked(info)
	switch {
	case w.spent():
		return run.Outcome{Reason: run.OverBudget, Detail: "the budget is used up"}, nil
	case code == 0:
		return run.Outcome{Reason: run.Done}, nil
	}
	return run.Outcome{Reason: run.Failed, Detail: fmt.Sprintf("%s ended with exit code %d", w.Recipe.Name, code)}, nil
}

// agent is what the report says of the agent so far.
func (w *worker) agent() run.AgentInfo { return w.s.Agent() }

// spent reports whether a request was refused for a limit.
func (w *worker) spent() bool {
	select {
	case <-w.s.Metered():
		return true
	default:
		return false
	}
}

// listener takes what an agent prints.
type listener struct {
	w      *worker
	id     string
	mu     sync.Mutex // of reader and ends
	reader Reader
	ends   [2]tail
	bytes  atomic.Int64
	shown  [2]io.WriteCloser
}

// stream is the writer of one of the streams.
func (l *listener) stream(stderr bool) io.Writer {
	i, to := 0, l.w.Output
	if stderr {
		i, to = 1, l.w.Errors
	}
	if to != nil {
		l.shown[i] = l.w.s.Masker().Writer(to)
	}
	return writer(func(p []byte) (int, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ends[i].add(p)
		read := l.reader.Stdout
		if stderr {
			read = l.reader.Stderr
		}
		for _, a := range read(p) {
			l.w.s.Emit(run.Event{Kind: run.EventAgent, Text: a.Kind + ": " + evidence.Cut(evidence.Visible(a.Text), 200)})
		}
		l.w.s.Printed(l.id, l.bytes.Add(int64(len(p))))
		if l.shown[i] != nil {
			if _, err := l.shown[i].Write(p); err != nil {
				l.shown[i] = nil // nobody reads it: that is no reason to end the agent
			}
		}
		return len(p), nil
	})
}

// end reads the end of the agent.
func (l *listener) end(code int, after time.Duration) Reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.shown {
		if w != nil {
			_ = w.Close() // what could not be shown has been read all the same
		}
	}
	return l.reader.End(code, after)
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// tail keeps the end of a stream.
type tail struct{ b []byte }

func (t *tail) add(p []byte) {
	t.b = append(t.b, p[max(0, len(p)-2*shownEnd):]...)
	if over := len(t.b) - 2*shownEnd; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
}
