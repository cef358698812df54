package wrap

import (
	"encoding/json"
	"fmt"
	"strings"
)

// claude reads "claude -p --output-format stream-json --verbose", and Qwen Code,
// which writes the same and tells of an error of the model's API as a result that is
// a success and has exit code 0.
type claude struct {
	apiErrors bool // a result may be an error's text

	ended  bool            // the result was read
	denied map[string]bool // ids of calls that were refused
	last   string          // the id of the last call
	lastOK bool            // it had a result that is no error
	words  string          // the last error that was told of before a result
	status int             // of the answer that it was
}

type claudeEvent struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
	Message struct {
		Content claudeContent `json:"content"`
	} `json:"message"`
	ParentToolUseID string `json:"parent_tool_use_id"`

	IsError     bool            `json:"is_error"`
	Status      int             `json:"api_error_status"`
	Result      string          `json:"result"`
	StopReason  string          `json:"stop_reason"`
	Turns       int             `json:"num_turns"`
	Errors      []string        `json:"errors"`
	Error       json.RawMessage `json:"error"`
	ErrorStatus int             `json:"error_status"`
	Denials     []struct {
		Name string `json:"tool_name"`
		ID   string `json:"tool_use_id"`
	} `json:"permission_denials"`
}

// claudeContent is a list of blocks, or a text.
type claudeContent []claudeBlock

type claudeBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	IsError   bool            `json:"is_error"`
}

func (c *claudeContent) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] != '[' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		*c = claudeContent{{Type: "text", Text: text}}
		return nil
	}
	return json.Unmarshal(data, (*[]claudeBlock)(c))
}

func (c *claude) event(line []byte, r *Reading) ([]Activity, bool) {
	var e claudeEvent
	if json.Unmarshal(line, &e) != nil {
		return nil, false
	}
	switch e.Type {
	case "system":
		if e.Subtype == "api_retry" {
			c.status = e.ErrorStatus
			c.words = fmt.Sprintf("the model's API answered with status %d: %s", e.ErrorStatus, strings.Trim(string(e.Error), `"`))
			return told("error", c.words), true
		}
		return nil, true
	case "stream_event", "rate_limit_event", "tool_progress", "tool_use_summary", "auth_status", "prompt_suggestion", "keep_alive":
		return nil, true
	case "assistant":
		return c.assistant(e, r), true
	case "user":
		return c.user(e), true
	case "result":
		c.result(e, r)
		return nil, true
	}
	return nil, false
}

func (c *claude) assistant(e claudeEvent, r *Reading) []Activity {
	var out []Activity
	for _, b := range e.Message.Content {
		switch b.Type {
		case "text":
			out = append(out, told("text", b.Text)...)
		case "tool_use":
			r.Tools++
			if e.ParentToolUseID == "" {
				c.last, c.lastOK = b.ID, false
			}
			out = append(out, told("tool", b.Name+" "+argument(b.Input))...)
		}
	}
	return out
}

func (c *claude) user(e claudeEvent) []Activity {
	var out []Activity
	for _, b := range e.Message.Content {
		if b.Type != "tool_result" {
			continue
		}
		if b.ToolUseID == c.last {
			c.lastOK = !b.IsError
		}
		if b.IsError {
			out = append(out, told("result", "the call failed")...)
		}
	}
	return out
}

// argument is what is shown of a call: the command or the path, where there is one.
func argument(input json.RawMessage) string {
	var fields map[string]any
	if json.Unmarshal(input, &fields) != nil {
		return ""
	}
	for _, name := range []string{"command", "file_path", "filePath", "absolute_path", "path", "pattern", "query", "url", "description"} {
		if text, ok := fields[name].(string); ok {
			return text
		}
	}
	return ""
}

func (c *claude) result(e claudeEvent, r *Reading) {
	c.ended = true
	r.Turns, r.Finished, r.Failure = e.Turns, false, nil
	c.denied = map[string]bool{}
	for _, d := range e.Denials {
		c.denied[d.ID] = true
	}
	text := e.Result
	if text == "" {
		text = strings.Join(e.Errors, "; ")
	}
	var own struct {
		Message string `json:"message"`
	}
	if text == "" && json.Unmarshal(e.Error, &own) == nil {
		text = own.Message
	}
	switch {
	case e.StopReason == "refusal":
		r.Failure = &Failure{Kind: Refusal, Message: text}
	case e.Subtype == "error_max_turns":
		r.Failure = &Failure{Kind: OutOfTurns, Message: orElse(text, "the limit of turns was reached")}
	case strings.HasPrefix(e.Subtype, "error_max_budget"):
		r.Failure = &Failure{Kind: Spent, Message: orElse(text, "its own limit of money was reached")}
	case e.IsError || e.Subtype != "success":
		r.Failure = failure(e.Status, orElse(text, c.words))
	case c.apiErrors && strings.HasPrefix(text, "[API Error"):
		r.Failure = failure(status(text), text)
	case c.denied[c.last] && !c.lastOK:
		r.Failure = &Failure{Kind: NotAllowed, Message: "the last call was refused: " + text}
	case strings.TrimSpace(text) == "" && e.StopReason != "" && e.StopReason != "end_turn" && e.StopReason != "stop_sequence":
		r.Failure = &Failure{Kind: Other, Message: "it ended without an answer: " + e.StopReason}
	default:
		r.Finished, r.Answer = true, text
	}
}

func orElse(text, other string) string {
	if strings.TrimSpace(text) == "" {
		return other
	}
	return text
}

// status is the status in an error such as "[API Error: 403 …]", 0 when it has none.
func status(text string) int {
	var n int
	if _, err := fmt.Sscanf(strings.TrimPrefix(text, "[API Error: "), "%3d", &n); err != nil || n < 100 {
		return 0
	}
	return n
}

func (c *claude) end(code int, stderr []string, r *Reading) {
	if c.ended || code == 0 {
		return
	}
	switch text := lastWords(stderr); {
	case c.words != "":
		r.Failure = failure(c.status, c.words)
	case text != "":
		r.Failure = failure(0, text)
	}
}
