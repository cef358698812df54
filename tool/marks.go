package tool

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/rein-sh/rein/sandbox"
)

// overMark refuses content that has a mark where the file it replaces has a value:
// who has read the file has seen the mark in its place, and would lose the value.
// A mark that the file itself has is text like any other.
func (b *builtin) overMark(ctx context.Context, at place, a sandbox.Access, content string) *Error {
	if b.Masker == nil || !strings.Contains(content, "[secret:") {
		return nil
	}
	now, err := b.Sandbox.ReadFile(ctx, at.path, sandbox.ReadOptions{Access: a})
	if err != nil {
		return nil // there is none, or the write says what is wrong
	}
	for _, s := range b.Masker.Find(now.Data) {
		if strings.Contains(content, s.Mark) && !bytes.Contains(now.Data, []byte(s.Mark)) {
			return Fail(OpWrite, CodeInvalid, fmt.Sprintf("%s holds a value that is shown as %s, and the content has the mark in its place: the value would be lost", at.path, s.Mark),
				"change the file with a command, such as sed: commands see what is there").Err
		}
	}
	return nil
}
