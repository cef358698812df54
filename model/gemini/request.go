package gemini

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"google.golang.org/genai"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
)

// params translates a request.
func (m *Model) params(req *model.Request) ([]*genai.Content, *genai.GenerateContentConfig, error) {
	config := &genai.GenerateContentConfig{
		MaxOutputTokens:       int32(min(max(req.MaxOutputTokens, 0), math.MaxInt32)),
		AutomaticContinuation: new(bool), // the SDK would send further requests
		HTTPOptions:           &genai.HTTPOptions{ExtrasRequestProvider: nameEmptyTexts},
	}
	if req.System != "" {
		config.SystemInstruction = &genai.Content{Parts: []*genai.Part{{Text: req.System}}}
	}
	if m.opts.Effort != "" && m.opts.Effort != EffortOff {
		config.ThinkingConfig = &genai.ThinkingConfig{
			IncludeThoughts: true, ThinkingLevel: genai.ThinkingLevel(strings.ToUpper(m.opts.Effort)),
		}
	}
	var declared []*genai.FunctionDeclaration
	for _, t := range req.Tools {
		d := &genai.FunctionDeclaration{Name: t.Name, Description: t.Description}
		if len(t.Schema) > 0 {
			var schema map[string]any
			if err := json.Unmarshal(t.Schema, &schema); err != nil {
				return nil, nil, fmt.Errorf("the schema of tool %q is not a JSON object: %w", t.Name, err)
			}
			d.ParametersJsonSchema = schema
		}
		declared = append(declared, d)
	}
	if declared != nil {
		config.Tools = []*genai.Tool{{FunctionDeclarations: declared}}
	}
	contents, err := contents(req.Messages)
	return contents, config, err
}

func contents(in []model.Message) ([]*genai.Content, error) {
	var out []*genai.Content
	add := func(role string, parts []*genai.Part) {
		if len(parts) > 0 { // one without parts is refused
			out = append(out, &genai.Content{Role: role, Parts: parts})
		}
	}
	var asked model.Message
	for i, msg := range in {
		switch msg.Role {
		case model.RoleUser:
			if msg.Text != "" {
				add(genai.RoleUser, []*genai.Part{{Text: msg.Text}})
			}
		case model.RoleAssistant:
			asked = msg
			add(genai.RoleModel, said(msg))
		case model.RoleTool:
			add(genai.RoleUser, results(asked, msg.Results))
		default:
			return nil, fmt.Errorf("message %d has the unknown role %q", i+1, msg.Role)
		}
	}
	return out, nil
}

// said is an assistant message: part by part as it came where that is known
// and it was not changed since, each with its signature.
func said(msg model.Message) []*genai.Part {
	var out []*genai.Part
	rest := msg.Text
	for _, k := range order(msg) {
		p := &genai.Part{ThoughtSignature: k.Signature, Thought: k.Thought}
		if k.Call != nil {
			c := msg.Calls[*k.Call]
			p.FunctionCall = &genai.FunctionCall{Name: c.Name, Args: arguments(c.Arguments)}
			if k.Named {
				p.FunctionCall.ID = c.ID
			}
		} else {
			p.Text, rest = rest[:k.Text], rest[k.Text:]
		}
		if p.Text != "" || p.FunctionCall != nil || p.ThoughtSignature != nil {
			out = append(out, p)
		}
	}
	return out
}

// nameEmptyTexts puts the text back into parts that are a signature and an empty
// text: the SDK leaves that out, and Google refuses parts of nothing.
func nameEmptyTexts(body map[string]any) map[string]any {
	contents, _ := body["contents"].([]map[string]any)
	for _, c := range contents {
		parts, _ := c["parts"].([]map[string]any)
		for _, p := range parts {
			if p["thoughtSignature"] != nil && p["functionCall"] == nil && p["text"] == nil {
				p["text"] = ""
			}
		}
	}
	return body
}

func arguments(s string) map[string]any {
	var args map[string]any
	if err := json.Unmarshal([]byte(s), &args); err != nil || args == nil {
		return map[string]any{"INVALID_JSON": s}
	}
	return args
}

// results answers the calls of asked. The vendor finds the call by the id it
// gave; where it gave none, by name and order.
func results(asked model.Message, in []model.ToolResult) []*genai.Part {
	named := map[string]bool{}
	for _, k := range order(asked) {
		if k.Call != nil && k.Named {
			named[asked.Calls[*k.Call].ID] = true
		}
	}
	names := map[string]string{}
	for _, c := range asked.Calls {
		names[c.ID] = c.Name
	}
	var out []*genai.Part
	for _, r := range in {
		f := &genai.FunctionResponse{Name: r.Name, Response: map[string]any{"output": r.Content}}
		if n := names[r.ID]; n != "" {
			f.Name = n
		}
		if r.IsError {
			f.Response = map[string]any{"error": r.Content}
		}
		if named[r.ID] {
			f.ID = r.ID
		}
		out = append(out, &genai.Part{FunctionResponse: f})
	}
	return out
}

// part says which part of a reply comes next. The zero value is no text.
type part struct {
	wire.Piece
	Named     bool   `json:"named,omitempty"`     // the call's id is the vendor's
	Thought   bool   `json:"thought,omitempty"`   // a thought's, whose words are not kept
	Signature []byte `json:"signature,omitempty"` // of what was thought before it
}

// kept is what Opaque holds.
type kept struct {
	Parts []part `json:"gemini"`
}

// order returns the parts of msg as Opaque has them. Where it has none, or
// another text and other calls than msg, they are what msg says.
func order(msg model.Message) []part {
	var k kept
	if len(msg.Opaque) > 0 {
		_ = json.Unmarshal(msg.Opaque, &k) // another vendor's is nothing to us
	}
	var all wire.Check
	for _, p := range k.Parts {
		all.Add(p.Piece)
	}
	if all.Makes(msg) {
		return k.Parts
	}
	var out []part
	for _, p := range wire.Pieces(msg) {
		out = append(out, part{Piece: p})
	}
	return out
}
