package modelserver

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"github.com/rein-sh/rein/model"
)

// messagesRequest is what is read of a request.
type messagesRequest struct {
	Model     string `json:"model"`
	MaxTokens *int   `json:"max_tokens"`
	Stream    bool   `json:"stream"`
	System    blocks `json:"system"`
	Messages  []struct {
		Role    string `json:"role"`
		Content blocks `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		InputSchema struct {
			Type string `json:"type"`
		} `json:"input_schema"`
	} `json:"tools"`
	ToolChoice struct {
		Type string `json:"type"`
	} `json:"tool_choice"`
}

// blocks is a list of content blocks, or a text that is one.
type blocks []contentBlock

type contentBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   chatContent     `json:"content"`
	IsError   bool            `json:"is_error"`
}

func (b *blocks) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*b = blocks{{Type: "text"}}
		return json.Unmarshal(data, &(*b)[0].Text)
	}
	return json.Unmarshal(data, (*[]contentBlock)(b))
}

var toolUseID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// read refuses what Anthropic refuses: no cap on the output, calls without
// results and results without calls, empty texts, schemas without a type.
func (messages) read(r *http.Request, body []byte) (*ask, *refusal) {
	var in messagesRequest
	if bad := decode(body, &in); bad != nil {
		return nil, bad
	}
	switch {
	case r.Header.Get("Anthropic-Version") == "":
		return nil, invalid("anthropic-version: header is required")
	case in.Model == "":
		return nil, invalid("model: Field required")
	case in.MaxTokens == nil:
		return nil, invalid("max_tokens: Field required")
	case *in.MaxTokens < 1:
		return nil, invalid("max_tokens: must be greater than or equal to 1")
	case len(in.Messages) == 0:
		return nil, invalid("messages: at least one message is required")
	case in.Messages[0].Role != "user":
		return nil, invalid("messages: first message must use the \"user\" role")
	}
	a := &ask{req: &model.Request{MaxOutputTokens: *in.MaxTokens}, model: in.Model, stream: in.Stream, usage: true, signs: true, proofs: map[int]string{}}
	for _, b := range in.System {
		a.req.System = strings.TrimPrefix(a.req.System+"\n\n"+b.Text, "\n\n")
	}
	open := map[string]string{} // id → tool of calls without their result
	for i, m := range in.Messages {
		var bad *refusal
		switch {
		case m.Role == "system" && strings.Contains(r.Header.Get("Anthropic-Beta"), "mid-conversation-system"):
			for _, b := range m.Content {
				a.req.System += "\n\n" + b.Text
			}
		case m.Role == "user":
			bad = a.user(m.Content, open, i)
		case m.Role == "assistant":
			bad = a.assistant(m.Content, open, i)
		default:
			bad = invalid("messages.%d.role: Input should be 'user' or 'assistant'", i)
		}
		if bad != nil {
			return nil, bad
		}
	}
	for id := range open {
		return nil, unanswered(len(in.Messages)-1, id)
	}
	for i, t := range in.Tools {
		if t.InputSchema.Type != "object" {
			return nil, invalid("tools.%d.custom.input_schema.type: Input should be 'object'", i)
		}
		a.req.Tools = append(a.req.Tools, model.ToolDef{Name: t.Name, Description: t.Description})
	}
	for _, m := range a.req.Messages {
		if len(m.Calls) > 0 && len(in.Tools) == 0 {
			return nil, invalid("Requests which have `tool_use` or `tool_result` blocks in messages must define tools.")
		}
	}
	if in.ToolChoice.Type == "none" {
		a.req.Tools = nil
	}
	return a, nil
}

func unanswered(i int, id string) *refusal {
	return invalid("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", i, id)
}

// user takes in a message of the user's side: results first, then text.
func (a *ask) user(content blocks, open map[string]string, i int) *refusal {
	said := false
	for j, b := range content {
		switch b.Type {
		case "tool_result":
			name, ok := open[b.ToolUseID]
			if !ok {
				return invalid("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", i, j, b.ToolUseID)
			}
			if said {
				return invalid("messages.%d: `tool_result` blocks must come before other content", i)
			}
			delete(open, b.ToolUseID)
			a.req.Messages = addResult(a.req.Messages, model.ToolResult{ID: b.ToolUseID, Name: name, Content: string(b.Content), IsError: b.IsError})
		case "text":
			if bad := b.emptyText(i); bad != nil {
				return bad
			}
			a.req.Messages = append(a.req.Messages, model.Message{Role: model.RoleUser, Text: b.Text})
			said = true
		default:
			return invalid("messages.%d.content.%d.type: Input should be 'text' or 'tool_result'", i, j)
		}
	}
	for id := range open {
		return unanswered(i-1, id)
	}
	if len(content) == 0 {
		return invalid("messages.%d: user messages must have non-empty content", i)
	}
	return nil
}

// assistant takes in a message of the model's side.
func (a *ask) assistant(content blocks, open map[string]string, i int) *refusal {
	for id := range open {
		return unanswered(i-1, id)
	}
	out := model.Message{Role: model.RoleAssistant}
	n := len(a.req.Messages)
	for j, b := range content {
		switch b.Type {
		case "thinking":
			if b.Signature == "" {
				return invalid("messages.%d.content.%d.thinking.signature: Field required", i, j)
			}
			a.proofs[n] = b.Signature
		case "redacted_thinking":
			a.proofs[n] = b.Data
		case "text":
			if bad := b.emptyText(i); bad != nil {
				return bad
			}
			out.Text += b.Text
		case "tool_use":
			var input object
			switch _, twice := open[b.ID]; {
			case twice:
				return invalid("messages.%d: `tool_use` ids must be unique", i)
			case !toolUseID.MatchString(b.ID):
				return invalid("messages.%d.content.%d.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", i, j)
			case json.Unmarshal(b.Input, &input) != nil || input == nil:
				return invalid("messages.%d.content.%d.tool_use.input: Input should be a valid dictionary", i, j)
			}
			open[b.ID] = b.Name
			out.Calls = append(out.Calls, model.ToolCall{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
		default:
			return invalid("messages.%d.content.%d.type: %q is not known", i, j, b.Type)
		}
	}
	if len(content) == 0 {
		return invalid("messages.%d: all messages must have non-empty content except for the optional final assistant message", i)
	}
	a.req.Messages = append(a.req.Messages, out)
	return nil
}

func (b contentBlock) emptyText(i int) *refusal {
	if strings.TrimSpace(b.Text) == "" {
		return invalid("messages.%d: text content blocks must contain non-whitespace text", i)
	}
	return nil
}
