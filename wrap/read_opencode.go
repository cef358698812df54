package wrap

import (
	"encoding/json"
	"strings"
)

// opencode reads "opencode run --format json". No event of its own says that it is
// done: a step that ended with the reason "stop" is the last of a turn.
type opencode struct {
	texts  map[string]string // of the step that is under way, by part
	order  []string
	fail   *Failure
	denied string // the last call, when it was refused
	reason string // why the last step ended
}

type opencodeEvent struct {
	Type string `json:"type"`
	Part struct {
		ID     string `json:"id"`
		Text   string `json:"text"`
		Reason string `json:"reason"`
		Tool   string `json:"tool"`
		State  struct {
			Status string          `json:"status"`
			Input  json.RawMessage `json:"input"`
			Error  string          `json:"error"`
		} `json:"state"`
	} `json:"part"`
	Error struct {
		Name string `json:"name"`
		Data struct {
			Message string `json:"message"`
			Status  int    `json:"statusCode"`
			Body    string `json:"responseBody"`
		} `json:"data"`
	} `json:"error"`
}

func (o *opencode) event(line []byte, r *Reading) ([]Activity, bool) {
	var e opencodeEvent
	if json.Unmarshal(line, &e) != nil {
		return nil, false
	}
	switch e.Type {
	case "step_start":
		r.Turns++
		r.Finished, o.reason = false, ""
		o.texts, o.order = map[string]string{}, nil
		return nil, true
	case "reasoning":
		return nil, true
	case "text":
		if o.texts == nil {
			o.texts = map[string]string{}
		}
		if _, seen := o.texts[e.Part.ID]; !seen {
			o.order = append(o.order, e.Part.ID)
		}
		o.texts[e.Part.ID] = e.Part.Text
		return told("text", e.Part.Text), true
	case "tool_use":
		r.Tools++
		o.denied = ""
		out := told("tool", e.Part.Tool+" "+argument(e.Part.State.Input))
		if e.Part.State.Status == "error" {
			if text := strings.ToLower(e.Part.State.Error); strings.Contains(text, "rejected permission") || strings.Contains(text, "prevents you from using") {
				o.denied = e.Part.State.Error
			}
			out = append(out, told("result", "the call failed: "+e.Part.State.Error)...)
		}
		return out, true
	case "step_finish":
		o.reason = e.Part.Reason
		r.Finished = o.reason == "stop"
		var said []string
		for _, id := range o.order {
			said = append(said, o.texts[id])
		}
		r.Answer = strings.Join(said, "\n")
		return nil, true
	case "error":
		text := orElse(e.Error.Data.Message, e.Error.Name)
		_, code := vendorError(e.Error.Data.Body)
		f := failure(e.Error.Data.Status, text+" "+code+" "+e.Error.Name)
		f.Message = text
		o.fail = f
		return told("error", text), true
	}
	return nil, false
}

func (o *opencode) end(code int, stderr []string, r *Reading) {
	switch {
	case o.fail != nil:
		r.Failure, r.Finished = o.fail, false
	case o.denied != "":
		r.Failure, r.Finished = &Failure{Kind: NotAllowed, Message: "the last call was refused: " + o.denied}, false
	case r.Finished:
	case o.reason == "content-filter":
		r.Failure = &Failure{Kind: Refusal, Message: orElse(r.Answer, "the model declined")}
	case o.reason == "length":
		r.Failure = &Failure{Kind: Other, Message: "the model's answer was cut at its longest"}
	case code != 0:
		if text := lastWords(stderr); text != "" {
			r.Failure = failure(0, text)
		}
	}
	if !r.Finished {
		r.Answer = ""
	}
}
