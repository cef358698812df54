package tool

import (
	"context"

	"github.com/rein-sh/rein/command"
	"github.com/rein-sh/rein/sandbox"
)

// runCommand runs a command. When it did not begin, or it could not be found out
// what became of it, it is run once more if it is known to change nothing; under
// the same call id, so that a daemon that knows the id returns the result that
// there is after all. Nothing else is ever repeated.
func (b *builtin) runCommand(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	r, err := b.Sandbox.Run(ctx, c)
	if !unsettled(err) || ctx.Err() != nil || c.Background || command.EffectsOf(c.Shell).Kind != command.ReadOnly {
		return r, err
	}
	c.Repeat = true
	return b.Sandbox.Run(ctx, c)
}

// unsettled reports whether an error leaves open what became of a command, or
// says that it never began.
func unsettled(err error) bool {
	kind := sandbox.KindOf(err)
	return kind == sandbox.KindUnavailable || kind == sandbox.KindTimeout
}
