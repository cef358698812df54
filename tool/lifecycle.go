package tool

import (
	"context"
	"fmt"
	"time"

	"github.com/rein-sh/rein/budget"
)

func (b *builtin) createTool() Tool {
	limit := whole(b.began.MaxWallTime + budget.Margin)
	props := []property{{"ttl_seconds", fmt.Sprintf(
		`{"type":"integer","minimum":120,"maximum":%d,"description":"time to live from now; it can only shorten the sandbox's life"}`, limit)}}
	if b.Target != "" {
		props = append(props, property{"target", fmt.Sprintf(
			`{"type":"string","enum":[%s],"description":"where it runs; the host has configured it"}`, quoteJSON(b.Target))})
	}
	return Tool{Definition: Definition{
		Name: SandboxCreate,
		Description: fmt.Sprintf("Take the sandbox of this task. It exists already and every other tool uses it, so calling this is only needed to give it a shorter life. "+
			"The host has chosen its image, its resources and its network (closed unless the host opened it); nothing you write changes them. "+
			"ttl_seconds is required, at most %d, and can only shorten its life; when the time is over the sandbox is destroyed. At most one sandbox a task. "+
			"The workspace is %s.", limit, b.cwd),
		Schema: objectSchema([]string{"ttl_seconds"}, props...),
	}, Run: b.create}
}

func (b *builtin) create(ctx context.Context, c Call) Result {
	args, err := decode[struct {
		TTL float64 `json:"ttl_seconds"`
	}](c)
	if err != nil {
		return Fail(OpArguments, CodeInvalidArguments, err.Error(), "")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.created {
		return Fail(OpCreate, CodeSandboxLimit, "a task has one sandbox, and it is there already", "go on with "+b.Sandbox.ID())
	}
	end := b.Sandbox.Info().ExpiresAt
	if b.Shorten != nil {
		if end, err = b.Shorten(ctx, seconds(args.TTL)); err != nil {
			return b.explain(OpCreate, err)
		}
	}
	b.created = true
	return Result{OK: true, Stdout: fmt.Sprintf("sandbox %s is ready; workspace %s; it ends at %s\n",
		b.Sandbox.ID(), b.cwd, end.UTC().Format(time.RFC3339))}
}

func (b *builtin) killTool() Tool {
	return Tool{Definition: Definition{
		Name: SandboxKill,
		Description: "Say that you are finished. The host saves the outputs, runs its acceptance checks and destroys the sandbox with everything in it. " +
			"Call it once, when the task is done and you have checked it; calling it again does no harm. Afterwards no other tool works: only give your final answer.",
		Schema: objectSchema(nil),
	}, Run: b.kill}
}

func (b *builtin) kill(ctx context.Context, _ Call) Result {
	b.closeSessions(ctx)
	if b.Judge != nil && !b.gone.Load() {
		if why, details, hint, again := b.Judge(ctx); again {
			r := Fail(OpKill, CodeNotAccepted, why, hint)
			r.Stdout = b.Masker.String(details)
			return r
		}
	}
	said, err := b.Finish(ctx)
	b.gone.Store(true)
	if err != nil {
		r := b.explain(OpKill, err)
		r.Stdout = b.Masker.String(said)
		return r
	}
	return Result{OK: true, Stdout: b.Masker.String(said)}
}
