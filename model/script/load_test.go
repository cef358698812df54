package script_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/model/script"
)

func TestLoadErrors(t *testing.T) {
	step := func(s string) string { return "steps:\n  - " + s + "\n" }
	call := func(s string) string { return step("{name: a, calls: [{tool: t, " + s + "}]}") }
	tests := []struct{ name, src, want string }{
		{"empty", "", "s.yaml: the script is empty"},
		{"comment only", "# nothing\n", "s.yaml: the script is empty"},
		{"not a map", "- a\n", "s.yaml:1:1: the script must be a map, not a list"},
		{"no steps", "name: x\n", "s.yaml:1:1: the script has no steps"},
		{"empty steps", "steps: []\n", "s.yaml:1:1: the script has no steps"},
		{"syntax", "steps: [\nname: x\n", "s.yaml:1:8: "},
		{"tab", "steps:\n\t- text: x\n", "s.yaml:2:1: found character '\t' that cannot start any token"},
		{"two documents", "steps: [{text: a}]\n---\nsteps: [{text: b}]\n", "s.yaml:3:6: a script is one YAML document"},
		{"key twice", "steps: [{text: a}]\nsteps: [{text: b}]\n", `s.yaml:2:1: mapping key "steps" already defined at [1:1]`},
		{"anchor", "steps: &a [{text: x}]\n", "s.yaml:1:8: anchors and aliases are not allowed"},
		{"tag", "steps: !!seq [{text: x}]\n", "s.yaml:1:8: tags are not allowed"},
		{"unknown top key", "step: [{text: x}]\n", `s.yaml:1:1: the script has no key "step" (did you mean "steps"?)`},
		{"far key", "banana: 1\n", `s.yaml:1:1: the script has no key "banana" (it has final, name, preface, steps)`},
		{"unknown step key", step("{nmae: x}"), `s.yaml:2:6: a step has no key "nmae" (did you mean "name"?)`},
		{"unknown call key", call("arguements: {}"), `s.yaml:2:33: a call has no key "arguements" (did you mean "arguments"?)`},
		{"bad name", step("{name: 1st}"), `s.yaml:2:12: name must be a name, not "1st" (letters, digits, _ and -, not a digit or - first)`},
		{"name twice", "steps:\n  - {name: a, text: x}\n  - {name: a, text: y}\n", `s.yaml:3:6: two steps are named "a"`},
		{"call name twice", step("{calls: [{name: c, tool: t}, {name: c, tool: t}]}"), `two calls of step "step 1" are named "c"`},
		{"no tool", step("{calls: [{name: c}]}"), `s.yaml:2:15: a call has no tool`},
		{"arguments no map", call("arguments: [1]"), `s.yaml:2:44: arguments must be a map, not a list (use raw_arguments for what is not an object)`},
		{"both arguments", call(`arguments: {}, raw_arguments: "x"`), `a call has both arguments and raw_arguments`},
		{"text no string", step("{text: 5}"), `s.yaml:2:12: text must be text, not a number (put it in quotes)`},
		{"stop", step("{stop: lenght}"), `s.yaml:2:12: stop cannot be "lenght" (did you mean "length"?)`},
		{"next unknown", "steps:\n  - {name: test, next: tset}\n", `s.yaml:2:24: there is no step "tset" (did you mean "test"?)`},
		{"branch without step", step("{next: [{when: {task: x}}]}"), `a branch has no step`},
		{"hiding branch", "steps:\n  - {name: a, next: [{step: a}, {step: a, when: {task: x}}]}\n", `a branch without "when" hides those after it (put it last)`},
		{"branch key", "steps:\n  - {name: a, next: [{stpe: a}]}\n", `a branch has no key "stpe" (did you mean "step"?)`},
		{"when no reference", "steps:\n  - {name: a, next: [{when: {\"1\": x}, step: a}]}\n", `"1" is not a reference`},
		{"unknown call", step(`{text: "${{ tset.stdout }}"}`), `there is no call named "tset"`},
		{"near call", "steps:\n  - {name: test, calls: [{tool: t}]}\n  - {text: \"${{ tset.stdout }}\"}\n", `s.yaml:3:12: there is no call named "tset" (did you mean "test"?)`},
		{"call as value", "steps:\n  - {name: test, calls: [{tool: t}]}\n  - {text: \"${{ test }}\"}\n", `no call captures a value named "test" (it is a call: write test.stdout, or another field)`},
		{"unknown value", step(`{text: "${{ trun }}"}`), `no call captures a value named "trun" (did you mean "turn"?)`},
		{"unclosed reference", step(`{text: "${{ turn"}`), `a "${{" without its "}}"`},
		{"odd reference", step(`{text: "${{ a b }}"}`), `"a b" is not a reference`},
		{"empty part", step(`{text: "${{ a..b }}"}`), `the reference "a..b" has an empty part`},
		{"expect list", call("expect: [1]"), `expect must be a map of conditions, not a list`},
		{"condition list", call("expect: {stdout: [a]}"), `stdout: a list is not a condition (write contains: or equals:)`},
		{"unknown operator", call("expect: {stdout: {contain: a}}"), `a condition has no key "contain" (did you mean "contains"?)`},
		{"bad regexp", call(`expect: {stdout: {matches: "("}}`), "matches: error parsing regexp: missing closing ): `(`"},
		{"min no number", call(`expect: {stdout: {min: x}}`), `min must be a number, not a string`},
		{"exists no bool", call(`expect: {stdout: {exists: x}}`), `exists must be true or false, not a string`},
		{"empty contains", call(`expect: {stdout: {contains: ""}}`), `contains must not be empty`},
		{"capture name", call(`capture: {"1": stdout}`), `"1" is not a name`},
		{"capture taken", call(`capture: {turn: stdout}`), `the name "turn" is taken`},
		{"capture no from", call(`capture: {x: {match: a}}`), `the capture "x" does not say from which field`},
		{"capture groups", call(`capture: {x: {from: stdout, match: "(a)(b)"}}`), `match has 2 groups; it may have one, which is captured`},
		{"capture type", call(`capture: {x: {from: stdout, type: int}}`), `type cannot be "int" (one of integer, string)`},
		{"replacement half", call(`capture: {x: {from: stdout, replace: [{old: a}]}}`), `a replacement needs old and new`},
		{"usage cached", step("{usage: {input: 1, cached_input: 2}}"), `cached_input is more than input (input includes it)`},
		{"usage reasoning", step("{usage: {output: 1, reasoning: 2}}"), `reasoning is more than output (output includes it)`},
		{"usage negative", step("{usage: {input: -1}}"), `input must be a whole number from 0 to 1099511627776`},
		{"usage word", step("{usage: unknown}"), `usage cannot be "unknown" (one of none)`},
		{"fault kind", step("{faults: [ratelimit]}"), `s.yaml:2:15: a fault cannot be "ratelimit" (did you mean "rate_limit"?)`},
		{"fault no kind", step("{faults: [{times: 2}]}"), `a fault has no kind`},
		{"fault key", step("{faults: [{kind: cut, retry_after: 2s}]}"), `a fault of kind cut has no "retry_after"`},
		{"fault for", step("{faults: [{kind: rate_limit, for: 2s}]}"), `a fault of kind rate_limit has no "for"`},
		{"fault clean", step("{faults: [{kind: cut, at: start, clean: true}]}"), `a fault of kind cut has no "clean"`},
		{"fault duration", step("{faults: [{kind: stall, for: 2}]}"), `for must be a duration such as "2s", not "2"`},
		{"fault times", step("{faults: [{kind: cut, times: 0}]}"), `times must be a whole number from 1 to 10000`},
		{"infinity", call("arguments: {x: .inf}"), `infinity is not allowed here`},
		{"too deep", "steps: " + strings.Repeat("[", 100) + strings.Repeat("]", 100), `nested too deep; at most 64 levels`},
		{"too deep in blocks", "steps: \n" + strings.Repeat("- ", 300) + "a", `nested too deep; at most 64 levels`},
		{"too long", "steps:\n" + strings.Repeat(" - {}\n", 10_000), `the script is too long; at most 20000 YAML tokens`},
		{"too big", "steps: [] #" + strings.Repeat("x", script.MaxSize), `s.yaml: the script has 262155 bytes, at most 262144 are allowed`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := script.Load([]byte(tt.src), "s.yaml")
			var syntax *script.SyntaxError
			if !errors.As(err, &syntax) || s != nil {
				t.Fatalf("Load: %v, %v; want a *SyntaxError", s, err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %s\nwant %s", err, tt.want)
			}
			if !strings.HasPrefix(err.Error(), "s.yaml") {
				t.Errorf("no place in %s", err)
			}
		})
	}
}

func TestName(t *testing.T) {
	s, err := script.Load([]byte("steps: [{text: a}]"), "/x/y/demo.script.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if s.Name() != "demo.script" {
		t.Errorf("name %q", s.Name())
	}
	if got := s.Model().Name(); got != "script/demo.script" {
		t.Errorf("model name %q", got)
	}
}

func TestYAMLForms(t *testing.T) {
	c := start(t, `
steps:
  - calls:
      - tool: t
        arguments:
          literal: |
            a: ${{ turn }}
              b
          folded: >-
            c
            d
          quoted: 'it''s'
          escaped: "a\té"
          yes: yes
          octal: 0o17
          hex: 0xff
          float: 1.50
          negative: -3
          huge: 1e999
          big: 18446744073709551615
          nothing: ~
          list: [1, "2", true]
          empty: {}
          html: <&>
`)
	want := `{"big":18446744073709551615,"empty":{},"escaped":"a\té","float":1.5,"folded":"c d","hex":255,"html":"<&>","huge":"1e999",` +
		`"list":[1,"2",true],"literal":"a: 1\n  b\n","negative":-3,"nothing":null,"octal":15,"quoted":"it's","yes":"yes"}`
	if diff := cmp.Diff(want, c.ask().Reply.Message.Calls[0].Arguments); diff != "" {
		t.Error(diff)
	}
}

// A script that loads can be played whatever comes back, and never panics.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(repair), `{"ok":false,"exit_code":1,"stderr":"a:1: want 5"}`)
	f.Add([]byte("steps:\n  - {name: a, text: '', stop: length, next: a, faults: [cut, {kind: stall, for: 1s}], usage: none}\n"), "")
	f.Add([]byte("steps: [{calls: [{name: c, tool: t, raw_arguments: '{', expect: {a.0.b: {min: 1}}}], next: [{when: {c.x: {lacks: y}}, step: s}]}, {name: s}]"), `{"a":[{"b":2}]}`)
	f.Add([]byte("? a\n: - b\n- &x *x\n"), "{{{{{{")
	f.Fuzz(func(t *testing.T, data []byte, result string) {
		s, err := script.Load(data, "fuzz.yaml")
		if err != nil {
			var syntax *script.SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("not a *SyntaxError: %v", err)
			}
			return
		}
		c := newTalk(t, s.Play())
		for range 8 {
			turn, err := c.player.Next(&c.req)
			if err != nil {
				return
			}
			if turn.Fault != nil {
				continue
			}
			c.req.Messages = append(c.req.Messages, turn.Reply.Message)
			if n := len(turn.Reply.Message.Calls); n > 0 {
				contents := make([]string, n)
				for i := range contents {
					contents[i] = result
				}
				c.results(contents...)
			}
		}
	})
}
