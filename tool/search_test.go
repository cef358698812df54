package tool_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/tool"
)

func withSearch(o *tool.Options, _ *budget.Limits) { o.Search = true }

// Long output is searched where it was spilled, and read on from where the
// preview says, by the same numbers of lines.
func TestSearchSpill(t *testing.T) {
	t.Parallel()
	b := newBench(t, withSearch)
	r := b.call(tool.RunCommand, "command", `for i in $(seq 3000); do echo "line $i of some"; done; echo "needle one"; echo "needle two"; seq 5000`)
	if !r.OK || r.Spill == nil || r.Spill.Lines != 8_002 {
		t.Fatalf("%+v", r)
	}
	s := b.call(tool.Search, "path", r.Spill.Path, "pattern", "needle (one|two)$")
	if !s.OK || s.Stdout != "3001:needle one\n3002:needle two\n" || *s.Matches != 2 || s.Truncated {
		t.Errorf("%+v", s)
	}
	if s = b.call(tool.Search, "path", r.Spill.Path, "pattern", "LINE 299", "fixed", true, "ignore_case", true, "limit", 3); s.Stdout != "299:line 299 of some\n2990:line 2990 of some\n2991:line 2991 of some\n" ||
		*s.Matches != 11 || !s.Truncated || s.File.NextOffset != 2992 {
		t.Errorf("%+v", s)
	}
	if s = b.call(tool.Search, "path", r.Spill.Path, "pattern", "line 299", "offset", s.File.NextOffset); !strings.HasPrefix(s.Stdout, "2992:") || *s.Matches != 8 || s.Truncated {
		t.Errorf("%+v", s)
	}
	if s = b.call(tool.Search, "path", r.Spill.Path, "pattern", "nowhere"); !s.OK || s.Stdout != "" || *s.Matches != 0 {
		t.Errorf("%+v", s)
	}
	from := 0
	if _, err := fmt.Sscanf(r.Stdout[strings.Index(r.Stdout, "left out, from line "):], "left out, from line %d ", &from); err != nil {
		t.Fatal(err)
	}
	if f := b.call(tool.ReadFile, "path", r.Spill.Path, "offset", from, "limit", 1); f.Stdout != fmt.Sprintf("line %d of some\n", from) {
		t.Errorf("line %d of the spill is %q", from, f.Stdout)
	}
}

// The number to read on from is one of the spill when both streams are in it.
func TestLinesOfTheSpill(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	r := b.call(tool.RunCommand, "command", `for i in $(seq 40); do for j in $(seq 30); do echo "warning $j" >&2; done; sleep 0.01; for j in $(seq 30); do echo "out $i $j"; done; sleep 0.01; done`)
	if r.Spill == nil {
		t.Fatalf("%+v", r)
	}
	head, rest, _ := strings.Cut(r.Stdout, "[... ")
	var size, lines, from int
	if _, err := fmt.Sscanf(rest, "%d bytes, %d lines left out, from line %d ", &size, &lines, &from); err != nil {
		t.Fatalf("%v in %.100q", err, rest)
	}
	n := strings.Count(head, "\n")
	f := b.call(tool.ReadFile, "path", r.Spill.Path, "offset", from, "limit", 1)
	if want := fmt.Sprintf("out %d %d\n", n/30+1, n%30+1); f.Stdout != want {
		t.Errorf("line %d of the spill is %q, not %q", from, f.Stdout, want)
	}
}

func TestSearchRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, withSearch)
	b.call(tool.WriteFile, "path", "keys", "content", "a hunter2hunter2 b\nc\nbin\x00\xffary\n"+strings.Repeat("x", 1000)+"end")
	for _, c := range []struct {
		path, pattern, code string
	}{
		{"keys", "(", tool.CodeInvalidArguments}, {"../etc/passwd", "root", tool.CodePathDenied}, {".env", "a", tool.CodeSecretPath}, {"none", "a", tool.CodeFileNotFound}, {".", "a", ""},
	} {
		if s := b.call(tool.Search, "path", c.path, "pattern", c.pattern); s.OK || s.Err == nil || c.code != "" && s.Err.Code != c.code {
			t.Errorf("%q in %q: %+v", c.pattern, c.path, s.Err)
		}
	}
	if s := b.call(tool.Search, "path", "keys", "pattern", "hunter2"); !s.OK || *s.Matches != 0 {
		t.Errorf("a value is searched for: %+v", s)
	}
	if s := b.call(tool.Search, "path", "keys", "pattern", "^a|ary|end$"); !strings.HasPrefix(s.Stdout, "1:a [secret:key] b\n3:bin\ufffd\ufffdary\n4:…") || !strings.HasSuffix(s.Stdout, "end\n") {
		t.Errorf("%q", s.Stdout)
	}
	if s := newBench(t, nil).call(tool.Search, "path", "keys", "pattern", "a"); s.Err == nil || s.Err.Code != tool.CodeUnknownTool {
		t.Errorf("there is a search tool that nobody asked for: %+v", s)
	}
}

// The last lines alone, with where the rest is and how long it is.
func TestTail(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	r := b.call(tool.RunCommand, "command", "seq 1000", "output", "tail")
	if r.Spill == nil || r.Spill.Lines != 1000 || r.Spill.Path == "" || !r.Truncated || r.Omitted.Stdout.Lines != 950 ||
		!strings.HasPrefix(r.Stdout, "[... 3692 bytes, 950 lines left out, from line 1 ...]\n951\n") || !strings.HasSuffix(r.Stdout, "\n1000\n") {
		t.Errorf("%+v", r)
	}
	if r = b.call(tool.RunCommand, "command", "seq 9", "output", "tail", "lines", 3); !strings.HasSuffix(r.Stdout, "...]\n7\n8\n9\n") || r.Spill == nil || r.Spill.Lines != 9 {
		t.Errorf("%+v", r)
	}
	if r = b.call(tool.RunCommand, "command", "seq 3", "output", "tail"); r.Stdout != "1\n2\n3\n" || r.Spill == nil || r.Truncated {
		t.Errorf("all of it is there: %+v", r)
	}
	if r = b.call(tool.RunCommand, "command", "true", "lines", 3); r.Err == nil || r.Err.Code != tool.CodeInvalidArguments {
		t.Errorf("%+v", r)
	}
}

// A failure in the middle of far more than leaves the sandbox is shown.
func TestDecisiveFromTheMiddle(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	much := `yes '` + strings.Repeat("compiling one module of many, nothing to tell; ", 4) + `' | head -n 15000; `
	r := b.call(tool.RunCommand, "command", much+`echo 'src/a.c:7:1: error: the quota is gone'; `+much)
	if !strings.Contains(r.Stdout, "\nsrc/a.c:7:1: error: the quota is gone\n") || r.OutputBytes < 5_000_000 {
		t.Errorf("%d bytes: %.500q, %.500q", r.OutputBytes, r.Stdout, r.Stderr)
	}
	if r.Omitted == nil || r.Omitted.Stdout.Lines < 29_000 || r.Spill == nil || r.Spill.Lines != 30_001 {
		t.Errorf("%+v, %+v", r.Omitted, r.Spill)
	}
}
