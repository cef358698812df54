package agent_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
)

// named is a fake model of another name.
type named struct {
	*fake
	name string
}

func (n named) Name() string { return n.name }

// The fallback model takes over when the first one could not be had, and only
// then; it is said, and it costs what it costs.
func TestFallback(t *testing.T) {
	for _, c := range []struct {
		name     string
		failure  model.Error
		requests int // to the first model
		reason   run.Reason
		falls    bool
	}{
		{"overloaded for long", model.Error{Kind: model.KindOverloaded}, 1 + 1 + agent.DefaultRetries, run.Done, true},
		{"asks to wait too long", model.Error{Kind: model.KindRateLimit, RetryAfter: time.Hour}, 1 + 1, run.Done, true},
		{"a wrong key", model.Error{Kind: model.KindAuth}, 1 + 1, run.NoModel, false},
		{"spent", model.Error{Kind: model.KindQuota}, 1 + 1, run.NeedsHuman, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				second := &fake{answers: []answer{sh("echo two"), text("from the second")}}
				signed := func(r *model.Request) (*model.Reply, error) {
					reply, err := sh("echo one")(r)
					reply.Message.Opaque = json.RawMessage(`{"first":1}`)
					return reply, err
				}
				rep, f, err := play(t, setup{options: func(o *agent.Options) {
					o.Fallback, o.FallbackPrice = named{second, "other/model"}, &agent.Price{Input: 10, Output: 10}
				}}, signed, fails(c.failure))
				if rep.Reason != c.reason || len(f.seen) != c.requests || (err == nil) != c.falls {
					t.Fatalf("%s after %d requests: %s, %v", rep.Reason, len(f.seen), rep.Conclusion, err)
				}
				if !c.falls {
					if len(second.seen) != 0 {
						t.Error("the fallback was asked")
					}
					return
				}
				if len(second.seen) != 2 || rep.Answer != "from the second" || rep.Steps != 3 {
					t.Fatalf("%d requests to the fallback, %d steps: %q", len(second.seen), rep.Steps, rep.Answer)
				}
				if m := second.seen[0].Messages; m[1].Opaque != nil || m[1].Calls[0].ID != m[2].Results[0].ID {
					t.Errorf("the fallback was sent %+v", m[1:3])
				}
				if w := strings.Join(rep.Warnings, "\n"); !strings.Contains(w, "other/model answers from step 2 on, since fake/model could not be had: "+string(c.failure.Kind)) {
					t.Errorf("warnings: %q", w)
				}
				if rep.Tokens.CostUSD < 0.001 {
					t.Errorf("the second model's price was not used: %v", rep.Tokens.CostUSD)
				}
			})
		})
	}
}

// When the fallback cannot be had either, the run ends.
func TestFallbackFailsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := &fake{answers: []answer{fails(model.Error{Kind: model.KindUnavailable})}}
		rep, f, err := play(t, setup{options: func(o *agent.Options) { o.Fallback, o.Retries = second, 2 }}, fails(model.Error{Kind: model.KindCut}))
		if err == nil || rep.ExitCode != 8 || len(f.seen) != 3 || len(second.seen) != 3 {
			t.Errorf("%s after %d and %d requests, %v", rep.Reason, len(f.seen), len(second.seen), err)
		}
	})
}

// uncomparable is a model that cannot be compared with another, as any value
// with a function in it.
type uncomparable struct {
	named
	_ func()
}

// Models are whatever has their methods: they are not compared.
func TestFallbackNotCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := &fake{answers: []answer{text("from the second")}}
		rep, _, err := play(t, setup{options: func(o *agent.Options) {
			o.Model = uncomparable{named: named{o.Model.(*fake), "first"}}
			o.Fallback = uncomparable{named: named{second, "second"}}
		}}, fails(model.Error{Kind: model.KindOverloaded}))
		if rep.Reason != run.Done || rep.Answer != "from the second" || err != nil {
			t.Fatalf("%s: %q, %v", rep.Reason, rep.Answer, err)
		}
	})
}
