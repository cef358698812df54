package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/tool"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestResultJSON(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	r := b.call(tool.RunCommand, "command", "echo out; echo wrong >&2; exit 3")
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "duration_ms")
	want := map[string]any{"ok": false, "exit_code": 3.0, "stdout": "out\n", "stderr": "wrong\n", "truncated": false,
		"timeout": false, "sandbox_id": b.box.ID(), "call_id": "call_1"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if data, _ := json.Marshal(b.call(tool.ReadFile, "path", "x")); !bytes.Contains(data, []byte(`"exit_code":null`)) {
		t.Errorf("an unknown exit code is not null: %s", data)
	}
}

// Every sentence a model needs is there, with the numbers in force.
func TestDescriptions(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *tool.Options, l *budget.Limits) {
		l.CallTimeout, l.MaxCallTimeout, l.OutputBytes, l.OutputLines = 33*time.Second, 77*time.Second, 8<<10, 123
		o.MaxWrite = 3 << 20
	})
	all := map[string]string{}
	var names []string
	for _, d := range b.set.Definitions() {
		all[d.Name] = d.Description
		names = append(names, d.Name)
		var schema map[string]any
		if err := json.Unmarshal(d.Schema, &schema); err != nil || schema["type"] != "object" || schema["additionalProperties"] != false {
			t.Errorf("%s: %s, %v", d.Name, d.Schema, err)
		}
		for _, k := range []string{"oneOf", "anyOf", "allOf"} {
			if _, ok := schema[k]; ok {
				t.Errorf("%s has %s at its top", d.Name, k)
			}
		}
	}
	if d := cmp.Diff([]string{"sandbox_create", "run_command", "read_file", "write_file", "sandbox_kill"}, names); d != "" {
		t.Error(d)
	}
	for name, sentences := range map[string][]string{
		tool.RunCommand: {"after 33 s", "up to 77", "8 KB and 123 lines", "On a non-zero exit read stderr first and do not repeat the same command",
			"commands share files, not variables", "Use read_file for files over 1 MB", "spill", "everything it started", "background", "binary names streams"},
		tool.ReadFile:      {"8 KB and 123 lines", "files over 1 MB", "next_offset", ".env"},
		tool.WriteFile:     {"3 MB", "expected_hash", "/workspace"},
		tool.SandboxCreate: {"required", "can only shorten", "At most one"},
		tool.SandboxKill:   {"finished", "outputs", "destroys", "no other tool works"},
	} {
		for _, s := range sentences {
			if !strings.Contains(all[name], s) {
				t.Errorf("%s does not say %q: %s", name, s, all[name])
			}
		}
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for _, c := range []struct{ tool, args, code, says string }{
		{"run_comand", `{}`, tool.CodeUnknownTool, "run_comand"},
		{"", `{}`, tool.CodeUnknownTool, `""`},
		{strings.Repeat("x", 100_000), `{}`, tool.CodeUnknownTool, "xxx"},
		{tool.RunCommand, `{"command":`, tool.CodeInvalidJSON, "ends in the middle"},
		{tool.RunCommand, `{"command": tru}`, tool.CodeInvalidJSON, "byte 16"},
		{tool.RunCommand, `{"command":"x"} {}`, tool.CodeInvalidJSON, "byte"},
		{tool.RunCommand, "{\"command\":\"\xff\"}", tool.CodeInvalidJSON, "UTF-8"},
		{tool.RunCommand, `[]`, tool.CodeInvalidArguments, "arguments: type"},
		{tool.RunCommand, ``, tool.CodeInvalidArguments, "arguments/command"},
		{tool.RunCommand, `null`, tool.CodeInvalidArguments, "arguments/command"},
		{tool.RunCommand, `{"command":7}`, tool.CodeInvalidArguments, "arguments/command: type: 7"},
		{tool.RunCommand, `{"command":"x","timeout_seconds":1.5}`, tool.CodeInvalidArguments, "arguments/timeout_seconds"},
		{tool.RunCommand, `{"command":"x","timeout_seconds":0}`, tool.CodeInvalidArguments, "minimum: 0 is less than 1"},
		{tool.RunCommand, `{"command":"x","timeout_seconds":121}`, tool.CodeTimeoutTooLong, "121 is more than 120"},
		{tool.RunCommand, `{"command":"x","image":"evil"}`, tool.CodeInvalidArguments, "image"},
		{tool.RunCommand, `{"command":"x","wait":"y"}`, tool.CodeInvalidArguments, "arguments/wait"},
		{tool.RunCommand, `{"command":"x","sandbox_id":"other"}`, tool.CodeUnknownSandbox, "other"},
		{tool.ReadFile, `{}`, tool.CodeInvalidArguments, "path"},
		{tool.ReadFile, `{"path":"x","unit":"words"}`, tool.CodeInvalidArguments, "arguments/unit"},
		{tool.WriteFile, `{"path":"x","content":"y","mode":"4755"}`, tool.CodeInvalidArguments, "arguments/mode"},
		{tool.WriteFile, `{"path":"x","content":"y","expected_hash":"abc"}`, tool.CodeInvalidArguments, "arguments/expected_hash"},
		{tool.SandboxCreate, `{}`, tool.CodeInvalidArguments, "ttl_seconds"},
		{tool.SandboxCreate, `{"ttl_seconds":1000000}`, tool.CodeInvalidArguments, "arguments/ttl_seconds: maximum"},
		{tool.SandboxCreate, `{"ttl_seconds":600,"target":"other"}`, tool.CodeInvalidArguments, "arguments/target"},
		{tool.SandboxCreate, `{"ttl_seconds":600,"image":"evil"}`, tool.CodeInvalidArguments, "image"},
	} {
		r := b.raw(c.tool, c.args)
		if r.OK || r.Err == nil || r.Err.Class != tool.Fixable || r.Err.Code != c.code || !strings.Contains(r.Err.Message, c.says) || len(r.Err.Message) > 600 {
			t.Errorf("%s %.60s: %v, want %s with %q", c.tool[:min(len(c.tool), 20)], c.args, r.Err, c.code, c.says)
		}
	}
	if r := b.raw("run_comand", `{}`); !strings.HasPrefix(r.Err.Hint, "did you mean run_command?") {
		t.Errorf("hint: %s", r.Err.Hint)
	}
	if r := b.call(tool.RunCommand, "command", "true", "sandbox_id", b.box.ID()); !r.OK {
		t.Errorf("its own sandbox: %v", r.Err)
	}
}

func TestCommandFailures(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	r := b.call(tool.RunCommand, "command", "nonexistent-command")
	failed(t, r, tool.Fixable, tool.CodeCommandNotFound)
	if r.ExitCode == nil || *r.ExitCode != 127 {
		t.Errorf("exit code: %v", r.ExitCode)
	}
	r = b.call(tool.RunCommand, "command", "exit 126")
	failed(t, r, tool.Fixable, tool.CodeNotExecutable)
	r = b.call(tool.RunCommand, "command", "true", "cwd", "/nonexistent")
	failed(t, r, tool.Fixable, tool.CodeInvalid)
	if r := b.call(tool.RunCommand, "command", "echo hunter2hunter2"); r.Stdout != "[secret:key]\n" {
		t.Errorf("stdout: %q", r.Stdout)
	}
	failed(t, b.call(tool.RunCommand, "wait", "call_unknown"), tool.Fixable, tool.CodeNotFound)
}

// A command is ended when its time is over.
func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		start := time.Now()
		r := b.call(tool.RunCommand, "command", "echo begun; sleep 60", "timeout_seconds", 1)
		failed(t, r, tool.Verify, tool.CodeTimeout)
		if took := time.Since(start); !r.Timeout || r.Stdout != "begun\n" || took < time.Second || took > 3*time.Second {
			t.Errorf("timeout: %+v after %v", r, took)
		}
	})
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(_ *tool.Options, l *budget.Limits) { l.OutputBytes, l.OutputLines = 4096, 100 })
	r := b.call(tool.RunCommand, "command", "seq 1 5000; echo last >&2")
	if !r.OK || !r.Truncated || r.Omitted == nil || r.Spill == nil {
		t.Fatalf("%+v %v", r, r.Err)
	}
	if len(r.Stdout)+len(r.Stderr) > 4096+300 || r.Stderr != "last\n" || !strings.HasSuffix(r.Stdout, "5000\n") {
		t.Errorf("%d bytes, stderr %q, end %q", len(r.Stdout), r.Stderr, r.Stdout[max(0, len(r.Stdout)-20):])
	}
	if r.Spill.Lines != 5001 || r.Spill.Bytes != r.OutputBytes {
		t.Errorf("spill %+v of %d bytes", r.Spill, r.OutputBytes)
	}
	// The order of two streams in a spill is that of their arrival.
	r = b.call(tool.RunCommand, "command", "seq 1 5000")
	part := b.call(tool.ReadFile, "path", r.Spill.Path, "offset", 3000, "limit", 2)
	if part.Stdout != "3000\n3001\n" || part.File.NextOffset != 3002 {
		t.Errorf("part: %+v %v %+v", part.Stdout, part.Err, part.File)
	}
}

func TestBackground(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	r := b.call(tool.RunCommand, "command", "echo one; sleep 2; echo two; exit 5", "background", true)
	if r.OK || r.ExitCode != nil || r.Err != nil || r.Background == nil || !r.Background.Running || r.Background.LogPath == "" {
		t.Fatalf("%+v %v", r, r.Err)
	}
	w := b.call(tool.RunCommand, "wait", r.Background.ID, "timeout_seconds", 1)
	if w.OK || !w.Background.Running || w.ExitCode != nil || w.Stdout != "one\n" || w.Err != nil {
		t.Errorf("first look: %+v %v", w, w.Err)
	}
	w = b.call(tool.RunCommand, "wait", r.Background.ID, "timeout_seconds", 30)
	if w.Background.Running || w.ExitCode == nil || *w.ExitCode != 5 || !strings.HasSuffix(w.Stdout, "one\ntwo\n") {
		t.Errorf("the end: %+v %v %+v", w, w.Err, w.Background)
	}
	if l := b.call(tool.ReadFile, "path", r.Background.LogPath); l.Stdout != "one\ntwo\n" {
		t.Errorf("log: %+v %v", l, l.Err)
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(_ *tool.Options, l *budget.Limits) { l.OutputBytes, l.OutputLines = 2048, 50 })
	var text strings.Builder
	for i := 1; i <= 120; i++ {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	whole := text.String()
	for name, content := range map[string]string{"small": "a\nb", "lines": whole, "wide": strings.Repeat("x", 5000) + "\n", "empty": "", "crlf": "a\r\nb\r\n",
		"secret": "key=hunter2hunter2\n", "bin": "a\x00b"} {
		if r := b.call(tool.WriteFile, "path", name, "content", content); !r.OK {
			t.Fatalf("%s: %v", name, r.Err)
		}
	}
	if r := b.call(tool.ReadFile, "path", "small"); r.Stdout != "a\nb" || r.Truncated || len(r.File.SHA256) != 64 || r.File.NextOffset != 0 {
		t.Errorf("small: %+v %+v", r, r.File)
	}
	if r := b.call(tool.ReadFile, "path", "empty"); !r.OK || r.Stdout != "" || r.File.SHA256 == "" {
		t.Errorf("empty: %+v %v", r, r.Err)
	}
	if r := b.call(tool.ReadFile, "path", "crlf"); r.Stdout != "a\r\nb\r\n" {
		t.Errorf("crlf: %q", r.Stdout)
	}
	if r := b.call(tool.ReadFile, "path", "secret"); r.Stdout != "key=[secret:key]\n" {
		t.Errorf("secret: %q", r.Stdout)
	}
	if r := b.call(tool.ReadFile, "path", "secret", "unit", "bytes", "offset", 4, "limit", 7); !r.OK || r.Stdout != "" || r.File.NextOffset != 11 {
		t.Errorf("a piece that is an end and a beginning of the secret: %+v %+v", r, r.File) // hunter2
	}
	failed(t, b.call(tool.ReadFile, "path", "bin"), tool.Fixable, tool.CodeBinaryFile)
	failed(t, b.call(tool.ReadFile, "path", "wide"), tool.Fixable, tool.CodeTooLarge)
	failed(t, b.call(tool.ReadFile, "path", "none"), tool.Fixable, tool.CodeFileNotFound)
	b.sh("mkdir dir")
	failed(t, b.call(tool.ReadFile, "path", "dir"), tool.Fixable, tool.CodeNotRegular)

	// Reading on gives the whole file, by lines and by bytes.
	for _, unit := range []string{"lines", "bytes"} {
		var got strings.Builder
		offset, file := int64(0), "lines"
		if unit == "bytes" {
			file = "wide"
		}
		for range 100 {
			r := b.call(tool.ReadFile, "path", file, "offset", offset, "unit", unit)
			if !r.OK {
				t.Fatalf("%s: %v", unit, r.Err)
			}
			got.WriteString(r.Stdout)
			if offset = r.File.NextOffset; offset == 0 {
				break
			}
			if !r.Truncated {
				t.Errorf("%s: there is more, and truncated is false", unit)
			}
		}
		want := whole
		if unit == "bytes" {
			want = strings.Repeat("x", 5000) + "\n"
		}
		if got.String() != want {
			t.Errorf("%s: %d bytes instead of %d", unit, got.Len(), len(want))
		}
	}
	if r := b.call(tool.ReadFile, "path", "lines", "offset", 10, "limit", 2); r.Stdout != "line 10\nline 11\n" || r.File.SHA256 != "" {
		t.Errorf("part: %+v", r)
	}
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *tool.Options, _ *budget.Limits) { o.MaxWrite = 100 })
	r := b.call(tool.WriteFile, "path", "deep/er/f", "content", "one\n", "mode", "755", "expected_hash", "absent")
	if !r.OK || r.File.Bytes != 4 || r.File.Path != "/workspace/deep/er/f" {
		t.Fatalf("%+v %v", r, r.Err)
	}
	if got := b.sh("cat deep/er/f && test -x deep/er/f && echo executable").Stdout; got != "one\nexecutable\n" {
		t.Errorf("got %q", got)
	}
	failed(t, b.call(tool.WriteFile, "path", "deep/er/f", "content", "x", "expected_hash", "absent"), tool.Fixable, tool.CodeHashMismatch)
	failed(t, b.call(tool.WriteFile, "path", "deep/er/f", "content", "x", "expected_hash", strings.Repeat("0", 64)), tool.Fixable, tool.CodeHashMismatch)
	if r := b.call(tool.WriteFile, "path", "deep/er/f", "content", "two\n", "expected_hash", r.File.SHA256); !r.OK {
		t.Errorf("the right hash: %v", r.Err)
	}
	failed(t, b.call(tool.WriteFile, "path", "f", "content", strings.Repeat("x", 101)), tool.Fixable, tool.CodeTooLarge)
}

func TestPathRules(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *tool.Options, _ *budget.Limits) { o.ReadPrefixes = []string{"/data"} })
	b.sh("mkdir -p .aws a/b && echo s > .aws/credentials && echo s > .env && echo x > a/b/f && " +
		"ln -s ../../.env a/b/innocent && ln -s .aws keys && ln -s a/b good && ln -s /etc out && ln -s loop loop")
	for _, c := range []struct{ path, code string }{
		{"/etc/passwd", tool.CodePathDenied}, {"../../etc/passwd", tool.CodePathDenied}, {"/workspace/../etc/passwd", tool.CodePathDenied},
		{"/workspacex", tool.CodePathDenied}, {"/proc/1/environ", tool.CodePathDenied}, {"out/passwd", tool.CodePathDenied}, {"loop", tool.CodePathDenied},
		{".env", tool.CodeSecretPath}, {"sub/.ENV", tool.CodeSecretPath}, {"/data/.ssh/id", tool.CodeSecretPath}, {"x/.Aws/credentials", tool.CodeSecretPath},
		{"a/b/innocent", tool.CodeSecretPath}, {"keys/credentials", tool.CodeSecretPath}, {"good/innocent", tool.CodeSecretPath},
	} {
		failed(t, b.call(tool.ReadFile, "path", c.path), tool.Fixable, c.code)
		failed(t, b.call(tool.WriteFile, "path", c.path, "content", "x"), tool.Fixable, map[bool]string{true: tool.CodePathDenied, false: c.code}[strings.HasPrefix(c.path, "/data")])
	}
	if r := b.call(tool.ReadFile, "path", "good/f"); r.Stdout != "x\n" {
		t.Errorf("over a harmless link: %+v %v", r, r.Err)
	}
	failed(t, b.call(tool.ReadFile, "path", "/data/f"), tool.Fixable, tool.CodeFileNotFound)
	failed(t, b.call(tool.WriteFile, "path", "/run/rein/out/x", "content", "x"), tool.Fixable, tool.CodePathDenied)
	if got := b.sh("cat .env .aws/credentials").Stdout; got != "s\ns\n" {
		t.Errorf("a refused write changed something: %q", got)
	}
}

func TestSecret(t *testing.T) {
	for name, want := range map[string]bool{
		".env": true, "a/.env": true, ".env.local": true, ".env.production": true, ".ENV": true, ".env.example": false, ".env.sample": false,
		"env": false, ".environment": false, "x.env": false, ".ssh/config": true, "home/.ssh": true, ".kube/config": true, "kubeconfig": true,
		"prod.kubeconfig": true, ".netrc": true, ".npmrc": true, "pkg/.npmrc": true, "id_rsa": true, "id_rsa.pub": false,
		".docker/config.json": true, "docker/config.json": false, ".config/gcloud/x": true, ".config/other": false, ".git-credentials": true,
		".env.example/.ssh/x": true, "main.go": false, "a/../.env": true,
	} {
		if tool.Secret(name) != want {
			t.Errorf("%s: got %v", name, !want)
		}
	}
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	before := b.box.Info().ExpiresAt
	r := b.call(tool.SandboxCreate, "ttl_seconds", 600, "target", "default")
	if !r.OK || !strings.Contains(r.Stdout, b.box.ID()) || !b.box.Info().ExpiresAt.Before(before) {
		t.Errorf("create: %+v %v", r, r.Err)
	}
	failed(t, b.call(tool.SandboxCreate, "ttl_seconds", 600), tool.Fixable, tool.CodeSandboxLimit)
	for range 2 {
		if r := b.call(tool.SandboxKill); !r.OK || r.Stdout != "saved\n" {
			t.Errorf("kill: %+v %v", r, r.Err)
		}
	}
	for _, name := range []string{tool.RunCommand, tool.ReadFile, tool.WriteFile, tool.SandboxCreate} {
		failed(t, b.call(name, slices.Concat(map[string][]any{
			tool.RunCommand: {"command", "true"}, tool.ReadFile: {"path", "x"},
			tool.WriteFile: {"path", "x", "content", "y"}, tool.SandboxCreate: {"ttl_seconds", 600},
		}[name])...), tool.Fatal, tool.CodeSandboxGone)
	}
}

func TestNoShell(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *tool.Options, _ *budget.Limits) { o.NoShell = true })
	failed(t, b.call(tool.RunCommand, "command", "true"), tool.Fixable, tool.CodeUnknownTool)
	if r := b.call(tool.WriteFile, "path", "x", "content", "y"); !r.OK {
		t.Errorf("write: %v", r.Err)
	}
}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		op   tool.Op
		code string
		want tool.Class
	}{
		{tool.OpCreate, tool.CodeUnavailable, tool.Retryable}, {tool.OpRun, tool.CodeUnavailable, tool.Verify},
		{tool.OpCreate, tool.CodeUnsupported, tool.Fatal}, {tool.OpRun, tool.CodeDenied, tool.NeedsHuman},
		{tool.OpRun, tool.CodeTimeout, tool.Verify}, {tool.OpRun, tool.CodeOutcomeUnknown, tool.Verify},
		{tool.OpRead, tool.CodeFileNotFound, tool.Fixable}, {tool.OpRun, tool.CodeSandboxLost, tool.Fatal},
		{tool.OpRun, tool.CodeNetworkDenied, tool.NeedsHuman}, {tool.OpRun, tool.CodeHost, tool.Fatal},
		{tool.OpRun, "never heard of", tool.Unknown}, {"", "", tool.Unknown}, {tool.OpRun, tool.CodeInternal, tool.Unknown},
	} {
		if got := tool.Classify(c.op, c.code); got != c.want {
			t.Errorf("%s of %s is %s, want %s", c.code, c.op, got, c.want)
		}
	}
}

// FuzzArguments: whatever a model sends, the answer is a result, and nothing
// but a valid call reaches a tool.
func FuzzArguments(f *testing.F) {
	reached := false
	set, err := tool.NewSet(nil, tool.Tool{
		Definition: tool.Definition{Name: "echo", Schema: json.RawMessage(
			`{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"array","items":{"type":"string"}}},"required":["n"],"additionalProperties":false}`)},
		Run: func(context.Context, tool.Call) tool.Result { reached = true; return tool.Result{OK: true} },
	})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{`{"n":1}`, `{"n":1,"s":["a",1]}`, `{"n":"1"}`, ``, `null`, `{`, `[{}]`, "\xff", `{"n":1e400}`, `{"n":1} x`} {
		f.Add("echo", s)
	}
	f.Add("ehco", `{}`)
	f.Fuzz(func(t *testing.T, name, args string) {
		reached = false
		r := set.Run(context.Background(), tool.Call{ID: "c", Name: name, Arguments: json.RawMessage(args)})
		if r.CallID != "c" || r.OK != reached || !r.OK && (r.Err == nil || r.Err.Class != tool.Fixable) {
			t.Errorf("%q: %+v %v", args, r, r.Err)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
		if reached && !json.Valid([]byte(args)) {
			t.Errorf("%q reached the tool", args)
		}
	})
}
