package inference_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/inference"
)

// A request that goes on from one that was counted has nothing by which it would be
// more than is counted: what looks like a mark, an image or what was there before.
func TestCounterIsNotTricked(t *testing.T) {
	big := strings.Repeat("!", 100_000)
	messages := func(more, blocks string) string {
		return `{"model":"m","max_tokens":9` + more + `,"messages":[{"role":"user","content":[{"type":"text","text":"a"}` + blocks + `]}]}`
	}
	tool := func(schema string) string {
		return `,"tools":[{"name":"f","input_schema":{"type":"object","properties":{` + schema + `}}}]`
	}
	use := func(input string) string {
		return `,{"type":"tool_use","id":"t","name":"f","input":{` + input + `}}`
	}
	responses := func(item string) string {
		return `{"model":"m","input":[{"role":"user","content":"a"}` + item + `]}`
	}
	for _, test := range []struct {
		name          string
		api           inference.API
		first, second string
	}{
		{"a mark in a schema", inference.Messages, messages(tool(""), ""), messages(tool(`"cache_control":{"type":"string","description":"`+big+`"}`), "")},
		{"a mark in an input", inference.Messages, messages("", use("")), messages("", use(`"cache_control":"`+big+`"`))},
		{"a mark that is none", inference.Messages, messages("", ""), messages("", `,{"type":"text","text":"","cache_control":{"type":"`+big+`"}}`)},
		{"a mark in a schema of Chat", inference.Chat,
			`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{}}}}]}`,
			`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"cache_control":{"description":"` + big + `"}}}}}]}`},
		{"a text of another member", inference.Messages, messages(`,"stop_sequences":["`+big+`"]`, ""), messages(`,"system":"`+big+`"`, "")},
		{"an image in a tool's schema", inference.Responses, responses(""),
			responses(`,{"type":"tool_search_output","call_id":"c","tools":[{"type":"function","name":"f","parameters":{"default":{"url":"data:image/png;base64,` + big + `"}}}]}`)},
		{"an image in an added tool", inference.Messages, messages("", ""),
			messages("", `,{"type":"tool_addition","tool":{"name":"f","input_schema":{"default":{"type":"image","source":{"type":"base64","media_type":"image/png","data":"`+big+`"}}}}}`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c inference.Counter
			c.Answered(mustRead(t, test.api, test.first), used(5000, 1))
			if most, _, _ := c.Input(mustRead(t, test.api, test.second)); most < 100_000 {
				t.Errorf("it counts as at most %d tokens", most)
			}
		})
	}
}

// What was counted while the vendor left something out does not hold where it leaves
// nothing out.
func TestCounterOfLessThanWasSent(t *testing.T) {
	long := strings.Repeat("word ", 4000)
	for name, test := range map[string]struct {
		api        inference.API
		body, less string
	}{
		"context management": {inference.Messages, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"` + long + `"}]`,
			`,"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]}}`},
		"truncation":          {inference.Responses, `{"model":"m","input":[{"role":"user","content":"` + long + `"}]`, `,"truncation":"auto"}`},
		"thinking":            {inference.Chat, `{"model":"m","messages":[{"role":"user","content":"` + long + `"}]`, `,"preserve_thinking":false}`},
		"resolution of media": {inference.Gemini, `{"contents":[{"parts":[{"text":"` + long + `"}]}]`, `,"generationConfig":{"mediaResolution":"MEDIA_RESOLUTION_LOW"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var c inference.Counter
			c.Answered(mustRead(t, test.api, test.body+test.less), used(50, 1))
			if most, _, _ := c.Input(mustRead(t, test.api, test.body+"}")); most < 20_000 {
				t.Errorf("it counts as at most %d tokens", most)
			}
			between(t, &c, mustRead(t, test.api, test.body+test.less), 50, 100)
		})
	}
}

// A small body is not much work, and does not take much memory.
func TestReadIsBounded(t *testing.T) {
	for name, body := range map[string]string{
		"many messages": `{"model":"m","messages":[` + strings.Repeat("0,", 20_000) + `0]}`,
		"many tools":    `{"model":"m","messages":[],"stop":[` + strings.Repeat("0,", 20_000) + `0]}`,
		"many values":   `{"model":"m","messages":[{"role":"user","content":[` + strings.Repeat("0,", 140_000) + `0]}]}`,
		"a long name":   `{"model":"m` + strings.Repeat("m", 300) + `","messages":[]}`,
	} {
		if _, err := read(t, inference.Chat, body, inference.Rules{Models: []string{"m*"}}); err == nil {
			t.Errorf("%s: passes", name)
		}
	}
}

func TestReadHeader(t *testing.T) {
	for name, test := range map[string]struct {
		api    inference.API
		header http.Header
		rules  inference.Rules
		code   inference.RefusalCode
	}{
		"a mask":          {inference.Gemini, http.Header{"X-Goog-Fieldmask": {"candidates"}}, open, inference.RefuseForm},
		"a mask, spelled": {inference.Gemini, http.Header{"X-Goog_fieldmask": {"candidates"}}, open, inference.RefuseForm},
		"usual":           {inference.Gemini, http.Header{"X-Goog-Api-Client": {"x"}, "X-Goog-Api-Key": {"k"}}, open, ""},
		"a long context":  {inference.Messages, http.Header{"Anthropic-Beta": {"a-1", "b-2,context-1m-2025-08-07"}}, inference.Rules{}, inference.RefusePrice},
		"dearer":          {inference.Messages, http.Header{"Anthropic-Beta": {"context-1m-2025-08-07"}}, inference.Rules{Dearer: true}, ""},
	} {
		err := inference.ReadHeader(test.api, test.header, test.rules)
		if no, ok := err.(*inference.Refusal); ok != (test.code != "") || ok && no.Code != test.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A count without that of the answer is none.
func TestAnswerWithoutItsCount(t *testing.T) {
	a := inference.NewAnswer(inference.Gemini, false, "application/json")
	_, _ = a.Write([]byte(`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":7}}`))
	if u, _, _ := a.End(false); u.Known {
		t.Errorf("%+v", u)
	}
}
