package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// reference is what is left of a result.
type reference struct {
	Reduced, Outcome, Excerpt string
	Text                      struct {
		Path  string `json:"read_file"`
		Lines int64
	}
}

// referenced is the reference in a result, or nil.
func referenced(content string) *reference {
	i := strings.Index(content, `{"reduced":`)
	var r reference
	if i < 0 || json.NewDecoder(strings.NewReader(content[i:])).Decode(&r) != nil {
		return nil
	}
	return &r
}

// listing is a command whose output of some 4 KiB no other prints.
func listing(n int) string { return fmt.Sprintf("seq %d %d", 10000*n, 10000*n+700) }

// listings are so many steps of them, and then what follows.
func listings(n int, then ...answer) []answer {
	var all []answer
	for i := range n {
		all = append(all, sh(listing(i+1)))
	}
	return append(all, then...)
}

// long gives a run more steps.
func long(o *run.Options) { o.Limits.MaxSteps, o.Limits.MaxToolCalls = 60, 60 }

func TestOlderResultsBecomeReferences(t *testing.T) {
	reread := func(req *model.Request) (*model.Reply, error) {
		ref := referenced(req.Messages[2].Results[0].Content)
		if ref == nil {
			t.Fatalf("the oldest result is whole: %.200s", req.Messages[2].Results[0].Content)
		}
		if ref.Reduced != "run_command "+listing(1) || ref.Outcome != "exit 0" || ref.Text.Lines != 701 {
			t.Errorf("the reference says %+v", ref)
		}
		args, _ := json.Marshal(map[string]any{"path": ref.Text.Path, "limit": 3})
		return calls(tool.ReadFile, string(args))(req)
	}
	rep, f, err := play(t, setup{run: long}, listings(14, reread, text("done"))...)
	if err != nil || rep.Reason != run.Done {
		t.Fatal(rep.Reason, err)
	}
	last := f.seen[len(f.seen)-1]
	if got := results(t, last)[0]; got.Stdout != "10000\n10001\n10002\n" {
		t.Errorf("what was read again: %q", got.Stdout)
	}
	whole := 0
	for i, m := range last.Messages {
		for _, r := range m.Results {
			if referenced(r.Content) == nil {
				whole += len(r.Content)
			} else if i > len(last.Messages)-4 {
				t.Error("one of the newest results is a reference")
			}
		}
	}
	if whole > history.DefaultHigh {
		t.Errorf("%d bytes of results are whole", whole)
	}
	same := 0
	for i, req := range f.seen[1:] {
		before := f.seen[i].Messages
		if cmp.Equal(before, req.Messages[:len(before)]) {
			same++
		}
	}
	if same < 10 || same == len(f.seen)-1 {
		t.Errorf("%d of %d requests begin with the one before", same, len(f.seen)-1)
	}
}

// TestReferenceWithoutAFile is of results that nothing in the sandbox has.
func TestReferenceWithoutAFile(t *testing.T) {
	tell, err := tool.Func("tell", "Tell a text.", func(_ context.Context, in struct{ N int }) (string, error) {
		if in.N == 2 {
			return "", errors.New("it is the \"second\"")
		}
		return fmt.Sprintf("%d begins\n%s", in.N, strings.Repeat("\"x\"\n", 1000)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var answers []answer
	for i := range 14 {
		answers = append(answers, calls("tell", fmt.Sprintf(`{"N":%d}`, i+1)))
	}
	_, f, err := play(t, setup{run: func(o *run.Options) { long(o); o.Tools = []tool.Custom{tell} }}, append(answers, text("done"))...)
	if err != nil {
		t.Fatal(err)
	}
	last := f.seen[len(f.seen)-1]
	ref := referenced(last.Messages[2].Results[0].Content)
	if ref == nil || !strings.HasPrefix(ref.Excerpt, "1 begins\n\"x\"\n") || len(ref.Excerpt) < 500 || len(ref.Excerpt) > 700 {
		t.Errorf("the reference says %+v", ref)
	}
	ref = referenced(last.Messages[4].Results[0].Content)
	if ref == nil || ref.Excerpt != "tell: it is the \"second\"\n" {
		t.Errorf("the reference to a call that failed says %+v", ref)
	}
}

// TestTranscriptHasWhatWasSent puts each request together from the transcript.
func TestTranscriptHasWhatWasSent(t *testing.T) {
	state := t.TempDir()
	rep, f, err := play(t, setup{run: func(o *run.Options) { long(o); o.StateDir = state }}, listings(14, text("done"))...)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(state, "runs", rep.RunID, "transcript.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var sent []model.Message
	n, again := 0, 0
	for line := range bytes.Lines(data) {
		var e struct {
			Kind string
			Data struct {
				From     int
				Messages []model.Message
			}
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind != string(audit.KindModelRequest) {
			continue
		}
		if e.Data.From == 0 && n > 0 {
			again++
		}
		sent = append(sent[:e.Data.From:e.Data.From], e.Data.Messages...)
		if d := cmp.Diff(f.seen[n].Messages, sent); d != "" {
			t.Fatalf("request %d:\n%s", n, d)
		}
		n++
	}
	if n != len(f.seen) || again == 0 {
		t.Errorf("%d requests of %d, %d of them whole again", n, len(f.seen), again)
	}
}

func TestSummaryOfOlderResults(t *testing.T) {
	asked := 0
	step := 0
	answers := listings(30, text("done"))
	all := func(req *model.Request) (*model.Reply, error) {
		if len(req.Tools) == 0 {
			if asked++; asked == 2 {
				return nil, &model.Error{Kind: model.KindOverloaded}
			}
			return text(fmt.Sprintf("summary %d", asked))(req)
		}
		step++
		return answers[step-1](req)
	}
	rep, f, err := play(t, setup{run: long, options: func(o *agent.Options) { o.Context.Strategy = history.Summary }}, all)
	if err != nil || rep.Reason != run.Done || asked < 3 {
		t.Fatal(rep.Reason, err, asked)
	}
	if got := fmt.Sprint(f.seen[len(f.seen)-1].Messages); !strings.Contains(got, fmt.Sprintf(`"summary":"summary %d"`, asked)) {
		t.Errorf("the last request has no summary: %.2000s", got)
	}
	if want := int64(100 * (len(f.seen) - 1)); rep.Tokens.Input != want {
		t.Errorf("%d input tokens are counted, want %d", rep.Tokens.Input, want)
	}
	if len(rep.Warnings) != 1 || !strings.Contains(rep.Warnings[0], "references only") {
		t.Errorf("warnings: %q", rep.Warnings)
	}
}

// A summary that cost more than was set aside for it ends the run, as any other
// reply does: the next one might, too.
func TestSummaryOverrun(t *testing.T) {
	answers, step, asked := listings(30, text("done")), 0, 0
	rep, f, _ := play(t, setup{run: long, options: func(o *agent.Options) { o.Context.Strategy = history.Summary }},
		func(req *model.Request) (*model.Reply, error) {
			if len(req.Tools) == 0 {
				asked++
				reply, err := text("summary")(req)
				reply.Usage.Output = int64(req.MaxOutputTokens) + 100_000
				return reply, err
			}
			step++
			return answers[step-1](req)
		})
	if rep.Reason != run.OverBudget || rep.Brake == nil || rep.Brake.Limit != string(budget.LimitProviderOverrun) {
		t.Fatalf("%s, %+v", rep.Reason, rep.Brake)
	}
	if asked != 1 || len(f.seen) != step+1 {
		t.Errorf("%d summaries and %d requests after %d steps", asked, len(f.seen), step)
	}
}

func TestOverflowLeavesOut(t *testing.T) {
	refusals := 0
	answers, step := listings(12, text("done")), 0
	small := func(req *model.Request) (*model.Reply, error) {
		size := 0
		for _, m := range req.Messages {
			size += history.Size(m)
		}
		if size > 12000 {
			refusals++
			return nil, &model.Error{Kind: model.KindContext}
		}
		step++
		return answers[step-1](req)
	}
	rep, f, err := play(t, setup{run: long}, small)
	if err != nil || rep.Reason != run.Done || refusals == 0 || refusals > 3 {
		t.Fatalf("%s, %v, after %d requests that were too long", rep.Reason, err, refusals)
	}
	for _, req := range f.seen {
		for i, m := range req.Messages {
			if m.Role == model.RoleAssistant && len(m.Calls) != len(req.Messages[i+1].Results) {
				t.Fatal("a call has no result")
			}
		}
	}
}

func TestUnknownStrategy(t *testing.T) {
	rep, _, err := play(t, setup{options: func(o *agent.Options) { o.Context.Strategy = "guess" }}, text("done"))
	if err == nil || rep.Reason != run.Misused {
		t.Errorf("%s, %v", rep.Reason, err)
	}
}
