package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/tool"
)

func ptr(f float64) *float64 { return &f }

func printer() tool.Program {
	return tool.Program{
		Name: "show", Description: "Prints its arguments, one a line.",
		Parameters: []tool.Parameter{
			{Name: "text", Type: "string", Required: true},
			{Name: "color", Type: "string", Enum: []string{"red", "-blue"}},
			{Name: "word", Type: "string", Pattern: "[a-z]+"},
			{Name: "n", Type: "integer", Min: ptr(1), Max: ptr(9)},
			{Name: "loud", Type: "boolean"},
			{Name: "file", Type: "string", Path: true},
		},
		Argv: []string{"sh", "-c", `printf '%s\n' "$@"`, "sh", "{{text}}", "--color={{color}}", "{{word}}", "-n{{n}}", "loud={{loud}}", "{{file}}", "{{text}}/{{n}}"},
	}
}

func withTools(t *testing.T, programs ...tool.Program) *bench {
	t.Helper()
	return newBench(t, func(o *tool.Options, _ *budget.Limits) {
		for _, p := range programs {
			c, err := p.Tool()
			if err != nil {
				t.Fatal(err)
			}
			o.Custom = append(o.Custom, c)
		}
	})
}

func TestProgram(t *testing.T) {
	t.Parallel()
	b := withTools(t, printer())
	for _, tt := range []struct {
		args []any
		want string
	}{
		{[]any{"text", "a"}, "a\n"},
		{[]any{"text", "a b; rm -rf / $(x) `y` 'z' \"w\" *"}, "a b; rm -rf / $(x) `y` 'z' \"w\" *\n"},
		{[]any{"text", "line\nline"}, "line\nline\n"},
		{[]any{"text", ""}, "\n"},
		{[]any{"text", "{{n}}", "n", 3}, "{{n}}\n-n3\n{{n}}/3\n"}, // a value is no template
		{[]any{"text", "a", "color", "-blue", "word", "b", "loud", true}, "a\n--color=-blue\nb\nloud=true\n"},
		{[]any{"text", "a", "file", "sub/x.txt"}, "a\nsub/x.txt\n"},
	} {
		if r := b.call("show", tt.args...); !r.OK || r.Stdout != tt.want {
			t.Errorf("%v: %q %v", tt.args, r.Stdout, r.Err)
		}
	}
	for _, tt := range []struct {
		args []any
		code string
	}{
		{[]any{}, tool.CodeInvalidArguments},
		{[]any{"text", "-rf"}, tool.CodeInvalidArguments},
		{[]any{"text", "a\x00b"}, tool.CodeInvalidArguments},
		{[]any{"text", 3}, tool.CodeInvalidArguments},
		{[]any{"text", strings.Repeat("x", tool.DefaultMaxLength+1)}, tool.CodeInvalidArguments},
		{[]any{"text", "a", "color", "green"}, tool.CodeInvalidArguments},
		{[]any{"text", "a", "word", "b c"}, tool.CodeInvalidArguments},
		{[]any{"text", "a", "word", "b\n"}, tool.CodeInvalidArguments},
		{[]any{"text", "a", "n", 10}, tool.CodeInvalidArguments},
		{[]any{"text", "a", "n", 1.5}, tool.CodeInvalidArguments},
		{[]any{"text", "a", "more", 1}, tool.CodeInvalidArguments},
		{[]any{"text", "a", "file", "../x"}, tool.CodePathDenied},
		{[]any{"text", "a", "file", "/etc/passwd"}, tool.CodePathDenied},
		{[]any{"text", "a", "file", ".env"}, tool.CodeSecretPath},
	} {
		failed(t, b.call("show", tt.args...), tool.Fixable, tt.code)
	}
}

// A path that is a link out of the workspace does not pass for one inside.
func TestProgramLink(t *testing.T) {
	t.Parallel()
	b := withTools(t, printer())
	b.sh("ln -s /etc/passwd inside")
	failed(t, b.call("show", "text", "a", "file", "inside"), tool.Fixable, tool.CodePathDenied)
}

// A program of a keyword's or builtin's name is that program.
func TestProgramName(t *testing.T) {
	t.Parallel()
	for _, argv := range [][]string{{"if"}, {"cd", "/"}, {"a b"}} {
		line := tool.CommandLine(argv)
		if !strings.HasPrefix(line, "exec ") {
			t.Errorf("%q: %s", argv, line)
		}
	}
}

func TestProgramFaults(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*tool.Program){
		"name: \"\"":               func(p *tool.Program) { p.Name = "" },
		"rein's own":               func(p *tool.Program) { p.Name = tool.RunCommand },
		"description":              func(p *tool.Program) { p.Description = " " },
		"argv: it has no program":  func(p *tool.Program) { p.Argv = nil },
		"without a parameter":      func(p *tool.Program) { p.Argv[0] = "{{text}}" },
		"no parameter \"other\"":   func(p *tool.Program) { p.Argv = append(p.Argv, "{{other}}") },
		"belong to no parameter":   func(p *tool.Program) { p.Argv = append(p.Argv, "{{text") },
		"argv does not use it":     func(p *tool.Program) { p.Argv = p.Argv[:4] },
		"there are two":            func(p *tool.Program) { p.Parameters = append(p.Parameters, p.Parameters[0]) },
		"type: \"list\"":           func(p *tool.Program) { p.Parameters[0].Type = "list" },
		"are for strings":          func(p *tool.Program) { p.Parameters[3].Enum = []string{"1"} },
		"are for numbers":          func(p *tool.Program) { p.Parameters[0].Min = ptr(1) },
		"more than max":            func(p *tool.Program) { p.Parameters[3].Min = ptr(10) },
		"missing closing":          func(p *tool.Program) { p.Parameters[0].Pattern = "(" },
		"no name of a parameter":   func(p *tool.Program) { p.Parameters[0].Name = "a-b" },
		"timeout: it is negative":  func(p *tool.Program) { p.Timeout = -1 },
		"max_length":               func(p *tool.Program) { p.Parameters[0].MaxLength = -1 },
		"argv[11]: it holds a NUL": func(p *tool.Program) { p.Argv = append(p.Argv, "\x00") },
	} {
		p := printer()
		change(&p)
		if _, err := p.Tool(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func FuzzProgram(f *testing.F) {
	p := printer()
	custom, err := p.Tool()
	if err != nil {
		f.Fatal(err)
	}
	if len(custom.Schema) == 0 {
		f.Fatal("no schema")
	}
	for _, s := range []string{`{"text":"a"}`, `{"text":"-a"}`, `{"text":"a","n":3,"loud":false}`, `[]`, `{`, `{"text":null}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		argv, fault := p.CommandOf(args)
		if (fault == nil) == (argv == nil) {
			t.Fatalf("%q: %q, %v", args, argv, fault)
		}
		if fault == nil && (argv[0] != "sh" || slices.ContainsFunc(argv, func(a string) bool { return strings.ContainsRune(a, 0) })) {
			t.Fatalf("%q: %q", args, argv)
		}
	})
}

type sum struct {
	Numbers []int  `json:"numbers" jsonschema:"what to add"`
	Word    string `json:"word,omitempty"`
}

type total struct {
	Total int `json:"total"`
}

func TestFunc(t *testing.T) {
	t.Parallel()
	add, err := tool.Func("add", "Adds numbers.", func(_ context.Context, in sum) (total, error) {
		switch in.Word {
		case "fail":
			return total{}, errors.New("no luck with hunter2hunter2")
		case "fixable":
			return total{}, &tool.Error{Class: tool.Fixable, Code: "wrong", Message: "try again"}
		case "panic":
			panic("out of order")
		}
		n := 0
		for _, i := range in.Numbers {
			n += i
		}
		return total{n}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	long, err := tool.Func("long", "Says much.", func(context.Context, struct{}) (string, error) {
		return strings.Repeat("line\n", 5000) + "hunter2hunter2", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(o *tool.Options, _ *budget.Limits) { o.Custom = []tool.Custom{add, long}; o.NoShell = true })
	names := []string{}
	for _, d := range b.set.Definitions() {
		names = append(names, d.Name)
	}
	if d := cmp.Diff([]string{tool.SandboxCreate, tool.ReadFile, tool.WriteFile, "add", "long", tool.SandboxKill}, names); d != "" {
		t.Error(d)
	}
	if r := b.call("add", "numbers", []int{1, 2}); !r.OK || r.Stdout != `{"total":3}` {
		t.Errorf("%+v %v", r, r.Err)
	}
	failed(t, b.call("add"), tool.Fixable, tool.CodeInvalidArguments)
	failed(t, b.call("add", "numbers", "1"), tool.Fixable, tool.CodeInvalidArguments)
	failed(t, b.call("add", "numbers", []int{}, "word", "fixable"), tool.Fixable, "wrong")
	failed(t, b.call("add", "numbers", []int{}, "word", "panic"), tool.Unknown, tool.CodeFunctionFailed)
	r := b.call("add", "numbers", []int{}, "word", "fail")
	failed(t, r, tool.Unknown, tool.CodeFunctionFailed)
	if strings.Contains(r.Err.Message, "hunter2") {
		t.Error("a secret in the error:", r.Err.Message)
	}
	if r := b.call("long"); !r.OK || !r.Truncated || strings.Contains(r.Stdout, "hunter2") || len(r.Stdout) > budget.Standard().OutputBytes {
		t.Errorf("%d bytes, truncated %v", len(r.Stdout), r.Truncated)
	}
	if _, err := tool.Func("n", "d", func(context.Context, int) (int, error) { return 0, nil }); err == nil {
		t.Error("arguments that are no struct")
	}
	if _, err := tool.Func[sum, int](tool.ReadFile, "d", nil); err == nil {
		t.Error("a reserved name")
	}
}

// What is not approved is not executed, and what was edited is said.
func TestApprove(t *testing.T) {
	t.Parallel()
	var asked []string
	b := newBench(t, func(o *tool.Options, _ *budget.Limits) {
		o.Approve = func(_ context.Context, c tool.Call) (tool.Call, *tool.Error) {
			asked = append(asked, c.Name)
			if strings.Contains(string(c.Arguments), "forbidden") {
				return c, &tool.Error{Class: tool.NeedsHuman, Code: "approval_denied", Message: "no hunter2hunter2"}
			}
			if strings.Contains(string(c.Arguments), "edit") {
				c.Edited = "echo other"
				c.Arguments = json.RawMessage(`{"command":"echo other"}`)
			}
			return c, nil
		}
	})
	r := b.call(tool.RunCommand, "command", "touch forbidden")
	failed(t, r, tool.NeedsHuman, "approval_denied")
	if strings.Contains(r.Err.Message, "hunter2") {
		t.Error("a secret in the error:", r.Err.Message)
	}
	if r := b.call(tool.RunCommand, "command", "echo edit"); !r.OK || r.Stdout != "other\n" || r.Edited != "echo other" {
		t.Errorf("%+v", r)
	}
	failed(t, b.call(tool.ReadFile, "path", "forbidden.txt"), tool.NeedsHuman, "approval_denied")
	// Arguments are checked before anybody is asked.
	failed(t, b.call(tool.RunCommand, "command", 3), tool.Fixable, tool.CodeInvalidArguments)
	failed(t, b.call(tool.RunCommand, "command", "x", "sandbox_id", "other"), tool.Fixable, tool.CodeUnknownSandbox)
	if d := cmp.Diff([]string{tool.RunCommand, tool.RunCommand, tool.ReadFile}, asked); d != "" {
		t.Error(d)
	}
	if r := b.sh("ls"); r.Stdout != "" {
		t.Errorf("it was executed: %q", r.Stdout)
	}
}
