package run_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
)

// A sandbox that is denied was asked for wrongly. The report does not say that
// there were no checks, nor that nobody looked at the network.
func TestDeniedSandbox(t *testing.T) {
	t.Parallel()
	for _, kind := range []sandbox.Kind{sandbox.KindDenied, sandbox.KindNotFound} {
		o := options(t)
		o.Accept = []run.Check{{Shell: "true"}}
		hint := "if it is trusted, add it to the list:\nimages: {allow: [\"a:1\"]}"
		o.Provider = refusing{Provider: o.Provider, create: &sandbox.Error{Kind: kind, Op: "create", Err: errors.New("no"), Hint: hint}}
		rep, err := run.Do(context.Background(), o, worker(func(context.Context, *run.Session) (run.Outcome, error) { return done("") }))
		if err == nil || rep.Accepted != run.Unclear || (rep.ExitCode == 2) != (kind == sandbox.KindDenied) {
			t.Errorf("%s: exit code %d, accepted %s, %v", kind, rep.ExitCode, rep.Accepted, err)
		}
		md := readFile(t, rep.Dir, "report.md")
		for _, want := range []string{"\n| accepted | unknown |\n", "\n\nNo sandbox was created.\n", "\nHint: if it is trusted, add it to the list:  \n`images: {allow: [\"a:1\"]}`\n"} {
			if !strings.Contains(md, want) {
				t.Errorf("%s: no %q in\n%s", kind, want, md)
			}
		}
	}
}

// Checks that an interrupt kept from being run are not no checks.
func TestInterruptIsNotUnchecked(t *testing.T) {
	t.Parallel()
	for _, checks := range [][]run.Check{nil, {{Shell: "true"}}} {
		o := options(t)
		o.Accept = checks
		ctx, cancel := context.WithCancel(context.Background())
		rep, err := run.Do(ctx, o, worker(func(ctx context.Context, _ *run.Session) (run.Outcome, error) {
			cancel()
			return run.Outcome{}, ctx.Err()
		}))
		want := run.Unchecked
		if len(checks) > 0 {
			want = run.Unclear
		}
		if err != nil || rep.Reason != run.Interrupted || rep.Accepted != want {
			t.Errorf("%d checks: %s, accepted %s, %v", len(checks), rep.Reason, rep.Accepted, err)
		}
	}
}

// imaged says of its sandboxes what image they are of.
type imaged struct{ sandbox.Provider }

const imageDigest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func (p imaged) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	info, err := p.Provider.Create(ctx, spec)
	info.Image, info.ImageDigest = "a:1", imageDigest
	return info, err
}

// A tag says little: what it led to is in the report and in the provenance.
func TestImageDigestIsReported(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Provider = imaged{o.Provider}
	rep := do(t, o, func(context.Context, *run.Session) (run.Outcome, error) { return done("") })
	var prov run.Provenance
	if err := json.Unmarshal([]byte(readFile(t, rep.Dir, "provenance.json")), &prov); err != nil {
		t.Fatal(err)
	}
	if rep.Target.Image != "a:1" || rep.Target.ImageDigest != imageDigest || prov.ImageDigest != imageDigest {
		t.Errorf("%+v, %+v", rep.Target, prov)
	}
	if md := readFile(t, rep.Dir, "report.md"); !strings.Contains(md, ", image a:1 ("+imageDigest+")") {
		t.Error(md)
	}
}

// A hint can be pasted as it stands in the report.
func TestHintsCanBePasted(t *testing.T) {
	t.Parallel()
	for hint, want := range map[string]string{
		"rein sandbox ls":                   "\nHint: rein sandbox ls\n",
		"echo a | sudo tee b":               "\nHint: `echo a | sudo tee b`\n",
		"# Forged":                          "\nHint: `# Forged`\n",
		"run `x`":                           "\nHint: `` run `x` ``\n",
		"remove it:\nrm [a]\nthen go on\r#": "\nHint: remove it:  \n`rm [a]`  \n`then go on #`\n",
	} {
		var b bytes.Buffer
		if err := (&run.Report{Hint: hint}).WriteMarkdown(&b); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

// What a model or a sandbox wrote makes nobody's viewer load or run anything.
func TestReportLoadsNothing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"![a](https://x.example/?q=1)":            "!\\[a](https://x.example/?q=1)",
		"[![a][r]](b)\n\n[r]: https://x.example/": "[!\\[a][r]](b)\n> \n> [r]: https://x.example/",
		"\\![a](b)":                    "\\!\\[a](b)",
		"<img src=https://x.example/>": "\\<img src=https://x.example/>",
		"\\<b>":                        "\\<b>",
		"\\\\<b>":                      "\\\\\\<b>",
		"a\r<!-- hidden\r\n-->":        "a\n> \\<!-- hidden\n> -->",
		"a[0] = vec! [1] \\[ \u202e`x` \x1b]0;t\a# Title": "a[0] = vec! [1] \\[ `x` ]0;t# Title",
	} {
		rep := &run.Report{Answer: text, Task: text, Checks: []run.CheckResult{{Stdout: text, Stderr: text}}}
		var b bytes.Buffer
		if err := rep.WriteMarkdown(&b); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(b.String(), "\n> "+want+"\n"); n != 4 {
			t.Errorf("%q is %d times\n%s", want, n, &b)
		}
	}
}

func readFile(t *testing.T, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A limit that was reached is said once, beneath the facts; another error is
// said beside it.
func TestReportOfALimit(t *testing.T) {
	t.Parallel()
	rep := run.Report{Reason: run.OverBudget, Brake: &run.Brake{Limit: "max_steps", Used: "1", Max: "2", Flag: "--max-steps"},
		Error: "stopped by max_steps: 1 of 2", Hint: "raise it with --max-steps"}
	var b strings.Builder
	if err := rep.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); !strings.Contains(s, "Stopped by **max_steps**: 1 of 2. `--max-steps` raises it.") || strings.Contains(s, "Error:") || strings.Contains(s, "Hint:") {
		t.Errorf("the report is\n%s", s)
	}
	b.Reset()
	rep.Error = "the records could not be written"
	if err := rep.WriteMarkdown(&b); err != nil || !strings.Contains(b.String(), "Error: the records could not be written") {
		t.Errorf("%v: the report is\n%s", err, b.String())
	}
}

// interrupting is a provider whose sandbox is made when the run is interrupted.
type interrupting struct {
	sandbox.Provider
	interrupt func()
	more      error
}

func (p interrupting) Create(ctx context.Context, _ sandbox.Spec) (sandbox.Info, error) {
	p.interrupt()
	<-ctx.Done()
	err := error(&sandbox.Error{Kind: sandbox.KindTimeout, Op: "create", Subject: "sb-1", Err: ctx.Err()})
	if p.more != nil {
		err = errors.Join(err, p.more)
	}
	return sandbox.Info{}, err
}

// An interruption is no error, and what came with it is.
func TestInterruptWhileTheSandboxIsMade(t *testing.T) {
	t.Parallel()
	for _, more := range []error{nil, errors.New("it may still be there")} {
		o := options(t)
		ctx, cancel := context.WithCancel(t.Context())
		o.Provider = interrupting{o.Provider, cancel, more}
		rep, err := run.Do(ctx, o, worker(nil))
		if err != nil || rep.Reason != run.Interrupted || rep.Conclusion != "Interrupted while the sandbox was made." {
			t.Errorf("%v, %+v", err, rep)
		}
		if more == nil && rep.Error != "" || more != nil && !strings.Contains(rep.Error, more.Error()) {
			t.Errorf("the error is %q", rep.Error)
		}
	}
}
