package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
)

// respond speaks the Responses API. Nothing is stored at the vendor: what it
// reasoned comes back encrypted, and is returned with the next request.
func (m *Model) respond(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	params, err := m.responseParams(req)
	if err != nil {
		return nil, m.link.Invalid(err)
	}
	call := m.link.Begin(ctx)
	defer call.End()
	acc := response{emit: emit, call: call, link: m.link, turn: len(req.Messages)}
	if err := wire.Each(call, m.responses.NewStreaming(call.Context(), params), acc.add, failure); err != nil {
		return nil, err
	}
	return acc.finish()
}

// responseParams translates a request.
func (m *Model) responseParams(req *model.Request) (responses.ResponseNewParams, error) {
	p := responses.ResponseNewParams{Model: m.opts.Model, Store: sdk.Bool(false)}
	if m.opts.Effort != EffortOff {
		p.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
		p.Reasoning.Effort = shared.ReasoningEffort(m.opts.Effort)
	}
	if req.System != "" {
		p.Instructions = sdk.String(req.System)
	}
	for i, msg := range req.Messages {
		switch msg.Role {
		case model.RoleUser:
			p.Input.OfInputItemList = append(p.Input.OfInputItemList,
				responses.ResponseInputItemParamOfMessage(msg.Text, responses.EasyInputMessageRoleUser))
		case model.RoleAssistant:
			p.Input.OfInputItemList = append(p.Input.OfInputItemList, said(msg)...)
		case model.RoleTool:
			for _, r := range msg.Results {
				item := responses.ResponseInputItemParamOfFunctionCallOutput(r.Content)
				item.OfFunctionCallOutput.CallID = sdk.String(r.ID)
				p.Input.OfInputItemList = append(p.Input.OfInputItemList, item)
			}
		default:
			return p, fmt.Errorf("message %d has the unknown role %q", i+1, msg.Role)
		}
	}
	for _, t := range req.Tools {
		s, err := schema(t)
		if err != nil {
			return p, err
		}
		tool := responses.ToolParamOfFunction(t.Name, s, false) // the caller checks arguments itself
		if t.Description != "" {
			tool.OfFunction.Description = sdk.String(t.Description)
		}
		p.Tools = append(p.Tools, tool)
	}
	if req.MaxOutputTokens > 0 {
		p.MaxOutputTokens = sdk.Int(int64(req.MaxOutputTokens))
	}
	return p, nil
}

// said is an assistant message as input: the vendor's own items where they
// still say what the message says, else items made of it.
func said(msg model.Message) []responses.ResponseInputItemUnionParam {
	var out []responses.ResponseInputItemUnionParam
	if items, ok := keptItems(msg); ok {
		for _, raw := range items {
			out = append(out, param.Override[responses.ResponseInputItemUnionParam](raw))
		}
		return out
	}
	if msg.Text != "" { // one that says nothing is left out
		out = append(out, responses.ResponseInputItemParamOfMessage(msg.Text, responses.EasyInputMessageRoleAssistant))
	}
	for _, c := range msg.Calls {
		out = append(out, responses.ResponseInputItemParamOfFunctionCall(c.Arguments, c.ID, c.Name))
	}
	return out
}

// kept is what Opaque holds: the items of a response, as they came.
type kept struct {
	Items []json.RawMessage `json:"openai.responses"`
}

// keptItems returns the items kept with msg, unless msg was changed since.
func keptItems(msg model.Message) ([]json.RawMessage, bool) {
	var k kept
	if len(msg.Opaque) == 0 || json.Unmarshal(msg.Opaque, &k) != nil || len(k.Items) == 0 {
		return nil, false
	}
	text, calls, _, err := readItems(k.Items)
	return k.Items, err == nil && text == msg.Text && slices.Equal(calls, msg.Calls)
}

// readItems returns what output items say, and whether that is a refusal.
func readItems(items []json.RawMessage) (text string, calls []model.ToolCall, refused bool, err error) {
	var b strings.Builder
	for _, raw := range items {
		var item struct {
			Type      string `json:"type"`
			CallID    string `json:"call_id"`
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
			Content   []struct {
				Type    string `json:"type"`
				Text    string `json:"text"`
				Refusal string `json:"refusal"`
			} `json:"content"`
		}
		if err := json.Unmarshal(raw, &item); err != nil {
			return "", nil, false, err
		}
		switch item.Type {
		case "message":
			for _, c := range item.Content {
				b.WriteString(c.Text)
				b.WriteString(c.Refusal)
				refused = refused || c.Type == "refusal"
			}
		case "function_call":
			calls = append(calls, model.ToolCall{ID: item.CallID, Name: item.Name, Arguments: item.Arguments})
		}
	}
	return b.String(), calls, refused, nil
}
