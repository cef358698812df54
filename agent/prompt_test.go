package agent_test

import (
	"context"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// opened is a provider whose sandboxes have a network that is never used.
type opened struct{ sandbox.Provider }

func (o opened) Create(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	s.Network = policy.Document{}
	return o.Provider.Create(ctx, s)
}

// The system prompt says which rule of the network holds.
func TestPromptOfTheNetwork(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]policy.Document{
		"The network is closed: nothing outside the sandbox can be reached. Do not try": {},
		"but what the host's policy opens: it allows pypi.org on port 443 (https), methods GET, HEAD; it allows files.pythonhosted.org on port 443 (https), methods GET, HEAD. What it does not open is refused": {Bundles: []string{"pypi"}},
		"it asks about db.example.com on port 5432 (tcp); it denies *.evil.example; it asks about everything else.": {Default: "ask", Rules: []policy.Rule{
			{Host: "db.example.com", Ports: []int{5432}, Proto: "tcp", Action: "ask"}, {Host: "*.evil.example", Action: "deny"}}},
		"policy opens: nothing is denied but addresses that are not public: the policy only reports; the first rule that speaks of a target counts; it asks about db.example.com": {
			Origin: policy.OriginHost, Mode: policy.ModeOrdered, ReportOnly: true, Rules: []policy.Rule{{Host: "db.example.com", Action: "ask"}}},
	} {
		m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		_, f, err := play(t, setup{run: func(o *run.Options) { o.Provider, o.Target.Spec.Network = opened{m}, d }}, text("x"))
		if err != nil {
			t.Fatal(err)
		}
		if system := f.seen[0].System; !strings.Contains(system, want) {
			t.Errorf("there is no %q in\n%s", want, system)
		}
		m.Close()
	}
}
