package openai_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/openai"
)

func TestReplies(t *testing.T) {
	callDelta := func(index int, id, name, args string) string {
		return delta(fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%q,"function":{"name":%q,"arguments":%q}}]}`, index, id, name, args))
	}
	two := []model.ToolCall{{ID: "x", Name: "f", Arguments: `{"a":1}`}, {ID: "y", Name: "g", Arguments: `{}`}}
	tests := []struct {
		name   string
		events []string
		text   string
		calls  []model.ToolCall
		stop   model.StopReason
	}{
		{"text", []string{delta(`{"role":"assistant","content":""}`), delta(`{"content":"Hi "}`), delta(`{"content":"you"}`), finish("stop")}, "Hi you", nil, model.StopEnd},
		{"empty", []string{finish("stop")}, "", nil, model.StopEnd},
		{"cut by the cap", []string{delta(`{"content":"Hi"}`), finish("length")}, "Hi", nil, model.StopLength},
		{"filtered", []string{delta(`{"content":"Hi"}`), finish("content_filter")}, "Hi", nil, model.StopRefusal},
		{"refused", []string{delta(`{"refusal":"No"}`), delta(`{"refusal":"."}`), finish("stop")}, "No.", nil, model.StopRefusal},
		{"unknown reason", []string{delta(`{"content":"Hi"}`), finish("whim")}, "Hi", nil, ""},
		{"other choices", []string{delta(`{"content":"Hi"}`), `{"choices":[{"index":1,"delta":{"content":"ho"},"finish_reason":"length"}]}`, finish("stop")}, "Hi", nil, model.StopEnd},
		{"calls", []string{callDelta(0, "x", "f", ""), callDelta(0, "", "", `{"a":`), callDelta(0, "", "", `1}`), callDelta(1, "y", "g", `{}`), finish("tool_calls")}, "", two, model.StopToolCalls},
		{"interleaved", []string{callDelta(0, "x", "f", ""), callDelta(1, "y", "g", `{`), callDelta(0, "", "", `{"a":1}`), callDelta(1, "", "", `}`), finish("tool_calls")}, "", two, model.StopToolCalls},
		{"one index for all", []string{callDelta(0, "x", "f", `{"a":1}`), callDelta(0, "y", "g", `{}`), finish("stop")}, "", two, model.StopToolCalls},
		{"strange indices", []string{callDelta(-1, "x", "f", `{"a":1}`), callDelta(1<<40, "y", "g", `{}`), finish("tool_calls")}, "", two, model.StopToolCalls},
		{"repeated names", []string{callDelta(0, "x", "f", ""), callDelta(0, "x", "f", `{"a":1}`), callDelta(1, "y", "g", `{}`), callDelta(1, "y", "g", ``), finish("tool_calls")}, "", two, model.StopToolCalls},
		{"names in pieces", []string{callDelta(0, "x", "run_", ""), callDelta(0, "", "command", `{}`), finish("tool_calls")}, "",
			[]model.ToolCall{{ID: "x", Name: "run_command", Arguments: "{}"}}, model.StopToolCalls},
		{"no ids", []string{callDelta(0, "", "f", `{`), callDelta(1, "", "f", `{}`), finish("tool_calls")}, "",
			[]model.ToolCall{{ID: "call_1_1", Name: "f", Arguments: "{"}, {ID: "call_1_2", Name: "f", Arguments: "{}"}}, model.StopToolCalls},
		{"one id for all", []string{callDelta(0, "x", "f", ``), callDelta(1, "x", "g", `{}`), finish("tool_calls")}, "",
			[]model.ToolCall{{ID: "x", Name: "f"}, {ID: "call_1_1", Name: "g", Arguments: "{}"}}, model.StopToolCalls},
		{"an id that looks like ours", []string{callDelta(0, "", "f", ``), callDelta(1, "call_1_1", "g", `{}`), finish("tool_calls")}, "",
			[]model.ToolCall{{ID: "call_1_2", Name: "f"}, {ID: "call_1_1", Name: "g", Arguments: "{}"}}, model.StopToolCalls},
		{"tool_calls without any", []string{delta(`{"content":"Hi"}`), finish("tool_calls")}, "Hi", nil, model.StopEnd},
		{"cut in a call", []string{callDelta(0, "x", "f", `{"a`), finish("length")}, "", []model.ToolCall{{ID: "x", Name: "f", Arguments: `{"a`}}, model.StopLength},
		{"nulls", []string{`{"id":null,"model":null,"usage":null,"choices":null}`, delta(`{"content":null,"refusal":null,"tool_calls":null}`), finish("stop")}, "", nil, model.StopEnd},
	}
	for _, tt := range tests {
		for _, end := range []string{"[DONE]", ""} {
			t.Run(tt.name+" "+end, func(t *testing.T) {
				t.Parallel()
				events := tt.events
				if end != "" {
					events = append(events[:len(events):len(events)], end)
				}
				reply, err := streaming(t, ": a comment\n\n"+sse(events...)).Generate(t.Context(), request(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if reply.Message.Text != tt.text || reply.Stop != tt.stop || reply.Message.Role != model.RoleAssistant {
					t.Errorf("got %+v", reply)
				}
				if diff := cmp.Diff(tt.calls, reply.Message.Calls); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

func TestUsage(t *testing.T) {
	tests := []struct {
		name, usage string
		want        model.Usage
	}{
		{"all", `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":3}}`,
			model.Usage{Known: true, Input: 10, CachedInput: 4, Output: 5, Reasoning: 3}},
		{"plain", `{"prompt_tokens":10,"completion_tokens":5}`, model.Usage{Known: true, Input: 10, Output: 5}},
		{"null", `null`, model.Usage{}},
		{"impossible parts", `{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":40},"completion_tokens_details":{"reasoning_tokens":-3}}`,
			model.Usage{Known: true, Input: 10, CachedInput: 10, Output: 5}},
		{"negative", `{"prompt_tokens":-10,"completion_tokens":5}`, model.Usage{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reply, err := streaming(t, sse(finish("stop"), `{"id":"r1","model":"m1-2026","choices":[],"usage":`+tt.usage+`}`, "[DONE]")).
				Generate(t.Context(), request(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if reply.Usage != tt.want || reply.ID != "r1" || reply.Model != "m1-2026" {
				t.Errorf("got %+v", reply)
			}
		})
	}
}

func TestDeltas(t *testing.T) {
	var got []model.Delta
	_, err := streaming(t, sse(
		delta(`{"reasoning_content":"hm "}`), delta(`{"reasoning":"hm"}`), delta(`{"reasoning":{"odd":1}}`), delta(`{"content":"Hi"}`),
		delta(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":""}}]}`),
		delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`), finish("tool_calls"), "[DONE]", delta(`{"content":"after the end"}`),
	)).Generate(t.Context(), request(), func(d model.Delta) { got = append(got, d) })
	if err != nil {
		t.Fatal(err)
	}
	want := []model.Delta{{Reasoning: "hm "}, {Reasoning: "hm"}, {Text: "Hi"}, {CallName: "f"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBrokenStreams(t *testing.T) {
	hi := delta(`{"content":"Hi"}`)
	call := `{"tool_calls":[`
	for i := range 200 {
		call += fmt.Sprintf(`{"index":%d,"id":"c%d","function":{"name":"f"}},`, i, i)
	}
	call = strings.TrimSuffix(call, ",") + "]}"
	tests := []struct {
		name, body string
		kind       model.Kind
		message    string
	}{
		{"nothing", "", model.KindCut, "without a finish reason"},
		{"no reason", sse(hi), model.KindCut, "without a finish reason"},
		{"no reason but an end", sse(hi, "[DONE]"), model.KindCut, "without a finish reason"},
		{"half an event", sse(hi) + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, model.KindCut, "without a finish reason"},
		{"vendor's error reason", sse(hi, finish("error")), model.KindCut, "without a finish reason"},
		{"not JSON", sse(hi, `{"choices":[`), model.KindUnknown, "malformed"},
		{"not an object", sse(`"hello"`, finish("stop")), model.KindUnknown, "malformed"},
		{"call without name", sse(delta(`{"tool_calls":[{"index":0,"id":"x"}]}`), finish("tool_calls")), model.KindUnknown, "tool call 1 has no name"},
		{"too many calls", sse(delta(call), finish("tool_calls")), model.KindUnknown, "more than 128 tool calls"},
		{"error", sse(hi, `{"error":{"message":"boom","type":"server_error","code":null}}`), model.KindUnavailable, "boom"},
		{"plain error", sse(hi, `{"error":"boom"}`), model.KindUnavailable, "boom"},
		{"rate limit", sse(`{"error":{"message":"slow","code":"rate_limit_exceeded"}}`), model.KindRateLimit, "slow"},
		{"overloaded", sse(`{"error":{"message":"busy","type":"overloaded_error"}}`), model.KindOverloaded, "busy"},
		{"number", sse(`{"error":{"message":"busy","code":502}}`), model.KindUnavailable, "busy"},
		{"invalid", sse(`{"error":{"message":"bad","type":"invalid_request_error"}}`), model.KindInvalid, "bad"},
		{"context", sse(`{"error":{"message":"bad","code":"context_length_exceeded"}}`), model.KindContext, "bad"},
		{"other", sse(`{"error":{"message":"odd","code":"odd"}}`), model.KindUnknown, "odd"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			reply, err := streaming(t, tt.body).Generate(t.Context(), request(), nil)
			if reply != nil || model.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.message) {
				t.Errorf("got %v, %v", reply, err)
			}
		})
	}
}

// breaking fails in the middle.
type breaking struct {
	io.Reader
	err error
}

func (b breaking) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = b.err
	}
	return n, err
}

func (breaking) Close() error { return nil }

// A broken connection is a cut reply even when the reason came: what it cost
// did not.
func TestBrokenConnection(t *testing.T) {
	for _, body := range []string{sse(delta(`{"content":"Hi"}`)), sse(finish("stop"))} {
		m := newModel(t, openai.Options{Transport: transport(func(*http.Request) (*http.Response, error) {
			res := respond(200, nil, "")
			res.Body = breaking{strings.NewReader(body), io.ErrUnexpectedEOF}
			return res, nil
		})})
		_, err := m.Generate(t.Context(), request(), nil)
		if model.KindOf(err) != model.KindCut || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v", err)
		}
	}
}
