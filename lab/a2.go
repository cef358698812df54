package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// Figure is what became of one command's output.
type Figure struct {
	Name string `json:"name"`
	// Produced is what the command printed, Returned what of it the call's result
	// has (both streams), and InRequest what the model was sent of the result
	// with the step that followed, everything around it included; all in bytes.
	// Request is that request as a whole.
	Produced  int64 `json:"bytes_produced"`
	Returned  int64 `json:"bytes_returned"`
	InRequest int64 `json:"bytes_in_request"`
	Request   int64 `json:"bytes_of_request"`
	// Calls is how many calls it took to see the line that decides; 0: it was not
	// seen.
	Calls int `json:"calls_to_the_decisive_line"`
}

// A2 is long output: a run in which a command prints 200,000 characters with one
// line that decides in the middle, once as it is, once into a file of which the
// end is looked at, and once with the end asked for. It measures what of it
// reaches the model.
func A2(ctx context.Context, env Env) (Result, error) {
	b, err := begin(env, "a2", "what of long output reaches the model")
	if err != nil {
		return Result{}, err
	}
	return b.run(ctx, b.longOutput)
}

// Of the output: every line has 50 bytes.
const (
	a2Lines    = 4000
	a2Bytes    = 50 * a2Lines
	a2Decisive = "src/ledger.c:42:7: error: 'quota' is not declared"
	a2Print    = `say() { for i in $(seq $1 $2); do printf 'compiled %040d\n' $i; done; }; say 1 1999; echo "` + a2Decisive + `"; say 2001 4000`
)

// longOutput makes the calls by themselves, which tells what they return, and
// then in a run, which tells what the model is sent of that.
func (b *bench) longOutput(ctx context.Context, box *sandbox.Sandbox) {
	direct := b.direct(ctx, box)
	m := b.inspect(ctx)
	if len(direct) < len(a2Steps) || len(m.results) < len(a2Steps) {
		b.step("calls", fmt.Sprintf("%d results", len(a2Steps)), func() (string, bool) {
			return fmt.Sprintf("%d alone, %d in the run", len(direct), len(m.results)), false
		})
		return
	}
	for i, s := range a2Steps {
		r := direct[i]
		f := Figure{Name: s.name, Produced: r.OutputBytes, Returned: int64(len(r.Stdout) + len(r.Stderr)), InRequest: m.inRequest[i], Request: m.requests[i]}
		if strings.HasPrefix(s.command(), "{ ") {
			f.Produced = a2Bytes // into the file
		}
		if strings.Contains(m.results[i].Stdout, a2Decisive+"\n") {
			f.Calls = s.calls
		}
		if f.Produced == a2Bytes {
			b.result.Figures = append(b.result.Figures, f)
		}
		b.step(s.name, s.expected, func() (string, bool) {
			return fmt.Sprintf("%d bytes produced, %d returned, %d in a request of %d; omitted %+v, spill %+v", f.Produced, f.Returned, f.InRequest, f.Request, r.Omitted, r.Spill),
				r.OK && m.results[i].OK && s.check(r, f)
		})
	}
}

// direct makes the calls of the experiment in box.
func (b *bench) direct(ctx context.Context, box *sandbox.Sandbox) (results []tool.Result) {
	tree, err := budget.NewTree(budget.Quick(), budget.TreeOptions{})
	if err != nil {
		b.step("limits", "the quick limits", func() (string, bool) { return err.Error(), false })
		return nil
	}
	set, err := tool.Builtin(tool.Options{Sandbox: box, Budget: tree, Masker: b.env.Masker,
		Finish: func(ctx context.Context) (string, error) { return "", box.Kill(ctx) }})
	if err != nil {
		b.step("tools", "the five tools", func() (string, bool) { return err.Error(), false })
		return nil
	}
	for i, s := range a2Steps {
		name, arguments := s.arguments(results)
		data, err := json.Marshal(arguments)
		if err != nil {
			b.step("arguments", "arguments", func() (string, bool) { return err.Error(), false })
			return nil
		}
		results = append(results, set.Run(ctx, tool.Call{ID: fmt.Sprintf("a2_%d", i), Name: name, Arguments: data}))
	}
	return results
}

// inspect has an agent make them.
func (b *bench) inspect(ctx context.Context) *inspector {
	m := &inspector{}
	b.step("run", "a run that ends by itself", func() (string, bool) {
		worker, err := agent.New(agent.Options{Model: m})
		if err != nil {
			return err.Error(), false
		}
		limits := budget.Quick()
		limits.MaxWallTime = Limit
		report, err := run.Do(ctx, run.Options{
			Task: "look at long output", Provider: b.env.Provider, Target: run.Target{Name: "lab", Spec: b.env.Spec}, Limits: limits,
			StateDir: b.env.StateDir, Masker: b.env.Masker, Model: m.Name(),
		}, worker)
		if report == nil {
			return fmt.Sprint(err), false
		}
		return fmt.Sprintf("%s: %s %s, audit head %s", report.RunID, report.Reason, report.Error, report.AuditHead), err == nil && report.Reason == run.Done
	})
	return m
}

// a2Step is one call of the run and what is expected of its result.
type a2Step struct {
	name, expected string
	calls          int // until then
	arguments      func(before []tool.Result) (name string, arguments any)
	check          func(tool.Result, Figure) bool
}

// command is what the step runs; empty where it runs nothing.
func (s a2Step) command() string {
	if name, arguments := s.arguments([]tool.Result{{}}); name == tool.RunCommand {
		return arguments.(command).Command
	}
	return ""
}

type command struct {
	Command string `json:"command"`
	Output  string `json:"output,omitempty"`
}

var a2Steps = []a2Step{
	{"preview", "at most 16 KiB, the decisive line among it, what is left out counted to the byte, all of it in the spill", 1,
		func([]tool.Result) (string, any) { return tool.RunCommand, command{a2Print, ""} },
		func(r tool.Result, f Figure) bool {
			return r.Truncated && f.Produced == a2Bytes && f.Returned <= 16<<10 && f.Returned > 8<<10 && f.InRequest < 20<<10 && f.Calls == 1 && r.Spill != nil && r.Spill.Bytes == a2Bytes && r.Spill.Lines == a2Lines &&
				r.Omitted != nil && r.Omitted.Stdout.Bytes+withoutMarkers(r.Stdout) == a2Bytes
		}},
	{"file and tail", "the last 50 lines, without the decisive one", 1,
		func([]tool.Result) (string, any) {
			return tool.RunCommand, command{"{ " + a2Print + "; } > lab-a2.log; tail -n 50 lab-a2.log; wc -l < lab-a2.log", ""}
		},
		func(r tool.Result, f Figure) bool { return f.Calls == 0 && f.Returned < 3<<10 }},
	{"search of the file", "the decisive line, one call later", 2,
		func([]tool.Result) (string, any) { return tool.RunCommand, command{"grep error lab-a2.log", ""} },
		func(r tool.Result, f Figure) bool { return f.Calls == 2 }},
	{"tail asked for", "the last 50 lines, the spill's path and its 4000 lines", 1,
		func([]tool.Result) (string, any) { return tool.RunCommand, command{a2Print, "tail"} },
		func(r tool.Result, f Figure) bool {
			return f.Produced == a2Bytes && f.Calls == 0 && f.Returned < 3<<10 && f.InRequest < 5<<10 && r.Spill != nil && r.Spill.Lines == a2Lines && strings.HasPrefix(r.Spill.Path, execd.SpillDir)
		}},
	{"read on", "the spill from the line that the preview names", 1,
		func(before []tool.Result) (string, any) {
			return tool.ReadFile, map[string]any{"path": spillOf(before[0]), "offset": continues(before[0].Stdout), "limit": 1}
		},
		func(r tool.Result, _ Figure) bool {
			return r.File != nil && r.Stdout == fmt.Sprintf("compiled %040d\n", r.File.NextOffset-1)
		}},
}

func spillOf(r tool.Result) string {
	if r.Spill == nil {
		return "none"
	}
	return r.Spill.Path
}

var markers = regexp.MustCompile(`(?m)^\[\.\.\. \d+ bytes(?:, \d+ lines)? left out, from line (\d+) \.\.\.\]\n`)

// withoutMarkers is how many bytes of a preview are the output's own.
func withoutMarkers(s string) int64 { return int64(len(markers.ReplaceAllString(s, ""))) }

// continues is the line from which a preview is not complete.
func continues(s string) (line int64) {
	if m := markers.FindStringSubmatch(s); m != nil {
		fmt.Sscan(m[1], &line)
	}
	return line
}

// inspector is a model that makes the calls of the experiment and notes what it
// was sent.
type inspector struct {
	results             []tool.Result
	inRequest, requests []int64
}

func (m *inspector) Name() string { return "lab/inspector" }

func (m *inspector) Generate(_ context.Context, req *model.Request, _ func(model.Delta)) (*model.Reply, error) {
	if n := len(req.Messages); n > 0 && req.Messages[n-1].Role == model.RoleTool {
		data, err := json.Marshal(req)
		if err != nil {
			return nil, &model.Error{Kind: model.KindInvalid, Err: err}
		}
		for _, r := range req.Messages[n-1].Results {
			var result tool.Result
			text := r.Content
			if from, to := strings.IndexByte(text, '{'), strings.LastIndexByte(text, '}'); from >= 0 && from < to {
				if err := json.Unmarshal([]byte(text[from:to+1]), &result); err != nil {
					return nil, &model.Error{Kind: model.KindInvalid, Err: err}
				}
			}
			m.results = append(m.results, result)
			m.inRequest = append(m.inRequest, int64(len(text)))
			m.requests = append(m.requests, int64(len(data)))
		}
	}
	n := len(m.results)
	if n >= len(a2Steps) {
		return &model.Reply{Message: model.Message{Role: model.RoleAssistant, Text: "seen"}, Stop: model.StopEnd}, nil
	}
	name, arguments := a2Steps[n].arguments(m.results)
	data, err := json.Marshal(arguments)
	if err != nil {
		return nil, &model.Error{Kind: model.KindInvalid, Err: err}
	}
	call := model.ToolCall{ID: fmt.Sprintf("a2_%d", n), Name: name, Arguments: string(data)}
	return &model.Reply{Message: model.Message{Role: model.RoleAssistant, Calls: []model.ToolCall{call}}, Stop: model.StopToolCalls}, nil
}
