package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
)

// params translates a request.
func (m *Model) params(req *model.Request) (sdk.MessageNewParams, error) {
	p := sdk.MessageNewParams{Model: m.opts.Model, MaxTokens: int64(req.MaxOutputTokens)}
	if req.MaxOutputTokens <= 0 {
		return p, errors.New("the request has no cap on its output, which Anthropic wants")
	}
	if req.System != "" {
		p.System = []sdk.TextBlockParam{{Text: req.System}}
	}
	if !m.opts.NoCache {
		p.CacheControl = sdk.NewCacheControlEphemeralParam()
	}
	if m.opts.Effort != "" && m.opts.Effort != EffortOff {
		p.Thinking.OfAdaptive = &sdk.ThinkingConfigAdaptiveParam{}
		p.OutputConfig.Effort = sdk.OutputConfigEffort(m.opts.Effort)
	}
	tools := req.Tools
	if len(tools) == 0 {
		if tools = called(req.Messages); tools != nil {
			none := sdk.NewToolChoiceNoneParam()
			p.ToolChoice.OfNone = &none
		}
	}
	for _, t := range tools {
		tool, err := definition(t)
		if err != nil {
			return p, err
		}
		p.Tools = append(p.Tools, tool)
	}
	var err error
	p.Messages, err = messages(req.Messages)
	return p, err
}

// called declares the tools of a conversation that are not offered any more:
// Anthropic wants the tools defined whose calls are in it.
func called(in []model.Message) []model.ToolDef {
	var out []model.ToolDef
	seen := map[string]bool{}
	for _, msg := range in {
		for _, c := range msg.Calls {
			if !seen[c.Name] {
				seen[c.Name] = true
				out = append(out, model.ToolDef{Name: c.Name})
			}
		}
	}
	return out
}

func definition(t model.ToolDef) (sdk.ToolUnionParam, error) {
	schema := t.Schema
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(schema, &object); err != nil {
		return sdk.ToolUnionParam{}, fmt.Errorf("the schema of tool %q is not a JSON object: %w", t.Name, err)
	}
	tool := &sdk.ToolParam{Name: t.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](schema)}
	if t.Description != "" {
		tool.Description = sdk.String(t.Description)
	}
	return sdk.ToolUnionParam{OfTool: tool}, nil
}

// messages puts what one side says in a row into one message: the results of
// all calls must be in the message after them, before any text.
func messages(in []model.Message) ([]sdk.MessageParam, error) {
	var out []sdk.MessageParam
	user := func(blocks ...sdk.ContentBlockParamUnion) {
		if n := len(out); n > 0 && out[n-1].OfUser != nil {
			out[n-1].OfUser.Content = append(out[n-1].OfUser.Content, blocks...)
		} else if len(blocks) > 0 {
			out = append(out, sdk.NewUserMessage(blocks...))
		}
	}
	for i, msg := range in {
		switch msg.Role {
		case model.RoleUser:
			user(text(msg.Text)...)
		case model.RoleAssistant:
			// One without content, which Anthropic refuses, said nothing.
			if blocks := said(msg); len(blocks) > 0 {
				out = append(out, sdk.NewAssistantMessage(blocks...))
			}
		case model.RoleTool:
			for _, r := range msg.Results {
				user(result(r))
			}
		default:
			return nil, fmt.Errorf("message %d has the unknown role %q", i+1, msg.Role)
		}
	}
	return out, nil
}

// text is a block of it; none where there is nothing to read, which Anthropic
// refuses.
func text(s string) []sdk.ContentBlockParamUnion {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	return []sdk.ContentBlockParamUnion{sdk.NewTextBlock(s)}
}

func result(r model.ToolResult) sdk.ContentBlockParamUnion {
	b := &sdk.ToolResultBlockParam{ToolUseID: r.ID}
	if r.IsError {
		b.IsError = sdk.Bool(true)
	}
	if strings.TrimSpace(r.Content) != "" {
		b.Content = []sdk.ToolResultBlockParamContentUnion{{OfText: &sdk.TextBlockParam{Text: r.Content}}}
	}
	return sdk.ContentBlockParamUnion{OfToolResult: b}
}

// said is an assistant message: in the order it came where that is known and
// it was not changed since, with the thinking as it was signed.
func said(msg model.Message) []sdk.ContentBlockParamUnion {
	var out []sdk.ContentBlockParamUnion
	rest := msg.Text
	for _, k := range order(msg) {
		switch {
		case k.Redacted != "":
			out = append(out, sdk.NewRedactedThinkingBlock(k.Redacted))
		case k.Signature != "":
			out = append(out, sdk.NewThinkingBlock(k.Signature, k.Thinking))
		case k.Call != nil:
			c := msg.Calls[*k.Call]
			out = append(out, sdk.NewToolUseBlock(c.ID, input(c.Arguments), c.Name))
		default:
			out = append(out, text(rest[:k.Text])...)
			rest = rest[k.Text:]
		}
	}
	// A reply that was cut while it thought; Anthropic refuses that at the end.
	for n := len(out); n > 0 && (out[n-1].OfThinking != nil || out[n-1].OfRedactedThinking != nil); n-- {
		out = out[:n-1]
	}
	return out
}

// input is a call's arguments. What the model wrote badly is wrapped in an
// object, as platform.claude.com/docs/en/agents-and-tools/tool-use/fine-grained-tool-streaming
// says.
func input(arguments string) any {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &object) == nil && object != nil {
		return json.RawMessage(arguments)
	}
	return map[string]string{"INVALID_JSON": arguments}
}

// block says which block of a reply comes next. The zero value is no text.
type block struct {
	Thinking  string `json:"thinking,omitempty"`
	Signature string `json:"signature,omitempty"` // of a thinking block
	Redacted  string `json:"redacted,omitempty"`  // the data of a redacted one
	wire.Piece
}

// kept is what Opaque holds.
type kept struct {
	Blocks []block `json:"anthropic"`
}

// order returns the blocks of msg as Opaque has them. Where it has none, or
// another text and other calls than msg, what was thought still comes first.
func order(msg model.Message) []block {
	var k kept
	if len(msg.Opaque) > 0 {
		_ = json.Unmarshal(msg.Opaque, &k) // another vendor's is nothing to us
	}
	var all wire.Check
	var thought []block
	for _, b := range k.Blocks {
		if b.Redacted != "" || b.Signature != "" {
			thought = append(thought, b)
			continue
		}
		all.Add(b.Piece)
	}
	if all.Makes(msg) {
		return k.Blocks
	}
	out := thought
	for _, p := range wire.Pieces(msg) {
		out = append(out, block{Piece: p})
	}
	return out
}
