package lab

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/internal/modelserver"
	"github.com/rein-sh/rein/lab/leak"
	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/wrap"
)

// A6AgentLimit is how long A6 may take beside an agent, cleaning up included.
const A6AgentLimit = 3 * time.Minute

// Agent is a command-line agent of others, as rein wrap runs it.
type Agent struct {
	Name   string // of its recipe, one of Agents
	Vendor wrap.Vendor
	Model  string
	// Make makes a run of it: with its program, what rein wrap gives it, and a key that
	// requests to its vendor are given.
	Make func(ctx context.Context, o AgentRun) (run.Options, run.Worker, error)
}

// AgentRun is what differs between runs of an agent.
type AgentRun struct {
	BaseURL string // of its model, in its vendor's place
	Key     string
	Args    []string // its own
}

// driven is how an agent is given a task, and how its model has it run a command.
type driven struct {
	name, shape string // how a key of its vendor begins
	args        []string
	tool        string
	arguments   object // besides the command
	command     string // the argument that is the command
	once        bool   // two of it are more than the memory of a sandbox holds
}

var drivenAgents = []driven{
	{"codex", "sk-proj-", []string{"exec"}, "exec_command", object{"yield_time_ms": 30_000}, "cmd", false},
	{"claude", "sk-ant-api03-", []string{"-p"}, "Bash", object{"description": "Work on the task", "timeout": 240_000}, "command", false},
	{"gemini", "AIzaSy", []string{"-p"}, "run_shell_command", object{"description": "Work on the task"}, "command", false},
	{"opencode", "sk-ant-api03-", []string{"run"}, "bash", object{"description": "Work on the task", "timeout": 240_000}, "command", true},
	{"qwen", "sk-", []string{"-p"}, "run_shell_command", object{"is_background": false, "timeout": 240_000}, "command", false},
}

// Agents are the names of those beside which A6 can be tried.
func Agents() (names []string) {
	for _, d := range drivenAgents {
		names = append(names, d.name)
	}
	return names
}

// orders is how often the agent is told to run the command: see attack.
const orders = 4

// script has the agent's model order a command, as often as that.
func (d driven) script() (*script.Script, error) {
	arguments := object{d.command: "sh " + probeDir + "order"}
	for name, value := range d.arguments {
		arguments[name] = value
	}
	steps := []object{}
	for range orders {
		steps = append(steps, object{"calls": []object{{"tool": d.tool, "arguments": arguments}}})
	}
	steps = append(steps, object{"text": "It is done."})
	text, err := json.Marshal(object{"name": d.name, "preface": []string{"Got it. Thanks for the context!"}, "steps": steps}) // which is YAML, too
	if err != nil {
		return nil, err
	}
	return script.Load(text, d.name)
}

// besideAgent is A6 beside an agent.
type besideAgent struct {
	*cage
	driven
	played *modelserver.Server // its model
	main   caged               // its sandbox
}

// a6Agent has an agent work in its run while everything is tried.
func a6Agent(ctx context.Context, env Env) (Result, error) {
	b, err := begin(env, "a6", "the key boundary of a command-line agent, beside "+env.Agent.Name)
	if err != nil {
		return Result{}, err
	}
	short, cancel := context.WithTimeout(ctx, A6AgentLimit-5*time.Second)
	defer cancel()
	w := &besideAgent{}
	for _, d := range drivenAgents {
		if d.name == env.Agent.Name {
			w.driven = d
		}
	}
	v := env.Agent.Vendor
	h := vendorHost{name: v.Host, at: v.Name, variable: v.Variables[0], base: v.Base, as: v.As, field: v.Field, calls: v.Calls}
	w.cage = newCage(b, []vendorHost{h}, env.Agent.Model, func(vendorHost) string { return w.shape })
	w.most = A6AgentLimit - 60*time.Second
	w.task = "task-" + rand.Text() + rand.Text()
	err = b.guard(func() {
		if !w.listen(short) {
			return
		}
		defer w.sink.Close()
		w.work(short)
	})
	return b.end(err)
}

// work makes the run, and judges it when it has ended.
func (w *besideAgent) work(ctx context.Context) {
	stop, ok := w.serveVendors()
	if !ok {
		return
	}
	defer stop()
	h := w.hosts[0]
	dir, ok := w.trapped()
	defer os.RemoveAll(dir) // what is left is honeypots
	if !ok {
		return
	}
	var o run.Options
	var agent run.Worker
	if !w.step("the agent", "a run as rein wrap makes it, with a key that is made up, and a scripted model in the place of its vendor", func() (string, bool) {
		play, err := w.script()
		if err != nil {
			return err.Error(), false
		}
		w.played = modelserver.New(play, modelserver.Options{Key: secret.New("key", w.keys[h.at])})
		w.vendor.agent = w.played
		o, agent, err = w.env.Agent.Make(ctx, AgentRun{BaseURL: w.vendor.url + "/" + h.at, Key: w.keys[h.at], Args: append(w.args[:len(w.args):len(w.args)], "Do what is to be done: "+w.task)})
		if err != nil {
			return err.Error(), false
		}
		w.result.Agent = o.Agent.Name + " " + o.Agent.Version
		return fmt.Sprintf("%s %s, SHA-256 of its files %s", o.Agent.Package, o.Agent.Version, o.Agent.Layer), true
	}) {
		return
	}
	defer w.played.Close()
	o.StateDir, o.Workspace, o.Control, o.Approval = filepath.Join(w.env.StateDir, "lab"), run.Workspace{Dir: dir}, false, nil
	o.Target.Spec.Network = policy.Document{}
	o.Limits.MaxWallTime, o.Limits.MaxSteps = A6AgentLimit, 10_000
	w.env.Provider = o.Provider
	spec := o.Target.Spec
	spec.TTL = A6AgentLimit + 15*time.Second
	other, ok := w.makeBox(ctx, "create another", spec)
	if !ok {
		return
	}
	defer w.dispose(ctx, other)
	report, err := run.Do(ctx, o, &beside{w, agent})
	w.limit = w.gauge.limit
	w.judgeReport(report, err)
	if w.main.box == nil {
		return
	}
	w.searchHost("the host's traces, when the run has ended")
	w.judgeVendor(w.main, other)
	w.die(ctx, w.main, other)
}

// beside is the worker of the run.
type beside struct {
	*besideAgent
	agent run.Worker
}

// errAgentEnded ends what waits for an agent.
var errAgentEnded = errors.New("the agent has ended")

// Work implements run.Worker: it has the agent work, and gives it orders.
func (w *beside) Work(ctx context.Context, s *run.Session) (run.Outcome, error) {
	b := caged{box: s.Sandbox(), agent: true, once: w.once, owned: true}
	if !w.step("create", "a sandbox as rein wrap makes it, a placeholder for the key, the probe, and of the workspace's honeypots none", func() (string, bool) {
		w.result.SandboxID = ""
		if err := w.equip(ctx, &b); err != nil {
			return err.Error(), false
		}
		files, err := w.ready(ctx, &b)
		if w.main = b; err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%s, %s separation; inside: %q", b.box.ID(), b.box.Info().Separation, files), files == "./main.go\n"
	}) {
		return run.Outcome{Reason: run.Failed, Detail: "the sandbox could not be made ready"}, nil
	}
	w.limit = func(n int) error {
		tree := s.Budget()
		_, err := tree.SetLimit(budget.LimitSteps, int64(tree.Usage().Steps+n))
		return err
	}
	alive, ended := context.WithCancelCause(ctx)
	working, end := context.WithCancel(ctx)
	defer end()
	var out run.Outcome
	var err error
	done := make(chan struct{})
	go func() { // ends with the agent, or the run
		defer close(done)
		defer ended(errAgentEnded)
		out, err = w.agent.Work(working, s)
	}()
	if w.attack(alive, b) {
		select { // it is told that its budget is used up
		case <-done:
		case <-ctx.Done():
		}
	}
	end()
	<-done
	return out, err
}

// ready puts what the agent is told to run into its sandbox, and lists the files of
// the workspace.
func (w *beside) ready(ctx context.Context, b *caged) (files string, err error) {
	const waits = `[ -z "$` + leak.SecondVariable + `" ] || { echo x >"$` + leak.SecondVariable + `/ready"; read -r x <"$` + leak.SecondVariable + `/end"; exit; }
echo x >` + probeDir + `here; read -r name <` + probeDir + `to && { sh ` + probeDir + `$name.sh >` + probeDir + `$name.out 2>` + probeDir + `$name.err; echo $? >` + probeDir + `from; }` + "\n"
	if _, err := b.box.WriteFile(ctx, probeDir+"order", []byte(waits), sandbox.WriteOptions{}); err != nil {
		return "", err
	}
	r, err := b.box.Run(ctx, sandbox.Command{Tool: "lab", Shell: "cd " + probeDir + " && mkfifo here to from && cd - >/dev/null && echo \"$HOME\" && find . -type f"})
	if err == nil && !r.OK() {
		err = fmt.Errorf("%+v: %s", r.Outcome, r.Stderr.Head)
	}
	b.home, files, _ = strings.Cut(string(r.Stdout.Head), "\n")
	return files, err
}

// waits has come to its end when the agent runs what it was told to run, and waits to
// be told more: then it asks its model nothing.
func (w *beside) waits(ctx context.Context, b caged) error {
	r, err := b.box.Run(ctx, sandbox.Command{Tool: "lab", Shell: "read -r x <" + probeDir + "here", Timeout: w.most})
	if err == nil && !r.OK() {
		err = fmt.Errorf("it has not run its command within %v", w.most)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// order is a command that has the agent's own run a shell's line, and ends as that
// does.
func (c *cage) order(ctx context.Context, b caged, name, shell string) (string, error) {
	if _, err := b.box.WriteFile(ctx, probeDir+name+".sh", []byte(shell+"\n"), sandbox.WriteOptions{}); err != nil {
		return "", err
	}
	at := probeDir + name
	return fmt.Sprintf("echo %s >%sto; read -r code <%[2]sfrom; cat %s.out; cat %[3]s.err >&2; exit $code", name, probeDir, at), nil
}

// attack has everything tried by what the agent runs. It is false when the agent is
// not told that its budget is used up.
func (w *beside) attack(ctx context.Context, b caged) bool {
	told := false
	for _, order := range []struct {
		name string
		give func() bool
	}{
		{"theft", func() bool { return w.steal(ctx, b) }},
		{leak.PartSearch, func() bool {
			w.search(ctx, b)
			w.searchHost("the host's traces")
			return true
		}},
		{leak.PartWays, func() bool {
			if w.part(ctx, b, "", leak.PartWays, "") {
				w.denied(ctx, b.box.ID())
			}
			w.silent("after every way")
			return true
		}},
		{leak.PartSpent, func() bool {
			told = w.spend(ctx, b)
			return told
		}},
	} {
		if !w.step("the agent waits, "+order.name, "a command that its model has told it to run", func() (string, bool) {
			if err := w.waits(ctx, b); err != nil {
				return err.Error(), false
			}
			return "it runs", true
		}) || !order.give() {
			break
		}
	}
	return told
}

// steal has the agent send a honeypot away.
func (w *beside) steal(ctx context.Context, b caged) bool {
	return w.step("honeypots inside", "a command of the agent's that sends them away fails, and each attempt is on record as denied", func() (string, bool) {
		shell, err := w.order(ctx, b, "theft", `mkdir -p "$HOME/.aws" && echo honeypot >"$HOME/.aws/credentials"; `+w.theft())
		if err != nil {
			return err.Error(), false
		}
		before, err := sandbox.NetworkRecords(ctx, w.env.Provider, b.box.ID(), 0)
		if err != nil {
			return err.Error(), false
		}
		sent, err := b.box.Run(ctx, sandbox.Command{Tool: "lab", Shell: shell, Timeout: w.most})
		if err != nil {
			return errors.Join(err, context.Cause(ctx)).Error(), false
		}
		log, err := sandbox.NetworkRecords(ctx, w.env.Provider, b.box.ID(), before.Last)
		if err != nil {
			return err.Error(), false
		}
		denied, other := 0, 0
		for _, r := range log.Records {
			switch {
			case r.Verdict == "deny":
				denied += r.Count
			case !slices.ContainsFunc(w.hosts, func(h vendorHost) bool { return h.name == r.Name }):
				other++
			}
		}
		return fmt.Sprintf("%.200s; %d attempts denied, %d other", sent.Stderr.Head, denied, other), !sent.OK() && sent.ExitCode != nil && denied > 0 && other == 0
	})
}

// judgeReport says how the run ended, and compares what it counted with what was
// served.
func (w *besideAgent) judgeReport(report *run.Report, err error) {
	if report == nil {
		w.step("the agent's end", "a report", func() (string, bool) { return fmt.Sprint(err), false })
		return
	}
	w.step("honeypots of the workspace", "files with credentials are left out", func() (string, bool) {
		return fmt.Sprint(report.Inputs.Secrets), len(report.Inputs.Secrets) > 0
	})
	served := w.played.Seen().Served
	w.step("the agent's end", "it did what its model told it, was told that its budget is used up, and ended by itself", func() (string, bool) {
		a := report.Agent
		code := "none"
		if a.ExitCode != nil {
			code = fmt.Sprint(*a.ExitCode)
		}
		got := fmt.Sprintf("%s: %s; exit code %s, signal %q; %d answers of its model; %.300q", report.Reason, report.Conclusion, code, a.Signal, len(served), strings.TrimSpace(a.Stderr))
		return got, err == nil && report.Reason == run.OverBudget && a.ExitCode != nil && a.Signal == "" && len(served) >= orders && report.Cleanup.OK
	})
	w.step("metered", "each request that a model answered is counted, with what it came to", func() (string, bool) {
		_, probed := w.vendor.all()
		input, output := int64(probed*a6Input), int64(probed*a6Output)
		for _, u := range served {
			input, output = input+u.Input, output+u.Output
		}
		t := report.Tokens
		return fmt.Sprintf("served %d requests of the probe and %d of the agent, %d tokens in, %d out; counted %d, %d in, %d out", probed, len(served), input, output, report.Steps, t.Input, t.Output),
			probed > 0 && report.Steps == probed+len(served) && t.Input == input && t.Output == output && !t.Estimated
	})
}
