package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// Replies of no use are answered with the reason, and MaxUnusable in a row end
// the run.
func TestUnusableReplies(t *testing.T) {
	t.Parallel()
	thought := func(r *model.Request) (*model.Reply, error) {
		reply, err := text(" \n")(r)
		reply.Usage.Reasoning = 9
		return reply, err
	}
	for _, c := range []struct {
		name   string
		answer answer
		told   string // to the model
		detail string
	}{
		{"empty", text(""), "Your reply was empty.", "was empty"},
		{"reasoning only", thought, "reasoning only", "held reasoning only"},
		{"cut before it began", stopped(text(""), model.StopLength), "before it said anything", "before it said anything"},
		{"cut text", stopped(text("half"), model.StopLength), "Go on, more briefly.", "was cut off after 8192 tokens"},
		{"cut call", stopped(sh("true"), model.StopLength), "cut off after 8192 tokens", "cut off after 8192 tokens"},
		{"no JSON", calls(tool.RunCommand, `{"command": `), "the JSON ends in the middle", "the JSON ends in the middle"},
		{"no such tool", calls("run_comand", `{}`, "x", `{}`), "did you mean run_command?", `there is no tool "x"`},
		{"no such argument", calls(tool.RunCommand, `{"cmd":"x"}`), "invalid_arguments", "arguments"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rep, f, err := play(t, setup{}, c.answer)
			if err != nil || rep.Reason != run.Failed || rep.ExitCode != 1 || len(f.seen) != agent.MaxUnusable {
				t.Fatalf("%s after %d requests: %s, %v", rep.Reason, len(f.seen), rep.Conclusion, err)
			}
			if !strings.Contains(rep.Conclusion, fmt.Sprintf("%d replies in a row could not be used", agent.MaxUnusable)) || !strings.Contains(rep.Conclusion, c.detail) {
				t.Errorf("the conclusion is %q", rep.Conclusion)
			}
			last := f.seen[1].Messages[len(f.seen[1].Messages)-1]
			said := last.Text
			if len(last.Results) > 0 {
				said = last.Results[0].Content
			}
			if !strings.Contains(said, c.told) {
				t.Errorf("the model was told %q", said)
			}
			for _, req := range f.seen {
				paired(t, req)
				for _, m := range req.Messages {
					if m.Role == model.RoleAssistant && m.Text == "" && len(m.Calls) == 0 {
						t.Error("an empty message was sent back")
					}
				}
			}
		})
	}
}

// A reply that is of use starts the count anew.
func TestUnusableRepliesInARow(t *testing.T) {
	t.Parallel()
	var answers []answer
	for range 3 {
		answers = append(answers, text(""), stopped(sh("true"), model.StopLength), calls("x", `{}`), sh("true"))
	}
	rep, f, err := play(t, setup{}, append(answers, text("done"))...)
	if err != nil || rep.Reason != run.Done || len(f.seen) != 13 {
		t.Errorf("%s after %d requests: %s, %v", rep.Reason, len(f.seen), rep.Conclusion, err)
	}
}

// The second cut call in a row is told the way round.
func TestCutTwice(t *testing.T) {
	t.Parallel()
	cut := stopped(calls(tool.WriteFile, `{"path":"f","content":"long`), model.StopLength)
	_, f, err := play(t, setup{}, cut, cut, sh("true"), cut, text("x"))
	if err != nil {
		t.Fatal(err)
	}
	var hints []bool
	for _, i := range []int{1, 2, 4} {
		r := results(t, f.seen[i])[0]
		if r.OK || r.Err == nil || r.Err.Class != tool.Fixable {
			t.Errorf("%+v", r)
		}
		hints = append(hints, strings.Contains(r.Err.Hint, "in pieces"))
	}
	if d := cmp.Diff([]bool{false, true, false}, hints); d != "" {
		t.Error(d)
	}
}

// Every call has an id of its own, also when the model gave none or one twice,
// and the report says so once.
func TestDoubledIDs(t *testing.T) {
	t.Parallel()
	odd := func(ids ...string) answer {
		return func(r *model.Request) (*model.Reply, error) {
			reply := &model.Reply{Message: model.Message{Role: model.RoleAssistant}, Stop: model.StopToolCalls, Usage: usage}
			for i, id := range ids {
				name, args := cmd(fmt.Sprintf("echo %d", i))
				reply.Message.Calls = append(reply.Message.Calls, model.ToolCall{ID: id, Name: name, Arguments: args})
			}
			return reply, nil
		}
	}
	rep, f, err := play(t, setup{}, odd("", "a", "a", "call_1_1", ""), odd("", ""), text("x"))
	if err != nil || rep.Reason != run.Done {
		t.Fatalf("%s: %s, %v", rep.Reason, rep.Conclusion, err)
	}
	for _, req := range f.seen {
		paired(t, req)
	}
	seen := map[string]bool{}
	for i, r := range f.seen[1].Messages[2].Results {
		if seen[r.ID] || r.ID == "" || unwrap(t, r.Content).Stdout != fmt.Sprintln(i) {
			t.Errorf("result %d: %+v", i, r)
		}
		seen[r.ID] = true
	}
	if !seen["a"] || !seen["call_1_1"] {
		t.Errorf("good ids were changed: %v", seen)
	}
	if n := strings.Count(strings.Join(rep.Warnings, "\n"), "ids of its own"); n != 1 {
		t.Errorf("it was said %d times: %q", n, rep.Warnings)
	}
}

func TestTooManyCalls(t *testing.T) {
	t.Parallel()
	var parts []string
	for i := range agent.MaxCalls + 2 {
		parts = append(parts, tool.ReadFile, fmt.Sprintf(`{"path":"f%s"}`, strings.Repeat("f", i)))
	}
	rep, f, err := play(t, setup{limits: func(l *budget.Limits) { *l = budget.Long() }}, calls(parts...), text("x"))
	if err != nil || rep.Calls.Total != agent.MaxCalls {
		t.Fatalf("%+v, %v", rep.Calls, err)
	}
	got := results(t, f.seen[1])
	if n := len(got); n != agent.MaxCalls+2 || got[n-3].Err.Code != tool.CodeFileNotFound || got[n-2].Err.Code != "not_executed" {
		t.Errorf("%d results", n)
	}
}

// Arguments too large to be parsed are not sent back to the model either.
func TestGiantArguments(t *testing.T) {
	t.Parallel()
	giant := `{"path":"f","content":"` + strings.Repeat("x", tool.MaxArguments) + `"}`
	_, f, err := play(t, setup{}, calls(tool.WriteFile, giant), text("x"))
	if err != nil {
		t.Fatal(err)
	}
	if m := f.seen[1].Messages[1]; m.Calls[0].Arguments != "{}" {
		t.Errorf("%d bytes of arguments were sent back", len(m.Calls[0].Arguments))
	}
	if r := results(t, f.seen[1])[0]; r.Err == nil || !strings.Contains(r.Err.Message, "8388608") || !strings.Contains(r.Err.Hint, "pieces") {
		t.Errorf("%+v", r.Err)
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	refuse := func(r *model.Request) (*model.Reply, error) {
		reply, err := sh("touch ran")(r)
		reply.Message.Text, reply.Stop = "I will not.", model.StopRefusal
		return reply, err
	}
	rep, f, err := play(t, setup{}, refuse, text("never"))
	if err != nil || rep.Reason != run.Failed || rep.Answer != "I will not." || len(f.seen) != 1 || rep.Calls.Total != 0 {
		t.Fatalf("%s: %s, %v", rep.Reason, rep.Conclusion, err)
	}
	if d := cmp.Diff([]string{"fixable not_executed"}, recorded(t, rep)); d != "" {
		t.Error(d)
	}
}

// A model that goes on calling after sandbox_kill is told, and the run, whose
// outcome is decided, ends as it was.
func TestCallsAfterTheKill(t *testing.T) {
	t.Parallel()
	rep, f, err := play(t, setup{run: func(o *run.Options) { o.Accept = []run.Check{{Shell: "true"}} }},
		calls(tool.SandboxKill, `{}`), sh("echo more"))
	if err != nil || rep.Reason != run.Done || rep.Accepted != run.Yes || len(f.seen) != 1+agent.MaxUnusable {
		t.Fatalf("%s after %d requests: %s, %v", rep.Reason, len(f.seen), rep.Conclusion, err)
	}
	if !strings.Contains(strings.Join(rep.Warnings, "\n"), "gave no final answer") {
		t.Errorf("warnings: %q", rep.Warnings)
	}
}

// A stream that never ends although something comes is ended with the run.
func TestTricklingStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := trickling{&fake{}}
		rep, _, err := play(t, setup{options: func(o *agent.Options) { o.Model = m }}, text("never"))
		if rep.Reason != run.OverBudget || rep.ExitCode != 4 || rep.Brake == nil || rep.Brake.Limit != string(budget.LimitWallTime) {
			t.Errorf("%s: %s, %v", rep.Reason, rep.Conclusion, err)
		}
		if limit := budget.Standard().MaxWallTime; time.Duration(rep.Time.TotalMS)*time.Millisecond > limit+time.Minute {
			t.Errorf("it took %d ms", rep.Time.TotalMS)
		}
	})
}

// trickling is a model that says a word every half minute, for ever.
type trickling struct{ *fake }

func (trickling) Generate(ctx context.Context, _ *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, &model.Error{Kind: model.KindTimeout, Err: context.Cause(ctx)}
		case <-time.After(30 * time.Second):
			emit(model.Delta{Text: "and "})
		}
	}
}
