package soak

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/tool"
)

// napTimeout is what the tool nap may take, less than any call.
const napTimeout = 900 * time.Millisecond

// equipped gives some plans sessions, and tools of their own, and calls of them.
func (g dice) equipped(p *Plan) {
	if g.one(3) {
		p.Sessions = tool.Sessions{Max: pick(g, 1, 2, 3), Calls: pick(g, 0, 0, 1, 2), Age: pick(g, 0, 0, time.Second, time.Minute)}
		g.replace(p, g.sessionCall)
	}
	if g.one(3) {
		p.Tools = true
		g.replace(p, g.customCall)
	}
}

// replace has some calls be those of make.
func (g dice) replace(p *Plan, make func() model.ToolCall) {
	for _, r := range p.Replies {
		for i := range r.Calls {
			if r.What != "circle" && g.one(2) {
				c := make()
				c.ID = r.Calls[i].ID
				r.Calls[i] = c
			}
		}
	}
}

// newest stands for the id of the session that the model was told of last.
const newest = "{newest session}"

func (g dice) sessionCall() model.ToolCall {
	id := pick(g, newest, newest, newest, newest, "nosuch")
	switch g.IntN(8) {
	case 0, 1, 2:
		return call(tool.SessionCreate, map[string]any{})
	case 3:
		return call(tool.SessionCreate, map[string]any{"cwd": pick(g, "/nosuch", "/tmp", "src", "../..")})
	case 4:
		return call(tool.SessionClose, map[string]any{"session_id": id})
	case 5:
		return call(tool.SessionRun, map[string]any{"session_id": id, "command": pick(g, "sleep 2; pwd", "sleep 200", "echo a; sleep 80"), "timeout_seconds": pick(g, 1, 30, 120)})
	}
	return call(tool.SessionRun, map[string]any{"session_id": id, "command": pick(g, "mkdir -p d; cd d", "pwd", "export A=b", "echo $A", "exit 3", "cd /nosuch", "sleep 61",
		"seq 1 3000", "kill -9 $$", "exec false", "(sleep 500; echo child) & echo parent")})
}

var told = regexp.MustCompile(`"session":\{"id":"([^"]+)"`)

// hear keeps the newest session that a request tells of. The caller holds mu.
func (m *Model) hear(req *model.Request) {
	for _, message := range req.Messages {
		for _, r := range message.Results {
			if at := told.FindStringSubmatch(r.Content); at != nil && r.Name == tool.SessionCreate {
				m.session = at[1]
			}
		}
	}
}

// meant is calls with what they stand for. The caller holds mu.
func (m *Model) meant(calls []model.ToolCall) []model.ToolCall {
	out := make([]model.ToolCall, len(calls))
	for i, c := range calls {
		c.Arguments = strings.ReplaceAll(c.Arguments, newest, m.session)
		out[i] = c
	}
	return out
}

func (g dice) customCall() model.ToolCall {
	switch g.IntN(8) {
	case 0, 1:
		return call("show", map[string]any{"file": pick(g, "f1", "f2", "keep.txt", "nosuch", "../../etc/passwd", "-n", "link")})
	case 2, 3:
		return call("nap", map[string]any{"seconds": pick(g, 0, 1, 60)})
	case 4:
		return call(pick(g, "show", "nap", "wish"), map[string]any{"other": true})
	}
	return call("wish", map[string]any{"n": g.IntN(1 << 30), "how": pick(g, "", "", "sleep", "sleep long", "fail", "panic", "fixable", "fatal", "flood")})
}

// wish is what the function wish is asked for.
type wish struct {
	N   int    `json:"n"`
	How string `json:"how"`
}

// functions counts how often the function of a run was called, by all of its
// processes.
type functions struct {
	mu    sync.Mutex
	calls map[wish]int
}

func (f *functions) call(w wish) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[wish]int{}
	}
	f.calls[w]++
}

// tools are the tools that a process has besides the ordinary ones. moment is as
// that of a model, and returns whether the process was ended.
func (x *Played) tools(moment func() bool) ([]tool.Custom, error) {
	if !x.Plan.Tools {
		return nil, nil
	}
	show, err := tool.Program{Name: "show", Description: "Show a file.", Argv: []string{"cat", "{{file}}"},
		Parameters: []tool.Parameter{{Name: "file", Type: "string", Required: true, Path: true}}}.Tool()
	nap, napErr := tool.Program{Name: "nap", Description: "Sleep.", Argv: []string{"sleep", "{{seconds}}"}, Timeout: napTimeout,
		Parameters: []tool.Parameter{{Name: "seconds", Type: "integer", Required: true}}}.Tool()
	grant, wishErr := tool.Func("wish", "Do something.", func(ctx context.Context, w wish) (string, error) {
		if moment() {
			return "", errors.New("the process was ended")
		}
		x.Functions.call(w)
		defer moment()
		return w.grant(ctx)
	})
	return []tool.Custom{show, nap, grant}, errors.Join(err, napErr, wishErr)
}

func (w wish) grant(ctx context.Context) (string, error) {
	wait := map[string]time.Duration{"sleep": 500 * time.Millisecond, "sleep long": time.Hour}[w.How]
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	switch w.How {
	case "fail":
		return "", errors.New("it failed")
	case "panic":
		panic("the function panics")
	case "fixable":
		return "", &tool.Error{Class: tool.Fixable, Code: "wrong", Message: "it was wrong"}
	case "fatal":
		return "", &tool.Error{Class: tool.Fatal, Code: "over", Message: "it is over"}
	case "flood":
		return strings.Repeat("granted\n", 40_000), nil
	}
	return fmt.Sprint("granted ", w.N), nil
}
