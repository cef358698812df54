package tool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/rein-sh/rein/sandbox"
)

// A call that was under way when rein died is one of these when it is made
// again, with Call.Begun: a command, whose id execd knows, so that its result is
// adopted or waited for, or it had never begun; a file, which holds the content
// or does not; a question, which can be asked again; or its outcome is unknown.

// fateUnknown is the result of a call of which nobody can say what it did.
func fateUnknown(op Op, why string) Result {
	return Fail(op, CodeOutcomeUnknown, why, "check what it did before you repeat anything")
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
