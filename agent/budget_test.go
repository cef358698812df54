package agent_test

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
)

// What is left is too little for any request: none is made, and rein itself
// says what there is to say.
func TestNothingLeftForTheModel(t *testing.T) {
	t.Parallel()
	rep, f, err := play(t, setup{limits: func(l *budget.Limits) { l.MaxTokens = 1000 }}, text("never"))
	if err != nil || rep.ExitCode != 4 || rep.Brake == nil || rep.Brake.Limit != string(budget.LimitTokens) || len(f.seen) != 0 {
		t.Fatalf("%s: %+v after %d requests, %v", rep.Reason, rep.Brake, len(f.seen), err)
	}
	if !rep.Composed || !strings.Contains(rep.Answer, "No tool was called") || rep.Brake.Needed == "" || rep.Tokens.Total != 0 {
		t.Errorf("%+v: %q, %+v", rep.Brake, rep.Answer, rep.Tokens)
	}
}

// The only step there may be is used up by work: there is no last turn.
func TestNoStepLeftForTheModel(t *testing.T) {
	t.Parallel()
	rep, f, err := play(t, setup{limits: func(l *budget.Limits) { l.MaxSteps = 1 }}, sh("echo 1"), text("never"))
	if err != nil || rep.ExitCode != 4 || len(f.seen) != 1 || rep.Steps != 1 || !rep.Composed || !strings.Contains(rep.Answer, "echo 1: exit 0") {
		t.Errorf("%s after %d requests: %q, %v", rep.Reason, len(f.seen), rep.Answer, err)
	}
}

// A conversation that is too long for what is left is told in outline.
func TestLastTurnInOutline(t *testing.T) {
	t.Parallel()
	long := using(30_000, 1000, sh("seq 1 9000")) // 16 KiB are shown
	rep, f, err := play(t, setup{limits: func(l *budget.Limits) { l.MaxTokens = 120_000 },
		run: func(o *run.Options) { o.Task = "the task of " + strings.Repeat("words ", 3000) }}, long, long, long, text("so far"))
	if err != nil || rep.ExitCode != 4 || rep.Answer != "so far" || rep.Composed {
		t.Fatalf("%s after %d requests: %+v, %q, %v", rep.Reason, len(f.seen), rep.Brake, rep.Answer, err)
	}
	last := f.seen[len(f.seen)-1]
	if n := len(last.Messages); n != 1 || len(last.Tools) != 0 || len(last.Messages[0].Text) > 4<<10 {
		t.Fatalf("%d messages: %+v", n, last)
	}
	for _, want := range []string{"the task of", "seq 1 9000: exit 0", "max_tokens"} {
		if !strings.Contains(last.Messages[0].Text, want) {
			t.Errorf("%q is not in %q", want, last.Messages[0].Text)
		}
	}
	if rep.Tokens.Total > 120_000 {
		t.Errorf("%+v", rep.Tokens)
	}
}

// A vendor that counts more than the most there could be ends the run.
func TestProviderOverrun(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]answer{
		"output": using(100, 1_000_000, text("long")),
		"input":  using(900_000, 10, sh("echo 1")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rep, f, err := play(t, setup{}, a, text("never"))
			if err != nil || rep.ExitCode != 4 || rep.Brake == nil || rep.Brake.Limit != string(budget.LimitProviderOverrun) || rep.Brake.Flag != "" {
				t.Fatalf("%s: %+v, %v", rep.Reason, rep.Brake, err)
			}
			if len(f.seen) != 1 || !rep.Composed || rep.Calls.Total != 0 {
				t.Errorf("%d requests, %+v", len(f.seen), rep)
			}
		})
	}
}

// What a request costs that comes to nothing: nothing when it was refused, and
// all that was set aside for it when nobody knows.
func TestFailedRequestsAreSettled(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, c := range []struct {
		name string
		err  model.Error
		free bool
	}{
		{"429", model.Error{Kind: model.KindRateLimit, Status: 429}, true},
		{"529", model.Error{Kind: model.KindOverloaded, Status: 529}, true},
		{"500", model.Error{Kind: model.KindUnavailable, Status: 500}, true},
		{"no connection", model.Error{Kind: model.KindUnavailable, Err: dial}, true},
		{"reset", model.Error{Kind: model.KindUnavailable, Err: errors.New("connection reset by peer")}, false},
		{"cut", model.Error{Kind: model.KindCut, Status: 200}, false},
		{"timeout", model.Error{Kind: model.KindTimeout}, false},
		{"an error in the stream", model.Error{Kind: model.KindOverloaded, Status: 200}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rep, _, err := play(t, setup{}, fails(c.err), text("x"))
				if err != nil || rep.Reason != run.Done {
					t.Fatalf("%s, %v", rep.Conclusion, err)
				}
				if free := rep.Tokens.Total == 110; free != c.free || free == rep.Tokens.Estimated {
					t.Errorf("%+v", rep.Tokens)
				}
				if !c.free && rep.Tokens.Total < 110+agent.DefaultMaxOutputTokens {
					t.Errorf("less than was set aside: %+v", rep.Tokens)
				}
			})
		})
	}
}

// Cut streams use the limit up, and no request goes over it.
func TestCutsUseUpTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rep, f, err := play(t, setup{limits: func(l *budget.Limits) { l.MaxTokens = 60_000 }}, fails(model.Error{Kind: model.KindCut}))
		if err != nil || rep.ExitCode != 4 || rep.Tokens.Total > 60_000 || !rep.Composed {
			t.Fatalf("%s: %s, %+v, %v", rep.Reason, rep.Conclusion, rep.Tokens, err)
		}
		if n := len(f.seen); n < 3 || n > agent.DefaultRetries {
			t.Errorf("%d requests", n)
		}
	})
}

// The cap of a reply shrinks with what is left, and never below the least.
func TestCapIsLowered(t *testing.T) {
	t.Parallel()
	n := 0
	spend := func(r *model.Request) (*model.Reply, error) {
		n++
		return using(8_000, 500, sh(fmt.Sprintf("echo %s", strings.Repeat("x", n))))(r)
	}
	rep, f, err := play(t, setup{limits: func(l *budget.Limits) { l.MaxTokens = 100_000 }}, spend)
	if err != nil || rep.ExitCode != 4 || rep.Tokens.Total > 100_000 {
		t.Fatalf("%s: %+v, %+v, %v", rep.Reason, rep.Brake, rep.Tokens, err)
	}
	lowered := false
	for i, req := range f.seen {
		if req.MaxOutputTokens < agent.MinOutputTokens || req.MaxOutputTokens > agent.DefaultMaxOutputTokens {
			t.Errorf("request %d is capped at %d", i, req.MaxOutputTokens)
		}
		lowered = lowered || req.MaxOutputTokens < agent.DefaultMaxOutputTokens && len(req.Tools) > 0
	}
	if !lowered {
		t.Error("no cap was lowered")
	}
}

// Cached input costs what the price says, and writing it, too.
func TestCachedInputIsCheaper(t *testing.T) {
	t.Parallel()
	price := &agent.Price{Input: 10, Cached: 1, CacheWrite: 12.5, Output: 20}
	answer := func(r *model.Request) (*model.Reply, error) {
		reply, err := text("x")(r)
		reply.Usage = model.Usage{Known: true, Input: 1000, CachedInput: 600, CacheWrite: 200, Output: 100}
		return reply, err
	}
	rep, _, err := play(t, setup{options: func(o *agent.Options) { o.Price = price }}, answer)
	if want := (200*10 + 600*1 + 200*12.5 + 100*20) / 1e6; err != nil || math.Abs(rep.Tokens.CostUSD-want) > 1e-9 || rep.Tokens.Cached != 600 {
		t.Errorf("%+v, want $%v, %v", rep.Tokens, want, err)
	}
}

// Each step ends with what is left of the limits, after the data of the newest
// result, and nothing that was sent before is rewritten.
func TestWhatIsLeftIsShown(t *testing.T) {
	t.Parallel()
	_, f, err := play(t, setup{limits: func(l *budget.Limits) { l.MaxSteps, l.MaxToolCalls = 10, 7 }},
		sh("echo one"), sh("echo two; exit 3"), text("x"))
	if err != nil {
		t.Fatal(err)
	}
	for i, req := range f.seen {
		if strings.Contains(req.System, "Left for") || req.System != f.seen[0].System {
			t.Errorf("the system prompt of request %d: %q", i, req.System)
		}
		if i == 0 {
			continue
		}
		before := f.seen[i-1].Messages
		for j := range before {
			if fmt.Sprint(before[j]) != fmt.Sprint(req.Messages[j]) {
				t.Errorf("message %d was rewritten: %v, then %v", j, before[j], req.Messages[j])
			}
		}
		content := req.Messages[len(req.Messages)-1].Results[0].Content
		line := content[strings.LastIndexByte(content, '\n')+1:]
		want := fmt.Sprintf("Left for this task: %d replies, %d tool calls, 14m30s, ", 9-i, 7-i)
		if !strings.HasPrefix(line, want) || !strings.Contains(line, " tokens, $") {
			t.Errorf("%q, want %q", line, want)
		}
	}
}

// The last turn is given the time that was kept for it, whatever the model and
// the commands do with the rest.
func TestLastTurnHasTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		slow := func(r *model.Request) (*model.Reply, error) {
			time.Sleep(15 * time.Second)
			n++
			return sh("sleep 3 # " + strings.Repeat("x", n))(r)
		}
		quick := func(r *model.Request) (*model.Reply, error) {
			if len(r.Tools) > 0 {
				return slow(r)
			}
			return text("in time")(r)
		}
		rep, _, err := play(t, setup{limits: func(l *budget.Limits) { l.MaxWallTime = 4 * time.Minute }}, quick)
		if err != nil || rep.Reason != run.OverBudget || rep.Brake.Limit != string(budget.LimitWallTime) || rep.Answer != "in time" {
			t.Fatalf("%s: %+v, %q, %v", rep.Reason, rep.Brake, rep.Answer, err)
		}
		if ms := rep.Time.TotalMS; ms > 240_000 {
			t.Errorf("it took %d ms", ms)
		}
	})
}
