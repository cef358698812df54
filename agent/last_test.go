package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// Work that comes to nothing new is ended while its sandbox is there, and the
// model says how far it got; when it says nothing in time, rein does. A replay
// of the record comes to the same.
func TestLastTurnWithoutProgress(t *testing.T) {
	for name, c := range map[string]struct {
		last     answer
		want     string
		composed bool
	}{
		"an answer": {last: text("nothing moved"), want: "nothing moved"},
		"too late": {last: func(r *model.Request) (*model.Reply, error) {
			time.Sleep(25 * time.Second)
			return nil, &model.Error{Kind: model.KindTimeout}
		}, want: "7 tool calls", composed: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers := []answer{}
				for i := range 7 { // the sandbox lives for 10 minutes
					answers = append(answers, sh("sleep 80; exit 1 #"+strings.Repeat("x", i)))
				}
				rep, _, err := play(t, setup{run: func(o *run.Options) {
					o.Limits = budget.Long()
					o.Limits.TTL, o.Limits.CallTimeout = 10*time.Minute, 2*time.Minute
				}}, append(answers, c.last)...)
				if err != nil || rep.Reason != run.NoProgress {
					t.Fatalf("%s: %s, %v", rep.Reason, rep.Conclusion, err)
				}
				if !strings.Contains(rep.Answer, c.want) || rep.Composed != c.composed {
					t.Errorf("answer %q, composed %v", rep.Answer, rep.Composed)
				}
				w, err := agent.New(agent.Options{Model: &fake{}, Price: &agent.Price{Input: 1, Output: 2}})
				if err != nil {
					t.Fatal(err)
				}
				o := run.Options{Task: "the task", Provider: sandboxtest.NewMemory(sandboxtest.MemoryOptions{}), Limits: budget.Long()}
				o.Limits.TTL, o.Limits.CallTimeout = 10*time.Minute, 2*time.Minute
				got, err := run.Replay(t.Context(), rep.Dir, rep.AuditHead.String(), o, w.(run.Resumer))
				if err != nil || !got.Same {
					t.Errorf("%+v, %v", got, err)
				}
			})
		})
	}
}

// Whatever ends the work, there is an account of it.
func TestEveryEndHasAnAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last   answer
		reason run.Reason
	}{
		"no model": {fails(model.Error{Kind: model.KindNotFound}), run.NoModel},
		"no money": {fails(model.Error{Kind: model.KindQuota}), run.NeedsHuman},
		"too odd":  {fails(model.Error{Kind: model.KindInvalid}), run.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rep, _, _ := play(t, setup{}, sh("echo 1"), c.last)
			if rep.Reason != c.reason || !rep.Composed || !strings.Contains(rep.Answer, "echo 1: exit 0") {
				t.Errorf("%s: %q, composed %v", rep.Reason, rep.Answer, rep.Composed)
			}
		})
	}
}

// stingy is a provider that gives no sandbox more time.
type stingy struct{ sandbox.Provider }

func (stingy) Renew(context.Context, string, time.Time) (time.Time, error) {
	return time.Time{}, &sandbox.Error{Kind: sandbox.KindDenied, Op: "renew", Err: errors.New("no more")}
}

func TestLastTurnWithoutRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		defer m.Close()
		var answers []answer
		for i := range 7 {
			answers = append(answers, sh("sleep 80; echo "+strings.Repeat("x", i+1)))
		}
		rep, _, err := play(t, setup{run: func(o *run.Options) {
			o.Provider, o.Limits = stingy{m}, budget.Long()
			o.Limits.TTL, o.Limits.CallTimeout = 10*time.Minute, 2*time.Minute
		}}, append(answers, text("so far"))...)
		if rep.Reason != run.Failed || rep.Answer != "so far" || rep.Composed || !strings.Contains(rep.Conclusion, "could not be renewed") {
			t.Errorf("%s: %q, %v", rep.Conclusion, rep.Answer, err)
		}
	})
}
