package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/rein-sh/rein/model"
)

// responsesRequest is what is read of a request.
type responsesRequest struct {
	Model           string          `json:"model"`
	Instructions    string          `json:"instructions"`
	Input           json.RawMessage `json:"input"`
	Stream          bool            `json:"stream"`
	Store           *bool           `json:"store"`
	Include         []string        `json:"include"`
	MaxOutputTokens *int            `json:"max_output_tokens"`
	Tools           []responsesTool `json:"tools"`
}

// responsesTool is a function, a tool that takes plain text (custom), a namespace
// of tools, or one that the vendor has.
type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Tools       []responsesTool `json:"tools"`
}

// responsesItem is one item of the input.
type responsesItem struct {
	Type             string      `json:"type"`
	Role             string      `json:"role"`
	Content          chatContent `json:"content"`
	ID               string      `json:"id"`
	CallID           string      `json:"call_id"`
	Name             string      `json:"name"`
	Arguments        string      `json:"arguments"`
	Input            string      `json:"input"` // of a custom tool
	Output           chatContent `json:"output"`
	EncryptedContent string      `json:"encrypted_content"`
	// Tools come with an item, too, of type additional_tools.
	Tools []responsesTool `json:"tools"`
}

// read refuses calls without results and results without calls, and reasoning
// that leads to nothing.
func (responses) read(_ *http.Request, body []byte) (*ask, *refusal) {
	var in responsesRequest
	if bad := decode(body, &in); bad != nil {
		return nil, bad
	}
	items, bad := in.items()
	switch {
	case bad != nil:
		return nil, bad
	case in.Model == "" || len(items) == 0:
		return nil, invalid("The request needs a model and an input.")
	case in.MaxOutputTokens != nil && *in.MaxOutputTokens < 16:
		return nil, invalid("Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got %d instead.", *in.MaxOutputTokens)
	}
	a := &ask{req: &model.Request{System: in.Instructions}, model: in.Model, stream: in.Stream, proofs: map[int]string{},
		signs: slices.Contains(in.Include, "reasoning.encrypted_content")}
	if in.MaxOutputTokens != nil {
		a.req.MaxOutputTokens = *in.MaxOutputTokens
	}
	r := responsesReader{ask: a, open: map[string]string{}}
	for i, item := range items {
		if bad := r.add(item, i); bad != nil {
			return nil, bad
		}
	}
	for id := range r.open {
		return nil, invalid("No tool output found for function call %s.", id)
	}
	if r.reasoned != "" {
		return nil, invalid("Item '%s' of type 'reasoning' was provided without its required following item.", r.reasoned)
	}
	if bad := a.offer(in.Tools, "tools"); bad != nil {
		return nil, bad
	}
	return a, nil
}

// offer takes in tools. Those that the vendor runs are known by their types alone,
// and no script calls them.
func (a *ask) offer(tools []responsesTool, where string) *refusal {
	for i, t := range tools {
		switch t.Type {
		case "function", "custom", "namespace":
			if t.Name == "" {
				return invalid("Missing required parameter: '%s[%d].name'.", where, i)
			}
		case "":
			return invalid("Missing required parameter: '%s[%d].type'.", where, i)
		}
		switch t.Type {
		case "custom":
			if a.custom == nil {
				a.custom = map[string]bool{}
			}
			a.custom[t.Name] = true
			fallthrough
		case "function":
			a.req.Tools = append(a.req.Tools, model.ToolDef{Name: t.Name, Description: t.Description, Schema: t.Parameters})
		case "namespace":
			if bad := a.offer(t.Tools, fmt.Sprintf("%s[%d].tools", where, i)); bad != nil {
				return bad
			}
		}
	}
	return nil
}

// items are those of the input; a text is a user's message.
func (in responsesRequest) items() ([]responsesItem, *refusal) {
	var text string
	if json.Unmarshal(in.Input, &text) == nil {
		return []responsesItem{{Role: "user", Content: chatContent(text)}}, nil
	}
	var items []responsesItem
	if len(in.Input) == 0 {
		return nil, nil
	}
	return items, decode(in.Input, &items)
}

// responsesReader puts items into messages: what the assistant said in a row is
// one.
type responsesReader struct {
	*ask
	open     map[string]string // call_id → tool of calls without their result
	reasoned string            // the reasoning item whose following one is missing
	said     bool              // the last message is the assistant's, and goes on
}

func (r *responsesReader) add(item responsesItem, i int) *refusal {
	if item.Type == "additional_tools" {
		return r.offer(item.Tools, fmt.Sprintf("input[%d].tools", i))
	}
	called := item.Type == "function_call" || item.Type == "custom_tool_call"
	assistant := item.Type == "reasoning" || called || item.Role == "assistant"
	if r.reasoned != "" && (!assistant || item.Type == "reasoning") {
		return invalid("Item '%s' of type 'reasoning' was provided without its required following item.", r.reasoned)
	}
	if assistant && !r.said {
		for id := range r.open {
			return invalid("No tool output found for function call %s.", id)
		}
		r.req.Messages = append(r.req.Messages, model.Message{Role: model.RoleAssistant})
	}
	r.said = assistant
	n := len(r.req.Messages) - 1
	switch {
	case item.Type == "reasoning":
		if item.EncryptedContent == "" {
			return invalid("Item with id '%s' not found. Items are not persisted when `store` is set to false.", item.ID)
		}
		r.reasoned, r.proofs[n] = item.ID, item.EncryptedContent
		return nil
	case called:
		if _, twice := r.open[item.CallID]; twice || item.CallID == "" {
			return invalid("Duplicate or missing 'call_id' at input[%d].", i)
		}
		r.open[item.CallID] = item.Name
		m := &r.req.Messages[n]
		m.Calls = append(m.Calls, model.ToolCall{ID: item.CallID, Name: item.Name, Arguments: item.Arguments + item.Input})
	case item.Type == "function_call_output", item.Type == "custom_tool_call_output":
		name, ok := r.open[item.CallID]
		if !ok {
			return invalid("No tool call found for function call output with call_id %s.", item.CallID)
		}
		delete(r.open, item.CallID)
		r.req.Messages = addResult(r.req.Messages, model.ToolResult{ID: item.CallID, Name: name, Content: string(item.Output)})
	case item.Type != "" && item.Type != "message":
		return invalid("Invalid value: '%s' at input[%d].type.", item.Type, i)
	case item.Role == "assistant":
		r.req.Messages[n].Text += string(item.Content)
	case item.Role == "system" || item.Role == "developer":
		r.req.System = strings.TrimPrefix(r.req.System+"\n\n"+string(item.Content), "\n\n")
	case item.Role == "user":
		for id := range r.open {
			return invalid("No tool output found for function call %s.", id)
		}
		r.req.Messages = append(r.req.Messages, model.Message{Role: model.RoleUser, Text: string(item.Content)})
	default:
		return invalid("Invalid value: '%s' at input[%d].role.", item.Role, i)
	}
	r.reasoned = ""
	return nil
}
