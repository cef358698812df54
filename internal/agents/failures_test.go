package agents_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rein-sh/rein/internal/modelserver"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/wrap"
)

// preface is what Qwen Code says itself before the model does.
const preface = "preface: [\"Got it. Thanks for the context!\"]\n"

// failures provokes what can go wrong with an agent, and judges how its end is
// told.
func (p *place) failures(t *testing.T, a agent, runtime string) {
	for _, f := range []struct {
		name, script string
		server       modelserver.Options
		flags        []string
		reasons      []run.Reason
		kinds        []wrap.FailureKind
		silent       string // the agent that does not tell, and takes it for success
	}{
		{name: "bad key", script: "steps: [{text: hello}]", server: modelserver.Options{Key: secret.New("other", "another")},
			reasons: []run.Reason{run.NoModel}, kinds: []wrap.FailureKind{wrap.BadKey}},
		{name: "unknown model", script: "steps: [{text: hello}]", server: modelserver.Options{Models: []string{"none-of-these"}},
			reasons: []run.Reason{run.NoModel}, kinds: []wrap.FailureKind{wrap.NoModel}},
		{name: "forbidden", script: "steps: [{text: hello, faults: [{kind: forbidden, times: 20}]}]",
			reasons: []run.Reason{run.NeedsHuman, run.NoModel}, kinds: []wrap.FailureKind{wrap.NotAllowed, wrap.BadKey}},
		{name: "model declines", script: "steps: [{text: I would rather not do that., stop: refusal}]",
			reasons: []run.Reason{run.Failed}, kinds: []wrap.FailureKind{wrap.Refusal}, silent: "gemini"},
		{name: "too long", script: "steps: [{text: hello, faults: [{kind: context, times: 20}]}]",
			reasons: []run.Reason{run.Failed}, kinds: []wrap.FailureKind{wrap.TooLong}},
		{name: "wall clock", script: "steps: [{text: hello there, faults: [{kind: stall, times: 20}]}]", flags: []string{"--max-wall-time", "20s"},
			reasons: []run.Reason{run.OverBudget}},
	} {
		file := filepath.Join(t.TempDir(), "fault.yaml")
		if err := os.WriteFile(file, []byte(preface+f.script), 0o644); err != nil {
			t.Fatal(err)
		}
		r := p.wrap(t, a, runtime, file, f.server, f.flags...)
		rep := r.report
		if f.silent == a.name {
			f.reasons, f.kinds = []run.Reason{run.Done}, []wrap.FailureKind{""}
		}
		if !slices.Contains(f.reasons, rep.Reason) || len(f.kinds) > 0 && !slices.Contains(f.kinds, wrap.FailureKind(rep.Agent.Failure)) {
			t.Errorf("%s: %s", f.name, r)
		}
		t.Logf("%-9s %-7s %-22s %5.1f s, %s %s, exit code %d", a.name, runtime, f.name+":", r.took.Seconds(), rep.Reason, rep.Agent.Failure, value(rep.Agent.ExitCode))
	}
}
