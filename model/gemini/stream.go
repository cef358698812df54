package gemini

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/genai"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
)

// maxParts bounds the parts of one reply.
const maxParts = 4096

// accumulator makes a reply of a stream's chunks, which are described at
// ai.google.dev/api/generate-content.
type accumulator struct {
	emit func(model.Delta)
	link *wire.Link
	turn int

	id, answered string
	text         strings.Builder
	calls        []model.ToolCall
	parts        []part
	keep         bool // the parts tell more than text and calls do
	stop         genai.FinishReason
	blocked      genai.BlockedReason
	usage        model.Usage
}

func (a *accumulator) add(chunk *genai.GenerateContentResponse) error {
	if a.id == "" {
		a.id = chunk.ResponseID
	}
	if a.answered == "" {
		a.answered = chunk.ModelVersion
	}
	if u := chunk.UsageMetadata; u != nil {
		a.usage = wire.Usage(int64(u.PromptTokenCount)+int64(u.ToolUsePromptTokenCount), int64(u.CachedContentTokenCount),
			int64(u.CandidatesTokenCount)+int64(u.ThoughtsTokenCount), int64(u.ThoughtsTokenCount))
	}
	if f := chunk.PromptFeedback; f != nil && f.BlockReason != "" {
		a.blocked = f.BlockReason
	}
	for _, c := range chunk.Candidates {
		if c == nil || c.Index != 0 { // only one was asked for
			continue
		}
		if c.Content != nil {
			for _, p := range c.Content.Parts {
				if err := a.addPart(p); err != nil {
					return err
				}
			}
		}
		if c.FinishReason != "" && c.FinishReason != genai.FinishReasonUnspecified {
			a.stop = c.FinishReason
		}
	}
	return nil
}

func (a *accumulator) addPart(p *genai.Part) error {
	switch {
	case p == nil:
		return nil
	case len(a.parts) == maxParts:
		return a.link.Errorf("it has more than %d parts", maxParts)
	case p.FunctionCall != nil:
		return a.addCall(p)
	case p.Thought:
		if p.Text != "" {
			a.emit(model.Delta{Reasoning: p.Text})
		}
		if len(p.ThoughtSignature) == 0 {
			return nil // a summary, which need not be returned
		}
	case p.Text != "":
		a.text.WriteString(p.Text)
		a.emit(model.Delta{Text: p.Text})
	}
	said := part{Signature: p.ThoughtSignature, Thought: p.Thought}
	if !p.Thought {
		said.Text = len(p.Text)
	}
	switch n := len(a.parts); {
	case len(said.Signature) > 0: // never joined with what has none, or another
		a.keep = true
		a.parts = append(a.parts, said)
	case said.Text == 0:
	case n > 0 && a.parts[n-1].Call == nil && len(a.parts[n-1].Signature) == 0:
		a.parts[n-1].Text += said.Text
	default:
		a.parts = append(a.parts, said)
	}
	return nil
}

func (a *accumulator) addCall(p *genai.Part) error {
	f := p.FunctionCall
	args := f.Args
	if args == nil {
		args = map[string]any{}
	}
	data, err := json.Marshal(args)
	if err != nil {
		return a.link.Errorf("the arguments of tool call %d are no JSON", len(a.calls)+1)
	}
	if f.Name != "" {
		a.emit(model.Delta{CallName: f.Name})
	}
	i := len(a.calls)
	a.calls = append(a.calls, model.ToolCall{ID: f.ID, Name: f.Name, Arguments: string(data)})
	a.parts = append(a.parts, part{Piece: wire.Piece{Call: &i}, Named: f.ID != "", Signature: p.ThoughtSignature})
	a.keep = a.keep || f.ID != "" || len(p.ThoughtSignature) > 0
	return nil
}

// finish returns the reply, if the stream told how it ended.
func (a *accumulator) finish() (*model.Reply, error) {
	r := &model.Reply{
		Message: model.Message{Role: model.RoleAssistant, Text: a.text.String(), Calls: a.calls},
		Usage:   a.usage, Model: a.answered, ID: a.id,
	}
	switch a.stop {
	case "":
		if a.blocked == "" {
			return nil, a.link.Cut()
		}
		r.Stop = model.StopRefusal
		if r.Message.Text == "" {
			r.Message.Text = fmt.Sprintf("the prompt was blocked (%s)", a.blocked)
		}
		return r, nil
	case genai.FinishReasonMalformedFunctionCall, genai.FinishReasonUnexpectedToolCall, genai.FinishReasonTooManyToolCalls:
		return nil, &model.Error{Kind: model.KindCut, Model: a.link.Name(), Code: string(a.stop),
			Message: fmt.Sprintf("the model wrote a tool call that could not be read (%s)", a.stop)}
	case genai.FinishReasonStop:
		r.Stop = model.StopEnd
		if len(a.calls) > 0 {
			r.Stop = model.StopToolCalls
		}
	case genai.FinishReasonMaxTokens:
		r.Stop = model.StopLength
	case genai.FinishReasonSafety, genai.FinishReasonRecitation, genai.FinishReasonLanguage, genai.FinishReasonBlocklist,
		genai.FinishReasonProhibitedContent, genai.FinishReasonSPII, genai.FinishReasonImageSafety,
		genai.FinishReasonImageProhibitedContent, genai.FinishReasonImageRecitation:
		r.Stop = model.StopRefusal
		if r.Message.Text == "" {
			r.Message.Text = fmt.Sprintf("the reply was withheld (%s)", a.stop)
		}
	}
	if r.Stop == model.StopRefusal { // what it would have called is not called
		r.Message.Calls = nil
		return r, nil
	}
	given := make([]string, len(a.calls))
	for i, c := range a.calls {
		given[i] = c.ID
	}
	if err := a.link.Identify(a.turn, a.calls); err != nil {
		return nil, err
	}
	if a.keep {
		for i := range a.parts {
			if p := &a.parts[i]; p.Call != nil {
				p.Named = p.Named && given[*p.Call] == a.calls[*p.Call].ID
			}
		}
		var err error
		if r.Message.Opaque, err = json.Marshal(kept{a.parts}); err != nil {
			return nil, a.link.Errorf("its signatures cannot be kept: %s", err)
		}
	}
	return r, nil
}
