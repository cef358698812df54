package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// Backend is a provider that A3 tries besides the one under test.
type Backend struct {
	Name     string // what is wrong with it, in a few words
	Provider sandbox.Provider
	Spec     sandbox.Spec
}

// A3 is the classification of failures: a command that is not there is fixable;
// one that timed out is asked about, and was not run again; a sandbox that is
// gone, and a policy that a backend cannot enforce, are fatal. Env.Weak are the
// backends for the last.
func A3(ctx context.Context, env Env) (Result, error) {
	b, err := begin(env, "a3", "what a failure is, and what is done about it")
	if err != nil {
		return Result{}, err
	}
	return b.run(ctx, b.failures)
}

func (b *bench) failures(ctx context.Context, box *sandbox.Sandbox) {
	tree, err := budget.NewTree(budget.Quick(), budget.TreeOptions{})
	if err != nil {
		b.step("limits", "the quick limits", func() (string, bool) { return err.Error(), false })
		return
	}
	set, err := tool.Builtin(tool.Options{Sandbox: box, Budget: tree, Masker: b.env.Masker,
		Finish: func(ctx context.Context) (string, error) { return "", box.Kill(ctx) }})
	if err != nil {
		b.step("tools", "the five tools", func() (string, bool) { return err.Error(), false })
		return
	}
	b.call(ctx, set, labCall{"command not found", tool.RunCommand, `{"command":"no-such-program-of-the-lab"}`, "exit code 127, fixable: command_not_found",
		func(r tool.Result, _ time.Duration) bool {
			return !r.OK && code(r) == 127 && isError(r, tool.Fixable, tool.CodeCommandNotFound) && r.Err.Hint != ""
		}})
	b.verify(ctx, set, box)
	b.missing(ctx, set, box)
	for _, w := range b.env.Weak {
		b.unenforceable(ctx, w)
	}
}

// verify has a command time out, and asks what became of it.
func (b *bench) verify(ctx context.Context, set *tool.Set, box *sandbox.Sandbox) {
	b.call(ctx, set, labCall{"timeout", tool.RunCommand, `{"command":"echo ran >> lab-a3; sleep 30","timeout_seconds":1}`, "verify: timeout, exit code unknown",
		func(r tool.Result, took time.Duration) bool {
			return !r.OK && r.Timeout && r.ExitCode == nil && isError(r, tool.Verify, tool.CodeTimeout) && took < 4*time.Second
		}})
	b.step("ask about it", "by its call id: it has ended, by its timeout", func() (string, bool) {
		if !box.Features().CallIDs {
			return "this sandbox cannot be asked about a call", false
		}
		st, err := box.Status(ctx, "a3_timeout")
		if err != nil {
			return err.Error(), false
		}
		data, err := json.Marshal(st)
		if err != nil {
			return err.Error(), false
		}
		return string(data), !st.Running && st.Result != nil && st.Result.TimedOut()
	})
	b.call(ctx, set, labCall{"not repeated", tool.ReadFile, `{"path":"lab-a3"}`, "it ran once",
		func(r tool.Result, _ time.Duration) bool { return r.OK && r.Stdout == "ran\n" }})
}

// missing asks for a sandbox that never was, and has ours ended by somebody
// else.
func (b *bench) missing(ctx context.Context, set *tool.Set, box *sandbox.Sandbox) {
	b.step("sandbox not found", "fatal: sandbox_gone", func() (string, bool) {
		const id = "no-such-sandbox"
		other, err := sandbox.Attach(ctx, b.env.Provider, id, sandbox.Options{Log: b.log, Masker: b.env.Masker})
		if err == nil {
			return "there is one: " + other.ID(), false
		}
		e := tool.Explain(tool.OpRun, id, err)
		return e.Error(), e.Class == tool.Fatal && e.Code == tool.CodeSandboxGone
	})
	b.step("end it behind rein", "the provider has ended it", func() (string, bool) {
		if err := b.env.Provider.Kill(ctx, box.ID()); err != nil {
			return err.Error(), false
		}
		return "ended", true
	})
	b.call(ctx, set, labCall{"sandbox lost", tool.RunCommand, `{"command":"true"}`, "fatal: sandbox_lost",
		func(r tool.Result, _ time.Duration) bool {
			return !r.OK && r.ExitCode == nil && (isError(r, tool.Fatal, tool.CodeSandboxLost) || isError(r, tool.Fatal, tool.CodeSandboxGone))
		}})
}

// rule is the one network rule of every sandbox, as refusals name it.
const rule = "default: deny"

// unenforceable asks a backend for a sandbox whose network rule it cannot
// enforce.
func (b *bench) unenforceable(ctx context.Context, w Backend) {
	b.step("policy: "+w.Name, "fatal: unsupported, naming the rule "+rule+", and no sandbox left", func() (string, bool) {
		spec := w.Spec
		spec.TTL = time.Minute
		box, err := sandbox.Create(ctx, w.Provider, spec, sandbox.Options{Log: b.log, Masker: b.env.Masker})
		if err == nil {
			return fmt.Sprintf("it was made: %s; ended: %v", box.ID(), errors.Join(box.Kill(ctx), box.Close())), false
		}
		e := tool.Explain(tool.OpCreate, "", err)
		left, listErr := w.Provider.List(ctx, nil)
		got := fmt.Sprintf("%v; %s; %d sandboxes left", e, e.Hint, len(left))
		named := strings.Contains(e.Message+e.Hint, rule)
		return got, named && e.Class == tool.Fatal && e.Code == tool.CodeUnsupported && e.Hint != "" && listErr == nil && len(left) == 0
	})
}
