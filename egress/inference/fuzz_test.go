package inference

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

var fuzzPaths = map[API]string{Chat: "/v1/chat/completions", Responses: "/v1/responses", Messages: "/v1/messages", Gemini: "/v1beta/models/m:generateContent"}

// Whatever comes: what is accepted is JSON for others, too, without a name twice;
// what is sent has a cap; and the numbers are none that would let a budget grow.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","messages":[{"role":"user","content":"a\u00e9\ud83d\ude00"}],"stream":true,"max_tokens":9,"stream_options":{"include_usage":false}}`,
		`{"model":"m","input":[{"type":"function_call_output","output":[{"type":"input_image","image_url":"data:image/png;base64,AA"}]}],"tools":[{"type":"namespace","tools":[]}]}`,
		`{"model":"m","max_tokens":5000,"thinking":{"budget_tokens":1024},"system":[{"type":"text","text":"s","cache_control":{}}],"messages":[{"role":"assistant","content":[{"type":"tool_use","input":{}}]}]}`,
		`{"contents":[{"role":"user","parts":[{"text":"a"},{"inlineData":{"mimeType":"image/png","data":"AA"}}]}],"generationConfig":{"maxOutputTokens":7,"candidateCount":1}}`,
		` { "a" : [ 1 , -2.5e+7, true,false , null,{} , [] , "\\\"\/\b\f\n\r\t" ] } `,
		`{"a":1,"\u0061":2}`, "\xef\xbb\xbf{}", `{"a":01}`, `{"a":"` + "\x01" + `"}`, `[[[[`, `{"a":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d, problem := parse(body)
		switch valid := json.Valid(body) && utf8.Valid(body); {
		case problem == "" && !valid:
			t.Fatalf("accepted: %q", body)
		case problem != "" && valid && !strings.Contains(problem, "twice") && !strings.Contains(problem, "too"):
			t.Fatalf("%s: %q", problem, body)
		case problem == "":
			checkDocument(t, d)
		}
		for api, path := range fuzzPaths {
			r, err := Read(Call{API: api}, path, "application/json", body, Rules{Models: []string{"m"}})
			if err != nil {
				if refusal, ok := err.(*Refusal); !ok || refusal.Reason == "" || len(refusal.Reason) > 1000 {
					t.Fatalf("%s: %#v", api, err)
				}
				continue
			}
			checkRequest(t, r)
		}
	})
}

// checkDocument compares every string and name with what encoding/json makes of
// them.
func checkDocument(t *testing.T, d *document) {
	t.Helper()
	for i := range d.values {
		if !json.Valid(d.raw(i)) {
			t.Fatalf("a value is %q", d.raw(i))
		}
		if d.kind(i) == '"' {
			var want string
			if err := json.Unmarshal(d.raw(i), &want); err != nil || string(d.str(i)) != want {
				t.Fatalf("%s is %q for us, %q for others: %v", d.raw(i), d.str(i), want, err)
			}
			w := weigher{document: d}
			if w.weigh(i); w.size.most() < int64(len(want)) || w.size.other < nonASCII([]byte(want)) {
				t.Fatalf("%q weighs %+v", want, w.size)
			}
		}
		if d.kind(i) != '{' {
			continue
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(d.raw(i), &want); err != nil {
			t.Fatal(err)
		}
		n := 0
		for m := range d.each(i) {
			n++
			if string(want[string(d.name(m))]) != string(d.raw(m)) {
				t.Fatalf("%q of %s is %s for us", d.name(m), d.raw(i), d.raw(m))
			}
		}
		if n != len(want) {
			t.Fatalf("%s has %d members for us", d.raw(i), n)
		}
	}
}

func checkRequest(t *testing.T, r *Request) {
	t.Helper()
	var c Counter
	most, likely, _ := c.Input(r)
	if most < 1 || likely > most || r.Output < 0 || r.Least < 1 || r.Model != "m" {
		t.Fatalf("%+v of at most %d, likely %d", r, most, likely)
	}
	body := r.Body(5)
	d, problem := parse(body)
	if problem != "" {
		t.Fatalf("%s: %q became %q", problem, r.body, body)
	}
	again, err := Read(Call{API: r.API}, fuzzPaths[r.API], "application/json", body, Rules{Models: []string{"m"}})
	if err != nil || again.Output > 5 || !bytes.Equal(again.Body(5), body) {
		t.Fatalf("%q became %q, which is %+v, %v", r.body, body, again, err)
	}
	var capped bool
	for i := range d.values {
		switch string(d.name(i)) {
		case "max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens": // the last but one is Gemini's, too
			n, ok := d.number(i)
			capped = capped || ok && n <= 5
		}
	}
	if !capped {
		t.Fatalf("%q has no cap", body)
	}
	c.Answered(r, Usage{Known: true, Input: 10, Output: 5})
	if len(r.talk.chain) > 0 {
		if most, likely, _ := c.Input(r); most != 10 || likely != 10 {
			t.Fatalf("%q is %d, %d after it was 10", r.body, most, likely)
		}
	}
}

// Whatever comes, in whatever pieces: the same is read of it, and of a whole answer
// what encoding/json reads.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5}}\n\ndata: [DONE]\n\n",
		"event: x\r\ndata:{\"type\":\"message_start\",\rdata\r\ndata: \"message\":{\"usage\":{\"input_tokens\":5}}}\n\n: c\n\n",
		`[{"usageMetadata":{"promptTokenCount":8}},{"candidates":[{"finishReason":"STOP"}]}]`,
		`{"usage":{"prompt_tokens":1,"completion_tokens":2.5e1,"total_tokens":-4},"a":["\"",{"b":[[]]}]}`, "\xef\xbb\xbfdata: 1\n\n",
	} {
		f.Add([]byte(seed), byte(3), "text/event-stream")
		f.Add([]byte(seed), byte(1), "application/json")
		f.Add([]byte(seed), byte(7), "")
	}
	f.Fuzz(func(t *testing.T, text []byte, size byte, contentType string) {
		for api := range fields {
			whole, pieces := NewAnswer(api, true, contentType), NewAnswer(api, true, contentType)
			_, _ = whole.Write(text)
			for rest := text; len(rest) > 0; {
				n := min(int(size)+1, len(rest))
				_, _ = pieces.Write(rest[:n])
				rest = rest[n:]
			}
			framed := whole.framed
			u, complete, code := whole.End(false)
			v, complete2, code2 := pieces.End(false)
			if framed == pieces.framed && (u != v || complete != complete2 || code != code2) {
				t.Fatalf("%s: %+v %v %q, in pieces %+v %v %q", api, u, complete, code, v, complete2, code2)
			}
			for _, n := range []int64{u.Input, u.Output} {
				if n < 0 || n > 8*maxTokens {
					t.Fatalf("%s: %+v", api, u)
				}
			}
			if u.Cached < 0 || u.Written < 0 || u.Cached+u.Written > u.Input || u.Reasoning < 0 || u.Reasoning > u.Output {
				t.Fatalf("%s: %+v", api, u)
			}
			if strings.ContainsAny(code, " \n\"<") || len(code) > scanToken {
				t.Fatalf("%s: code %q", api, code)
			}
		}
		if d, problem := parse(text); problem == "" && d.kind(0) == '{' && !bytes.Contains(text, []byte(`\`)) {
			checkUsage(t, text)
		}
	})
}

func checkUsage(t *testing.T, text []byte) {
	t.Helper()
	var want map[string]any
	if json.Unmarshal(text, &want) != nil || len(want) == 0 {
		return
	}
	usage, _ := want["usage"].(map[string]any)
	n, ok := usage["input_tokens"].(float64)
	for name := range want { // names with a dot may be taken for two, of which no vendor has any
		if strings.Contains(name, ".") {
			return
		}
	}
	for name := range usage {
		if strings.Contains(name, ".") {
			return
		}
	}
	a := NewAnswer(Responses, false, "application/json")
	_, _ = a.Write(text)
	if _, complete, _ := a.End(false); !complete {
		t.Fatalf("%q has no end", text)
	}
	if _, other := want["response"]; ok && n >= 0 && n < maxTokens && !other && a.total[countInput] != int64(n) {
		t.Fatalf("%q: input %d", text, a.total[countInput])
	}
}
