package inference_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/inference"
)

const (
	chatStream = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a \\\" usage\"},\"finish_reason\":null}],\"usage\":null}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15,\"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens_details\":{\"reasoning_tokens\":2}}}\n\n" +
		"data: [DONE]\n\n"
	responsesStream = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\",\"usage\":null}}\n\n" +
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"{\\\"usage\\\":1}\"}\n\n" +
		"event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":4},\"output_tokens\":5,\"output_tokens_details\":{\"reasoning_tokens\":2},\"total_tokens\":15}},\"type\":\"response.completed\"}\n\n"
	messagesStream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"cache_creation_input_tokens\":1,\"cache_read_input_tokens\":4,\"output_tokens\":1}}}\n\n" +
		": a comment\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":5}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	geminiStream = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}],\"usageMetadata\":{\"promptTokenCount\":8,\"totalTokenCount\":8}}\n\n" +
		"data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"args\":{\"usageMetadata\":{\"promptTokenCount\":99}}}}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":" +
		"{\"promptTokenCount\":8,\"toolUsePromptTokenCount\":2,\"cachedContentTokenCount\":4,\"candidatesTokenCount\":3,\"thoughtsTokenCount\":2,\"totalTokenCount\":15}}\n\n"
	geminiList = "[{\"candidates\":[{\"content\":{}}],\"usageMetadata\":{\"promptTokenCount\":8}}\n,\n" +
		"{\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":8,\"toolUsePromptTokenCount\":2,\"cachedContentTokenCount\":4,\"candidatesTokenCount\":3,\"thoughtsTokenCount\":2}}]"
	sse, js = "text/event-stream; charset=utf-8", "application/json"
)

var all = inference.Usage{Known: true, Input: 10, Cached: 4, Output: 5, Reasoning: 2}

var answers = []struct {
	name     string
	api      inference.API
	kind     string
	text     string
	usage    inference.Usage
	complete bool
	code     string
}{
	{"chat", inference.Chat, sse, chatStream, all, true, ""},
	{"chat without a type", inference.Chat, "", chatStream, all, true, ""},
	{"chat in CRLF", inference.Chat, sse, strings.ReplaceAll(chatStream, "\n", "\r\n"), all, true, ""},
	{"chat in CR", inference.Chat, sse, strings.ReplaceAll(chatStream, "\n", "\r"), all, true, ""},
	{"chat without spaces", inference.Chat, sse, strings.ReplaceAll(chatStream, "data: ", "data:"), all, true, ""},
	{"chat in lines", inference.Chat, sse, strings.ReplaceAll(chatStream, "{\"prompt_tokens\":", "\ndata: {\"prompt_tokens\"\ndata\ndata: :"), all, true, ""},
	{"chat with a mark", inference.Chat, sse, "\xef\xbb\xbf" + chatStream, all, true, ""},
	{"chat without its last line feed", inference.Chat, sse, strings.TrimRight(chatStream, "\n"), all, true, ""},
	{"chat without usage", inference.Chat, sse, "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", inference.Usage{}, true, ""},
	{"chat that ends early", inference.Chat, sse, "data: {\"choices\":[{\"delta\":{}}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n",
		inference.Usage{Input: 3, Output: 1}, false, ""},
	{"chat with an error", inference.Chat, sse, "data: {\"error\":{\"code\":\"server_error\",\"message\":\"no\"}}\n\n", inference.Usage{}, false, "server_error"},
	{"chat whole", inference.Chat, js, `{"choices":[{"finish_reason":"stop","message":{"content":"` + strings.Repeat("x", 1<<20) + `"}}],
		"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}`, all, true, ""},
	{"chat with reasoning beside", inference.Chat, js, `{"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":15,"completion_tokens_details":{"reasoning_tokens":2},"prompt_cache_hit_tokens":4}}`, all, true, ""},
	{"chat refused", inference.Chat, js, `{"error":{"message":"no","type":"invalid_request_error","code":null}}`, inference.Usage{}, true, "invalid_request_error"},
	{"a page", inference.Chat, "text/html", `<html>{"usage":{"prompt_tokens":1,"completion_tokens":1}}</html>`, inference.Usage{}, true, ""},
	{"responses", inference.Responses, sse, responsesStream, all, true, ""},
	{"responses failed", inference.Responses, sse, "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"rate_limit_exceeded\"},\"usage\":null}}\n\n",
		inference.Usage{}, true, "rate_limit_exceeded"},
	{"responses with an error", inference.Responses, sse, "data: {\"type\":\"error\",\"code\":\"a b\\nc\",\"message\":\"m\"}\n\n", inference.Usage{}, false, "unknown"},
	{"responses whole", inference.Responses, js, `{"error":null,"output":[{"type":"message","usage":{"input_tokens":99}}],"usage":{"input_tokens":10,"output_tokens":5,"input_tokens_details":{"cached_tokens":4},"output_tokens_details":{"reasoning_tokens":2}}}`, all, true, ""},
	{"messages", inference.Messages, sse, messagesStream, inference.Usage{Known: true, Input: 10, Cached: 4, Written: 1, Output: 5}, true, ""},
	{"messages cut", inference.Messages, sse, messagesStream[:300], inference.Usage{Input: 10, Cached: 4, Written: 1, Output: 1}, false, ""},
	{"messages with an error", inference.Messages, sse, messagesStream[:200] + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
		inference.Usage{Input: 10, Cached: 4, Written: 1, Output: 1}, false, "overloaded_error"},
	{"messages whole", inference.Messages, js, `{"type":"message","content":[{"type":"tool_use","input":{"usage":{"input_tokens":7}}}],"usage":{"input_tokens":5,"cache_creation_input_tokens":1,"cache_read_input_tokens":4,"output_tokens":5,"service_tier":"standard"}}`,
		inference.Usage{Known: true, Input: 10, Cached: 4, Written: 1, Output: 5}, true, ""},
	{"gemini", inference.Gemini, sse, geminiStream, all, true, ""},
	{"gemini in a list", inference.Gemini, js, geminiList, all, true, ""},
	{"gemini in a list, cut", inference.Gemini, js, geminiList[:100], inference.Usage{Input: 8}, false, ""},
	{"gemini blocked", inference.Gemini, sse, "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"},\"usageMetadata\":{\"promptTokenCount\":7}}\n\n", inference.Usage{Known: true, Input: 7}, true, ""},
	{"gemini with an error", inference.Gemini, js, `[{"error":{"code":503,"status":"UNAVAILABLE"}}]`, inference.Usage{}, true, "UNAVAILABLE"},
	{"numbers that cannot be", inference.Chat, js, `{"usage":{"prompt_tokens":-3,"completion_tokens":1e300,"prompt_tokens_details":{"cached_tokens":9}}}`, inference.Usage{Output: 1 << 40}, true, ""},
	{"nothing", inference.Chat, js, "", inference.Usage{}, true, ""},
	{"no stream", inference.Chat, sse, "", inference.Usage{}, false, ""},
}

func TestAnswer(t *testing.T) {
	for _, test := range answers {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{1 << 30, 1, 7, 64} {
				a := inference.NewAnswer(test.api, true, test.kind)
				for rest := []byte(test.text); len(rest) > 0; {
					n, err := a.Write(rest[:min(size, len(rest))])
					if err != nil || n != min(size, len(rest)) {
						t.Fatalf("took %d: %v", n, err)
					}
					rest = rest[n:]
				}
				usage, complete, code := a.End(false)
				if usage != test.usage || complete != test.complete || code != test.code {
					t.Errorf("in pieces of %d: %+v, %v, %q", size, usage, complete, code)
				}
			}
		})
	}
}

func TestAnswerCut(t *testing.T) {
	t.Parallel()
	for _, test := range answers {
		half := inference.NewAnswer(test.api, true, test.kind)
		_, _ = io.WriteString(half, test.text[:len(test.text)/4])
		if _, complete, _ := half.End(true); complete {
			t.Errorf("%s: complete though its connection broke in its beginning", test.name)
		}
		whole := inference.NewAnswer(test.api, true, test.kind)
		_, _ = io.WriteString(whole, test.text)
		if _, complete, _ := whole.End(true); complete && !test.complete {
			t.Errorf("%s: complete as its connection broke behind it, and else not", test.name)
		}
	}
}

// Who has the last event of a stream may hang up before its connection ends.
func TestAnswerCutBehindItsEnd(t *testing.T) {
	t.Parallel()
	const said = "data: {\"choices\":[{\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n"
	for text, want := range map[string]bool{said + "data: [DONE]\n\n": true, said: false} {
		a := inference.NewAnswer(inference.Chat, true, "text/event-stream")
		_, _ = io.WriteString(a, text)
		if u, complete, _ := a.End(true); complete != want || !u.Known {
			t.Errorf("%q: %+v, %v", text, u, complete)
		}
	}
}

// The usage is at the end of an answer that nobody would keep.
func TestAnswerIsLong(t *testing.T) {
	t.Parallel()
	a := inference.NewAnswer(inference.Responses, false, js)
	_, _ = io.WriteString(a, `{"output":[`)
	item := []byte(`{"type":"message","content":[{"text":"` + strings.Repeat(`\"\\x`, 1000) + `","n":[[1,2],{}]}]},`)
	for range 20 << 20 / len(item) {
		_, _ = a.Write(item)
	}
	_, _ = a.Write(bytes.TrimSuffix(item, []byte(",")))
	_, _ = io.WriteString(a, `],"usage":{"input_tokens":1000000,"output_tokens":2}}`)
	usage, complete, _ := a.End(false)
	if want := (inference.Usage{Known: true, Input: 1000000, Output: 2}); usage != want || !complete {
		t.Errorf("%+v, %v", usage, complete)
	}
}
