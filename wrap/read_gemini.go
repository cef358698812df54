package wrap

import (
	"encoding/json"
	"strings"
)

// geminiCLI reads "gemini --output-format stream-json".
type geminiCLI struct {
	answer strings.Builder // what was said since the last call
	ended  bool
	words  string // the last error that was told of
	denied string // the last call, when it was refused
}

type geminiEvent struct {
	Type       string          `json:"type"`
	Role       string          `json:"role"`
	Content    string          `json:"content"`
	ToolName   string          `json:"tool_name"`
	ToolID     string          `json:"tool_id"`
	Parameters json.RawMessage `json:"parameters"`
	Status     string          `json:"status"`
	Severity   string          `json:"severity"`
	Message    string          `json:"message"`
	Output     string          `json:"output"`
	Error      struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

func (g *geminiCLI) event(line []byte, r *Reading) ([]Activity, bool) {
	var e geminiEvent
	if json.Unmarshal(line, &e) != nil {
		return nil, false
	}
	switch e.Type {
	case "init":
		return nil, true
	case "message":
		if e.Role != "assistant" {
			return nil, true
		}
		if g.answer.Len() < maxSaid {
			g.answer.WriteString(e.Content) // it comes in small pieces
		}
		return nil, true
	case "tool_use":
		r.Tools++
		out := append(told("text", g.answer.String()), told("tool", e.ToolName+" "+argument(e.Parameters))...)
		g.answer.Reset()
		return out, true
	case "tool_result":
		g.denied = ""
		if e.Status != "error" {
			return nil, true
		}
		if refusedCall(e.Error.Type + " " + e.Error.Message + " " + e.Output) {
			g.denied = orElse(e.Error.Message, e.Output)
		}
		return told("result", "the call failed: "+orElse(e.Error.Message, e.Output)), true
	case "error":
		if e.Severity != "warning" {
			g.words = e.Message
		}
		return told("error", e.Message), true
	case "result":
		g.result(e, r)
		return told("text", g.answer.String()), true
	}
	return nil, false
}

// refusedCall reports whether a call was refused by the agent's own policy.
func refusedCall(text string) bool {
	text = strings.ToLower(text)
	for _, word := range []string{"tool_not_registered", "denied by policy", "policy_violation", "requires user confirmation", "requires confirmation", "not allowed in non-interactive", "execution denied", "permission denied by"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

func (g *geminiCLI) result(e geminiEvent, r *Reading) {
	g.ended = true
	r.Finished, r.Failure, r.Answer = false, nil, ""
	answer := strings.TrimSpace(g.answer.String())
	switch {
	case e.Status != "success":
		message, code := vendorError(orElse(e.Error.Message, g.words))
		r.Failure = failure(0, message+" "+code+" "+e.Error.Type)
		r.Failure.Message = message
	case g.words != "":
		r.Failure = failure(0, g.words)
	case g.denied != "":
		r.Failure = &Failure{Kind: NotAllowed, Message: "the last call was refused: " + g.denied}
	case answer == "":
		r.Failure = &Failure{Kind: Refusal, Message: "it ended without a word, which is how it ends when the model declines"}
	default:
		r.Finished, r.Answer = true, answer
	}
}

// geminiExits are exit codes that say why by themselves.
var geminiExits = map[int]FailureKind{41: BadKey, 53: OutOfTurns}

func (g *geminiCLI) end(code int, stderr []string, r *Reading) {
	kind, known := geminiExits[code]
	if g.ended {
		if known && r.Failure != nil && r.Failure.Kind == Other {
			r.Failure.Kind = kind
		}
		return
	}
	if code == 0 {
		return
	}
	text := orElse(g.words, lastWords(stderr))
	if text == "" && !known {
		return
	}
	r.Failure = failure(0, text)
	if known {
		r.Failure.Kind = kind
	}
}
