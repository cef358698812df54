package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// DefaultMaxWrite is the largest content write_file takes, in bytes.
const DefaultMaxWrite = 1 << 20

// Options say what the built-in tools work on and within which limits. Sandbox,
// Budget and Finish are required.
type Options struct {
	Sandbox *sandbox.Sandbox
	// Budget gives the limits: those in force when a call begins are enforced. The
	// descriptions name those of the beginning, so that they never change.
	Budget *budget.Tree
	// Masker masks what files and logs hold, and what errors and the record of
	// the network say; commands' output is masked with Sandbox's.
	Masker *secret.Masker
	// Target is the name of the target the sandbox is made from; sandbox_create
	// takes no other. Empty: there is no choice to name.
	Target string
	// ReadPrefixes are absolute directories inside the sandbox that read_file
	// may read besides the workspace and the spilled output.
	ReadPrefixes []string
	// MaxWrite bounds write_file; 0 means DefaultMaxWrite.
	MaxWrite int
	// NoShell leaves run_command out, and with it the session tools.
	NoShell bool
	// Search gives the search tool.
	Search bool
	// Sessions gives the session tools.
	Sessions Sessions
	// Custom are tools besides the built-in ones: see Program and Func.
	Custom []Custom
	// Approve, when set, is asked before a call is executed, once its arguments
	// are known to be good. It returns the call to execute, of which it may have
	// changed the command (Call.Edited), or why it is not executed. It may take
	// as long as a person does.
	Approve func(context.Context, Call) (Call, *Error)
	// Finish is sandbox_kill: it saves the outputs, judges them and ends the
	// sandbox, and says in a sentence what came of it. It must be idempotent.
	Finish func(context.Context) (string, error)
	// Judge is asked before Finish. When the work is not accepted and may go on,
	// it says why, what the checks printed and what to do. Nil never does.
	Judge func(context.Context) (why, details, hint string, again bool)
	// Begin is told of a call of a function of the host's right before it is
	// made; its error is why it may not be. ended is told of its result. It may be
	// nil. What happens in the sandbox is on the sandbox's own record.
	Begin func(c Call) (ended func(Result) error, err error)
	// Left is how long a call may take before the sandbox's end comes so near that
	// outputs have to be saved. Nil: the run's time bounds it alone.
	Left func() time.Duration
	// Shorten moves the sandbox's end to ttl from now when that is earlier, and
	// returns the end in force. Nil: the end cannot be moved by a model.
	Shorten func(ctx context.Context, ttl time.Duration) (time.Time, error)
}

type builtin struct {
	Options
	began budget.Limits // what the tools are described with
	cwd   string
	roots []string
	gone  atomic.Bool

	mu       sync.Mutex // guards what follows
	created  bool       // sandbox_create was called
	sessions map[string]*openSession
	opening  int               // sessions that are being opened
	ended    map[string]string // why a session is there no more
	found    *managers         // nil until they were looked for
}

// Builtin returns the built-in tools over one sandbox that exists already.
func Builtin(o Options) (*Set, error) {
	if o.Sandbox == nil || o.Budget == nil || o.Finish == nil {
		return nil, errors.New("tool: Sandbox, Budget and Finish are required")
	}
	if o.MaxWrite == 0 {
		o.MaxWrite = DefaultMaxWrite
	}
	b := &builtin{Options: o, sessions: map[string]*openSession{}, ended: map[string]string{}, began: o.Budget.Began(), cwd: o.Sandbox.Info().Cwd}
	tools, err := b.tools()
	if err != nil {
		return nil, err
	}
	for i := range tools {
		tools[i].Run = b.guard(tools[i].Name, tools[i].Run)
	}
	set, err := NewSet(o.Sandbox.ID, tools...)
	if err == nil {
		set.close, set.recall = b.closeSessions, b.recall
	}
	return set, err
}

// Describe returns the built-in tools as they are before there is a sandbox, whose
// workspace is going to be cwd: under limits that are in force from its beginning,
// they are described in the same words by it. Each call of them fails.
func Describe(o Options, cwd string, limits budget.Limits) (*Set, error) {
	if o.MaxWrite == 0 {
		o.MaxWrite = DefaultMaxWrite
	}
	b := &builtin{Options: o, began: limits, cwd: cwd}
	tools, err := b.tools()
	if err != nil {
		return nil, err
	}
	for i := range tools {
		tools[i].Run = func(context.Context, Call) Result {
			return Fail(OpRun, CodeSandboxGone, "there is no sandbox yet", "")
		}
	}
	return NewSet(nil, tools...)
}

// tools are those that the options ask for.
func (b *builtin) tools() ([]Tool, error) {
	if err := b.Options.Sessions.check(); err != nil {
		return nil, err
	}
	b.roots = []string{b.cwd, execd.SpillDir}
	for _, p := range b.ReadPrefixes {
		if !path.IsAbs(p) || path.Clean(p) == "/" {
			return nil, fmt.Errorf("tool: %q is no absolute directory that could be opened for reading", p)
		}
		b.roots = append(b.roots, path.Clean(p))
	}
	tools := []Tool{b.createTool(), b.runTool(), b.readTool(), b.writeTool(), b.killTool()}
	switch {
	case b.NoShell:
		tools = slices.Delete(tools, 1, 2)
	case b.Options.Sessions.Max > 0:
		tools = slices.Insert(tools, 2, b.sessionTools()...)
	}
	if b.Search {
		tools = append(tools, b.searchTool())
	}
	for _, c := range b.Custom {
		t, err := c.bind(b)
		if err != nil {
			return nil, err
		}
		tools = slices.Insert(tools, len(tools)-1, t)
	}
	return tools, nil
}

// guard answers calls for another sandbox, and calls after the end of ours.
func (b *builtin) guard(name string, run func(context.Context, Call) Result) func(context.Context, Call) Result {
	return func(ctx context.Context, c Call) Result {
		args, err := decode[struct {
			SandboxID string `json:"sandbox_id"`
		}](c)
		if err != nil {
			return Fail(OpArguments, CodeInvalidArguments, err.Error(), "")
		}
		if args.SandboxID != "" && args.SandboxID != b.Sandbox.ID() {
			return Fail(OpArguments, CodeUnknownSandbox, fmt.Sprintf("this run has no sandbox %q", evidence.Cut(b.Masker.String(args.SandboxID), 64)),
				"leave sandbox_id out, or give "+b.Sandbox.ID())
		}
		if b.gone.Load() && name != SandboxKill {
			return Fail(OpRun, CodeSandboxGone, "the sandbox has been destroyed, as "+SandboxKill+" was asked to",
				"give your final answer")
		}
		c, unknown := b.resumed(ctx, c)
		if unknown != nil {
			b.mask(unknown)
			return *unknown
		}
		if b.Approve != nil && !c.Begun {
			var gone *Result
			if c.Place, gone = b.sessionPlace(ctx, c); gone != nil { // there is nothing to be asked about
				return *gone
			}
			allowed, no := b.Approve(ctx, c)
			if no != nil {
				r := Result{Err: no}
				b.mask(&r)
				return r
			}
			c = allowed
		}
		c.limits = b.Budget.Limits()
		r := run(ctx, c)
		r.Edited = b.Masker.String(c.Edited)
		if r.Err != nil && (r.Err.Code == CodeSandboxGone || r.Err.Code == CodeSandboxLost) {
			b.gone.Store(true)
		}
		b.mask(&r)
		return r
	}
}

// mask masks what a result says besides output and content.
func (b *builtin) mask(r *Result) {
	if r.Err != nil {
		e := *r.Err
		e.Message, e.Hint = b.Masker.String(e.Message), b.Masker.String(e.Hint)
		r.Err = &e
	}
	r.Network = slices.Clone(r.Network)
	for i := range r.Network {
		n := &r.Network[i]
		n.Name, n.Reason = b.Masker.String(n.Name), b.Masker.String(n.Reason)
	}
}

func (b *builtin) explain(op Op, err error) Result {
	e := Explain(op, b.Sandbox.ID(), err)
	if text := err.Error(); e.Message == evidence.Cut(text, maxMessage) {
		e.Message = evidence.Cut(b.Masker.String(text), maxMessage) // masked first: a cut can split a value
	}
	return Result{Err: e}
}

// property is one argument in a schema. Order is kept for whoever reads it.
type property struct{ name, schema string }

// objectSchema builds the schema of a tool's arguments.
func objectSchema(required []string, properties ...property) json.RawMessage {
	properties = append(properties, property{"sandbox_id", `{"type":"string","description":"optional: there is only one sandbox"}`})
	var s strings.Builder
	s.WriteString(`{"type":"object","properties":{`)
	for i, p := range properties {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, "%s:%s", quoteJSON(p.name), p.schema)
	}
	s.WriteString(`},"required":[`)
	for i, r := range required {
		if i > 0 {
			s.WriteByte(',')
		}
		s.WriteString(quoteJSON(r))
	}
	s.WriteString(`],"additionalProperties":false}`)
	return json.RawMessage(s.String())
}

func quoteJSON(s string) string {
	b, _ := json.Marshal(s) // a string always encodes
	return string(b)
}

// seconds is a duration as a model writes it; what no duration can be is the
// longest there is.
func seconds(n float64) time.Duration {
	if n >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n * float64(time.Second))
}

// whole is how many whole seconds a limit has, at least one.
func whole(d time.Duration) int64 { return max(1, int64(d/time.Second)) }

// kib is a number of bytes for people.
func kib(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
