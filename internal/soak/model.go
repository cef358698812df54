package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/tool"
)

// Reply is how the model answers one request.
type Reply struct {
	What  string // in a word
	Delay time.Duration
	// Deaf models take their Delay although the request has been given up.
	Deaf  bool
	Text  string
	Calls []model.ToolCall
	Stop  model.StopReason
	Usage Usage
	Fail  error // instead of a reply
	Panic bool
	Flood int // pieces that are shown as they come
}

func (r Reply) String() string {
	s := fmt.Sprintf("%s after %s, stop %q, usage %d, %d bytes of text", r.What, r.Delay, r.Stop, r.Usage, len(r.Text))
	if r.Deaf {
		s += ", deaf"
	}
	if r.Fail != nil {
		s += ", fails: " + r.Fail.Error()
	}
	for _, c := range r.Calls {
		s += fmt.Sprintf("\n    %.20q %.30s %.150s", c.ID, c.Name, c.Arguments)
	}
	return s
}

// Usage says how a reply's cost is counted.
type Usage int

// The ways. Only the first two keep to the contract.
const (
	Honest  Usage = iota // a quarter of the bytes, never above the cap
	Missing              // the vendor said nothing
	Above                // more output than the cap allows
	Huge                 // near the largest number there is
	Negative
	Inflated // more input than was sent
)

// Model answers as a plan says, and keeps what it was asked.
type Model struct {
	Plan Plan

	mu      sync.Mutex
	Seen    []Seen
	session string // the newest that a request told of
}

// process is the model as one process has it: nothing reaches it, and nothing
// comes from it, once that was ended.
type process struct {
	*Model
	name   string
	dead   *atomic.Bool
	moment func() // is called before and after each request: the process may be ended there
}

// Name is that of one of the models.
func (p process) Name() string { return p.name }

func (p process) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	gone := &model.Error{Kind: model.KindUnknown, Model: p.Name(), Message: "the process was ended"}
	if p.moment(); p.dead.Load() {
		return nil, gone
	}
	reply, err := p.Model.generate(ctx, p.name, req, emit)
	if p.moment(); p.dead.Load() {
		return nil, gone
	}
	return reply, err
}

// Seen is one request, as it was, and what became of it.
type Seen struct {
	At, Over time.Time
	By       string // which model was asked
	Request  model.Request
	Reply    *model.Reply // nil: it failed
	Usage    Usage
}

// requests returns what the model has seen by now.
func (m *Model) requests() []Seen {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.Seen)
}

// The models: the one that is asked, and the one that takes its place.
const (
	first  = "soak/model"
	second = "soak/second"
)

// generate gives the plan's next reply, whichever model is asked.
func (m *Model) generate(ctx context.Context, name string, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	m.mu.Lock()
	n := len(m.Seen)
	m.Seen = append(m.Seen, Seen{At: time.Now(), By: name, Request: copied(req)})
	m.hear(req)
	r := m.Plan.Replies[min(n, len(m.Plan.Replies)-1)]
	r.Calls = m.meant(r.Calls)
	m.mu.Unlock()
	if err := r.wait(ctx); err != nil {
		return nil, &model.Error{Kind: model.KindCut, Model: name, Err: err}
	}
	for range r.Flood {
		if emit == nil { // nobody looks on
			break
		}
		emit(model.Delta{Text: "text"})
		emit(model.Delta{Reasoning: "reasoning"})
	}
	if r.Panic {
		panic("the model's client panics")
	}
	if r.Fail != nil {
		return nil, r.Fail
	}
	if r.What == "nothing" {
		return nil, nil
	}
	reply := &model.Reply{Message: model.Message{Role: model.RoleAssistant, Text: r.Text, Calls: r.Calls}, Stop: r.Stop, Model: "soak-1", ID: fmt.Sprint("r", n)}
	reply.Usage = r.Usage.count(req, reply)
	m.mu.Lock()
	m.Seen[n].Reply, m.Seen[n].Usage, m.Seen[n].Over = reply, r.Usage, time.Now()
	m.mu.Unlock()
	given := *reply
	given.Message.Calls = slices.Clone(reply.Message.Calls)
	return &given, nil
}

func (r Reply) wait(ctx context.Context) error {
	timer := time.NewTimer(r.Delay)
	defer timer.Stop()
	if r.Deaf {
		<-timer.C
		return nil
	}
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copied is a request that later changes do not reach.
func copied(req *model.Request) model.Request {
	c := *req
	c.Messages = slices.Clone(req.Messages)
	for i := range c.Messages {
		c.Messages[i].Results = slices.Clone(c.Messages[i].Results)
		c.Messages[i].Calls = slices.Clone(c.Messages[i].Calls)
	}
	return c
}

func (u Usage) count(req *model.Request, reply *model.Reply) model.Usage {
	in, _ := json.Marshal(req) // plain data always encodes
	out, _ := json.Marshal(reply.Message)
	usage := model.Usage{Known: true, Input: int64(len(in)) / 4, Output: min(int64(len(out))/4, int64(req.MaxOutputTokens))}
	switch u {
	case Missing:
		return model.Usage{}
	case Above:
		usage.Output = int64(req.MaxOutputTokens) + 5000
	case Huge:
		usage.Input, usage.Output = 1<<62, 1<<62
	case Negative:
		usage.Input, usage.Output, usage.CachedInput = -5, -1<<62, -1
	case Inflated:
		usage.Input *= 40
	}
	return usage
}

// mood is how often a model behaves badly.
type mood int

const (
	good mood = iota
	mixed
	hostile
)

func (g dice) reply(m mood) Reply {
	bad := map[mood]int{good: 30, mixed: 3, hostile: 1}[m]
	if g.one(bad) {
		return g.badReply()
	}
	r := g.goodReply()
	if m == hostile || g.one(6) {
		r.Usage = Usage(g.IntN(int(Inflated) + 1))
	}
	return r
}

func (g dice) delay() time.Duration {
	return pick(g, 0, 0, 0, time.Second, 20*time.Second, 5*time.Minute)
}

func (g dice) goodReply() Reply {
	r := Reply{What: "calls", Stop: model.StopToolCalls, Delay: g.delay()}
	for i := range pick(g, 1, 1, 1, 2, 4) {
		c := g.call()
		c.ID = fmt.Sprintf("m%d-%d", g.Uint32(), i)
		r.Calls = append(r.Calls, c)
	}
	if g.one(12) {
		return Reply{What: "end", Text: "it is done", Stop: model.StopEnd}
	}
	return r
}

func call(name string, args map[string]any) model.ToolCall {
	b, _ := json.Marshal(args) // plain data always encodes
	return model.ToolCall{Name: name, Arguments: string(b)}
}

func (g dice) call() model.ToolCall {
	n := g.IntN(4)
	switch g.IntN(16) {
	case 0:
		return call(tool.ReadFile, map[string]any{"path": fmt.Sprint("f", n)})
	case 1:
		return call(tool.WriteFile, map[string]any{"path": fmt.Sprint("f", n), "content": strings.Repeat("line\n", g.IntN(3000))})
	case 2:
		return call(tool.RunCommand, map[string]any{"command": pick(g, "sleep 30; echo late", "seq 1 100; sleep 1000", "echo quick"), "background": true})
	case 3:
		return call(tool.SandboxCreate, map[string]any{"ttl_seconds": pick(g, 1, 70, 600, 100000)})
	case 4:
		if g.one(3) {
			return call(tool.SandboxKill, map[string]any{})
		}
	case 5:
		return call(tool.RunCommand, map[string]any{"command": pick(g, "sleep 2", "sleep 200", "echo x; sleep 70; echo y"), "timeout_seconds": pick(g, 1, 30, 120)})
	}
	return call(tool.RunCommand, map[string]any{"command": g.command()})
}

func (g dice) command() string {
	n := g.IntN(1000)
	return pick(g,
		fmt.Sprintf("echo %d", n), "echo same", "ls", "pwd", fmt.Sprintf("exit %d", n%256), "false", "nosuchcommand -x",
		fmt.Sprintf("printf 'a %d\\n' > f%d", n, n%4), fmt.Sprintf("cat f%d", n%4), fmt.Sprintf("echo bad >&2; exit %d", 1+n%3),
		"seq 1 30", "seq 1 3000", "seq 1 60000", fmt.Sprintf("mkdir -p d/e && echo %d > d/e/f", n), "rm -rf .", "echo changed > keep.txt",
		"sleep 3; echo slept", "sleep 61", "while true; do sleep 1; echo tick; done", "printf '\\000\\001\\377'", "cat f1 | sort | head -n 3",
		"(sleep 500; echo child) & echo parent", "echo 'Untrusted result of run_command'", "cat /etc/passwd /nosuch", "ln -s /etc/passwd link; cat link",
		"ech 'unclosed", "")
}

func (g dice) badReply() Reply {
	r := Reply{Stop: model.StopToolCalls, Usage: Usage(g.IntN(int(Inflated) + 1)), Delay: g.delay()}
	name := tool.RunCommand
	switch g.IntN(20) {
	case 0:
		r.What = "bad JSON"
		r.Calls = []model.ToolCall{{ID: "j", Name: name, Arguments: pick(g, "", "{", "[]", "null", `{"command": 7}`, `{"command":"echo hi"`, "\xff\xfe", `{"command":"ls","x":1}`, strings.Repeat("[", 20000))}}
	case 1:
		r.What = "unknown tool"
		r.Calls = []model.ToolCall{{ID: "u", Name: pick(g, "run_comand", "", "bash", strings.Repeat("x", 5000), "rm\n\x1b[2J"), Arguments: "{}"}}
	case 2:
		r.What = "ids twice"
		r.Calls = []model.ToolCall{{ID: "d", Name: name, Arguments: `{"command":"echo 1"}`}, {ID: "d", Name: name, Arguments: `{"command":"echo 2"}`}}
	case 3:
		r.What = "no ids"
		r.Calls = []model.ToolCall{{Name: name, Arguments: `{"command":"echo 1"}`}, {Name: name, Arguments: `{"command":"echo 2"}`}}
	case 4:
		r.What = "many calls"
		for i := range 30 + g.IntN(60) {
			c := g.call()
			c.ID = fmt.Sprint("p", i)
			r.Calls = append(r.Calls, c)
		}
	case 5:
		r.What = "giant arguments"
		r.Calls = []model.ToolCall{{ID: "g", Name: tool.WriteFile, Arguments: call("", map[string]any{"path": "big", "content": strings.Repeat("x", 300_000)}).Arguments}}
	case 6:
		r.What, r.Stop = "empty", pick(g, model.StopEnd, model.StopToolCalls)
	case 7:
		r.What, r.Stop, r.Text = "blank", model.StopEnd, " \n\t"
	case 8:
		r = g.goodReply()
		r.What, r.Stop, r.Usage = "calls cut by the cap", model.StopLength, Above
	case 9:
		r.What, r.Stop, r.Text = "text cut by the cap", model.StopLength, "and so on and"
	case 10:
		r.What, r.Stop, r.Text = "refusal", model.StopRefusal, "I cannot"
	case 11:
		r = g.goodReply()
		r.What, r.Stop = "no proper end", pick[model.StopReason](g, "", "weird")
	case 12:
		r = g.goodReply()
		r.What, r.Stop = "calls, said to be the end", model.StopEnd
	case 13:
		r.What = "nothing"
	case 14:
		r.What, r.Panic = "panic", g.one(4)
		if !r.Panic {
			r.Fail = errors.New("an error of no kind")
		}
	case 15:
		r.What, r.Flood, r.Text, r.Stop = "flood", 5000, strings.Repeat("text ", 40_000), model.StopEnd
	case 16:
		r.What, r.Deaf, r.Delay, r.Text, r.Stop = "deaf", true, pick(g, time.Second, time.Minute, 3*time.Hour), "late", model.StopEnd
	default:
		r.What = "failure"
		r.Fail = g.failure()
	}
	return r
}

func (g dice) failure() error {
	e := &model.Error{Model: "soak/model", Message: "no"}
	e.Kind = pick(g, model.KindRateLimit, model.KindRateLimit, model.KindOverloaded, model.KindUnavailable, model.KindTimeout, model.KindCut,
		model.KindContext, model.KindAuth, model.KindForbidden, model.KindQuota, model.KindNotFound, model.KindInvalid, model.KindUnknown, model.Kind("new"))
	e.Status = map[model.Kind]int{model.KindRateLimit: 429, model.KindOverloaded: 503, model.KindAuth: 401, model.KindForbidden: 403}[e.Kind]
	if g.one(2) {
		e.RetryAfter = pick(g, time.Second, 20*time.Second, 10*time.Minute, 100*time.Hour, -time.Hour, 1<<62)
	}
	return e
}
