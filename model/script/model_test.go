package script_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/script"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func request() *model.Request {
	return &model.Request{
		Messages: []model.Message{{Role: model.RoleUser, Text: "go"}},
		Tools:    []model.ToolDef{{Name: "run_command"}},
	}
}

func TestModelEmitsThenReturns(t *testing.T) {
	m := load(t, `
steps:
  - text: "äöü is a text long enough to come in pieces"
    calls: [{tool: run_command}, {tool: read_file}]
    usage: {input: 100, cached_input: 40, output: 20, reasoning: 5}
`).Model()
	var text strings.Builder
	var names []string
	pieces := 0
	r, err := m.Generate(t.Context(), request(), func(d model.Delta) {
		text.WriteString(d.Text)
		if d.Text != "" {
			pieces++
		}
		if d.CallName != "" {
			names = append(names, d.CallName)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != r.Message.Text || pieces < 3 || strings.Join(names, " ") != "run_command read_file" {
		t.Errorf("emitted %q in %d pieces, %q", text.String(), pieces, names)
	}
	want := model.Usage{Known: true, Input: 100, CachedInput: 40, Output: 20, Reasoning: 5}
	if r.Usage != want {
		t.Errorf("usage %+v, want %+v", r.Usage, want)
	}
}

func TestModelFaults(t *testing.T) {
	tests := []struct {
		fault   string
		kind    model.Kind
		emitted bool
		took    time.Duration
		retry   time.Duration
	}{
		{"{kind: rate_limit, retry_after: 1500ms}", model.KindRateLimit, false, 0, 1500 * time.Millisecond},
		{"overloaded", model.KindOverloaded, false, 0, 0},
		{"unavailable", model.KindUnavailable, false, 0, 0},
		{"auth", model.KindAuth, false, 0, 0},
		{"forbidden", model.KindForbidden, false, 0, 0},
		{"quota", model.KindQuota, false, 0, 0},
		{"not_found", model.KindNotFound, false, 0, 0},
		{"context", model.KindContext, false, 0, 0},
		{"invalid", model.KindInvalid, false, 0, 0},
		{"cut", model.KindCut, true, 0, 0},
		{"{kind: cut, at: start}", model.KindUnavailable, false, 0, 0},
		{"garbage", model.KindUnknown, true, 0, 0},
		{"stall", model.KindTimeout, true, time.Minute, 0},
		{"{kind: stall, at: start, for: 90s}", model.KindTimeout, false, time.Minute, 0},
		{"{kind: stall, for: 59s}", "", true, 59 * time.Second, 0},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := load(t, "steps: [{text: 'a text of some length', faults: ["+tt.fault+"]}]").Model()
				emitted := 0
				begin := time.Now()
				_, err := m.Generate(t.Context(), request(), func(model.Delta) { emitted++ })
				if model.KindOf(err) != tt.kind || (err == nil) != (tt.kind == "") {
					t.Errorf("got %v, want kind %q", err, tt.kind)
				}
				if took := time.Since(begin); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				if emitted > 0 != tt.emitted {
					t.Errorf("emitted %d pieces", emitted)
				}
				if e, ok := errors.AsType[*model.Error](err); ok && e.RetryAfter != tt.retry {
					t.Errorf("retry after %v, want %v", e.RetryAfter, tt.retry)
				}
				// The same request again gets the reply.
				if r, err := m.Generate(t.Context(), request(), nil); err != nil || r.Message.Text == "" {
					t.Errorf("asked again: %v, %v", r, err)
				}
			})
		})
	}
}

func TestModelEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := load(t, "steps: [{text: a, faults: [stall]}]").Model()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := m.Generate(ctx, request(), nil)
		if !errors.Is(err, context.DeadlineExceeded) || model.KindOf(err) != model.KindTimeout || time.Since(begin) != time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if _, err = m.Generate(ctx, request(), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with an ended context: %v", err)
		}
	})
}

func TestFaultsAreCountedForEachConversation(t *testing.T) {
	p := load(t, "steps: [{text: done, faults: [{kind: rate_limit, times: 2}, cut]}]").Play()
	kinds := func(c *talk) (got []string) {
		for range 5 {
			turn := c.ask()
			if turn.Fault == nil {
				got = append(got, turn.Reply.Message.Text)
			} else {
				got = append(got, string(turn.Fault.Kind))
			}
		}
		return got
	}
	want := "rate_limit rate_limit cut done done"
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			c := newTalk(t, p)
			c.req.Messages[0].Text = strings.Repeat("x", i)
			if got := strings.Join(kinds(c), " "); got != want {
				t.Errorf("conversation %d: %s, want %s", i, got, want)
			}
		})
	}
	wg.Wait()
}

func TestFaultMemoryIsBounded(t *testing.T) {
	p := load(t, "steps: [{text: done, faults: [cut]}]").Play()
	c := newTalk(t, p)
	for i := range 10_000 {
		c.req.System = string(rune(0x4e00 + i))
		if turn := c.ask(); turn.Fault == nil {
			t.Fatalf("conversation %d had no fault", i)
		}
	}
	if turn := c.ask(); turn.Fault != nil {
		t.Error("the newest conversation was forgotten")
	}
}

// An agent may keep an empty or cut reply, ask the same again, or ask again
// with a word of its own. The script goes on in each case.
func TestEmptyAndCutReplies(t *testing.T) {
	src := `
steps:
  - name: empty
    text: ""
  - name: long
    text: "Half a thou"
    calls: [{tool: run_command, arguments: {command: "echo a long command"}}]
    stop: length
  - {name: done, text: done}
`
	agents := map[string]func(c *talk, r *model.Reply){
		"keeps": func(c *talk, r *model.Reply) {
			c.req.Messages = append(c.req.Messages, r.Message)
			for _, call := range r.Message.Calls {
				c.req.Messages = append(c.req.Messages, model.Message{Role: model.RoleTool,
					Results: []model.ToolResult{{ID: call.ID, Content: "not executed"}}})
			}
			c.req.Messages = append(c.req.Messages, model.Message{Role: model.RoleUser, Text: "go on"})
		},
		"keeps the text": func(c *talk, r *model.Reply) {
			r.Message.Calls = nil
			c.req.Messages = append(c.req.Messages, r.Message, model.Message{Role: model.RoleUser, Text: "go on"})
		},
		"repeats": func(c *talk, r *model.Reply) {},
		"adds its word": func(c *talk, r *model.Reply) {
			c.req.Messages = append(c.req.Messages, model.Message{Role: model.RoleUser, Text: "go on"})
		},
	}
	for name, agent := range agents {
		t.Run(name, func(t *testing.T) {
			c := start(t, src)
			turn := c.ask()
			if turn.Step != "empty" || turn.Reply.Message.Text != "" || turn.Reply.Stop != model.StopEnd {
				t.Fatalf("first: %s %+v", turn.Step, turn.Reply)
			}
			agent(c, turn.Reply)
			turn = c.ask()
			if turn.Step != "long" || turn.Reply.Stop != model.StopLength || json.Valid([]byte(turn.Reply.Message.Calls[0].Arguments)) {
				t.Fatalf("second: %s %+v", turn.Step, turn.Reply)
			}
			agent(c, turn.Reply)
			if turn = c.reply(); turn.Step != "done" {
				t.Fatalf("third: %s %+v", turn.Step, turn.Reply)
			}
		})
	}
}

func TestEndlessEmptyReply(t *testing.T) {
	c := start(t, "steps: [{name: a, next: a}]")
	for range 10 {
		if turn := c.ask(); turn.Step != "a" {
			t.Fatalf("%+v", turn)
		}
	}
}

func TestWrongCalls(t *testing.T) {
	c := start(t, `
steps:
  - calls:
      - {tool: rum_command, arguments: {}}
      - {tool: run_command, raw_arguments: '{"command": '}
  - {text: sorry, stop: refusal, usage: none}
`)
	turn := c.reply()
	calls := turn.Reply.Message.Calls
	if calls[0].Name != "rum_command" || calls[0].Arguments != "{}" || calls[1].Arguments != `{"command": ` {
		t.Errorf("calls %+v", calls)
	}
	c.results("a", "b")
	turn = c.ask()
	if turn.Reply.Stop != model.StopRefusal || turn.Reply.Usage.Known {
		t.Errorf("refusal %+v", turn.Reply)
	}
}

func TestPieces(t *testing.T) {
	for _, s := range []string{"", "a", strings.Repeat("ä", 9), strings.Repeat("日本", 5000), "\xff\xfe\xfd" + strings.Repeat("\x80", 100)} {
		pieces := script.Pieces(s)
		if strings.Join(pieces, "") != s || len(pieces) > 64 {
			t.Errorf("%d bytes in %d pieces", len(s), len(pieces))
		}
	}
}
