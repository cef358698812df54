package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/rein-sh/rein/model"
)

// geminiRequest is what is read of a request.
type geminiRequest struct {
	SystemInstruction geminiContent   `json:"systemInstruction"`
	Contents          []geminiContent `json:"contents"`
	GenerationConfig  struct {
		MaxOutputTokens int `json:"maxOutputTokens"`
	} `json:"generationConfig"`
	Tools []struct {
		FunctionDeclarations []struct {
			Name                 string          `json:"name"`
			Description          string          `json:"description"`
			ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
}

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

type geminiPart struct {
	Text             *string `json:"text"`
	Thought          bool    `json:"thought"`
	ThoughtSignature string  `json:"thoughtSignature"`
	FunctionCall     *struct {
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"functionCall"`
	FunctionResponse *struct {
		Name     string `json:"name"`
		Response object `json:"response"`
	} `json:"functionResponse"`
}

// read refuses what Google refuses: turns that do not answer all calls of the
// one before, calls after anything but the user's side, empty contents.
func (gemini) read(r *http.Request, body []byte) (*ask, *refusal) {
	name, method, _ := strings.Cut(r.PathValue("call"), ":")
	if method != "generateContent" && method != "streamGenerateContent" {
		return nil, &refusal{kind: model.KindNotFound, message: "there is no method " + method + " of models here"}
	}
	if method == "streamGenerateContent" && r.URL.Query().Get("alt") != "sse" {
		return nil, invalid("only alt=sse streams here")
	}
	var in geminiRequest
	if bad := decode(body, &in); bad != nil {
		return nil, bad
	}
	if len(in.Contents) == 0 {
		return nil, invalid("* GenerateContentRequest.contents: contents is not specified")
	}
	a := &ask{req: &model.Request{MaxOutputTokens: in.GenerationConfig.MaxOutputTokens}, model: name,
		stream: method == "streamGenerateContent", usage: true, signs: true, proofs: map[int]string{}}
	for _, p := range in.SystemInstruction.Parts {
		a.req.System += p.text()
	}
	g := geminiReader{ask: a}
	for i, c := range in.Contents {
		if bad := g.add(c, i); bad != nil {
			return nil, bad
		}
	}
	if len(g.open) > 0 {
		return nil, g.unequal()
	}
	for _, t := range in.Tools {
		for _, d := range t.FunctionDeclarations {
			a.req.Tools = append(a.req.Tools, model.ToolDef{Name: d.Name, Description: d.Description, Schema: d.ParametersJSONSchema})
		}
	}
	return a, nil
}

func (p geminiPart) text() string {
	if p.Text == nil {
		return ""
	}
	return *p.Text
}

// geminiReader puts contents into messages.
type geminiReader struct {
	*ask
	open []model.ToolCall // those the next content must answer
	turn int              // replies so far
}

func (g *geminiReader) unequal() *refusal {
	return invalid("Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.")
}

func (g *geminiReader) add(c geminiContent, i int) *refusal {
	if len(c.Parts) == 0 {
		return invalid("* GenerateContentRequest.contents[%d].parts: contents.parts must not be empty.", i)
	}
	for _, p := range c.Parts {
		if p.Text == nil && p.FunctionCall == nil && p.FunctionResponse == nil {
			return invalid("* GenerateContentRequest.contents[%d].parts: data must have one initialized field", i)
		}
	}
	switch c.Role {
	case "user", "":
		return g.user(c, i)
	case "model":
		return g.model(c, i)
	}
	return invalid("Please use a valid role: user, model.")
}

func (g *geminiReader) user(c geminiContent, i int) *refusal {
	answers := 0
	for _, p := range c.Parts {
		f := p.FunctionResponse
		switch {
		case f == nil:
			g.req.Messages = append(g.req.Messages, model.Message{Role: model.RoleUser, Text: p.text()})
			continue
		case answers >= len(g.open):
			return g.unequal()
		case f.Name != g.open[answers].Name || f.Response == nil:
			return invalid("* GenerateContentRequest.contents[%d].parts: function_response %q does not answer function_call %q", i, f.Name, g.open[answers].Name)
		}
		r := model.ToolResult{ID: g.open[answers].ID, Name: f.Name}
		answers++
		if text, ok := f.Response["output"].(string); ok {
			r.Content = text
		} else if text, ok := f.Response["error"].(string); ok {
			r.Content, r.IsError = text, true
		} else {
			data, _ := json.Marshal(f.Response) // came as JSON
			r.Content = string(data)
		}
		g.req.Messages = addResult(g.req.Messages, r)
	}
	if answers != len(g.open) {
		return g.unequal()
	}
	g.open = nil
	return nil
}

func (g *geminiReader) model(c geminiContent, i int) *refusal {
	if len(g.open) > 0 {
		return g.unequal()
	}
	out := model.Message{Role: model.RoleAssistant}
	g.turn++
	for _, p := range c.Parts {
		if p.ThoughtSignature != "" {
			g.proofs[len(g.req.Messages)] = p.ThoughtSignature
		}
		f := p.FunctionCall
		switch {
		case f != nil:
			call := model.ToolCall{ID: fmt.Sprintf("call_%d_%d", g.turn, len(out.Calls)+1), Name: f.Name, Arguments: string(f.Args)}
			if len(f.Args) == 0 {
				call.Arguments = "{}"
			}
			out.Calls = append(out.Calls, call)
			g.open = append(g.open, call)
		case !p.Thought:
			out.Text += p.text()
		}
	}
	if n := len(g.req.Messages); len(out.Calls) > 0 && (n == 0 || g.req.Messages[n-1].Role == model.RoleAssistant) {
		return invalid("Please ensure that function call turn comes immediately after a user turn or after a function response turn. (contents[%d])", i)
	}
	g.req.Messages = append(g.req.Messages, out)
	return nil
}
