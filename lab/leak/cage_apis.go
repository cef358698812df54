package leak

import (
	"slices"
	"strings"
)

// API is a protocol in which models are asked, by the name that recipes of agents
// have for it.
type API string

// The protocols.
const (
	Chat      API = "openai-chat"
	Responses API = "openai-responses"
	Messages  API = "anthropic-messages"
	Gemini    API = "gemini-generate"
)

// ModelHost is a host of models, and the placeholder of its key.
type ModelHost struct {
	Name        string `json:"name"`
	Placeholder string `json:"placeholder"`
	// Field carries the key; empty: Authorization, as a bearer.
	Field string `json:"field,omitempty"`
	// Base begins the paths of OpenAI's protocols, such as /v1.
	Base string `json:"base,omitempty"`
	// APIs may be asked, and the list of models where List is set.
	APIs []API `json:"apis"`
	List bool  `json:"list,omitempty"`
}

// carries are the fields of a request to the host that has this key.
func (h ModelHost) carries(key string) []string {
	fields := []string{h.Field, key}
	if h.Field == "" {
		fields = []string{"Authorization", "Bearer " + key}
	}
	if slices.Contains(h.APIs, Messages) {
		fields = append(fields, "Anthropic-Version", "2023-06-01")
	}
	return fields
}

// path is where an API is at the host.
func (h ModelHost) path(api API, model string) string {
	switch api {
	case Responses:
		return h.Base + "/responses"
	case Messages:
		return "/v1/messages"
	case Gemini:
		return "/v1beta/models/" + model + ":generateContent"
	}
	return h.Base + "/chat/completions"
}

// root is the first segment of the host's paths.
func (h ModelHost) root() string {
	first, _, _ := strings.Cut(strings.TrimPrefix(h.path(h.APIs[0], ""), "/"), "/")
	return "/" + first
}

// modelCall is one way of asking a model.
type modelCall struct {
	api   API
	host  ModelHost
	model string
}

// calls are all that may be made. The first is the one that is tried where one says
// as much as all.
func (a Aim) calls() (list []modelCall) {
	for _, h := range a.Cage.Hosts {
		for _, api := range h.APIs {
			list = append(list, modelCall{api, h, a.Cage.Model})
		}
	}
	return list
}

// first is the first of calls.
func (a Aim) first() modelCall { return a.calls()[0] }

// of is the call of an API, where one may be made.
func (a Aim) of(api API) (modelCall, bool) {
	for _, c := range a.calls() {
		if c.api == api {
			return c, true
		}
	}
	return modelCall{}, false
}

// titles are how the protocols are called.
var titles = map[API]string{Chat: "Chat Completions", Responses: "Responses", Messages: "Messages", Gemini: "generateContent"}

func (c modelCall) path() string { return c.host.path(c.api, c.model) }

// inquiry is a good request, with more members.
func (c modelCall) inquiry(more string) inquiry {
	return inquiry{host: c.host, path: c.path(), body: c.body(more)}
}

// streamed is a good request for an answer in pieces.
func (c modelCall) streamed() inquiry {
	if c.api == Gemini {
		q := c.inquiry("")
		q.path = strings.Replace(q.path, ":generateContent", ":streamGenerateContent?alt=sse", 1)
		return q
	}
	return c.inquiry(`,"stream":true`)
}

// body is that of a good request, with more members.
func (c modelCall) body(more string) string { return c.saying("", more) }

// saying is one that says more, too: parts of its message, which end with a comma.
func (c modelCall) saying(parts, more string) string {
	text := `{"type":"text","text":"` + mark + `"}`
	limit := `"max_tokens":16,"messages"`
	switch c.api {
	case Gemini:
		return `{"contents":[{"role":"user","parts":[` + parts + `{"text":"` + mark + `"}]}]` + more + `}`
	case Responses:
		text, limit = `{"type":"input_text","text":"`+mark+`"}`, `"max_output_tokens":16,"input"`
	}
	return `{"model":"` + c.model + `",` + limit + `:[{"role":"user","content":[` + parts + text + `]}]` + more + `}`
}

// note are members that hold a text, and do nothing.
func (c modelCall) note(text string) string {
	switch c.api {
	case Messages:
		return `,"metadata":{"user_id":"` + text + `"}`
	case Gemini:
		return `,"systemInstruction":{"parts":[{"text":"` + text + `"}]}`
	}
	return `,"user":"` + text + `"`
}

// hosted are members that have the vendor run something.
func (c modelCall) hosted() string {
	switch c.api {
	case Chat:
		return `,"web_search_options":{}`
	case Messages:
		return tools(`{"type":"web_search_20250305","name":"web_search"}`)
	case Gemini:
		return tools(`{"googleSearch":{}}`)
	}
	return tools(`{"type":"web_search"}`)
}

func tools(text string) string { return `,"tools":[` + text + `]` }

// own is a tool that the client runs.
func (c modelCall) own() string {
	switch c.api {
	case Messages:
		return tools(`{"name":"shell","input_schema":{"type":"object"}}`)
	case Gemini:
		return tools(`{"functionDeclarations":[{"name":"shell"}]}`)
	case Responses:
		return tools(`{"type":"function","name":"shell","parameters":{"type":"object"}}`)
	}
	return tools(`{"type":"function","function":{"name":"shell"}}`)
}

// asking is the call for another model.
func (c modelCall) asking(model string) modelCall {
	c.model = model
	return c
}
