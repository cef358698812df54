package wrap

import (
	"encoding/json"
	"fmt"
)

// codex reads "codex exec --json". A turn in which the model declined ends well for
// it, only without a word.
type codex struct {
	lastError string
	failed    bool
	said      bool   // something in this turn
	ended     bool   // the turn ended well
	declined  string // the last call, when it was refused
}

type codexEvent struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
	Item struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Message  string `json:"message"`
		Command  string `json:"command"`
		ExitCode *int   `json:"exit_code"`
		Status   string `json:"status"`
		Tool     string `json:"tool"`
		Query    string `json:"query"`
		Changes  []struct {
			Path string `json:"path"`
			Kind string `json:"kind"`
		} `json:"changes"`
	} `json:"item"`
}

func (c *codex) event(line []byte, r *Reading) ([]Activity, bool) {
	var e codexEvent
	if json.Unmarshal(line, &e) != nil {
		return nil, false
	}
	switch e.Type {
	case "thread.started":
		return nil, true
	case "turn.started":
		r.Turns++
		r.Finished, c.failed, c.said, c.ended, c.declined = false, false, false, false, ""
		return nil, true
	case "turn.completed":
		c.ended, r.Finished = true, c.said && c.declined == ""
		return nil, true
	case "turn.failed":
		r.Finished, c.failed, c.lastError = false, true, e.Error.Message
		return told("error", e.Error.Message), true
	case "error": // also of an attempt that is made again
		c.lastError = e.Message
		return told("error", e.Message), true
	case "item.started", "item.updated", "item.completed":
		return c.item(e, r)
	}
	return nil, false
}

func (c *codex) item(e codexEvent, r *Reading) ([]Activity, bool) {
	begins, ends := e.Type == "item.started", e.Type == "item.completed"
	if begins {
		switch e.Item.Type {
		case "command_execution", "file_change", "mcp_tool_call", "collab_tool_call", "web_search":
			r.Tools++
			c.declined = ""
		}
	}
	if e.Item.Status == "declined" {
		c.declined = orElse(e.Item.Command, e.Item.Type)
	}
	switch e.Item.Type {
	case "agent_message":
		if !ends {
			return nil, true
		}
		r.Answer, c.said = e.Item.Text, true
		return told("text", e.Item.Text), true
	case "reasoning", "todo_list":
		return nil, true
	case "command_execution":
		switch {
		case begins:
			return told("tool", e.Item.Command), true
		case ends && e.Item.ExitCode != nil && *e.Item.ExitCode != 0:
			return told("result", fmt.Sprintf("exit code %d: %s", *e.Item.ExitCode, e.Item.Command)), true
		}
		return nil, true
	case "file_change":
		if !begins {
			return nil, true
		}
		var out []Activity
		for _, change := range e.Item.Changes {
			out = append(out, told("tool", change.Kind+" "+change.Path)...)
		}
		return out, true
	case "mcp_tool_call", "collab_tool_call":
		if begins {
			return told("tool", e.Item.Tool), true
		}
		return nil, true
	case "web_search":
		if begins {
			return told("tool", "search "+e.Item.Query), true
		}
		return nil, true
	case "error": // something to know, which ends nothing
		return told("error", e.Item.Message), true
	}
	return nil, false
}

func (c *codex) end(code int, stderr []string, r *Reading) {
	switch {
	case r.Finished:
		return
	case c.declined != "" && !c.failed:
		r.Failure = &Failure{Kind: NotAllowed, Message: "the last call was refused: " + c.declined}
		return
	case c.ended && !c.said:
		r.Failure = &Failure{Kind: Refusal, Message: "its turn ended without a word, which is how it ends when the model declines"}
		return
	case code == 0 && !c.failed:
		return
	}
	text := c.lastError
	if text == "" {
		text = lastWords(stderr)
	}
	if text == "" {
		return
	}
	message, vendor := vendorError(text)
	r.Failure = failure(0, message+" "+vendor)
	r.Failure.Message = message
}
