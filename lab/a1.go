package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// A1 is the tool chain without a model: each tool does what its contract says,
// a failing command gives its exit code and its stderr, and the sandbox is
// verifiably gone at the end. The error is that of the machinery (no audit log
// could be written, or a panic); what failed in the sandbox is in the Result.
func A1(ctx context.Context, env Env) (Result, error) {
	b, err := begin(env, "a1", "the tool chain without a model")
	if err != nil {
		return Result{}, err
	}
	return b.run(ctx, b.chain)
}

// chain uses every tool once.
func (b *bench) chain(ctx context.Context, box *sandbox.Sandbox) {
	tree, err := budget.NewTree(budget.Quick(), budget.TreeOptions{})
	if err != nil {
		b.step("limits", "the quick limits", func() (string, bool) { return err.Error(), false })
		return
	}
	set, err := tool.Builtin(tool.Options{Sandbox: box, Budget: tree, Masker: b.env.Masker,
		Finish: func(ctx context.Context) (string, error) { return "destroyed\n", box.Kill(ctx) }})
	if err != nil {
		b.step("tools", "the five tools", func() (string, bool) { return err.Error(), false })
		return
	}
	for _, c := range a1Calls {
		b.call(ctx, set, c)
	}
	b.step("verify", "the provider knows the sandbox no more", func() (string, bool) {
		_, err := b.env.Provider.Get(ctx, box.ID())
		return fmt.Sprint(err), sandbox.KindOf(err) == sandbox.KindNotFound
	})
}

// labCall is one call and what is expected of its result.
type labCall struct {
	name, tool, arguments, expected string
	check                           func(tool.Result, time.Duration) bool
}

const a1Text = "first line\nsecond line, with ünïcode\n"

// a1Calls use the tools in the order a task would.
var a1Calls = []labCall{
	{"run", tool.RunCommand, `{"command":"echo hello"}`, `exit code 0, stdout "hello"`,
		func(r tool.Result, _ time.Duration) bool {
			return r.OK && code(r) == 0 && r.Stdout == "hello\n" && r.Stderr == ""
		}},
	{"run failing", tool.RunCommand, `{"command":"echo out; echo wrong >&2; exit 3"}`, `not ok, exit code 3, stderr "wrong" apart from stdout`,
		func(r tool.Result, _ time.Duration) bool {
			return !r.OK && code(r) == 3 && r.Stdout == "out\n" && r.Stderr == "wrong\n"
		}},
	{"write", tool.WriteFile, fmt.Sprintf(`{"path":"lab/note.txt","content":%q}`, a1Text), "the file is written",
		func(r tool.Result, _ time.Duration) bool { return r.OK && r.File != nil && r.File.SHA256 != "" }},
	{"read", tool.ReadFile, `{"path":"lab/note.txt"}`, "the same content",
		func(r tool.Result, _ time.Duration) bool { return r.OK && r.Stdout == a1Text && !r.Truncated }},
	{"share files", tool.RunCommand, `{"command":"cat lab/note.txt"}`, "a command sees the file",
		func(r tool.Result, _ time.Duration) bool { return r.OK && r.Stdout == a1Text }},
	{"refuse a path", tool.ReadFile, `{"path":"../etc/passwd"}`, "fixable: path_denied",
		func(r tool.Result, _ time.Duration) bool {
			return !r.OK && isError(r, tool.Fixable, tool.CodePathDenied)
		}},
	{"timeout", tool.RunCommand, `{"command":"echo begun; sleep 30","timeout_seconds":1}`, "timeout after 1 s, within 3 s, with the output so far",
		func(r tool.Result, took time.Duration) bool {
			return !r.OK && r.Timeout && r.Stdout == "begun\n" && took < 3*time.Second
		}},
	{"kill", tool.SandboxKill, `{}`, "ok",
		func(r tool.Result, _ time.Duration) bool { return r.OK }},
	{"kill again", tool.SandboxKill, `{}`, "ok: it is idempotent",
		func(r tool.Result, _ time.Duration) bool { return r.OK }},
	{"use after kill", tool.RunCommand, `{"command":"true"}`, "fatal: sandbox_gone",
		func(r tool.Result, _ time.Duration) bool {
			return !r.OK && isError(r, tool.Fatal, tool.CodeSandboxGone)
		}},
}

func code(r tool.Result) int {
	if r.ExitCode == nil {
		return -1
	}
	return *r.ExitCode
}

func isError(r tool.Result, class tool.Class, code string) bool {
	return r.Err != nil && r.Err.Class == class && r.Err.Code == code
}

// members are what every result has.
var members = []string{"ok", "exit_code", "stdout", "stderr", "truncated", "timeout", "duration_ms", "sandbox_id", "call_id"}

// call makes one call and checks its result and its structure.
func (b *bench) call(ctx context.Context, set *tool.Set, c labCall) {
	b.step(c.name, c.expected, func() (string, bool) {
		start := time.Now()
		id := b.result.Experiment + "_" + strings.ReplaceAll(c.name, " ", "_")
		r := set.Run(ctx, tool.Call{ID: id, Name: c.tool, Arguments: []byte(c.arguments)})
		took := time.Since(start)
		data, err := json.Marshal(r)
		if err != nil {
			return err.Error(), false
		}
		var fields map[string]any
		if err := json.Unmarshal(data, &fields); err != nil {
			return err.Error(), false
		}
		if i := slices.IndexFunc(members, func(m string) bool { _, ok := fields[m]; return !ok }); i >= 0 {
			return "the result has no member " + members[i], false
		}
		whole := r.CallID == id && r.SandboxID == b.result.SandboxID
		return string(data), whole && c.check(r, took)
	})
}
