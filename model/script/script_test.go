package script_test

import (
	"strings"
	"testing"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/script"
)

func load(t *testing.T, src string) *script.Script {
	t.Helper()
	s, err := script.Load([]byte(src), "demo.yaml")
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return s
}

// talk is a conversation an agent has with a script.
type talk struct {
	t      *testing.T
	player *script.Player
	req    model.Request
}

func newTalk(t *testing.T, p *script.Player) *talk {
	return &talk{t: t, player: p, req: model.Request{
		System:   "You are under test.",
		Messages: []model.Message{{Role: model.RoleUser, Text: "repair it"}},
		Tools:    []model.ToolDef{{Name: "run_command"}},
	}}
}

func start(t *testing.T, src string) *talk { return newTalk(t, load(t, src).Play()) }

// ask sends the conversation.
func (c *talk) ask() *script.Turn {
	c.t.Helper()
	turn, err := c.player.Next(&c.req)
	if err != nil {
		c.t.Fatalf("Next: %v", err)
	}
	return turn
}

// reply asks and keeps the reply in the conversation.
func (c *talk) reply() *script.Turn {
	c.t.Helper()
	turn := c.ask()
	c.req.Messages = append(c.req.Messages, turn.Reply.Message)
	return turn
}

// results answers the calls of the last reply, wrapped as an agent does.
func (c *talk) results(contents ...string) {
	c.t.Helper()
	last := c.req.Messages[len(c.req.Messages)-1]
	if len(contents) != len(last.Calls) {
		c.t.Fatalf("%d results for %d calls", len(contents), len(last.Calls))
	}
	m := model.Message{Role: model.RoleTool}
	for i, call := range last.Calls {
		m.Results = append(m.Results, model.ToolResult{
			ID: call.ID, Name: call.Name,
			Content: "<untrusted-data-5f3a>\n" + contents[i] + "\n</untrusted-data-5f3a>",
		})
	}
	c.req.Messages = append(c.req.Messages, m)
}

// fails asks and returns the message of the error.
func (c *talk) fails() string {
	c.t.Helper()
	_, err := c.player.Next(&c.req)
	if model.KindOf(err) != model.KindInvalid {
		c.t.Fatalf("Next: %v, want an error of kind invalid", err)
	}
	return err.Error()
}

const repair = `
name: repair
steps:
  - name: test
    text: I run the test.
    calls:
      - tool: run_command
        arguments: {command: sh test.sh, timeout_seconds: 30}
        expect: {exit_code: 1, ok: false, stderr: {contains: "want 5"}}
        capture:
          line: {from: stderr, match: ':(\d+):', type: integer}
  - name: source
    calls:
      - tool: read_file
        arguments: {path: add.sh, offset: "${{ line }}"}
        capture:
          fixed: {from: stdout, replace: [{old: a - b, new: a + b}]}
  - name: write
    calls:
      - tool: write_file
        arguments: {path: add.sh, content: "${{ fixed }}", note: "line ${{ line }} of $${{ x }}"}
        expect: {ok: true}
  - name: again
    calls:
      - tool: run_command
        arguments: {command: sh test.sh}
        expect: {exit_code: 0}
  - name: done
    text: "Repaired: the test said ${{ again.stdout }}"
`

func TestRepair(t *testing.T) {
	c := start(t, repair)
	turn := c.reply()
	if turn.Step != "test" || turn.Reply.Stop != model.StopToolCalls || turn.Reply.Message.Text != "I run the test." {
		t.Fatalf("first turn: %+v", turn)
	}
	if got, want := turn.Reply.Message.Calls[0].Arguments, `{"command":"sh test.sh","timeout_seconds":30}`; got != want {
		t.Errorf("arguments %s, want %s", got, want)
	}
	c.results(`{"ok":false,"exit_code":1,"stdout":"","stderr":"add.sh:7: got 1, want 5\n"}`)
	turn = c.reply()
	if got, want := turn.Reply.Message.Calls[0].Arguments, `{"offset":7,"path":"add.sh"}`; got != want {
		t.Errorf("arguments %s, want %s", got, want)
	}
	c.results(`{"ok":true,"exit_code":null,"stdout":"echo $((a - b)) # <{}>\n"}`)
	turn = c.reply()
	if got, want := turn.Reply.Message.Calls[0].Arguments,
		`{"content":"echo $((a + b)) # <{}>\n","note":"line 7 of ${{ x }}","path":"add.sh"}`; got != want {
		t.Errorf("arguments %s, want %s", got, want)
	}
	c.results(`{"ok":true,"exit_code":null}`)
	c.reply()
	c.results(`{"ok":true,"exit_code":0,"stdout":"pass"}`)
	turn = c.reply()
	if turn.Reply.Message.Text != "Repaired: the test said pass" || turn.Reply.Stop != model.StopEnd {
		t.Errorf("last turn: %+v", turn.Reply)
	}
	if !turn.Reply.Usage.Known || turn.Reply.Usage.Input == 0 || turn.Reply.Usage.Output == 0 {
		t.Errorf("usage %+v", turn.Reply.Usage)
	}
	c.req.Messages = append(c.req.Messages, model.Message{Role: model.RoleUser, Text: "and now?"})
	if msg := c.fails(); !strings.Contains(msg, `the script is over`) {
		t.Errorf("after the end: %s", msg)
	}
}

func TestExpectationNamesStepAndWhatWasSeen(t *testing.T) {
	c := start(t, repair)
	c.reply()
	c.results(`{"ok":true,"exit_code":0,"stdout":"all is well","stderr":""}`)
	want := `model script/repair: invalid: demo.yaml:9:18: step "test", call "test" (run_command): ` +
		`exit_code: expected 1, saw 0; ok: expected false, saw true; stderr: expected it to contain "want 5", saw ""; ` +
		`it had ok true, exit_code 0, stdout "all is well"`
	if got := c.fails(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRuntimeFailures(t *testing.T) {
	one := func(call string) string {
		return "steps:\n  - name: a\n    calls:\n      - {tool: run_command, " + call + "}\n  - {name: b, text: \"${{ a.stdout }}\"}\n"
	}
	tests := []struct{ name, src, result, want string }{
		{"misspelt field", one(`expect: {exit_cod: 0}`), `{"exit_code":0}`, `exit_cod: is not there (did you mean "exit_code"?)`},
		{"nested absent", one(`expect: {error.class: fixable}`), `{"ok":true}`, `error.class: is not there`},
		{"nested wrong", one(`expect: {error.class: fixable}`), `{"error":{"class":"fatal"}}`, `error.class: expected "fixable", saw "fatal"`},
		{"matches", one(`expect: {stdout: {matches: "^a+$"}}`), `{"stdout":"b"}`, `expected a match of "^a+$", saw "b"`},
		{"lacks", one(`expect: {stdout: {lacks: b}}`), `{"stdout":"b"}`, `expected it not to contain "b"`},
		{"contains all", one(`expect: {stdout: {contains: [a, b]}}`), `{"stdout":"a"}`, `expected it to contain "b", saw "a"`},
		{"min", one(`expect: {duration_ms: {min: 5}}`), `{"duration_ms":4}`, `expected at least 5, saw 4`},
		{"max", one(`expect: {duration_ms: {max: 5}}`), `{"duration_ms":6.5}`, `expected at most 5, saw 6.5`},
		{"min of text", one(`expect: {stdout: {min: 5}}`), `{"stdout":"x"}`, `expected a number, saw "x"`},
		{"not", one(`expect: {exit_code: {not: 0}}`), `{"exit_code":0}`, `expected anything but 0`},
		{"null", one(`expect: {exit_code: null}`), `{"exit_code":0}`, `exit_code: expected null, saw 0`},
		{"exists", one(`expect: {spill: {exists: true}}`), `{"ok":true}`, `spill: exists: expected true, saw false`},
		{"raw", one(`expect: {raw: {contains: nothing}}`), `no json at all`, `saw "<untrusted-data-5f3a>\nno json at all`},
		{"list", one(`expect: {pipe_status.1: 1}`), `{"pipe_status":[0,0]}`, `pipe_status.1: expected 1, saw 0`},
		{"capture without match", one(`capture: {x: {from: stdout, match: "q(.)"}}`), `{"stdout":"b"}`, `step "a": call "a" (run_command): capture "x": "q(.)" does not match "b"`},
		{"capture of nothing", one(`capture: {x: stdour}`), `{"ok":true}`, `capture "x": the result has no stdour; it had ok true`},
		{"capture twice there", one(`capture: {x: {from: stdout, replace: [{old: b, new: c}]}}`), `{"stdout":"bb"}`, `"b" is there 2 times, not once, in "bb"`},
		{"capture no integer", one(`capture: {x: {from: stdout, type: integer}}`), `{"stdout":"bb"}`, `"bb" is not an integer`},
		{"reference to nothing", one(`expect: {ok: true}`), `{"ok":true,"stdou":"x"}`, `step "b": the result of "a" has no stdout (did you mean "stdou"?); it had ok true`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, tt.src)
			c.reply()
			c.results(tt.result)
			if got := c.fails(); !strings.Contains(got, tt.want) || !strings.Contains(got, "demo.yaml:") {
				t.Errorf("got %s\nwant it to contain %s", got, tt.want)
			}
		})
	}
}

func TestExpectationsThatHold(t *testing.T) {
	c := start(t, `
steps:
  - calls:
      - name: x
        tool: run_command
        expect:
          ok: true
          exit_code: {equals: 0, min: 0, max: 0, not: 1, exists: true}
          stdout: {contains: [he, lo], lacks: x, matches: '(?m)^hello$', not: hello}
          spill: {exists: false}
          network.0.host: a.example
          network: {equals: [{host: a.example, port: 443}]}
          raw: {contains: untrusted-data}
  - text: done
`)
	c.reply()
	c.results(`{"ok":true,"exit_code":0,"stdout":"hello\n","network":[{"port":443,"host":"a.example"}]}`)
	if turn := c.reply(); turn.Reply.Message.Text != "done" {
		t.Errorf("got %+v", turn.Reply)
	}
}

func TestParallelCallsAndBranches(t *testing.T) {
	src := `
steps:
  - name: look
    calls:
      - {name: a, tool: run_command, arguments: {command: "true"}}
      - {name: b, tool: run_command, arguments: {command: "false"}}
    next:
      - when: {a.exit_code: 0, b.exit_code: 0}
        step: both
      - when: {a.stdout: {matches: "^re"}, missing.stdout: {exists: false}}
        step: retry
  - {name: both, text: both}
  - {name: retry, text: "a said ${{ a.stdout }}, b said ${{ b.stdout }}", next: look}
  - {name: never, calls: [{name: missing, tool: run_command}]}
`
	c := start(t, src)
	turn := c.reply()
	if n := len(turn.Reply.Message.Calls); n != 2 || turn.Reply.Message.Calls[0].ID == turn.Reply.Message.Calls[1].ID {
		t.Fatalf("calls: %+v", turn.Reply.Message.Calls)
	}
	c.results(`{"exit_code":0,"stdout":"retry"}`, `{"exit_code":1,"stdout":"no"}`)
	if turn = c.reply(); turn.Reply.Message.Text != "a said retry, b said no" {
		t.Errorf("branch: %+v", turn.Reply)
	}
	if turn = c.reply(); turn.Step != "look" {
		t.Errorf("step %s, want look again", turn.Step)
	}
	c.results(`{"exit_code":0,"stdout":"x"}`, `{"exit_code":0}`)
	if turn = c.ask(); turn.Step != "both" {
		t.Errorf("step %s, want both", turn.Step)
	}

	c = start(t, src)
	c.reply()
	c.results(`{"exit_code":0,"stdout":"x"}`, `{"exit_code":2}`)
	want := `step "look": none of its branches applies; a.exit_code is 0; b.exit_code is 2; a.stdout is "x"; the call "missing" has no result yet`
	if got := c.fails(); !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestResultsAreFoundByIDWhateverTheOrder(t *testing.T) {
	c := start(t, `
steps:
  - calls:
      - {name: a, tool: run_command}
      - {name: b, tool: run_command}
  - text: "${{ a.stdout }} ${{ b.stdout }}"
`)
	c.reply()
	c.results(`{"stdout":"A"}`, `{"stdout":"B"}`)
	r := c.req.Messages[len(c.req.Messages)-1].Results
	r[0], r[1] = r[1], r[0]
	if got := c.ask().Reply.Message.Text; got != "A B" {
		t.Errorf("got %q", got)
	}
}

func TestEndlessStep(t *testing.T) {
	c := start(t, `
steps:
  - name: spin
    calls: [{tool: run_command, arguments: {command: "echo ${{ turn }} ${{ task }}"}}]
    next: spin
`)
	for i := range 60 {
		turn := c.reply()
		want := `{"command":"echo ` + string(rune('0'+(i+1)%10)) + ` repair it"}`
		if got := turn.Reply.Message.Calls[0].Arguments; i < 9 && got != want {
			t.Fatalf("turn %d: %s, want %s", i+1, got, want)
		}
		c.results(`{"ok":true}`)
	}
	// The last turn of a run that reached a brake has no tools.
	c.req.Tools = nil
	turn := c.reply()
	if turn.Reply.Message.Text == "" || len(turn.Reply.Message.Calls) != 0 || turn.Reply.Stop != model.StopEnd {
		t.Errorf("closing turn: %+v", turn.Reply)
	}
	// A later round goes on where it was.
	c.req.Tools = []model.ToolDef{{Name: "run_command"}}
	c.req.Messages = append(c.req.Messages, model.Message{Role: model.RoleUser, Text: "go on"})
	if turn := c.ask(); turn.Step != "spin" {
		t.Errorf("after closing: %+v", turn)
	}
}

func TestForeignConversationIsRefused(t *testing.T) {
	c := start(t, repair)
	c.req.Messages = append(c.req.Messages, model.Message{
		Role: model.RoleAssistant, Calls: []model.ToolCall{{ID: "x", Name: "shell"}},
	})
	if got := c.fails(); !strings.Contains(got, `step "test" makes the calls [run_command], but reply 1 of the conversation made [shell]`) {
		t.Errorf("got %s", got)
	}
}

// An agent may shorten old results when the conversation gets too long.
func TestOnlyTheNewestResultsAreChecked(t *testing.T) {
	c := start(t, `
steps:
  - {name: a, calls: [{tool: run_command, expect: {exit_code: 1}}]}
  - {name: b, calls: [{tool: run_command, expect: {exit_code: 2}}]}
  - {text: done}
`)
	c.reply()
	c.results(`{"exit_code":1}`)
	c.reply()
	c.req.Messages[2].Results[0].Content = "(left out)"
	c.results(`{"exit_code":2}`)
	if turn := c.ask(); turn.Reply.Message.Text != "done" {
		t.Errorf("got %+v", turn)
	}
}

func TestGrowthIsBounded(t *testing.T) {
	c := start(t, `
steps:
  - name: first
    calls: [{tool: run_command, capture: {x: stdout}}]
  - name: more
    calls: [{tool: run_command, arguments: {command: "${{ x }}${{ x }}"}, capture: {x: stdout}}]
    next: more
`)
	c.reply()
	c.results(`{"stdout":"` + strings.Repeat("x", 300_000) + `"}`)
	args := c.reply().Reply.Message.Calls[0].Arguments
	if len(args) < 600_000 {
		t.Fatalf("%d bytes of arguments", len(args))
	}
	c.results(`{"stdout":"` + strings.Repeat("x", 600_000) + `"}`)
	if got := c.fails(); !strings.Contains(got, "a text grows over 1048576 bytes") {
		t.Errorf("got %s", got)
	}
}

// An agent may begin a conversation with a reply that no model gave.
func TestPreface(t *testing.T) {
	c := start(t, `
preface: ["Got it."]
steps:
  - calls: [{tool: t}]
  - text: "turn ${{ turn }}"
`)
	c.req.Messages = append(c.req.Messages, model.Message{Role: model.RoleAssistant, Text: "Got it."}, model.Message{Role: model.RoleUser, Text: "do it"})
	turn := c.ask()
	if len(turn.Reply.Message.Calls) != 1 {
		t.Fatalf("the first reply is %+v", turn.Reply)
	}
	c.req.Messages = append(c.req.Messages, turn.Reply.Message)
	c.results("{}")
	if got := c.ask().Reply.Message.Text; got != "turn 2" {
		t.Errorf("then %q", got)
	}
	c.req.Messages = append(c.req.Messages, model.Message{Role: model.RoleAssistant, Text: "Got it."})
	if _, err := c.player.Next(&c.req); err == nil {
		t.Error("a preface is taken for a reply in the middle")
	}
}
