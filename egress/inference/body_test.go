package inference_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/inference"
)

func TestBody(t *testing.T) {
	for _, test := range []struct {
		api        inference.API
		body, want string // want empty: the same
	}{
		{inference.Chat, `{"model":"m"}`, `{"max_completion_tokens":50,"model":"m"}`},
		{inference.Chat, ` { "model" : "m" , "max_tokens" : 51 } `, ` { "model" : "m" , "max_tokens" : 50 } `},
		{inference.Chat, `{"model":"m","max_tokens":50}`, ""},
		{inference.Chat, `{"model":"m","max_tokens":null}`, `{"model":"m","max_tokens":50}`},
		{inference.Chat, `{"model":"m","max_tokens":99,"max_completion_tokens":98}`, `{"model":"m","max_tokens":50,"max_completion_tokens":50}`},
		{inference.Chat, `{"model":"m","max_tokens":9,"stream":true}`, `{"stream_options":{"include_usage":true},"model":"m","max_tokens":9,"stream":true}`},
		{inference.Chat, `{"model":"m","stream":true}`, `{"stream_options":{"include_usage":true},"max_completion_tokens":50,"model":"m","stream":true}`},
		{inference.Chat, `{"model":"m","max_tokens":9,"stream":true,"stream_options":null}`, `{"model":"m","max_tokens":9,"stream":true,"stream_options":{"include_usage":true}}`},
		{inference.Chat, `{"model":"m","max_tokens":9,"stream":true,"stream_options":{}}`, `{"model":"m","max_tokens":9,"stream":true,"stream_options":{"include_usage":true}}`},
		{inference.Chat, `{"model":"m","max_tokens":9,"stream":true,"stream_options":{"include_obfuscation":false}}`,
			`{"model":"m","max_tokens":9,"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}}`},
		{inference.Chat, `{"stream_options":{"include_usage":false},"model":"m","max_tokens":90,"stream":true}`,
			`{"stream_options":{"include_usage":true},"model":"m","max_tokens":50,"stream":true}`},
		{inference.Chat, `{"model":"m","max_tokens":9,"stream":true,"stream_options":{"include_usage":true}}`, ""},
		{inference.Responses, `{"model":"m","stream":true}`, `{"max_output_tokens":50,"model":"m","stream":true}`},
		{inference.Responses, `{"model":"m","max_output_tokens":1}`, ""},
		{inference.Messages, `{"model":"m","max_tokens":32000}`, `{"model":"m","max_tokens":50}`},
		{inference.Messages, `{"model":"m","max_tokens":0}`, ""},
		{inference.Gemini, `{}`, `{"generationConfig":{"maxOutputTokens":50}}`},
		{inference.Gemini, `{"contents":[]}`, `{"generationConfig":{"maxOutputTokens":50},"contents":[]}`},
		{inference.Gemini, `{"generationConfig":null}`, `{"generationConfig":{"maxOutputTokens":50}}`},
		{inference.Gemini, `{"generation_config":{}}`, `{"generation_config":{"maxOutputTokens":50}}`},
		{inference.Gemini, `{"generationConfig":{"topP":1}}`, `{"generationConfig":{"maxOutputTokens":50,"topP":1}}`},
		{inference.Gemini, `{"generationConfig":{"max_output_tokens":99}}`, `{"generationConfig":{"max_output_tokens":50}}`},
		{inference.Gemini, `{"generationConfig":{"maxOutputTokens":0}}`, `{"generationConfig":{"maxOutputTokens":50}}`},
		{inference.Gemini, `{"generationConfig":{"maxOutputTokens":7}}`, ""},
	} {
		t.Run(string(test.api)+" "+test.body, func(t *testing.T) {
			t.Parallel()
			body := []byte(test.body)
			r, err := inference.Read(inference.Call{API: test.api}, paths[test.api], "application/json", body, open)
			if err != nil {
				t.Fatal(err)
			}
			got := r.Body(50)
			if test.want == "" {
				if &got[0] != &body[0] || len(got) != len(body) {
					t.Errorf("nothing had to change, and it became %s", got)
				}
				return
			}
			if string(got) != test.want || string(body) != test.body {
				t.Errorf("%s\nbecame %s\nwant   %s", test.body, got, test.want)
			}
		})
	}
}

func TestBodyOfACount(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		call       inference.Call
		path, body string
	}{
		{inference.Call{API: inference.Messages, Free: true}, "/v1/messages/count_tokens?beta=true", `{"model":"m","messages":[]}`},
		{inference.Call{API: inference.Gemini}, "/v1beta/models/m:countTokens", `{"generateContentRequest":{"model":"models/m","contents":[]}}`},
	} {
		r, err := inference.Read(test.call, test.path, "application/json", []byte(test.body), open)
		if err != nil || !r.Free || string(r.Body(5)) != test.body {
			t.Errorf("%s: %+v, %v", test.path, r, err)
		}
	}
	for _, body := range []string{`{"generateContentRequest":{"model":"models/other"}}`, `{"generateContentRequest":{"tools":[{"googleSearch":{}}]}}`} {
		if _, err := inference.Read(inference.Call{API: inference.Gemini}, "/v1beta/models/m:countTokens", "application/json", []byte(body), open); err == nil {
			t.Errorf("%s passes", body)
		}
	}
	call := inference.Call{API: inference.Gemini, Free: true} // whatever the call says, an answer costs
	if r, err := inference.Read(call, "/v1beta/models/m:generateContent", "application/json", []byte(`{}`), open); err != nil || r.Free {
		t.Errorf("%+v, %v", r, err)
	}
}

// random is a value that any API may have in a place where it means nothing to us.
func random(r *rand.Rand, depth int) string {
	space := strings.Repeat(" ", r.IntN(2)) + strings.Repeat("\n\t", r.IntN(2))
	switch n := r.IntN(8); {
	case n < 2 && depth > 0:
		var parts []string
		for i := range r.IntN(4) {
			parts = append(parts, fmt.Sprintf("%s%q%s:%s", space, fmt.Sprint("k", i, "é\""), space, random(r, depth-1)))
		}
		return "{" + strings.Join(parts, ",") + space + "}"
	case n < 4 && depth > 0:
		var parts []string
		for range r.IntN(4) {
			parts = append(parts, random(r, depth-1)+space)
		}
		return "[" + strings.Join(parts, ",") + space + "]"
	case n == 4:
		return []string{"0", "-1.5e+3", "12345678901234567890", "1E-7"}[r.IntN(4)]
	case n == 5:
		return []string{"true", "false", "null"}[r.IntN(3)]
	}
	return []string{`""`, `"max_tokens"`, `"a \"stream\":true \\"`, `"\ud83d\ude00 \ud83d \u0000 ünïcode \/"`, `"` + strings.Repeat("x", r.IntN(99)) + `"`}[r.IntN(5)]
}

// A body differs from what was read in its caps and its switch alone: taken out
// again, every byte is as it was.
func TestBodyChangesNothingElse(t *testing.T) {
	t.Parallel()
	free := map[inference.API][]string{
		inference.Chat: {"metadata", "response_format", "stop", "user", "tool_choice"}, inference.Responses: {"metadata", "text", "reasoning", "include"},
		inference.Messages: {"metadata", "output_config", "stop_sequences", "tool_choice"}, inference.Gemini: {"labels", "toolConfig", "safetySettings"},
	}
	caps := map[inference.API]string{inference.Chat: "max_tokens", inference.Responses: "max_output_tokens", inference.Messages: "max_tokens"}
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 7))
		api := []inference.API{inference.Chat, inference.Responses, inference.Messages, inference.Gemini}[r.IntN(4)]
		var members []string
		for _, name := range free[api] {
			if r.IntN(2) == 0 {
				members = append(members, fmt.Sprintf("%q : %s", name, random(r, 3)))
			}
		}
		number := []string{"null", "1", "49", "50", "51", "99999"}[r.IntN(6)]
		has := r.IntN(3) > 0
		if api == inference.Gemini {
			if has {
				members = append(members, `"generationConfig": {"responseSchema":`+random(r, 2)+`, "maxOutputTokens":`+number+"}")
			}
		} else {
			members = append(members, `"model":"m"`)
			if has {
				members = append(members, fmt.Sprintf("%q: %s", caps[api], number))
			}
			if api == inference.Chat && r.IntN(2) == 0 {
				members = append(members, `"stream":true`)
				if r.IntN(2) == 0 {
					members = append(members, `"stream_options" : `+[]string{"null", "{}", `{"include_usage":false}`, `{"include_usage":true}`}[r.IntN(4)])
				}
			}
		}
		r.Shuffle(len(members), func(i, k int) { members[i], members[k] = members[k], members[i] })
		body := []byte(" {" + strings.Join(members, " , ") + "\n}")
		req, err := inference.Read(inference.Call{API: api}, paths[api], "application/json", slices.Clone(body), open)
		if err != nil {
			t.Fatalf("%s: %s: %v", api, body, err)
		}
		got := req.Body(50)
		if !bytes.Equal(withoutEdits(body), withoutEdits(got)) {
			t.Errorf("%s:\n%s\nbecame\n%s", api, body, got)
		}
		var before, after map[string]any
		if json.Unmarshal(body, &before) != nil || json.Unmarshal(got, &after) != nil {
			t.Fatalf("%s:\n%s\nbecame\n%s", api, body, got)
		}
		checkCap(t, api, after)
		for _, doc := range []map[string]any{before, after} {
			for _, name := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens", "stream_options"} {
				delete(doc, name)
			}
			if config, ok := doc["generationConfig"].(map[string]any); ok {
				if delete(config, "maxOutputTokens"); len(config) == 0 {
					delete(doc, "generationConfig")
				}
			}
		}
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%s: another document:\n%s\nbecame\n%s", api, body, got)
		}
	}
}

// withoutEdits takes out what Body may write, wherever it stands.
func withoutEdits(body []byte) []byte {
	out := string(body)
	for _, text := range []string{`"generationConfig":{"maxOutputTokens":50},`, `"generationConfig":{"maxOutputTokens":50}`,
		`"max_completion_tokens":50,`, `"max_output_tokens":50,`, `"max_tokens":50,`, `"stream_options":{"include_usage":true},`, `"maxOutputTokens":50,`} {
		out = strings.Replace(out, text, "", 1)
	}
	for _, name := range []string{`"max_tokens": `, `"max_output_tokens": `, `"maxOutputTokens":`} {
		for _, n := range []string{"null", "50", "51", "99999"} {
			out = strings.ReplaceAll(out, name+n, name+"N")
		}
	}
	for _, text := range []string{"null", "{}", `{"include_usage":false}`, `{"include_usage":true}`} {
		out = strings.ReplaceAll(out, `"stream_options" : `+text, `"stream_options" : N`)
	}
	return []byte(out)
}

// checkCap fails where an answer may be longer than 50 tokens, or a stream would
// not say its usage.
func checkCap(t *testing.T, api inference.API, doc map[string]any) {
	t.Helper()
	if config, ok := doc["generationConfig"].(map[string]any); ok {
		doc = map[string]any{"maxOutputTokens": config["maxOutputTokens"]}
	}
	capped := false
	for _, name := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"} {
		if n, ok := doc[name].(float64); ok {
			capped = true
			if n > 50 {
				t.Errorf("%s: %s is %v", api, name, n)
			}
		}
	}
	if !capped {
		t.Errorf("%s: there is no cap in %v", api, doc)
	}
	if options, _ := doc["stream_options"].(map[string]any); doc["stream"] == true && api == inference.Chat && options["include_usage"] != true {
		t.Errorf("the stream will not say its usage: %v", doc)
	}
}
