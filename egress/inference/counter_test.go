package inference_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rein-sh/rein/egress/inference"
)

func mustRead(t *testing.T, api inference.API, body string) *inference.Request {
	t.Helper()
	r, err := read(t, api, body, open)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func used(input, output int64) inference.Usage {
	return inference.Usage{Known: true, Input: input, Output: output}
}

// between fails when a request is not counted as what was known and at most so
// much more.
func between(t *testing.T, c *inference.Counter, r *inference.Request, known, more int64) {
	t.Helper()
	most, likely, _ := c.Input(r)
	if most < known || most > known+more || likely < known || likely > most {
		t.Errorf("counted as at most %d, likely %d; known are %d and %d more may be", most, likely, known, more)
	}
}

func TestCounterOfABeginning(t *testing.T) {
	t.Parallel()
	var c inference.Counter
	text := strings.Repeat("abcdefghij", 1000)
	most, likely, _ := c.Input(mustRead(t, inference.Chat, `{"model":"m","messages":[{"role":"user","content":"`+text+`"}]}`))
	if most < 10_000 || most > 10_700 || likely < 5000 || likely > 5300 {
		t.Errorf("10,000 bytes are at most %d tokens, likely %d", most, likely)
	}
	escaped := strings.Repeat(`\n\u0041`, 5000)
	if most, _, _ := c.Input(mustRead(t, inference.Chat, `{"model":"m","messages":[{"role":"user","content":"`+escaped+`"}]}`)); most > 10_700 {
		t.Errorf("10,000 escaped bytes are at most %d tokens", most)
	}
	other := strings.Repeat("語", 1000)
	if _, likely, _ := c.Input(mustRead(t, inference.Chat, `{"model":"m","messages":[{"role":"user","content":"`+other+`"}]}`)); likely < 3000 {
		t.Errorf("3,000 bytes that are not ASCII are likely %d tokens", likely)
	}
}

// A request that goes on from one that was counted is that, its reply, and its new
// bytes; whatever clients change about what was said before.
func TestCounterOfWhatGoesOn(t *testing.T) {
	long := strings.Repeat("word ", 4000)
	for _, test := range []struct {
		name          string
		api           inference.API
		first, second string
	}{
		{"chat", inference.Chat,
			`{"model":"m","messages":[{"role":"system","content":"` + long + `"},{"role":"user","content":"a"}],"user":"u1"}`,
			`{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"` + long + `"}]},{"role":"user","content":"a"},
				{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"user":"u2","max_tokens":7}`},
		{"chat with marks", inference.Chat,
			`{"model":"m","messages":[{"role":"system","content":"` + long + `"},{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}`,
			`{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"` + long + `","cache_control":{"type":"ephemeral"}}]},{"role":"user","content":[{"type":"text","text":"a"}]},
				{"role":"assistant","content":"b"},{"role":"user","content":[{"type":"text","text":"c","cache_control":{"type":"ephemeral"}}]}]}`},
		{"responses", inference.Responses,
			`{"model":"m","instructions":"` + long + `","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}],"tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}]}`,
			`{"model":"m","instructions":"` + long + `","input":[{"id":"msg_1","status":"completed","type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},
				{"type":"reasoning","summary":[],"encrypted_content":"AAAA"},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
				{"type":"function_call_output","call_id":"1","output":"c"}],"tools":[{"type":"function","name":"g"},{"type":"function","name":"f"}]}`},
		{"messages", inference.Messages,
			`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"header 1"},{"type":"text","text":"` + long + `","cache_control":{"type":"ephemeral"}}],
				"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}`,
			`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"header 2"},{"type":"text","text":"` + long + `"}],
				"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b"}]},
				{"role":"user","content":[{"type":"text","text":"c","cache_control":{"type":"ephemeral"}}]}]}`},
		{"gemini", inference.Gemini,
			`{"systemInstruction":{"parts":[{"text":"` + long + `"}]},"contents":[{"role":"user","parts":[{"text":"a"}]}]}`,
			`{"contents":[{"role":"user","parts":[{"text":"a"}]},{"role":"model","parts":[{"text":"b"}]},{"role":"user","parts":[{"text":"c"}]}],"systemInstruction":{"parts":[{"text":"` + long + `"}]}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var c inference.Counter
			first, second := mustRead(t, test.api, test.first), mustRead(t, test.api, test.second)
			if most, _, _ := c.Input(second); most < 20_000 {
				t.Errorf("at most %d before anything was counted", most)
			}
			c.Answered(first, inference.Usage{Input: 9, Output: 9}) // not known
			if most, _, _ := c.Input(second); most < 20_000 {
				t.Errorf("at most %d after what is not known", most)
			}
			c.Answered(first, used(5000, 700))
			between(t, &c, first, 5000, 0)
			between(t, &c, second, 5700, 400)
			c.Answered(second, used(6000, 100))
			between(t, &c, second, 6000, 0)
		})
	}
}

// Sub-agents and helpers have conversations of their own, and a client may go back
// in one.
func TestCounterOfSeveral(t *testing.T) {
	t.Parallel()
	var c inference.Counter
	body := func(agent, turns int) string {
		var b strings.Builder
		fmt.Fprintf(&b, `{"model":"m","messages":[{"role":"user","content":"task %d %s"}`, agent, strings.Repeat("x", 5000))
		for i := range turns {
			fmt.Fprintf(&b, `,{"role":"assistant","content":"%d"},{"role":"user","content":"more"}`, i)
		}
		return b.String() + "]}"
	}
	for turns := range 10 {
		for agent := range 5 {
			r := mustRead(t, inference.Chat, body(agent, turns))
			if turns > 0 {
				between(t, &c, r, int64(1000+1000*agent+100*(turns-1)+10), 300)
			}
			c.Answered(r, used(int64(1000+1000*agent+100*turns), 10))
		}
	}
	back := strings.Replace(body(3, 9), `{"role":"assistant","content":"4"}`, `{"role":"assistant","content":"another"}`, 1)
	between(t, &c, mustRead(t, inference.Chat, back), 4000+400+10, 1500)
	if most, _, _ := c.Input(mustRead(t, inference.Chat, strings.Replace(body(3, 9), `"m"`, `"n-1"`, 1))); most < 5000 {
		t.Error("what one model was sent is taken for what another was")
	}
}

// A reply that is none of the vendor's counts by its bytes.
func TestCounterOfAReplyMadeUp(t *testing.T) {
	t.Parallel()
	var c inference.Counter
	c.Answered(mustRead(t, inference.Chat, `{"model":"m","messages":[{"role":"user","content":"a"}]}`), used(10, 5))
	r := mustRead(t, inference.Chat, `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"`+strings.Repeat("x", 100_000)+`"}]}`)
	if most, likely, _ := c.Input(r); most < 100_000 || likely < 50_000 {
		t.Errorf("at most %d, likely %d", most, likely)
	}
}

func TestCounterOfImages(t *testing.T) {
	t.Parallel()
	var c inference.Counter
	data := strings.Repeat("AAAA", 100_000)
	for _, test := range []struct {
		api  inference.API
		body string
		most int64
	}{
		{inference.Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `"}}]}]}`, 26_000},
		{inference.Responses, `{"model":"m","input":[{"type":"function_call_output","output":[{"type":"input_image","image_url":"data:image/png;base64,` + data + `"}]}]}`, 26_000},
		{inference.Messages, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + data + `"}}]}]}`, 6000},
		{inference.Gemini, `{"contents":[{"role":"user","parts":[{"inlineData":{"mimeType":"image/png","data":"` + data + `"}}]}]}`, 6000},
	} {
		if most, _, _ := c.Input(mustRead(t, test.api, test.body)); most > test.most || most < 4000 {
			t.Errorf("%s: an image is at most %d tokens", test.api, most)
		}
	}
	for api, body := range map[inference.API]string{ // which are text for a model
		inference.Messages:  `{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"media_type":"image/png","data":"` + data + `"}}]}]}`,
		inference.Gemini:    `{"contents":[{"role":"user","parts":[{"functionResponse":{"response":{"url":"data:image/png;base64,` + data + `"}}}]}]}`,
		inference.Responses: `{"model":"m","input":"a","tools":[{"type":"function","name":"f","parameters":{"url":"data:image/png;base64,` + data + `"}}]}`,
	} {
		if most, _, _ := c.Input(mustRead(t, api, body)); most < 400_000 {
			t.Errorf("%s: a text that looks like an image is at most %d tokens", api, most)
		}
	}
}

// Who repeats itself has the same turn, whatever the ids and the thoughts.
func TestTurn(t *testing.T) {
	t.Parallel()
	var c inference.Counter
	turn := func(api inference.API, body string) string {
		_, _, turn := c.Input(mustRead(t, api, body))
		return turn
	}
	messages := func(before, id, thought, result string) string {
		return turn(inference.Messages, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"`+before+`"},{"role":"assistant","content":[{"type":"thinking","thinking":"`+thought+`","signature":"s"},
			{"type":"tool_use","id":"`+id+`","name":"f","input":{"id":"7"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+id+`","content":"`+result+`"}]}]}`)
	}
	responses := func(id, result string) string {
		return turn(inference.Responses, `{"model":"m","input":[{"role":"user","content":"a"},{"type":"reasoning","id":"`+id+`","encrypted_content":"`+id+`"},
			{"type":"function_call","id":"fc`+id+`","call_id":"`+id+`","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"`+id+`","output":"`+result+`"}]}`)
	}
	if a := messages("x", "1", "hm", "same"); a != messages("x y", "2", "oh", "same") || a == messages("x", "1", "hm", "other") || len(a) != 32 {
		t.Errorf("turns of Messages: %q", a)
	}
	if a := responses("1", "same"); a != responses("2", "same") || a == responses("1", "other") {
		t.Errorf("turns of Responses: %q", a)
	}
	if turn(inference.Chat, `{"model":"m","messages":[{"role":"user","content":"a"}]}`) == turn(inference.Chat, `{"model":"m","messages":[{"role":"user","content":"b"}]}`) {
		t.Error("two tasks are the same turn")
	}
}

func TestCounterForgets(t *testing.T) {
	t.Parallel()
	var c inference.Counter
	body := func(i int) string {
		return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%d %s"}]}`, i, strings.Repeat("x", 100))
	}
	for i := range 2000 {
		c.Answered(mustRead(t, inference.Chat, body(i)), used(1, 1))
	}
	if most, _, _ := c.Input(mustRead(t, inference.Chat, body(1999))); most != 1 {
		t.Errorf("the last one is at most %d", most)
	}
	if most, _, _ := c.Input(mustRead(t, inference.Chat, body(0))); most == 1 {
		t.Error("the first of 2,000 is still known")
	}
}

func TestCounterIsSafe(t *testing.T) {
	t.Parallel()
	var c inference.Counter
	var all sync.WaitGroup
	for i := range 8 {
		r := mustRead(t, inference.Chat, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%d"}]}`, i%3))
		all.Go(func() {
			for range 200 {
				c.Input(r)
				c.Answered(r, used(100, 1))
			}
		})
	}
	all.Wait()
	between(t, &c, mustRead(t, inference.Chat, `{"model":"m","messages":[{"role":"user","content":"1"}]}`), 100, 0)
}
