package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/script"
)

// chat answers POST /v1/chat/completions, as described at
// platform.openai.com/docs/api-reference/chat.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	body, ok := s.body(w, r)
	if !ok {
		return
	}
	var in chatRequest
	if err := json.Unmarshal(body, &in); err != nil {
		refuse(w, invalid("The body is not JSON of the protocol: %s", err), 0)
		return
	}
	req, bad := in.request()
	if bad != nil {
		refuse(w, *bad, 0)
		return
	}
	turn, err := s.player.Next(req)
	if err != nil {
		refuse(w, failed(err), 0)
		return
	}
	if f := turn.Fault; f != nil {
		if kind, ok := f.Refusal(); ok {
			refuse(w, refusals[kind], f.RetryAfter)
			return
		}
	}
	a := answer{reply: turn.Reply, model: in.Model, created: time.Now().Unix()}
	if in.Stream {
		events, content := a.events(in.StreamOptions.IncludeUsage)
		s.stream(w, r, events, content, turn.Fault)
	} else {
		s.whole(w, r, a.whole(), turn.Fault)
	}
}

// answer is a reply on its way into the protocol.
type answer struct {
	reply   *model.Reply
	model   string
	created int64
}

type object = map[string]any

// events returns the data of the stream's events before "[DONE]"; the first
// content of them, in number, come before the finish reason.
func (a answer) events(usage bool) (events []object, content int) {
	add := func(delta object, finish any) {
		events = append(events, object{
			"id": a.reply.ID, "object": "chat.completion.chunk", "created": a.created, "model": a.model,
			"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}},
		})
	}
	add(object{"role": "assistant", "content": ""}, nil)
	field := "content"
	if a.reply.Stop == model.StopRefusal {
		field = "refusal"
	}
	for _, piece := range script.Pieces(a.reply.Message.Text) {
		add(object{field: piece}, nil)
	}
	for i, c := range a.reply.Message.Calls {
		add(object{"tool_calls": []object{{
			"index": i, "id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": ""},
		}}}, nil)
		for _, piece := range script.Pieces(c.Arguments) {
			add(object{"tool_calls": []object{{"index": i, "function": object{"arguments": piece}}}}, nil)
		}
	}
	content = len(events)
	add(object{}, a.finish())
	if usage && a.reply.Usage.Known {
		events = append(events, object{
			"id": a.reply.ID, "object": "chat.completion.chunk", "created": a.created, "model": a.model,
			"choices": []object{}, "usage": a.usage(),
		})
	}
	return events, content
}

func (a answer) whole() object {
	m := object{"role": "assistant", "content": a.reply.Message.Text, "refusal": nil}
	if a.reply.Stop == model.StopRefusal {
		m["content"], m["refusal"] = nil, a.reply.Message.Text
	}
	var calls []object
	for _, c := range a.reply.Message.Calls {
		calls = append(calls, object{"id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": c.Arguments}})
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	out := object{
		"id": a.reply.ID, "object": "chat.completion", "created": a.created, "model": a.model,
		"choices": []object{{"index": 0, "message": m, "finish_reason": a.finish()}},
	}
	if a.reply.Usage.Known {
		out["usage"] = a.usage()
	}
	return out
}

func (a answer) finish() string {
	switch a.reply.Stop {
	case model.StopToolCalls:
		return "tool_calls"
	case model.StopLength:
		return "length"
	}
	return "stop"
}

func (a answer) usage() object {
	u := a.reply.Usage
	return object{
		"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"prompt_tokens_details":     object{"cached_tokens": u.CachedInput},
		"completion_tokens_details": object{"reasoning_tokens": u.Reasoning},
	}
}

// stream sends server-sent events, spoilt by the fault.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, events []object, content int, f *script.Fault) {
	if f != nil && f.AtStart {
		switch f.Kind {
		case script.FaultCut:
			panic(http.ErrAbortHandler)
		case script.FaultStall:
			if !s.wait(r, f.For) {
				panic(http.ErrAbortHandler)
			}
			f = nil
		}
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	flush := http.NewResponseController(w).Flush
	at := -1 // where the fault is
	if f != nil {
		at = (content + 1) / 2
		if f.AtStart {
			at = 0
		}
	}
	for i, e := range events {
		if i == at && !s.spoil(w, r, f) {
			return
		}
		data, err := json.Marshal(e)
		if err != nil {
			panic(err) // made of strings and numbers
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil || flush() != nil {
			return // the client is gone
		}
	}
	_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
}

// spoil does the fault in a stream and reports whether the stream goes on.
func (s *Server) spoil(w http.ResponseWriter, r *http.Request, f *script.Fault) bool {
	switch f.Kind {
	case script.FaultStall:
		if !s.wait(r, f.For) {
			panic(http.ErrAbortHandler)
		}
	case script.FaultCut:
		if f.Clean {
			return false
		}
		panic(http.ErrAbortHandler)
	case script.FaultGarbage:
		_, _ = fmt.Fprint(w, "data: {\"choices\":[{\"delta\":\n\n")
	}
	return true
}

// whole sends a reply in one piece, spoilt by the fault.
func (s *Server) whole(w http.ResponseWriter, r *http.Request, reply object, f *script.Fault) {
	if f == nil {
		writeJSON(w, http.StatusOK, reply)
		return
	}
	switch {
	case f.Kind == script.FaultStall:
		if !s.wait(r, f.For) {
			panic(http.ErrAbortHandler)
		}
		writeJSON(w, http.StatusOK, reply)
	case f.Kind == script.FaultCut && f.AtStart:
		panic(http.ErrAbortHandler)
	default: // half a reply; the connection ends with it unless that is clean
		data, err := json.Marshal(reply)
		if err != nil {
			panic(err) // made of strings and numbers
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data[:len(data)/2])
		if f.Kind == script.FaultCut && !f.Clean {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}
