package inference_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/inference"
)

// paths are where requests of a protocol go.
var paths = map[inference.API]string{
	inference.Chat:      "/v1/chat/completions",
	inference.Responses: "/v1/responses",
	inference.Messages:  "/v1/messages?beta=true",
	inference.Gemini:    "/v1beta/models/m:streamGenerateContent?alt=sse",
}

var open = inference.Rules{Models: []string{"m", "n-*"}}

func read(t *testing.T, api inference.API, body string, r inference.Rules) (*inference.Request, error) {
	t.Helper()
	return inference.Read(inference.Call{API: api}, paths[api], "application/json; charset=utf-8", []byte(body), r)
}

func TestReadAccepts(t *testing.T) {
	for _, test := range []struct {
		name   string
		api    inference.API
		body   string
		stream bool
		output int64
		least  int64
	}{
		{"chat", inference.Chat, `{"model":"m","messages":[{"role":"user","content":"see http://x.example"}],"stream":true,"max_tokens":9}`, true, 9, 1},
		{"chat of a pattern", inference.Chat, `{"model":"n-1","messages":[],"tools":[{"type":"function","function":{"name":"f"}}],"n":1,"stream":null}`, false, 0, 1},
		{"chat with data", inference.Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}]}`, false, 0, 1},
		{"responses", inference.Responses, `{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},
			{"type":"local_shell_call","action":{"type":"exec","env":{"URL":"http://x.example"}}},{"type":"function_call_output","call_id":"c","output":"http://x.example"}],
			"tools":[{"type":"function","name":"f","parameters":{"properties":{"url":{"type":"string"}}}},{"type":"namespace","tools":[{"type":"function","name":"g"}]},
			{"type":"tool_search","execution":"client"},{"type":"local_shell"},{"type":"shell","environment":{"type":"local"}}],
			"previous_response_id":null,"background":false,"store":true,"max_output_tokens":99,"service_tier":"auto"}`, false, 99, 16},
		{"messages", inference.Messages, `{"model":"m","max_tokens":5000,"thinking":{"type":"enabled","budget_tokens":1024},"stream":true,
			"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[
			{"type":"text","text":"http://x.example"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"//uQ"}},
			{"type":"document","source":{"type":"text","media_type":"text/plain","data":"see: http://x.example"}}]}]},
			{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"url":"http://x.example","type":7}}]}],
			"tools":[{"name":"f","input_schema":{}},{"type":"bash_20250124","name":"bash"},{"type":"custom","name":"g"}],
			"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]}}`, true, 5000, 1025},
		{"gemini", inference.Gemini, `{"contents":[{"role":"user","parts":[{"text":"a"},{"inlineData":{"mimeType":"image/png","data":"AA"}},
			{"functionCall":{"name":"f","args":{"fileUri":"http://x.example"}}},{"functionResponse":{"name":"f","response":{"url":"http://x.example"}}}]}],
			"generationConfig":{"maxOutputTokens":7,"candidateCount":1},"tools":[{"functionDeclarations":[{"name":"f"}]}]}`, true, 7, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := read(t, test.api, test.body, open)
			if err != nil {
				t.Fatal(err)
			}
			if got.Stream != test.stream || got.Output != test.output || got.Least != test.least || got.Free || got.API != test.api {
				t.Errorf("read as %+v", got)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	const (
		chat, responses, messages, gemini = inference.Chat, inference.Responses, inference.Messages, inference.Gemini
		model, hosted, url, price, form   = inference.RefuseModel, inference.RefuseHosted, inference.RefuseURL, inference.RefusePrice, inference.RefuseForm
	)
	image := func(url string) string {
		return `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + url + `"}}]}]}`
	}
	for _, test := range []struct {
		api  inference.API
		code inference.RefusalCode
		body string
	}{
		{chat, model, `{"model":"other","messages":[]}`},
		{chat, model, `{"messages":[]}`},
		{chat, model, `{"model":7,"messages":[]}`},
		{chat, model, `{"model":"n-search-preview","messages":[]}`},
		{chat, model, `{"model":"n-4:online","messages":[]}`},
		{chat, form, `{"model":"m","model":"m"}`},
		{chat, form, `{"model":"m","mode\u006c":"other"}`},
		{chat, form, `{"model":"m","Model":"other"}`},
		{chat, form, `{"model":"m","max_token\u017f":9}`},
		{chat, form, `{"model":"m","messages":[{"a":1,"a":2}]}`},
		{chat, form, `{"model":"m"} {}`},
		{chat, form, "\xef\xbb\xbf" + `{"model":"m"}`},
		{chat, form, `{"model":"m","user":"` + "\xff" + `"}`},
		{chat, form, `[{"model":"m"}]`},
		{chat, form, `{"model":"m",}`},
		{chat, form, ``},
		{chat, form, `{"model":"m","messages":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`},
		{chat, form, `{"model":"m","max_tokens":1e9}`},
		{chat, form, `{"model":"m","max_tokens":-1}`},
		{chat, form, `{"model":"m","max_tokens":"9"}`},
		{chat, form, `{"model":"m","stream":"true"}`},
		{chat, form, `{"model":"m","n":2}`},
		{chat, form, `{"model":"m","something_new":{}}`},
		{chat, form, `{"model":"m","stream_options":{"Include_usage":false}}`},
		{chat, hosted, `{"model":"m","web_search_options":{}}`},
		{chat, hosted, `{"model":"m","enable_search":true}`},
		{chat, hosted, `{"model":"m","tools":[{"type":"web_search"}]}`},
		{chat, hosted, `{"model":"m","tools":[{"function":{"name":"f"}}]}`},
		{chat, form, `{"model":"m","tools":[{"type":"function","Type":"web_search"}]}`},
		{chat, price, `{"model":"m","service_tier":"priority"}`},
		{chat, price, `{"model":"m","modalities":["text","audio"]}`},
		{chat, hosted, `{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]}`},
		{chat, hosted, `{"model":"m","messages":[{"role":"user","content":[{"type":"video","video":["http://x.example"]}]}]}`},
		{chat, url, image("http://x.example/a.png")},
		{chat, url, image(" \\tHTTPS://x.example/a.png")},
		{chat, url, image("\\u0068ttp://x.example/a.png")},
		{chat, url, image("ht\\ntp://x.example/a.png")},
		{chat, url, image(strings.Repeat(" \\n\\t", 100) + "https://x.example/a.png")},
		{chat, url, image("h" + strings.Repeat("\\n", 200) + "ttp://x.example/a.png")},
		{chat, url, image("\\u2003\\u0085http://x.example/a.png")},
		{chat, hosted, image("gs://bucket/a.png")},
		{chat, hosted, image("//x.example/a.png")},
		{chat, url, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":"http://x.example"}]}]}`},
		{chat, url, `{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"http://x.example"}}]}]}`},
		{chat, url, `{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"h` + strings.Repeat("\\n", 127) + `ttp://x.example"}}]}]}`},
		{responses, hosted, `{"model":"m","tools":[{"type":"web_search"}]}`},
		{responses, hosted, `{"model":"m","tools":[{"type":"shell","environment":{"type":"container_auto"}}]}`},
		{responses, hosted, `{"model":"m","tools":[{"type":"shell"}]}`},
		{responses, hosted, `{"model":"m","tools":[{"type":"tool_search"}]}`},
		{responses, hosted, `{"model":"m","tools":[{"type":"namespace","tools":[{"type":"mcp","server_url":"http://x.example"}]}]}`},
		{responses, hosted, `{"model":"m","input":[{"type":"additional_tools","tools":[{"type":"web_search"}]}]}`},
		{responses, hosted, `{"model":"m","previous_response_id":"r"}`},
		{responses, hosted, `{"model":"m","conversation":"c"}`},
		{responses, hosted, `{"model":"m","prompt":{"id":"p"}}`},
		{responses, hosted, `{"model":"m","background":true}`},
		{responses, hosted, `{"model":"m","input":[{"type":"item_reference","id":"i"}]}`},
		{responses, hosted, `{"model":"m","input":[{"id":"i"}]}`},
		{responses, hosted, `{"model":"m","input":[{"id":"i","role":"assistant"}]}`},
		{responses, hosted, `{"model":"m","input":[{"type":"message","id":"i","role":"user","content":[]}]}`},
		{responses, hosted, `{"model":"m","input":[{"type":"reasoning","id":"i","summary":[]}]}`},
		{responses, hosted, `{"model":"m","input":[{"type":"compaction","id":"i","encrypted_content":""}]}`},
		{responses, hosted, `{"model":"m","input":[{"type":"configuration_update","model":"other"}]}`},
		{responses, hosted, `{"model":"m","image":{"file_id":"f"}}`},
		{chat, url, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"t","image":"http://x.example/a.png"}]}]}`},
		{responses, hosted, `{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]}`},
		{responses, url, `{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_url":"http://x.example"}]}]}`},
		{responses, url, `{"model":"m","input":[{"type":"function_call_output","output":[{"type":"input_image","image_url":"http://x.example"}]}]}`},
		{messages, hosted, `{"model":"m","max_tokens":1,"tools":[{"type":"web_search_20250305","name":"web_search"}]}`},
		{messages, hosted, `{"model":"m","max_tokens":1,"tools":[{"type":"computer_use_of_the_vendor","name":"c"}]}`},
		{messages, hosted, `{"model":"m","max_tokens":1,"mcp_servers":[{"url":"http://x.example"}]}`},
		{messages, hosted, `{"model":"m","max_tokens":1,"fallbacks":[{"model":"other"}]}`},
		{messages, hosted, `{"model":"m","max_tokens":1,"container":"c"}`},
		{messages, hosted, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"container_upload","file_id":"f"}]}]}`},
		{messages, hosted, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"f"}}]}]}`},
		{messages, url, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{"type":"url","url":"http://x.example"}}]}]}]}`},
		{messages, hosted, `{"model":"m","max_tokens":1,"context_management":{"edits":[{"type":"compact_20260112"}]}}`},
		{messages, hosted, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":{"type":"new_thing"}}]}`},
		{messages, price, `{"model":"m","max_tokens":1,"speed":"fast"}`},
		{messages, price, `{"model":"m","max_tokens":1,"inference_geo":"us"}`},
		{messages, price, `{"model":"m","max_tokens":1,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"1h"}}]}`},
		{chat, price, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}`},
		{messages, form, `{"model":"m","max_tokens":1,"thinking":{"type":"enabled","budget_tokens":"many"}}`},
		{gemini, hosted, `{"tools":[{"googleSearch":{}}]}`},
		{gemini, hosted, `{"tools":[{"functionDeclarations":[],"google_search":{}}]}`},
		{gemini, form, `{"tools":[{"functionDeclarations":[],"function_declarations":[]}]}`},
		{gemini, hosted, `{"cachedContent":"cachedContents/c"}`},
		{gemini, hosted, `{"contents":[{"parts":[{"fileData":{"fileUri":"https://generativelanguage.googleapis.com/v1beta/files/f"}}]}]}`},
		{gemini, url, `{"contents":[{"parts":[{"fileData":{"fileUri":"https://x.example"}}]}]}`},
		{gemini, url, `{"contents":[{"parts":[{"file_data":{"file_uri":"https://x.example"}}]}]}`},
		{gemini, url, `{"contents":[{"parts":[{"functionResponse":{"response":{},"parts":[{"fileData":{"fileUri":"https://x.example"}}]}}]}]}`},
		{gemini, hosted, `{"contents":[{"parts":[{"something":{}}]}]}`},
		{gemini, form, `{"generationConfig":{},"generation_config":{"maxOutputTokens":9}}`},
		{gemini, form, `{"generationConfig":{"maxOutputTokens":9,"max_output_tokens":10}}`},
		{gemini, form, `{"generationConfig":{"candidateCount":2}}`},
		{gemini, form, `{"generationConfig":{"maxoutputtokens":2}}`},
		{gemini, form, `{"GenerationConfig":{"maxOutputTokens":2}}`},
		{gemini, form, `{"generationConfig":{"modelSelectionConfig":{}}}`},
		{gemini, price, `{"generationConfig":{"responseModalities":["IMAGE"]}}`},
		{gemini, form, `{"model":"models/other"}`},
	} {
		t.Run(string(test.api)+" "+test.body[:min(len(test.body), 100)], func(t *testing.T) {
			t.Parallel()
			got, err := read(t, test.api, test.body, open)
			refusal, ok := errors.AsType[*inference.Refusal](err)
			if !ok {
				t.Fatalf("read as %+v, error %v", got, err)
			}
			if refusal.Code != test.code || refusal.Reason == "" {
				t.Errorf("refused as %s, %q; want %s", refusal.Code, refusal.Reason, test.code)
			}
			if strings.Contains(refusal.Reason, "x.example") {
				t.Errorf("the reason says what the request says: %q", refusal.Reason)
			}
		})
	}
}

func TestLeastOf(t *testing.T) {
	t.Parallel()
	thinks, err := read(t, inference.Messages, `{"model":"m","max_tokens":32000,"thinking":{"type":"enabled","budget_tokens":31999}}`, open)
	if err != nil {
		t.Fatal(err)
	}
	interleaved := http.Header{"Anthropic-Beta": {"a-1,interleaved-thinking-2025-05-14"}}
	if thinks.LeastOf(nil) != 32000 || thinks.LeastOf(interleaved) != 1 {
		t.Error("of a request that thinks the cap must be above its budget, unless it is interleaved")
	}
	short, err := read(t, inference.Messages, `{"model":"m","max_tokens":1000,"thinking":{"type":"enabled","budget_tokens":31999}}`, open)
	if err != nil {
		t.Fatal(err)
	}
	if short.LeastOf(nil) != 1000 {
		t.Error("what the client has set itself is not the budget's doing")
	}
	other, err := read(t, inference.Responses, `{"model":"m"}`, open)
	if err != nil {
		t.Fatal(err)
	}
	if other.LeastOf(nil) != 16 || other.LeastOf(interleaved) != 16 {
		t.Error("Responses take 16 tokens or more")
	}
}

func TestReadByRules(t *testing.T) {
	for _, test := range []struct {
		name  string
		api   inference.API
		rules inference.Rules
		body  string
		want  inference.RefusalCode // empty: none
	}{
		{"no models", inference.Chat, inference.Rules{}, `{"model":"m"}`, inference.RefuseModel},
		{"a search model by name", inference.Chat, inference.Rules{Models: []string{"m-search"}}, `{"model":"m-search"}`, ""},
		{"hosted", inference.Messages, inference.Rules{Models: []string{"*"}, Hosted: []string{"web_search_*"}},
			`{"model":"m","max_tokens":1,"tools":[{"type":"web_search_20250305","name":"web_search"}],"messages":[{"role":"assistant","content":[{"type":"server_tool_use","input":{}},
			{"type":"web_search_tool_result","content":[{"type":"web_search_result","url":"http://x.example"}]}]}]}`, ""},
		{"another hosted", inference.Messages, inference.Rules{Models: []string{"*"}, Hosted: []string{"web_search_*"}},
			`{"model":"m","max_tokens":1,"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}]}`, inference.RefuseHosted},
		{"a hosted tool with another model", inference.Messages, inference.Rules{Models: []string{"m"}, Hosted: []string{"advisor_*"}},
			`{"model":"m","max_tokens":1,"tools":[{"type":"advisor_20260301","name":"a","model":"other"}]}`, inference.RefuseModel},
		{"a hosted tool that is elsewhere", inference.Responses, inference.Rules{Models: []string{"m"}, Hosted: []string{"mcp"}},
			`{"model":"m","tools":[{"type":"mcp","server_url":"https://x.example"}]}`, inference.RefuseURL},
		{"Gemini's hosted", inference.Gemini, inference.Rules{Models: []string{"m"}, Hosted: []string{"googleSearch"}}, `{"tools":[{"googleSearch":{}}]}`, ""},
		{"URLs", inference.Chat, inference.Rules{Models: []string{"m"}, URLs: true},
			`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x.example/a.png"}}]}]}`, ""},
		{"URLs of no web", inference.Chat, inference.Rules{Models: []string{"m"}, URLs: true},
			`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}]}`, inference.RefuseHosted},
		{"dearer", inference.Messages, inference.Rules{Models: []string{"m"}, Dearer: true}, `{"model":"m","max_tokens":1,"speed":"fast","cache_control":{"type":"ephemeral","ttl":"1h"}}`, ""},
		{"a new member", inference.Chat, inference.Rules{Models: []string{"m"}, Members: []string{"new"}}, `{"model":"m","new":{"a":1}}`, ""},
		{"a new member that is an old one", inference.Chat, inference.Rules{Models: []string{"m"}, Members: []string{"Max_Tokens"}}, `{"model":"m","Max_Tokens":9}`, inference.RefuseForm},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := read(t, test.api, test.body, test.rules)
			if refusal, ok := errors.AsType[*inference.Refusal](err); ok != (test.want != "") || ok && refusal.Code != test.want {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestReadRefusesTargets(t *testing.T) {
	for _, test := range []struct {
		api  inference.API
		path string
		kind string
		want inference.RefusalCode
	}{
		{inference.Gemini, "/v1beta/models/other:generateContent", "application/json", inference.RefuseModel},
		{inference.Gemini, "/v1beta/tunedModels/m:generateContent", "application/json", inference.RefuseModel},
		{inference.Gemini, "/v1beta/models/%6d:generateContent", "application/json", inference.RefuseModel},
		{inference.Gemini, "/v1beta/models/m:embedContent", "application/json", inference.RefuseForm},
		{inference.Gemini, "/v1beta/models/m:generateContent?$httpMethod=DELETE", "application/json", inference.RefuseForm},
		{inference.Gemini, "/v1beta/models/m:streamGenerateContent?alt=sse&alt=json", "application/json", inference.RefuseForm},
		{inference.Gemini, "/v1beta/models/m:streamGenerateContent?alt=media", "application/json", inference.RefuseForm},
		{inference.Chat, "/v1/chat/completions?a=b", "application/json", inference.RefuseForm},
		{inference.Messages, "/v1/messages?beta=%zz", "application/json", inference.RefuseForm},
		{inference.Messages, "/v1/messages", "application/x-www-form-urlencoded", inference.RefuseForm},
		{inference.Messages, "/v1/messages", "application/json; charset=utf-16", inference.RefuseForm},
		{inference.Messages, "/v1/messages", "", inference.RefuseForm},
		{"other", "/v1/messages", "application/json", inference.RefuseForm},
	} {
		t.Run(test.path+" "+test.kind, func(t *testing.T) {
			t.Parallel()
			_, err := inference.Read(inference.Call{API: test.api}, test.path, test.kind, []byte(`{}`), open)
			if refusal, ok := errors.AsType[*inference.Refusal](err); !ok || refusal.Code != test.want {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}
