package script

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/rein-sh/rein/model"
)

// maxServed bounds how many places in conversations a player remembers faults
// for; the oldest are forgotten.
const maxServed = 4096

// Player answers requests from a script. Safe for concurrent use.
//
// Conversations that are equal to the byte share the count of faults served.
type Player struct {
	script *Script

	mu     sync.Mutex
	served map[[32]byte]int
	order  [][32]byte // of served, oldest first
}

// Play returns a player that has served no faults yet.
func (s *Script) Play() *Player {
	return &Player{script: s, served: map[[32]byte]int{}}
}

// Next decides the answer to req. A failed expectation, a value that is not
// there and a conversation that is not this script's are *model.Error of
// KindInvalid with the code CodeFailed; asking again does not help.
//
// A request without tools asks for a closing word: nothing is checked, and
// the answer is the script's "final" text unless the next step is only text.
func (p *Player) Next(req *model.Request) (*Turn, error) {
	s := p.script
	st, at, err := s.follow(req.Messages)
	if len(req.Tools) == 0 && (err != nil || at >= len(s.steps) || len(s.steps[at].calls) > 0) {
		return s.closing(req)
	}
	if err != nil {
		return nil, err
	}
	var fault *Fault
	for hops := 0; ; hops++ {
		if at >= len(s.steps) {
			return nil, s.failed(s.steps[len(s.steps)-1].pos, "the script is over, but the model was asked again; its last step is %q", s.steps[len(s.steps)-1].name)
		}
		t := s.steps[at]
		n := 0
		if len(t.faults) > 0 || t.droppable() {
			n = p.count(at, req, len(t.faults)+2)
		}
		if n < len(t.faults) {
			fault = &t.faults[n]
			break
		}
		if n == len(t.faults) || !t.droppable() || hops > len(s.steps) {
			break
		}
		if at, err = s.after(st, at); err != nil {
			return nil, err
		}
	}
	reply, err := s.reply(st, s.steps[at], req)
	if err != nil {
		return nil, err
	}
	return &Turn{Step: s.steps[at].name, Reply: reply, Fault: fault}, nil
}

// count returns how often it was called before for this place in this
// conversation, counting to most. What the user said since the last reply does
// not make it another place: an agent may answer an empty reply with a word of
// its own instead of asking the same again.
func (p *Player) count(at int, req *model.Request, most int) int {
	h := sha256.New()
	enc := json.NewEncoder(h)
	// Encoding these to a hash cannot fail: strings and valid or absent JSON.
	_ = enc.Encode([]any{at, req.System})
	end := len(req.Messages)
	for end > 1 && req.Messages[end-1].Role == model.RoleUser {
		end--
	}
	for _, m := range req.Messages[:end] {
		m.Opaque = nil
		_ = enc.Encode(m)
	}
	key := [32]byte(h.Sum(nil))

	p.mu.Lock()
	defer p.mu.Unlock()
	n, known := p.served[key]
	if !known {
		if len(p.order) == maxServed {
			delete(p.served, p.order[0])
			p.order = p.order[1:]
		}
		p.order = append(p.order, key)
	}
	p.served[key] = min(n+1, most)
	return n
}

func (s *Script) closing(req *model.Request) (*Turn, error) {
	task, exs := s.exchanges(req.Messages)
	st := &state{task: task, turn: len(exs) + 1}
	reply, err := s.reply(st, &step{name: "final", text: s.final}, req)
	if err != nil {
		return nil, err
	}
	return &Turn{Step: "final", Reply: reply}, nil
}

func (s *Script) reply(st *state, t *step, req *model.Request) (*model.Reply, error) {
	body, err := t.text.string(st)
	if err != nil {
		return nil, s.failed(t.pos, "step %q: %s", t.name, err)
	}
	r := &model.Reply{
		Message: model.Message{Role: model.RoleAssistant, Text: body},
		Stop:    model.StopEnd, Model: s.name, ID: fmt.Sprintf("script-%d", st.turn),
	}
	for i, c := range t.calls {
		args, err := c.args(st)
		if err != nil {
			return nil, s.failed(c.pos, "step %q, %s: %s", t.name, c.title(i), err)
		}
		r.Message.Calls = append(r.Message.Calls, model.ToolCall{
			ID: fmt.Sprintf("call_%d_%d", st.turn, i+1), Name: c.tool, Arguments: args,
		})
		r.Stop = model.StopToolCalls
	}
	if t.stop != "" {
		r.Stop = t.stop
	}
	if n := len(r.Message.Calls); n > 0 && r.Stop == model.StopLength {
		last := &r.Message.Calls[n-1].Arguments
		*last = strings.ToValidUTF8((*last)[:len(*last)/2], "")
	}
	if t.usage != nil {
		r.Usage = *t.usage
	} else {
		r.Usage = estimate(req, r)
	}
	return r, nil
}

func (c *call) args(st *state) (string, error) {
	if c.raw != nil {
		return c.raw.string(st)
	}
	v, err := expand(c.arguments, st)
	if err != nil {
		return "", err
	}
	args := compactJSON(v)
	if len(args) > maxValue {
		return "", fmt.Errorf("the arguments grow over %d bytes", maxValue)
	}
	return args, nil
}

// estimate counts a token for every four bytes, as is common for English.
func estimate(req *model.Request, r *model.Reply) model.Usage {
	in := len(req.System)
	for _, m := range req.Messages {
		in += messageSize(m)
	}
	for _, t := range req.Tools {
		in += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	return model.Usage{Known: true, Input: int64(in+3) / 4, Output: int64(messageSize(r.Message)+3) / 4}
}

func messageSize(m model.Message) int {
	n := len(m.Text)
	for _, c := range m.Calls {
		n += len(c.Name) + len(c.Arguments)
	}
	for _, r := range m.Results {
		n += len(r.Content)
	}
	return n
}

// Pieces cuts text as a stream delivers it: at most 64 pieces of 8 bytes or
// more, never within a character.
func Pieces(s string) []string {
	var out []string
	size := max(8, (len(s)+63)/64)
	for len(s) > size {
		n := size
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n++
		}
		out = append(out, s[:n])
		s = s[n:]
	}
	if s != "" {
		out = append(out, s)
	}
	return out
}
