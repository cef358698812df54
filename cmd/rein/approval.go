package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/run"
	"golang.org/x/term"
)

// approval makes of the configuration who judges a run's calls, and who is
// asked; ways, when not empty, are asked instead of the configured ones. Nil:
// nothing is configured, the network asks about nothing, and nobody judges.
func (a *app) approval(ctx context.Context, c config.Config, ways []string, network policy.Document) (*run.Approval, error) {
	for _, w := range ways {
		if !slices.Contains(config.AskWays, w) {
			return nil, usage(config.DidYouMean(w, config.AskWays), "--ask %q is not known", w)
		}
	}
	rules, err := c.Approval.Policy()
	if err != nil {
		return nil, err
	}
	if ruleless(rules) && !config.Asks(network) {
		return nil, nil
	}
	o := &run.Approval{Policy: rules, Timeout: time.Duration(c.Approval.Timeout), Grant: time.Duration(c.Approval.Grant)}
	if len(ways) == 0 {
		ways = c.Approval.Ask
	}
	if len(ways) == 0 {
		ways = []string{config.AskTerminal}
	}
	for _, way := range ways {
		switch way {
		case config.AskSocket:
			o.Resolvable = true
		case config.AskTerminal:
			if a.watched() {
				o.Channels = append(o.Channels, &terminalAsker{app: a, turn: make(chan struct{}, 1)})
			} else if a.screen {
				o.Nobody = "the terminal is the agent's; --ask socket or webhook asks elsewhere"
			} else {
				o.Nobody = "it is asked at the terminal, and rein is not at one: its standard input or standard error is something else"
			}
		case config.AskWebhook:
			hook, err := a.webhook(ctx, c.Approval.Webhook)
			if err != nil {
				return nil, err
			}
			o.Channels = append(o.Channels, hook)
		}
	}
	return o, nil
}

// ruleless reports whether a policy allows every call.
func ruleless(p *approval.Policy) bool { return p.Rules() == 0 && p.Default() == approval.Allow }

func (a *app) webhook(ctx context.Context, w config.Webhook) (*approval.Webhook, error) {
	if w.URL == "" {
		return nil, usage("write approval: webhook: in the configuration", "there is no webhook to ask")
	}
	key, err := a.readSecret(ctx, "the webhook", "approval: webhook: key:", w.Key)
	if err != nil {
		return nil, err
	}
	a.providerKeys = append(a.providerKeys, key)
	hook, err := approval.NewWebhook(approval.WebhookOptions{URL: w.URL, Key: key})
	if err != nil {
		return nil, usage("check approval: webhook: in the configuration", "%s", strings.TrimPrefix(err.Error(), "approval: "))
	}
	return hook, nil
}

// watched reports whether a person is at a terminal that can be asked.
func (a *app) watched() bool {
	in, ok := a.in.(*os.File)
	return ok && !a.screen && a.err.terminal && term.IsTerminal(int(in.Fd()))
}

// unattended says what nobody is there to see: a general shell without any
// rule.
func (a *app) unattended(o run.Options) []string {
	if o.NoShell || o.Agent != nil || o.Approval != nil && !ruleless(o.Approval.Policy) || a.watched() {
		return nil
	}
	return []string{"nobody watches this run, the agent has a general shell, and no rule says what it may do in its sandbox; " +
		"rein config init --unattended writes a configuration with narrow tools"}
}

// terminalAsker asks on the terminal that rein was started on.
type terminalAsker struct {
	app  *app
	turn chan struct{} // held by the question that is shown
}

// closedBy is why a question needs no answer any more.
func closedBy(ctx context.Context, err error) error {
	why := cmp.Or(context.Cause(ctx), err)
	if errors.Is(why, context.Canceled) {
		return errors.New("the run ends, or somebody else has answered")
	}
	return why
}

// Name implements approval.Channel.
func (t *terminalAsker) Name() string { return "terminal" }

// Ask implements approval.Channel.
func (t *terminalAsker) Ask(ctx context.Context, q approval.Question) (d approval.Decision, err error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return d, ctx.Err()
	}
	defer func() { <-t.turn }()
	if p := t.app.shown; p != nil {
		defer p.pause()()
	}
	in, _ := t.app.in.(*os.File)
	discardInput(in) // what was typed before the question is no answer to it
	keys := newKeyboard(in)
	defer context.AfterFunc(ctx, keys.stop)()
	t.show(q)
	for {
		fmt.Fprint(t.app.err, t.app.style(prompt(q), styleHint))
		line, err := typedLine(keys)
		if err != nil {
			fmt.Fprintln(t.app.err)
			t.app.note("the question is closed: %v", closedBy(ctx, err))
			return d, cmp.Or(ctx.Err(), err)
		}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return approval.Decision{Approve: true}, nil
		case "r", "run":
			return approval.Decision{Approve: true, ForRun: true}, nil
		case "n", "no":
			return approval.Decision{}, nil
		case "e", "edit":
			if !editable(q) {
				break
			}
			fmt.Fprint(t.app.err, t.app.style("command (empty: back): ", styleHint))
			line, err := typedLine(keys)
			if err != nil {
				return d, cmp.Or(ctx.Err(), err)
			}
			if line = strings.TrimSpace(line); line != "" {
				return approval.Decision{Approve: true, Command: line}, nil
			}
			continue
		}
		t.app.note("%s", answers(q))
	}
}

func editable(q approval.Question) bool { return q.Kind == approval.Command && !q.Cut }

// answers says which keys there are.
func answers(q approval.Question) string {
	if editable(q) {
		return "answer y (yes, once), r (yes, for this run), n (no) or e (edit it), then Enter"
	}
	if q.Kind == approval.Host {
		return "answer y (yes, for this run) or n (no), then Enter"
	}
	return "answer y (yes, once), r (yes, for this run) or n (no), then Enter"
}

func prompt(q approval.Question) string {
	edit := ""
	if editable(q) {
		edit = ", e edit"
	}
	until := q.Expires.Local().Format(time.TimeOnly)
	if q.Kind == approval.Host {
		return fmt.Sprintf("allow? y for this run, n no (until %s): ", until)
	}
	return fmt.Sprintf("allow? y once, r for this run, n no%s (until %s): ", edit, until)
}

// show prints a question. Its texts are free of control characters; those of
// several lines are set off, so that none looks like a line of rein's.
func (t *terminalAsker) show(q approval.Question) {
	w := t.app.err
	what := "may " + cleanLine(q.Tool) + " do this"
	switch q.Kind {
	case approval.Host:
		what = "may the sandbox reach this host, until the run ends"
	case approval.Command:
		what = "may this be run in " + cleanLine(cmp.Or(q.Cwd, "the directory of its session"))
	}
	if q.Again {
		what += " (a file that it runs has changed since you allowed it)"
	}
	fmt.Fprintln(w, t.app.style("approval: "+what+"?", styleHint))
	for line := range strings.Lines(clean(q.Text)) {
		t.put("  | ", strings.TrimRight(line, "\n"))
	}
	if q.Hidden {
		fmt.Fprintln(w, t.app.style("  it holds characters that cannot be seen", styleError))
	}
	if q.Cut {
		fmt.Fprintln(w, t.app.style("  this is not all of it", styleError))
	}
	t.put("  why: ", cleanLine(q.Why))
	if q.Kind == approval.Tool && q.Cwd != "" {
		t.put("  in: ", cleanLine(q.Cwd))
	}
	if len(q.Env) > 0 {
		t.put("  with: ", cleanLine(strings.Join(q.Env, ", ")))
	}
	for _, name := range slices.Sorted(maps.Keys(q.Files)) {
		t.put("  runs: ", fmt.Sprintf("%s, SHA-256 %s", cleanLine(name), q.Files[name]))
	}
}

// put prints a line of a question.
func (t *terminalAsker) put(first, line string) {
	for _, part := range folded(first, line, t.app.err.width) {
		fmt.Fprintln(t.app.err, part)
	}
}

// maxLine bounds a typed line, in bytes.
const maxLine = 64 << 10

// typedLine reads a line of a terminal that edits lines.
func typedLine(k *keyboard) (string, error) {
	var line []byte
	buf := make([]byte, 4096)
	for len(line) < maxLine {
		n, err := k.read(buf, -1)
		line = append(line, buf[:n]...)
		if i := strings.IndexByte(string(line), '\n'); i >= 0 {
			return string(line[:i]), nil
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			return "", err
		}
	}
	return "", errors.New("the line is too long")
}
