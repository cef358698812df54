package lab

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/price"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/wrap"
	"github.com/rein-sh/rein/wrap/layer"
)

// simple is an agent: it notes its task, and does what its model always says, until
// that is refused.
const simple = `#!/bin/bash
echo "$*" >"$HOME/conversation"
while curl -sf -H "Authorization: Bearer $OPENAI_API_KEY" -H 'Content-Type: application/json' -o /tmp/reply --data \
	'{"model":"m","messages":[{"role":"user","content":"go"}],"tools":[{"type":"function","function":{"name":"exec_command"}}]}' "$BASE/chat/completions"
do
	grep -o 'sh /tmp/rein-lab/order' /tmp/reply >/tmp/said && bash -c "$(cat /tmp/said)"
done
exit 7
`

// simpleAgent is it in the place of Codex. Its sandbox has a variable with the key.
func simpleAgent(t *testing.T, env Env) *Agent {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "simple"), []byte(simple), 0o755); err != nil {
		t.Fatal(err)
	}
	calls := []inference.Call{{Methods: []string{"POST"}, Path: "/v1/chat/completions", API: inference.Chat}}
	v := wrap.Vendor{Name: "openai", Host: "api.openai.com", Base: "/v1", Calls: calls, Route: wrap.Door, Variables: []string{"OPENAI_API_KEY"}, As: vault.Bearer,
		Env: map[string]string{"BASE": "{{.BaseURL}}"}}
	return &Agent{Name: "codex", Vendor: v, Model: "m", Make: func(_ context.Context, o AgentRun) (run.Options, run.Worker, error) {
		use := vault.Binding{Host: v.Host, As: v.As, Methods: []string{"POST"}, Paths: []string{"/v1/chat/completions"}}
		spec := sandbox.Spec{Env: map[string]string{"LEFT_BEHIND": o.Key}, Mounts: []sandbox.Mount{{Source: dir, Target: layer.At}},
			Models:  []inference.Host{{Name: v.Host, Base: v.Base, Upstream: o.BaseURL, Calls: calls, Rules: inference.Rules{Models: []string{"m"}}}},
			Secrets: []vault.Secret{{Name: "model-key", Value: secret.New("model-key", o.Key), Variable: "OPENAI_API_KEY", Use: []vault.Binding{use}}}}
		limits, _ := budget.Preset("wrap")
		w, err := wrap.New(wrap.Options{Recipe: wrap.Recipe{Name: "simple", Command: []string{"simple"}}, Vendor: &v, Args: o.Args, Model: "m", Bin: layer.At, Variable: "OPENAI_API_KEY"})
		return run.Options{Task: "be simple", Provider: env.Provider, Target: run.Target{Name: "lab", Spec: spec}, Limits: limits, NoTranscript: true, Agent: &run.AgentInfo{Name: "simple", Version: "1.0.0"},
			Metered: &run.Metered{Rate: func(string) (price.Price, bool) { return price.Price{Input: 1, Output: 2}, true }}}, w, err
	}}
}

// Beside an agent all is tried by what that has started, and a key that is in its
// sandbox is found.
func TestA6BesideAnAgent(t *testing.T) {
	env := bareEnv(t)
	env.Agent = simpleAgent(t, env)
	r, err := A6(context.Background(), env)
	if err != nil {
		t.Fatal(err)
	}
	controls, found := 0, false
	for _, s := range r.Steps {
		switch {
		case strings.HasPrefix(s.Name, "search: the keys in "), s.Name == "the host's traces": // which has processes of the sandbox, too
			found = found || !s.Pass && s.Name == "search: the keys in environments and arguments" && strings.Contains(s.Got, "the key openai, plain, in /proc/")
		case strings.HasPrefix(s.Name, "search: control: ") && strings.Contains(s.Name, "the agent"):
			controls++
			fallthrough
		default:
			if !s.Pass && !s.NotTried {
				t.Errorf("%s: tried %s: expected %s, got %s", s.Name, s.Tried, s.Expected, s.Got)
			}
		}
	}
	if r.Pass || !found || controls != 4 || r.Agent != "simple 1.0.0" || len(r.Steps) < 450 {
		t.Errorf("pass %v, found %v, %d controls, %s, %d steps", r.Pass, found, controls, r.Agent, len(r.Steps))
	}
}
