package tool_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/tool"
)

var update = flag.Bool("update", false, "write the table of classes into docs/failures.md")

const classesPage = "../docs/failures.md"

// The page has the table of classes as it is in force.
func TestClassesPage(t *testing.T) {
	t.Parallel()
	ops := []tool.Op{tool.OpCreate, tool.OpRun, tool.OpWait, tool.OpRead, tool.OpWrite, tool.OpKill, tool.OpModel}
	var b strings.Builder
	b.WriteString("| code |")
	for _, op := range ops {
		b.WriteString(" " + string(op) + " |")
	}
	b.WriteString("\n" + strings.Repeat("|---", len(ops)+1) + "|\n")
	for _, code := range tool.Codes() {
		b.WriteString("| `" + code + "` |")
		for _, op := range ops {
			class := string(tool.Classify(op, code))
			if class == string(tool.Unknown) {
				class = "–"
			}
			b.WriteString(" " + class + " |")
		}
		b.WriteString("\n")
	}
	page, err := os.ReadFile(classesPage)
	if err != nil {
		t.Fatal(err)
	}
	const from, to = "<!-- classes -->\n", "<!-- end of classes -->\n"
	before, rest, ok1 := strings.Cut(string(page), from)
	had, after, ok2 := strings.Cut(rest, to)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", classesPage)
	}
	if had != b.String() && *update {
		if err := os.WriteFile(classesPage, []byte(before+from+b.String()+to+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(b.String(), had); d != "" {
		t.Errorf("go test ./tool -run TestClassesPage -update writes it (-in force +page):\n%s", d)
	}
	for _, cause := range tool.Causes() {
		if !strings.Contains(string(page), "`"+cause+"`") {
			t.Errorf("the page does not name the diagnosis %s", cause)
		}
	}
}

// Every kind of a model's failure has its class; unknown ones are never
// repeated.
func TestClassesOfModels(t *testing.T) {
	t.Parallel()
	for kind, want := range map[model.Kind]tool.Class{
		model.KindRateLimit: tool.Retryable, model.KindOverloaded: tool.Retryable, model.KindUnavailable: tool.Retryable,
		model.KindTimeout: tool.Retryable, model.KindCut: tool.Retryable, model.KindContext: tool.Fixable,
		model.KindAuth: tool.Fatal, model.KindNotFound: tool.Fatal, model.KindInvalid: tool.Fatal,
		model.KindForbidden: tool.NeedsHuman, model.KindQuota: tool.NeedsHuman, model.KindUnknown: tool.Unknown, "": tool.Unknown, "new": tool.Unknown,
	} {
		if got := tool.Classify(tool.OpModel, string(kind)); got != want {
			t.Errorf("%q: %s, want %s", kind, got, want)
		}
	}
}
