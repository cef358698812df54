package inference_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/inference"
)

// conversation is a request of about so many bytes: a coding agent's with its
// tools, in which each turn calls a tool and is given its result.
func conversation(tb testing.TB, api inference.API, turns, size int) []byte {
	tb.Helper()
	type object = map[string]any
	text := strings.Repeat("\tif err != nil {\n\t\treturn fmt.Errorf(\"read %s: %w\", name, err) // größer\n\t}\n", size/60+8)[:size]
	schema := object{"type": "object", "properties": object{"path": object{"type": "string", "description": strings.Repeat("a path ", 20)}}, "required": []string{"path"}}
	var said, tools []object
	for i := range 20 {
		name := fmt.Sprint("tool", i)
		switch api {
		case inference.Chat:
			tools = append(tools, object{"type": "function", "function": object{"name": name, "description": text[:400], "parameters": schema}})
		case inference.Responses:
			tools = append(tools, object{"type": "function", "name": name, "description": text[:400], "parameters": schema})
		case inference.Messages:
			tools = append(tools, object{"name": name, "description": text[:400], "input_schema": schema})
		case inference.Gemini:
			tools = append(tools, object{"functionDeclarations": []object{{"name": name, "description": text[:400], "parametersJsonSchema": schema}}})
		}
	}
	for i := range turns {
		id := fmt.Sprint("call_", i)
		switch api {
		case inference.Chat:
			said = append(said, object{"role": "assistant", "content": nil, "tool_calls": []object{{"id": id, "type": "function", "function": object{"name": "tool1", "arguments": `{"path":"a.go"}`}}}},
				object{"role": "tool", "tool_call_id": id, "content": text})
		case inference.Responses:
			said = append(said, object{"type": "function_call", "call_id": id, "name": "tool1", "arguments": `{"path":"a.go"}`},
				object{"type": "function_call_output", "call_id": id, "output": text})
		case inference.Messages:
			said = append(said, object{"role": "assistant", "content": []object{{"type": "tool_use", "id": id, "name": "tool1", "input": object{"path": "a.go"}}}},
				object{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": id, "content": text}}})
		case inference.Gemini:
			said = append(said, object{"role": "model", "parts": []object{{"functionCall": object{"name": "tool1", "args": object{"path": "a.go"}}}}},
				object{"role": "user", "parts": []object{{"functionResponse": object{"name": "tool1", "response": object{"output": text}}}}})
		}
	}
	body := object{"tools": tools}
	switch api {
	case inference.Chat:
		body["model"], body["messages"], body["stream"], body["max_tokens"] = "m", said, true, 32000
	case inference.Responses:
		body["model"], body["input"], body["stream"], body["instructions"] = "m", said, true, text
	case inference.Messages:
		body["model"], body["messages"], body["stream"], body["max_tokens"] = "m", said, true, 32000
		body["system"] = []object{{"type": "text", "text": text}}
	case inference.Gemini:
		body["contents"], body["systemInstruction"] = said, object{"parts": []object{{"text": text}}}
	}
	out, err := json.Marshal(body)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// A request of 200 KB is judged, counted and written again.
func BenchmarkRequest(b *testing.B) {
	for _, api := range []inference.API{inference.Chat, inference.Responses, inference.Messages, inference.Gemini} {
		b.Run(string(api), func(b *testing.B) {
			body := conversation(b, api, 60, 2800)
			var counter inference.Counter
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				r, err := inference.Read(inference.Call{API: api}, paths[api], "application/json", body, open)
				if err != nil {
					b.Fatal(err)
				}
				counter.Input(r)
				if out := r.Body(1000); len(out) == len(body) {
					b.Fatal("nothing was written")
				}
			}
		})
	}
}

func BenchmarkAnswer(b *testing.B) {
	for _, test := range answers {
		if !strings.Contains("chat responses messages gemini", test.name) {
			continue
		}
		b.Run(test.name, func(b *testing.B) {
			text := []byte(test.text)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				a := inference.NewAnswer(test.api, true, test.kind)
				_, _ = a.Write(text)
				a.End(false)
			}
		})
	}
}
