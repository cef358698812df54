package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/run/control"
)

// A person is shown what their answer is bound to, whichever way they are asked.
func TestQuestionNamesWhatItIsBoundTo(t *testing.T) {
	t.Parallel()
	files := map[string]string{"x\x1b.sh": strings.Repeat("a", 64)}
	var out, err bytes.Buffer
	a := &app{out: newOutput(&out), err: newOutput(&err)}
	a.sayPending([]control.Pending{{ID: "ask-1", Kind: "tool", Text: "sh x.sh", Cwd: "/workspace/sub", Env: []string{"TO"}, Files: files}})
	(&terminalAsker{app: a}).show(approval.Question{Kind: approval.Tool, Tool: "deploy", Text: "sh x.sh", Cwd: "/workspace/sub", Env: []string{"TO"}, Files: files})
	for way, shown := range map[string]string{"rein runs approve": out.String(), "the terminal": err.String()} {
		for _, part := range []string{"/workspace/sub", "TO", "x.sh", strings.Repeat("a", 64)} {
			if !strings.Contains(shown, part) || strings.Contains(shown, "\x1b") {
				t.Errorf("%s does not show %q as it is:\n%q", way, part, shown)
			}
		}
	}
}
