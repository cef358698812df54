package tool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/rein-sh/rein/sandbox"
)

// A call that was under way when rein died is one of these when it is made
// again, with Call.Begun: a command, whose id execd knows, so that its result is
// adopted or waited for, or it had never begun; a file, which holds the content
// or does not; a question, which can be asked again; or its outcome is unknown,
// as that of a function of the host and of all commands under an execd that knows
// no ids. What had begun had been allowed, and nobody is asked about it again.

// fateUnknown is the result of a call of which nobody can say what it did.
func fateUnknown(op Op, why string) Result {
	return Fail(op, CodeOutcomeUnknown, why, "check what it did before you repeat anything")
}

// resumed looks at a call that had begun before anything is done about it. Begun
// stays set when it has to be asked what became of it; the Result, if there is
// one, is that nobody can say.
func (b *builtin) resumed(ctx context.Context, c Call) (Call, *Result) {
	if !c.Begun || !b.isCommand(c) {
		return c, nil
	}
	if !b.Sandbox.Features().CallIDs {
		r := fateUnknown(OpRun, "rein was ended while this command was under way, and the sandbox cannot be asked what became of it")
		return c, &r
	}
	if b.Approve == nil { // it has one id, under which it runs once
		return c, nil
	}
	// The command on its way may be the one that a person put in its place, so
	// that this one runs only if it is asked about.
	_, err := b.Sandbox.Status(ctx, c.ID)
	switch {
	case sandbox.KindOf(err) == sandbox.KindNotFound:
		c.Begun, c.Edited = false, ""
	case err != nil:
		r := fateUnknown(OpRun, "rein was ended while this command was under way, and it could not be found out what became of it: "+err.Error())
		return c, &r
	}
	return c, nil
}

// isCommand reports whether a call runs a command in the sandbox.
func (b *builtin) isCommand(c Call) bool {
	switch c.Name {
	case RunCommand:
		args, err := decode[runArgs](c)
		return err == nil && args.Wait == ""
	case SessionRun:
		return true
	}
	return slices.ContainsFunc(b.Custom, func(o Custom) bool { return o.Name == c.Name && o.program != nil })
}

// written finds out whether a file was written; why is what leaves it open.
func (b *builtin) written(ctx context.Context, at place, a sandbox.Access, content []byte, why string) Result {
	now, err := b.Sandbox.ReadFile(ctx, at.path, sandbox.ReadOptions{Access: a, Max: int64(len(content)) + 1})
	if err == nil && bytes.Equal(now.Data, content) {
		sum := sha256.Sum256(content)
		return wrote(File{Path: at.path, Bytes: now.Size, SHA256: hex.EncodeToString(sum[:])})
	}
	if err != nil && sandbox.KindOf(err) != sandbox.KindNotFound {
		return b.explain(OpWrite, err)
	}
	return fateUnknown(OpWrite, fmt.Sprintf("%s while this call was under way; %s does not hold this content now", why, at.path))
}
