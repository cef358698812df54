package tool_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// In an image without a shell the model is not sent looking for a directory;
// what the sandbox itself says comes first.
func TestExplainNoShell(t *testing.T) {
	t.Parallel()
	err := &sandbox.Error{Kind: sandbox.KindNotFound, Op: "run", Subject: "call-1", Err: errors.New("execd: no shell at /bin/sh")}
	e := tool.Explain(tool.OpRun, "sb-1", err)
	if e.Code != tool.CodeNotFound || !strings.Contains(e.Message, "no shell") || !strings.Contains(e.Hint, "no shell") {
		t.Errorf("%+v", e)
	}
	err.Hint = "this image runs nothing"
	if e := tool.Explain(tool.OpRun, "sb-1", err); e.Hint != err.Hint {
		t.Errorf("%+v", e)
	}
}
