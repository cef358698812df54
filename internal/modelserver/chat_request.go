package modelserver

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/rein-sh/rein/model"
)

// chatRequest is what is read of a request.
type chatRequest struct {
	Model         string        `json:"model"`
	Messages      []chatMessage `json:"messages"`
	Stream        bool          `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
	MaxTokens           int `json:"max_tokens"`
	Tools               []struct {
		Function struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
}

type chatMessage struct {
	Role       string      `json:"role"`
	Content    chatContent `json:"content"`
	Refusal    string      `json:"refusal"`
	ToolCallID string      `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// chatContent is a string, or a list of parts of which the text is kept.
type chatContent string

func (c *chatContent) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] != '[' {
		return json.Unmarshal(data, (*string)(c)) // null too
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	*c = chatContent(b.String())
	return nil
}

// read refuses a call without its result, and a result without its call.
func (chat) read(_ *http.Request, body []byte) (*ask, *refusal) {
	var in chatRequest
	if bad := decode(body, &in); bad != nil {
		return nil, bad
	}
	if in.Model == "" || len(in.Messages) == 0 {
		return nil, invalid("The request needs a model and at least one message.")
	}
	req := &model.Request{MaxOutputTokens: max(in.MaxCompletionTokens, in.MaxTokens)}
	open := map[string]string{} // id → tool of calls without their result
	for i, m := range in.Messages {
		if m.Role != "tool" && len(open) > 0 {
			return nil, invalid("An assistant message with 'tool_calls' must be followed by tool messages for each of them; messages[%d] comes too early.", i)
		}
		if bad := m.add(req, open, i); bad != nil {
			return nil, bad
		}
	}
	if len(open) > 0 {
		return nil, invalid("An assistant message with 'tool_calls' must be followed by tool messages for each of them; %d are missing.", len(open))
	}
	for _, t := range in.Tools {
		req.Tools = append(req.Tools, model.ToolDef{Name: t.Function.Name, Description: t.Function.Description, Schema: t.Function.Parameters})
	}
	return &ask{req: req, model: in.Model, stream: in.Stream, usage: in.StreamOptions.IncludeUsage}, nil
}

// add puts a message into req.
func (m chatMessage) add(req *model.Request, open map[string]string, i int) *refusal {
	switch m.Role {
	case "system", "developer":
		req.System = strings.TrimPrefix(req.System+"\n\n"+string(m.Content), "\n\n")
	case "user":
		req.Messages = append(req.Messages, model.Message{Role: model.RoleUser, Text: string(m.Content)})
	case "assistant":
		out := model.Message{Role: model.RoleAssistant, Text: string(m.Content) + m.Refusal}
		for _, c := range m.ToolCalls {
			open[c.ID] = c.Function.Name
			out.Calls = append(out.Calls, model.ToolCall{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
		if len(open) != len(m.ToolCalls) {
			return invalid("Two calls of messages[%d] have the same id.", i)
		}
		req.Messages = append(req.Messages, out)
	case "tool":
		name, ok := open[m.ToolCallID]
		if !ok {
			return invalid("messages[%d] with role 'tool' must answer a call of the message before, once.", i)
		}
		delete(open, m.ToolCallID)
		req.Messages = addResult(req.Messages, model.ToolResult{ID: m.ToolCallID, Name: name, Content: string(m.Content)})
	default:
		return invalid("messages[%d] has the unknown role %q.", i, m.Role)
	}
	return nil
}

// addResult appends to the tool message at the end, or begins one.
func addResult(messages []model.Message, r model.ToolResult) []model.Message {
	if n := len(messages); n > 0 && messages[n-1].Role == model.RoleTool {
		messages[n-1].Results = append(messages[n-1].Results, r)
		return messages
	}
	return append(messages, model.Message{Role: model.RoleTool, Results: []model.ToolResult{r}})
}
