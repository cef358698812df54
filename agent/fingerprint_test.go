package agent_test

import (
	"testing"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// What a run may do is part of what it is taken up with.
func TestOptionsChanged(t *testing.T) {
	t.Parallel()
	rep, _, err := play(t, setup{options: func(o *agent.Options) { o.Price = nil }}, text("done"))
	if err != nil {
		t.Fatal(err)
	}
	policy, err := approval.NewPolicy(approval.Allow)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change  func(*agent.Options, *run.Options)
		changed bool
	}{
		"nothing":  {func(*agent.Options, *run.Options) {}, false},
		"denials":  {func(o *agent.Options, _ *run.Options) { o.OnDenial = agent.GoOn }, true},
		"fallback": {func(o *agent.Options, _ *run.Options) { o.Fallback = &fake{} }, true},
		"approval": {func(_ *agent.Options, o *run.Options) { o.Approval = &run.Approval{Policy: policy} }, true},
		"lease":    {func(_ *agent.Options, o *run.Options) { o.Lease.Margin = 1 }, true},
	} {
		a := agent.Options{Model: &fake{}}
		o := run.Options{Task: "the task", Provider: sandboxtest.NewMemory(sandboxtest.MemoryOptions{}), Limits: budget.Standard()}
		c.change(&a, &o)
		w, err := agent.New(a)
		if err != nil {
			t.Fatal(err)
		}
		got, err := run.Replay(t.Context(), rep.Dir, rep.AuditHead.String(), o, w.(run.Resumer))
		if err != nil || got.Changed != c.changed {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
