package tool_test

import (
	"strings"
	"testing"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/tool"
)

// A mark is shown whole or not at all, and what is left out is counted in what
// the program printed, not in marks.
func TestCutMarks(t *testing.T) {
	t.Parallel()
	const key, mark = "hunter2hunter2", "[secret:key]"
	for limit := 1024; limit < 1024+2*len(mark); limit++ {
		b := newBench(t, func(_ *tool.Options, l *budget.Limits) { l.OutputBytes = limit })
		b.call(tool.WriteFile, "path", "keys", "content", strings.Repeat(key+" ", 1000))
		for _, r := range []tool.Result{
			b.call(tool.RunCommand, "command", "cat keys"),
			b.call(tool.RunCommand, "wait", b.call(tool.RunCommand, "command", "cat keys", "background", true).Background.ID),
		} {
			head, rest, _ := strings.Cut(r.Stdout, "\n[... ")
			_, tail, _ := strings.Cut(rest, "...]\n")
			if left := strings.Trim(strings.ReplaceAll(head+tail, mark, ""), " "); left != "" || tail == "" {
				t.Errorf("a mark is cut: %q in %q", left, r.Stdout)
			}
			shown := int64(len(strings.ReplaceAll(head+tail, mark, key)))
			if r.OutputBytes != int64(1000*len(key+" ")) || r.Omitted == nil || r.Omitted.Stdout.Bytes != r.OutputBytes-shown {
				t.Errorf("%d bytes were printed and %d shown: %+v", r.OutputBytes, shown, r.Omitted)
			}
		}
	}
}

func TestErrorsAreMasked(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for _, r := range []tool.Result{b.call(tool.ReadFile, "path", "hunter2hunter2"), b.call(tool.RunCommand, "command", "true", "cwd", "/hunter2hunter2")} {
		if r.Err == nil || !strings.Contains(r.Err.Message, "[secret:key]") || strings.Contains(r.Err.Message, "hunter2hunter2") {
			t.Errorf("got %v", r.Err)
		}
	}
}
