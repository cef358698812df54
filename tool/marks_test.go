package tool_test

import (
	"strings"
	"testing"

	"github.com/rein-sh/rein/tool"
)

// A file is not written back with a mark where it has a value; a mark that is in
// the file, or in one that is new, is text.
func TestMarksAreNotWrittenBack(t *testing.T) {
	b := newBench(t, nil)
	b.sh("printf 'user: me\\nkey: hunter2hunter2\\n' > config; printf 'we say [secret:key]\\n' > text")
	shown := b.call(tool.ReadFile, "path", "config").Stdout
	if !strings.Contains(shown, "[secret:key]") {
		t.Fatalf("it is shown as %q", shown)
	}
	r := b.call(tool.WriteFile, "path", "config", "content", strings.ReplaceAll(shown, "me", "you"))
	failed(t, r, tool.Fixable, tool.CodeInvalid)
	if !strings.Contains(r.Err.Message, "[secret:key]") || !strings.Contains(r.Err.Hint, "sed") {
		t.Errorf("it says %+v", r.Err)
	}
	if got := b.sh("cat config; grep -c hunter2 config").Stdout; !strings.Contains(got, "me") || !strings.HasSuffix(got, "1\n") {
		t.Errorf("the file is %q", got)
	}
	for path, content := range map[string]string{"text": "you say [secret:key]\n", "new": "[secret:key]\n", "config": "user: you\n"} {
		if r := b.call(tool.WriteFile, "path", path, "content", content); !r.OK {
			t.Errorf("%s: %+v", path, r.Err)
		}
	}
}
