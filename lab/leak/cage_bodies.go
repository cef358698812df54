package leak

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"strings"
)

// bodied is a body of a request, and what it asks for.
type bodied struct{ name, text string }

// modelBodies ask the vendor to run, to fetch, to keep, or to cost more.
func (a Aim) modelBodies() (list []way) {
	elsewhere := "http://" + outside + "/" + mark
	asks := map[API]func(c modelCall, elsewhere string) []bodied{Chat: modelCall.chatAsks, Responses: modelCall.responsesAsks, Messages: modelCall.messagesAsks, Gemini: modelCall.geminiAsks}
	for _, c := range a.calls() {
		for _, b := range asks[c.api](c, elsewhere) {
			q := inquiry{host: c.host, path: c.path(), body: b.text}
			name := titles[c.api] + ": " + b.name
			list = append(list, a.by(lanes[0], name, []Outcome{Asked}, q), a.by(lanes[1], name, []Outcome{Asked}, q))
		}
		q, name := c.asking("dear-"+c.model).inquiry(""), titles[c.api]+": a model that is not on the list"
		list = append(list, a.by(lanes[0], name, []Outcome{NoModel}, q), a.by(lanes[1], name, []Outcome{NoModel}, q))
	}
	return append(list, a.packed()...)
}

// with is a good request with more members, and their name.
func (c modelCall) with(name, more string) bodied { return bodied{name, c.body(more)} }

// says is one whose message has more parts, which end with a comma.
func (c modelCall) says(name, parts string) bodied { return bodied{name, c.saying(parts+",", "")} }

// offers are requests with tools, one each.
func (c modelCall) offers(list ...string) (out []bodied) {
	for _, text := range list {
		out = append(out, c.with("the tool "+text, tools(text)))
	}
	return out
}

func (c modelCall) chatAsks(elsewhere string) []bodied {
	return append(c.offers(`{"type":"web_search"}`, `{"type":"code_interpreter"}`, `{"type":"mcp","server_url":"`+elsewhere+`"}`, `{"type":"function","function":{"name":"f"}},{"type":"web_search_preview"}`),
		c.with("web_search_options", `,"web_search_options":{}`), c.with("n", `,"n":4`), c.with("service_tier", `,"service_tier":"priority"`),
		c.says("an image by http", `{"type":"image_url","image_url":{"url":"`+elsewhere+`"}}`), c.says("an image by https", `{"type":"image_url","image_url":{"url":"https://`+outside+`/"}}`),
		c.says("a file that is kept", `{"type":"file","file":{"file_id":"file-1"}}`), c.with("an unknown member", `,"tool_server":"`+elsewhere+`"`),
		c.with("a member twice", `,"max_tokens":100000`), bodied{"a cap that is no number", strings.Replace(c.body(""), `"max_tokens":16`, `"max_tokens":"16"`, 1)},
		bodied{"what follows the JSON", c.body("") + c.body("")}, bodied{"no JSON", `model=` + c.model + "&" + mark}, bodied{"a list of requests", "[" + c.body("") + "]"}, c.with("a member in another spelling", `,"\u006dodel":"other"`))
}

func (c modelCall) responsesAsks(elsewhere string) []bodied {
	return append(c.offers(`{"type":"web_search"}`, `{"type":"web_search_preview"}`, `{"type":"code_interpreter","container":{"type":"auto"}}`, `{"type":"mcp","server_label":"x","server_url":"`+elsewhere+`"}`,
		`{"type":"file_search","vector_store_ids":["vs_1"]}`, `{"type":"image_generation"}`, `{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}`),
		c.with("previous_response_id", `,"previous_response_id":"resp_1"`), c.with("conversation", `,"conversation":"conv_1"`), c.with("prompt", `,"prompt":{"id":"pmpt_1"}`), c.with("background", `,"background":true`),
		c.says("an image by a URL", `{"type":"input_image","image_url":"`+elsewhere+`"}`), c.says("a file by a URL", `{"type":"input_file","file_url":"`+elsewhere+`"}`), c.says("a file that is kept", `{"type":"input_file","file_id":"file-1"}`),
		bodied{"a reference to an item", strings.Replace(c.body(""), `"input":[`, `"input":[{"type":"item_reference","id":"msg_1"},`, 1)}, c.with("a member twice", `,"max_output_tokens":100000`), c.with("an unknown member", `,"tool_server":"`+elsewhere+`"`))
}

func (c modelCall) messagesAsks(elsewhere string) []bodied {
	return append(c.offers(`{"type":"web_search_20250305","name":"web_search"}`, `{"type":"web_fetch_20250910","name":"web_fetch"}`, `{"type":"code_execution_20250522","name":"code_execution"}`, `{"type":"mcp_toolset","mcp_server_name":"x"}`),
		c.with("mcp_servers", `,"mcp_servers":[{"type":"url","name":"x","url":"`+elsewhere+`"}]`), c.with("container", `,"container":"c_1"`),
		c.says("an image by a URL", `{"type":"image","source":{"type":"url","url":"`+elsewhere+`"}}`), c.says("a document by a URL", `{"type":"document","source":{"type":"url","url":"`+elsewhere+`"}}`),
		c.says("a file that is kept", `{"type":"document","source":{"type":"file","file_id":"file_1"}}`), c.says("a container's upload", `{"type":"container_upload","file_id":"file_1"}`),
		c.with("a member twice", `,"max_tokens":100000`), c.with("an unknown member", `,"tool_server":"`+elsewhere+`"`))
}

func (c modelCall) geminiAsks(elsewhere string) []bodied {
	return append(c.offers(`{"googleSearch":{}}`, `{"google_search":{}}`, `{"urlContext":{}}`, `{"codeExecution":{}}`, `{"fileSearch":{}}`),
		c.with("cachedContent", `,"cachedContent":"cachedContents/1"`), c.says("a file by a URL", `{"fileData":{"fileUri":"`+elsewhere+`"}}`),
		c.with("several answers", `,"generationConfig":{"candidateCount":4}`), c.with("an unknown member", `,"toolServer":"`+elsewhere+`"`))
}

// packed hides in a body that is packed, of another type, or in parts.
func (a Aim) packed() (list []way) {
	c := a.first()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(c.body(c.hosted()))) // into memory
	_ = z.Close()
	for _, q := range []struct {
		name   string
		want   []Outcome
		body   string
		fields []string
	}{
		{"a hosted tool, packed with gzip", []Outcome{Asked}, b.String(), []string{"Content-Encoding", "gzip"}},
		{"no gzip, that says it is", []Outcome{"models.body"}, c.body(""), []string{"Content-Encoding", "gzip"}},
		{"a packing nobody knows", []Outcome{"models.body"}, c.body(""), []string{"Content-Encoding", "lab"}},
		{"another type, beside the right one", []Outcome{Asked, BadRequest, "http.framing", "models.body", "models.form"}, c.body(""), []string{"Content-Type", "text/plain"}},
	} {
		list = append(list, a.every(q.name, q.want, inquiry{host: c.host, path: c.path(), body: q.body, fields: q.fields})...)
	}
	if c.host.List {
		q := inquiry{method: http.MethodGet, host: c.host, path: c.host.Base + "/models", body: `{"note":"` + mark + `"}`}
		list = append(list, a.every("the body of a list of models", []Outcome{"models.body"}, q)...)
	}
	return list
}

// modelSmuggling hides a second request in a first. What is hidden has the marker,
// and must not arrive.
func (a Aim) modelSmuggling() (list []way) {
	c := a.first()
	host, path, files := "Host: "+c.host.Name+"\r\n", c.path(), c.host.root()+"/files"
	marked := ProbeField + ": " + mark + "\r\n"
	hidden := "POST %HOST%" + files + " HTTP/1.1\r\n" + host + marked + "Content-Length: 0\r\n\r\n"
	head := func(path, fields string) string {
		return "POST %HOST%" + path + " HTTP/1.1\r\n" + host + lines(c.host.carries(c.host.Placeholder)) + ProbeField + ": first\r\nContent-Type: application/json\r\n" + fields + "\r\n"
	}
	first := strings.ReplaceAll(c.body(""), mark, "first")
	n := len(first)
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", n, first)
	no := []Outcome{"http.framing", BadRequest, Reset, Silent, modelPath, Asked, "models.body"}
	for _, s := range []struct {
		name, words string
	}{
		{"a length and chunks", head(path, fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", n)) + chunked + hidden},
		{"chunks and a short length", head(path, "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n") + chunked + hidden},
		{"two lengths", head(path, fmt.Sprintf("Content-Length: %d\r\nContent-Length: 0\r\n", n)) + first + hidden},
		{"two lengths in one field", head(path, fmt.Sprintf("Content-Length: %d, %d\r\n", n, 0)) + first + hidden},
		{"a length with a sign", head(path, fmt.Sprintf("Content-Length: +%d\r\n", n)) + first + hidden},
		{"a space before the colon", head(path, fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding : chunked\r\n", n)) + first + hidden},
		{"a coding nobody knows", head(path, "Transfer-Encoding: xchunked\r\n") + chunked + hidden},
		{"chunked twice", head(path, "Transfer-Encoding: chunked, chunked\r\n") + chunked + hidden},
		{"identity and chunked", head(path, "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n") + chunked + hidden},
		{"a folded field", head(path, fmt.Sprintf("X-A: b\r\n Transfer-Encoding: chunked\r\nContent-Length: %d\r\n", n)) + first + hidden},
		{"bare line feeds", strings.ReplaceAll(head(path, fmt.Sprintf("Content-Length: %d\r\n", n)), "\r\n", "\n") + first + hidden},
		{"a bare carriage return", head(path, fmt.Sprintf("X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: %d\r\n", n)) + first + hidden},
		{"a zero byte", head(path, fmt.Sprintf("X-A: b\x00\r\nContent-Length: %d\r\n", n)) + first + hidden},
		{"a second request behind the first", head(path, fmt.Sprintf("Content-Length: %d\r\n", n)) + first + hidden},
		{"a body of GET that is a request", strings.Replace(head(c.host.root()+"/models", ""), "POST", "GET", 1) + hidden},
		{"a request line with two spaces", "POST  %HOST%" + files + " HTTP/1.1\r\n" + host + marked + "\r\n"},
		{"HTTP/0.9", "GET %HOST%" + c.host.root() + "/models?" + mark + "\r\n\r\n"},
		{"HTTP/1.0 without a host", "GET %HOST%" + files + "?" + mark + " HTTP/1.0\r\n\r\n"},
		{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + mark},
		{"an upgrade to HTTP/2", "POST %HOST%" + files + " HTTP/1.1\r\n" + host + marked + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 0\r\n\r\n"},
	} {
		list = append(list, a.raw(s.name, no, c.host, s.words)...)
	}
	// All of it is the body, and no JSON.
	return append(list, a.raw("a second request in the length", []Outcome{Asked}, c.host, head(path, "Content-Length: "+inLength+"\r\n")+first+hidden)...)
}

// spending goes on when the budget is used up. One request passes before.
func (a Aim) spending() (list []way) {
	list = a.door("the last request within the budget", []Outcome{Welcome}, a.first().inquiry(""))
	for _, c := range a.calls() {
		list = append(list, a.every("the next, "+titles[c.api], []Outcome{Spent}, c.inquiry(""))...)
		list = append(list, a.every("the next, "+titles[c.api]+", streamed", []Outcome{Spent}, c.streamed())...)
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
	c, dead := a.first(), a.Cage.Dead
	list = a.every("this sandbox's placeholder", []Outcome{Welcome}, c.inquiry(""))
	try := func(name string, c modelCall, fields ...string) {
		q := c.inquiry("")
		q.bare, q.fields = true, fields
		list = append(list, a.every(name, []Outcome{leaked, foreign}, q)...)
	}
	try("the dead one, in its place", c, c.host.carries(dead)...)
	try("the dead one, in X-Api-Key", c, "X-Api-Key", dead)
	try("the dead one, as the bearer", c, "Authorization", "Bearer "+dead)
	for _, other := range a.calls() {
		if other.host.Name != c.host.Name {
			try("the dead one, to another vendor, "+titles[other.api], other, other.host.carries(dead)...)
		}
	}
	return list
}
