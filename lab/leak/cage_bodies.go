package leak

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"strings"
)

// modelBodies ask the vendor to run, to fetch, to keep, or to cost more.
func (a Aim) modelBodies() (list []way) {
	c := a.Cage
	asked := []Outcome{Asked}
	type body struct{ name, text string }
	of := func(api string, host ModelHost, path string, want []Outcome, bodies ...body) {
		for _, b := range bodies {
			q := inquiry{host: host, path: path, body: b.text}
			list = append(list, a.by(lanes[0], api+": "+b.name, want, q), a.by(lanes[1], api+": "+b.name, want, q))
		}
	}
	tool := func(make func(string) string, text string) body {
		return body{"the tool " + text, make(`,"tools":[` + text + `]`)}
	}
	elsewhere := "http://" + outside + "/" + mark
	said := func(content string) string {
		return `{"model":"` + c.Model + `","max_tokens":16,"messages":[{"role":"user","content":[` + content + `,{"type":"text","text":"` + mark + `"}]}]}`
	}
	put := func(content string) string {
		return `{"model":"` + c.Model + `","max_output_tokens":16,"input":[{"role":"user","content":[` + content + `,{"type":"input_text","text":"` + mark + `"}]}]}`
	}
	of("Chat Completions", c.OpenAI, chatPath, asked,
		tool(a.chat, `{"type":"web_search"}`), tool(a.chat, `{"type":"code_interpreter"}`), tool(a.chat, `{"type":"mcp","server_url":"`+elsewhere+`"}`), tool(a.chat, `{"type":"function","function":{"name":"f"}},{"type":"web_search_preview"}`),
		body{"web_search_options", a.chat(`,"web_search_options":{}`)}, body{"n", a.chat(`,"n":4`)}, body{"service_tier", a.chat(`,"service_tier":"priority"`)},
		body{"an image by http", said(`{"type":"image_url","image_url":{"url":"` + elsewhere + `"}}`)}, body{"an image by https", said(`{"type":"image_url","image_url":{"url":"https://` + outside + `/"}}`)},
		body{"a file that is kept", said(`{"type":"file","file":{"file_id":"file-1"}}`)}, body{"an unknown member", a.chat(`,"tool_server":"` + elsewhere + `"`)},
		body{"a member twice", a.chat(`,"max_tokens":100000`)}, body{"a cap that is no number", strings.Replace(a.chat(""), `"max_tokens":16`, `"max_tokens":"16"`, 1)},
		body{"what follows the JSON", a.chat("") + a.chat("")}, body{"no JSON", `model=` + c.Model + "&" + mark}, body{"a list of requests", "[" + a.chat("") + "]"}, body{"a member in another spelling", a.chat(`,"\u006dodel":"other"`)})
	of("Responses", c.OpenAI, responsesPath, asked,
		tool(a.responses, `{"type":"web_search"}`), tool(a.responses, `{"type":"web_search_preview"}`), tool(a.responses, `{"type":"code_interpreter","container":{"type":"auto"}}`), tool(a.responses, `{"type":"mcp","server_label":"x","server_url":"`+elsewhere+`"}`),
		tool(a.responses, `{"type":"file_search","vector_store_ids":["vs_1"]}`), tool(a.responses, `{"type":"image_generation"}`), tool(a.responses, `{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}`),
		body{"previous_response_id", a.responses(`,"previous_response_id":"resp_1"`)}, body{"conversation", a.responses(`,"conversation":"conv_1"`)}, body{"prompt", a.responses(`,"prompt":{"id":"pmpt_1"}`)}, body{"background", a.responses(`,"background":true`)},
		body{"an image by a URL", put(`{"type":"input_image","image_url":"` + elsewhere + `"}`)}, body{"a file by a URL", put(`{"type":"input_file","file_url":"` + elsewhere + `"}`)}, body{"a file that is kept", put(`{"type":"input_file","file_id":"file-1"}`)},
		body{"a reference to an item", strings.Replace(a.responses(""), `"input":[`, `"input":[{"type":"item_reference","id":"msg_1"},`, 1)})
	of("Messages", c.Anthropic, messagesPath, asked,
		tool(a.messages, `{"type":"web_search_20250305","name":"web_search"}`), tool(a.messages, `{"type":"web_fetch_20250910","name":"web_fetch"}`), tool(a.messages, `{"type":"code_execution_20250522","name":"code_execution"}`),
		tool(a.messages, `{"type":"mcp_toolset","mcp_server_name":"x"}`), body{"mcp_servers", a.messages(`,"mcp_servers":[{"type":"url","name":"x","url":"` + elsewhere + `"}]`)}, body{"container", a.messages(`,"container":"c_1"`)},
		body{"an image by a URL", said(`{"type":"image","source":{"type":"url","url":"` + elsewhere + `"}}`)}, body{"a document by a URL", said(`{"type":"document","source":{"type":"url","url":"` + elsewhere + `"}}`)},
		body{"a file that is kept", said(`{"type":"document","source":{"type":"file","file_id":"file_1"}}`)}, body{"a container's upload", said(`{"type":"container_upload","file_id":"file_1"}`)})
	of("generateContent", c.Google, a.generatePath(), asked,
		tool(a.generate, `{"googleSearch":{}}`), tool(a.generate, `{"google_search":{}}`), tool(a.generate, `{"urlContext":{}}`), tool(a.generate, `{"codeExecution":{}}`), tool(a.generate, `{"fileSearch":{}}`),
		body{"cachedContent", a.generate(`,"cachedContent":"cachedContents/1"`)}, body{"a file by a URL", strings.Replace(a.generate(""), `"parts":[`, `"parts":[{"fileData":{"fileUri":"`+elsewhere+`"}},`, 1)},
		body{"several answers", a.generate(`,"generationConfig":{"candidateCount":4}`)})
	other := strings.Replace(a.chat(""), `"model":"`+c.Model+`"`, `"model":"dear-`+c.Model+`"`, 1)
	of("Chat Completions", c.OpenAI, chatPath, []Outcome{NoModel}, body{"a model that is not on the list", other})
	of("Responses", c.OpenAI, responsesPath, []Outcome{NoModel}, body{"a model that is not on the list", strings.Replace(a.responses(""), `"model":"`, `"model":"x`, 1)})
	of("Messages", c.Anthropic, messagesPath, []Outcome{NoModel}, body{"a model that is not on the list", strings.Replace(a.messages(""), `"model":"`, `"model":"x`, 1)})
	of("generateContent", c.Google, "/v1beta/models/other:generateContent", []Outcome{NoModel}, body{"a model that is not on the list", a.generate("")})
	return append(list, a.packed()...)
}

// packed hides in a body that is packed, of another type, or in parts.
func (a Aim) packed() (list []way) {
	c := a.Cage
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(a.chat(`,"web_search_options":{}`))) // into memory
	_ = z.Close()
	for _, q := range []struct {
		name string
		want []Outcome
		inquiry
	}{
		{"a hosted tool, packed with gzip", []Outcome{Asked}, inquiry{body: b.String(), fields: []string{"Content-Encoding", "gzip"}}},
		{"no gzip, that says it is", []Outcome{"models.body"}, inquiry{body: a.chat(""), fields: []string{"Content-Encoding", "gzip"}}},
		{"a packing nobody knows", []Outcome{"models.body"}, inquiry{body: a.chat(""), fields: []string{"Content-Encoding", "lab"}}},
		{"the body of a list of models", []Outcome{"models.body"}, inquiry{method: http.MethodGet, path: "/v1/models", body: `{"note":"` + mark + `"}`}},
		{"another type, beside the right one", []Outcome{Asked, BadRequest, "http.framing", "models.body", "models.form"}, inquiry{body: a.chat(""), fields: []string{"Content-Type", "text/plain"}}},
	} {
		q.host = c.OpenAI
		if q.path == "" {
			q.path = chatPath
		}
		list = append(list, a.every(q.name, q.want, q.inquiry)...)
	}
	return list
}

// modelSmuggling hides a second request in a first. What is hidden has the marker,
// and must not arrive.
func (a Aim) modelSmuggling() (list []way) {
	c := a.Cage
	hidden := "POST %HOST%/v1/files HTTP/1.1\r\nHost: " + c.OpenAI.Name + "\r\nX-Lab: " + mark + "\r\nContent-Length: 0\r\n\r\n"
	head := func(path, fields string) string {
		return "POST %HOST%" + path + " HTTP/1.1\r\nHost: " + c.OpenAI.Name + "\r\nAuthorization: Bearer " + c.OpenAI.Placeholder + "\r\nContent-Type: application/json\r\n" + fields + "\r\n"
	}
	first := strings.ReplaceAll(a.chat(""), mark, "first")
	n := len(first)
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", n, first)
	no := []Outcome{"http.framing", BadRequest, Reset, Silent, modelPath, Asked, "models.body"}
	for _, s := range []struct {
		name, words string
	}{
		{"a length and chunks", head(chatPath, fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", n)) + chunked + hidden},
		{"chunks and a short length", head(chatPath, "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n") + chunked + hidden},
		{"two lengths", head(chatPath, fmt.Sprintf("Content-Length: %d\r\nContent-Length: 0\r\n", n)) + first + hidden},
		{"two lengths in one field", head(chatPath, fmt.Sprintf("Content-Length: %d, %d\r\n", n, 0)) + first + hidden},
		{"a length with a sign", head(chatPath, fmt.Sprintf("Content-Length: +%d\r\n", n)) + first + hidden},
		{"a space before the colon", head(chatPath, fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding : chunked\r\n", n)) + first + hidden},
		{"a coding nobody knows", head(chatPath, "Transfer-Encoding: xchunked\r\n") + chunked + hidden},
		{"chunked twice", head(chatPath, "Transfer-Encoding: chunked, chunked\r\n") + chunked + hidden},
		{"identity and chunked", head(chatPath, "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n") + chunked + hidden},
		{"a folded field", head(chatPath, fmt.Sprintf("X-A: b\r\n Transfer-Encoding: chunked\r\nContent-Length: %d\r\n", n)) + first + hidden},
		{"bare line feeds", strings.ReplaceAll(head(chatPath, fmt.Sprintf("Content-Length: %d\r\n", n)), "\r\n", "\n") + first + hidden},
		{"a bare carriage return", head(chatPath, fmt.Sprintf("X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: %d\r\n", n)) + first + hidden},
		{"a zero byte", head(chatPath, fmt.Sprintf("X-A: b\x00\r\nContent-Length: %d\r\n", n)) + first + hidden},
		{"a second request behind the first", head(chatPath, fmt.Sprintf("Content-Length: %d\r\n", n)) + first + hidden},
		{"a second request in the length", head(chatPath, fmt.Sprintf("Content-Length: %d\r\n", n+len(strings.ReplaceAll(hidden, mark, strings.Repeat("m", 25))))) + first + hidden},
		{"a body of GET that is a request", strings.Replace(head("/v1/models", ""), "POST", "GET", 1) + hidden},
		{"a request line with two spaces", "POST  %HOST%/v1/files HTTP/1.1\r\nHost: " + c.OpenAI.Name + "\r\nX-Lab: " + mark + "\r\n\r\n"},
		{"HTTP/0.9", "GET %HOST%/v1/models?" + mark + "\r\n\r\n"},
		{"HTTP/1.0 without a host", "GET %HOST%/v1/files?" + mark + " HTTP/1.0\r\n\r\n"},
		{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + mark},
		{"an upgrade to HTTP/2", "POST %HOST%/v1/files HTTP/1.1\r\nHost: " + c.OpenAI.Name + "\r\nX-Lab: " + mark + "\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 0\r\n\r\n"},
	} {
		list = append(list, a.raw(s.name, no, c.OpenAI, s.words)...)
	}
	return list
}

// spending goes on when the budget is used up. One request passes before.
func (a Aim) spending() (list []way) {
	c := a.Cage
	list = a.door("the last request within the budget", []Outcome{Welcome}, inquiry{host: c.OpenAI, path: chatPath, body: a.chat("")})
	spent := []Outcome{Spent}
	for _, g := range []struct {
		name string
		inquiry
	}{
		{"the next, Chat Completions", inquiry{host: c.OpenAI, path: chatPath, body: a.chat("")}},
		{"the next, streamed", inquiry{host: c.OpenAI, path: chatPath, body: a.chat(`,"stream":true`)}},
		{"the next, Responses", inquiry{host: c.OpenAI, path: responsesPath, body: a.responses("")}},
		{"the next, Messages", inquiry{host: c.Anthropic, path: messagesPath, body: a.messages("")}},
		{"the next, generateContent", inquiry{host: c.Google, path: a.generatePath(), body: a.generate("")}},
	} {
		list = append(list, a.every(g.name, spent, g.inquiry)...)
	}
	// One after the other: the first is the last that passes.
	first := make(chan struct{})
	for i, w := range list {
		try := w.try
		list[i].try = func(ctx context.Context, p *probe) seen {
			if i == 0 {
				defer close(first)
				return try(ctx, p)
			}
			select {
			case <-first:
				return try(ctx, p)
			case <-ctx.Done():
				return refused(ctx.Err())
			}
		}
	}
	return list
}

// dying asks with the placeholder of another sandbox, which is no more.
func (a Aim) dying() (list []way) {
	c := a.Cage
	list = a.every("this sandbox's placeholder", []Outcome{Welcome}, inquiry{host: c.OpenAI, path: chatPath, body: a.chat("")})
	no := []Outcome{leaked, foreign}
	list = append(list, a.every("the dead one, as the bearer", no, inquiry{host: c.OpenAI, path: chatPath, bare: true, fields: []string{"Authorization", "Bearer " + c.Dead}, body: a.chat("")})...)
	list = append(list, a.every("the dead one, in X-Api-Key", no, inquiry{host: c.OpenAI, path: chatPath, fields: []string{"X-Api-Key", c.Dead}, body: a.chat("")})...)
	return append(list, a.every("the dead one, to another vendor", no, inquiry{host: c.Anthropic, path: messagesPath, bare: true, fields: []string{"X-Api-Key", c.Dead}, body: a.messages("")})...)
}
