package approval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/command"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/evidence"
)

// Check judges a request and asks about it where the policy says so. It returns
// when it is decided, which may take as long as a person has. The error means
// that the outcome could not be recorded; nothing may be done then.
func (g *Gate) Check(ctx context.Context, r Request) (Outcome, error) {
	v := g.o.Policy.Judge(r)
	switch v.Action {
	case Allow:
		return Outcome{Code: Allowed, Rule: v.Rule}, nil
	case Ask:
	default:
		out := Outcome{Code: DeniedByRule, Rule: v.Rule, Reason: v.Reason}
		return out, g.o.Record(Event{Question: g.question(r, v, nil), Outcome: &out})
	}
	return g.bound(ctx, r, v)
}

// bound asks until an answer stands for what is there when it is given, a few
// times at most.
func (g *Gate) bound(ctx context.Context, r Request, v Verdict) (Outcome, error) {
	var waited time.Duration
	edited := ""
	for again := 0; ; again++ {
		files, err := g.files(ctx, r)
		if err != nil {
			return g.unbound(ctx, r, v, err)
		}
		q := g.question(r, v, files)
		q.Again = again > 0
		if out, ok := g.granted(q.Hash); ok && bindable(r) {
			return out, g.o.Record(Event{Question: q, Outcome: &out})
		}
		if again > maxAgain {
			out := Outcome{Code: Changed, Rule: v.Rule, Hash: q.Hash, Waited: waited, Reason: "a file that it runs was changed after each approval"}
			return out, g.o.Record(Event{Question: q, Outcome: &out})
		}
		out, err := g.ask(ctx, r, q, v)
		waited += out.Waited
		out.Waited = waited
		if err != nil || !out.Code.OK() {
			return out, err
		}
		if out.Command != "" {
			edited, r.Command = out.Command, out.Command
		}
		out.Command = edited
		now, err := g.files(ctx, r)
		if err != nil {
			return g.unbound(ctx, r, v, err)
		}
		if unchanged(files, now, edited != "") {
			return out, nil
		}
	}
}

// unbound is the outcome where the files that a command runs cannot be read:
// an approval would be bound to nothing.
func (g *Gate) unbound(ctx context.Context, r Request, v Verdict, err error) (Outcome, error) {
	out := Outcome{Code: Changed, Rule: v.Rule, Reason: "what it runs could not be read: " + err.Error()}
	if ctx.Err() != nil {
		out = Outcome{Code: Interrupted, Rule: v.Rule, Reason: "the run ended before it was answered"}
	}
	return out, g.o.Record(Event{Question: g.question(r, v, nil), Outcome: &out})
}

// unchanged reports whether the files are as they were when the question was
// asked. A command that a person wrote may run others, too: those they meant.
func unchanged(asked, now map[string]string, edited bool) bool {
	if !edited {
		return maps.Equal(asked, now)
	}
	for name, sum := range now {
		if old, known := asked[name]; known && old != sum {
			return false
		}
	}
	return true
}

// bindable reports whether it is known what a request starts, and from which
// files: what is granted for a run is bound to them. The same line may start
// another program the next time where that is not known.
func bindable(r Request) bool {
	if r.Command == "" {
		return true
	}
	s, err := command.Parse(r.Command)
	return err == nil && !slices.ContainsFunc(s.Simple(), func(c command.Simple) bool { return c.StartsUnnamed() })
}

// executed are the files that a request reads as programs.
func executed(r Request) []string {
	switch {
	case r.Command != "":
		s, err := command.Parse(r.Command)
		if err != nil {
			return nil
		}
		return s.Executes()
	case len(r.Argv) > 0:
		return executed(Request{Command: commandLine(r.Argv)})
	}
	return nil
}

func (g *Gate) files(ctx context.Context, r Request) (map[string]string, error) {
	paths := executed(r)
	if g.o.Files == nil || len(paths) == 0 {
		return nil, nil
	}
	return g.o.Files(ctx, r.Cwd, paths)
}

// question is what a person is asked.
func (g *Gate) question(r Request, v Verdict, files map[string]string) Question {
	text := r.Command
	switch {
	case r.Kind == Host:
		text = hostText(r)
	case text == "" && len(r.Argv) > 0:
		text = commandLine(r.Argv)
	case text == "":
		text = string(r.Arguments)
	}
	q := Question{RunID: g.o.RunID, CallID: r.CallID, Kind: r.Kind, Tool: r.Tool, Rule: v.Rule, Why: g.show(v.Reason), Files: files,
		Cwd: g.show(r.Cwd), Hash: hashOf(r, files)}
	if r.Kind == Host {
		q.Host, q.Domain, q.Port = g.show(r.Host), g.show(domain(r.Host)), r.Port
		for _, why := range policy.Odd(r.Host) {
			q.Odd = append(q.Odd, g.show(why))
		}
	}
	q.Hidden = strings.ContainsFunc(text, evidence.Hidden)
	q.Text = g.show(text)
	if len(q.Text) > maxText {
		q.Text, q.Cut = evidence.Cut(q.Text, maxText), true
	}
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		q.Env = append(q.Env, g.show(name))
	}
	return q
}

// show is a text as a person may see it.
func (g *Gate) show(s string) string { return evidence.Visible(g.o.Masker.String(s)) }

// hashOf is what an answer is bound to: what is run, where, with which variables
// and from which files.
func hashOf(r Request, files map[string]string) string {
	b, _ := json.Marshal(struct { // plain data always encodes
		Kind      Kind
		Tool      string
		Command   string
		Argv      []string
		Arguments string
		Cwd       string
		Env       map[string]string
		Host      string
		Files     map[string]string
		Port      int    `json:",omitempty"`
		Proto     string `json:",omitempty"`
	}{r.Kind, r.Tool, r.Command, r.Argv, string(r.Arguments), r.Cwd, r.Env, r.Host, files, r.Port, r.Proto})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
