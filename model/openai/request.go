package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/rein-sh/rein/model"
)

// params translates a request.
func (m *Model) params(req *model.Request) (sdk.ChatCompletionNewParams, error) {
	p := sdk.ChatCompletionNewParams{Model: m.opts.Model}
	if req.System != "" {
		p.Messages = append(p.Messages, sdk.SystemMessage(req.System))
	}
	for i, msg := range req.Messages {
		switch msg.Role {
		case model.RoleUser:
			p.Messages = append(p.Messages, sdk.UserMessage(msg.Text))
		case model.RoleAssistant:
			p.Messages = append(p.Messages, assistant(msg))
		case model.RoleTool:
			for _, r := range msg.Results {
				p.Messages = append(p.Messages, sdk.ToolMessage(r.Content, r.ID))
			}
		default:
			return p, fmt.Errorf("message %d has the unknown role %q", i+1, msg.Role)
		}
	}
	for _, t := range req.Tools {
		f := shared.FunctionDefinitionParam{Name: t.Name}
		if t.Description != "" {
			f.Description = sdk.String(t.Description)
		}
		var err error
		if f.Parameters, err = schema(t); err != nil {
			return p, err
		}
		p.Tools = append(p.Tools, sdk.ChatCompletionFunctionTool(f))
	}
	if req.MaxOutputTokens > 0 {
		if m.opts.LegacyMaxTokens {
			p.MaxTokens = sdk.Int(int64(req.MaxOutputTokens))
		} else {
			p.MaxCompletionTokens = sdk.Int(int64(req.MaxOutputTokens))
		}
	}
	if m.opts.Effort != "" && m.opts.Effort != EffortOff {
		p.ReasoningEffort = shared.ReasoningEffort(m.opts.Effort)
	}
	if !m.opts.NoStreamUsage {
		p.StreamOptions.IncludeUsage = sdk.Bool(true)
	}
	return p, nil
}

// schema is a tool's schema as the SDK takes it; nil when there is none.
func schema(t model.ToolDef) (map[string]any, error) {
	if len(t.Schema) == 0 {
		return nil, nil
	}
	var s map[string]any
	if err := json.Unmarshal(t.Schema, &s); err != nil {
		return nil, fmt.Errorf("the schema of tool %q is not a JSON object: %w", t.Name, err)
	}
	return s, nil
}

// keptThought is what Opaque holds of a Chat Completion with calls: DeepSeek and
// servers like it refuse the calls without the reasoning that led to them. See
// api-docs.deepseek.com/guides/thinking_mode.
type keptThought struct {
	Content string `json:"openai.reasoning_content,omitempty"`
}

func assistant(msg model.Message) sdk.ChatCompletionMessageParamUnion {
	a := sdk.ChatCompletionAssistantMessageParam{}
	if msg.Text != "" || len(msg.Calls) == 0 {
		a.Content.OfString = sdk.String(msg.Text)
	}
	for _, c := range msg.Calls {
		a.ToolCalls = append(a.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
				ID: c.ID,
				Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name: c.Name, Arguments: arguments(c.Arguments),
				},
			},
		})
	}
	var k keptThought
	if len(msg.Opaque) > 0 && len(msg.Calls) > 0 && json.Unmarshal(msg.Opaque, &k) == nil && k.Content != "" {
		a.SetExtraFields(map[string]any{"reasoning_content": k.Content})
	}
	return sdk.ChatCompletionMessageParamUnion{OfAssistant: &a}
}

// arguments are what the model wrote, where that is an object. Servers that
// parse them for a template refuse the whole conversation otherwise, this time
// and each time after.
func arguments(s string) string {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(s), &object) == nil && object != nil {
		return s
	}
	if strings.TrimSpace(s) == "" {
		return "{}"
	}
	b, _ := json.Marshal(map[string]string{"INVALID_JSON": s}) // a string always encodes
	return string(b)
}
