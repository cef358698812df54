package wrap

import (
	"encoding/json"
	"fmt"
)

// codex reads "codex exec --json".
type codex struct {
	lastError string
	failed    bool
	refused   string
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
		r.Finished, c.failed = false, false
		return nil, true
	case "turn.completed":
		r.Finished = true
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
	if begins || ends && e.Item.Type == "file_change" && e.Item.Status == "" {
		r.Tools++
	}
	switch e.Item.Type {
	case "agent_message":
		if !ends {
			return nil, true
		}
		r.Answer = e.Item.Text
		return told("text", e.Item.Text), true
	case "reasoning", "todo_list":
		if begins {
			r.Tools--
		}
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
		if begins {
			r.Tools--
		}
		return told("error", e.Item.Message), true
	}
	return nil, false
}

func (c *codex) end(code int, stderr []string, r *Reading) {
	if r.Finished || code == 0 && !c.failed {
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
