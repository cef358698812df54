package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

// fake is a model that answers from a list of functions, one a request.
type fake struct {
	mu      sync.Mutex
	answers []func(*model.Request) (*model.Reply, error)
	seen    []model.Request
}

func (f *fake) Name() string { return "fake/model" }

func (f *fake) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	copied := *req
	copied.Messages = slices.Clone(req.Messages)
	for i := range copied.Messages {
		copied.Messages[i].Results = slices.Clone(copied.Messages[i].Results)
	}
	f.seen = append(f.seen, copied)
	n := len(f.seen) - 1
	if n >= len(f.answers) {
		n = len(f.answers) - 1 // the last answer repeats
	}
	r, err := f.answers[n](req)
	if err == nil && emit != nil && r.Message.Text != "" {
		half := len(r.Message.Text) / 2
		emit(model.Delta{Text: r.Message.Text[:half]})
		emit(model.Delta{Text: r.Message.Text[half:]})
	}
	return r, err
}

type answer = func(*model.Request) (*model.Reply, error)

var usage = model.Usage{Known: true, Input: 100, Output: 10}

// using is an answer that costs so many tokens.
func using(input, output int64, a answer) answer {
	return func(r *model.Request) (*model.Reply, error) {
		reply, err := a(r)
		reply.Usage = model.Usage{Known: true, Input: input, Output: output}
		return reply, err
	}
}

func text(s string) answer {
	return func(*model.Request) (*model.Reply, error) {
		return &model.Reply{Message: model.Message{Role: model.RoleAssistant, Text: s}, Stop: model.StopEnd, Usage: usage}, nil
	}
}

// calls replies with calls: alternating names and arguments.
func calls(parts ...string) answer {
	return func(*model.Request) (*model.Reply, error) {
		r := &model.Reply{Message: model.Message{Role: model.RoleAssistant}, Stop: model.StopToolCalls, Usage: usage}
		for i := 0; i < len(parts); i += 2 {
			r.Message.Calls = append(r.Message.Calls, model.ToolCall{ID: fmt.Sprintf("m%d", i/2), Name: parts[i], Arguments: parts[i+1]})
		}
		return r, nil
	}
}

func cmd(s string) (name, args string) {
	b, _ := json.Marshal(map[string]string{"command": s})
	return tool.RunCommand, string(b)
}

func sh(command string) answer {
	name, args := cmd(command)
	return calls(name, args)
}

func fails(e model.Error) answer {
	return func(*model.Request) (*model.Reply, error) { return nil, &e }
}

func stopped(a answer, why model.StopReason) answer {
	return func(r *model.Request) (*model.Reply, error) {
		reply, err := a(r)
		reply.Stop = why
		return reply, err
	}
}

// results are those of the newest message of a request, parsed.
func results(t *testing.T, req model.Request) []tool.Result {
	t.Helper()
	var out []tool.Result
	for _, r := range req.Messages[len(req.Messages)-1].Results {
		out = append(out, unwrap(t, r.Content))
	}
	return out
}

func unwrap(t *testing.T, content string) tool.Result {
	t.Helper()
	lines := strings.Split(content, "\n")
	var r tool.Result
	if len(lines) != 3 && (len(lines) != 4 || !strings.HasPrefix(lines[3], "Left for this task: ")) {
		t.Fatalf("not three lines, and what is left: %q", content)
	}
	if err := json.Unmarshal([]byte(lines[1]), &r); err != nil {
		t.Fatalf("%v: %q", err, content)
	}
	return r
}

type setup struct {
	limits  func(*budget.Limits)
	options func(*agent.Options)
	run     func(*run.Options)
	events  *[]run.Event
}

// play runs a task with these answers on the in-memory provider.
func play(t *testing.T, s setup, answers ...answer) (*run.Report, *fake, error) {
	t.Helper()
	f := &fake{answers: answers}
	o := agent.Options{Model: f, Price: &agent.Price{Input: 1, Output: 2}}
	if s.options != nil {
		s.options(&o)
	}
	w, err := agent.New(o)
	if err != nil {
		t.Fatal(err)
	}
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer m.Close()
	ro := run.Options{Task: "the task", Provider: m, StateDir: t.TempDir(), Limits: budget.Standard()}
	if s.limits != nil {
		s.limits(&ro.Limits)
	}
	if s.run != nil {
		s.run(&ro)
	}
	if s.events != nil {
		ro.Events = func(e run.Event) { *s.events = append(*s.events, e) }
	}
	rep, err := run.Do(context.Background(), ro, w)
	if rep == nil {
		t.Fatal(err)
	}
	if left, _ := m.List(context.Background(), nil); len(left) > 0 || !rep.Cleanup.OK {
		t.Errorf("left: %v; %+v", left, rep.Cleanup)
	}
	return rep, f, err
}

// onRecord is the data of the audit log's records of a kind.
func onRecord[T any](t *testing.T, rep *run.Report, kind audit.Kind) (all []T) {
	t.Helper()
	f, err := os.Open(filepath.Join(rep.Dir, run.AuditFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r, err := range audit.Records(f) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != kind {
			continue
		}
		var data T
		if err := json.Unmarshal(r.Data, &data); err != nil {
			t.Fatal(err)
		}
		all = append(all, data)
	}
	return all
}

func sum(line string) string {
	h := sha256.Sum256([]byte(line))
	return hex.EncodeToString(h[:])
}
