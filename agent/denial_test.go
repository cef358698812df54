package agent_test

import (
	"context"
	"strings"
	"testing"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

// noting is a provider on which every command has tried what is in record.
type noting struct {
	sandbox.Provider
	record sandbox.NetworkRecord
	asked  *int
}

func (n noting) NetworkRecords(_ context.Context, _ string, after uint64) (sandbox.NetworkLog, error) {
	*n.asked++
	log := sandbox.NetworkLog{Last: uint64(*n.asked - 1), Head: "head"}
	for seq := after + 1; seq <= log.Last; seq++ {
		r := n.record
		r.Seq, r.Count = seq, 1
		log.Records = append(log.Records, r)
	}
	return log, nil
}

func TestDenial(t *testing.T) {
	t.Parallel()
	evil := sandbox.NetworkRecord{Proto: "tcp", Name: "evil.example", Port: 443, Verdict: "deny", Reason: "no rule allows it"}
	for _, c := range []struct {
		name    string
		choice  agent.OnDenial
		command string
		reason  run.Reason
		asked   int
	}{
		{"stop", agent.StopIfFailed, "exit 1", run.NeedsHuman, 1},
		{"default", "", "exit 1", run.NeedsHuman, 1},
		{"go on", agent.GoOn, "exit 1", run.Done, 2},
		{"denied and yet successful", agent.StopIfFailed, "true", run.Done, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
			defer m.Close()
			rep, f, err := play(t, setup{options: func(o *agent.Options) { o.OnDenial = c.choice },
				run: func(o *run.Options) { o.Provider = noting{m, evil, new(int)} }}, sh(c.command), text("x"))
			if err != nil || rep.Reason != c.reason || len(f.seen) != c.asked {
				t.Fatalf("%s after %d requests: %s, %v", rep.Reason, len(f.seen), rep.Conclusion, err)
			}
			if !rep.NetworkObserved || len(rep.Network) == 0 || rep.Network[0].Name != "evil.example" || rep.NetworkHead == "" {
				t.Errorf("network: %+v", rep.Network)
			}
			if c.command == "true" {
				return
			}
			if told := strings.Contains(rep.Hint, "--on-denial "+string(agent.GoOn)); told != (c.asked == 1) {
				t.Errorf("the report's hint is %q", rep.Hint)
			}
			if rep.Calls.Denied != 1 {
				t.Errorf("calls: %+v", rep.Calls)
			}
			if c.asked == 2 {
				if r := results(t, f.seen[1]); r[0].Err == nil || r[0].Err.Code != tool.CodeNetworkDenied || r[0].Err.Class != tool.NeedsHuman || len(r[0].Network) != 1 ||
					!strings.Contains(r[0].Err.Hint, "--on-denial") {
					t.Errorf("result: %+v", r)
				}
			}
		})
	}
}

// A run needs a person when a call failed that was refused something, and the host
// has not said to go on: not when it succeeded all the same, when nothing was
// refused, when that was another call's, or when it failed of something else.
func TestWhatNeedsAPerson(t *testing.T) {
	t.Parallel()
	const failed, succeeded, killed = `{"command":"exit 1"}`, `{"command":"true"}`, `{"command":"sleep 60","timeout_seconds":1}`
	name := sandbox.NetworkRecord{Proto: "dns", Name: "evil.example", Verdict: "deny", Rule: "default", Reason: "no rule allows it"}
	connection := sandbox.NetworkRecord{Proto: "tls", Name: "evil.example", Port: 443, Verdict: "deny", Rule: "tls.name", Reason: "the server name is another"}
	limit := sandbox.NetworkRecord{Proto: "tls", Name: "good.example", Port: 443, Verdict: "deny", Rule: "limit:questions", Reason: "3 questions wait for an answer"}
	others := connection
	others.Attribution = sandbox.Attribution{How: sandbox.ByPort, CallID: "call_other"}
	window := connection
	window.Attribution = sandbox.Attribution{How: sandbox.ByWindow}
	reached := sandbox.NetworkRecord{Proto: "tls", Name: "good.example", Port: 443, Verdict: "allow", Rule: "rules[0]", Reason: "rules[0] allows good.example"}
	reported := sandbox.NetworkRecord{Proto: "tls", Name: "evil.example", Port: 443, Verdict: "report", Rule: "default", Reason: "no rule allows it"}
	for what, c := range map[string]struct {
		call   string
		record sandbox.NetworkRecord
		person bool // unless the host has said to go on
	}{
		"failed, a name":                    {failed, name, true},
		"failed, a connection":              {failed, connection, true},
		"failed, a limit":                   {failed, limit, true},
		"failed, whoever ran meanwhile":     {failed, window, true},
		"failed, another's":                 {failed, others, false},
		"failed, and was let through":       {failed, reached, false},
		"failed, and it is only reported":   {failed, reported, false},
		"killed for its time, a connection": {killed, connection, false},
		"succeeded, a name":                 {succeeded, name, false},
		"succeeded, a connection":           {succeeded, connection, false},
		"succeeded, a limit":                {succeeded, limit, false},
		"succeeded, and was let through":    {succeeded, reached, false},
	} {
		for _, choice := range []agent.OnDenial{"", agent.StopIfFailed, agent.GoOn} {
			t.Run(what+"/"+string(choice), func(t *testing.T) {
				t.Parallel()
				m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
				defer m.Close()
				rep, f, err := play(t, setup{options: func(o *agent.Options) { o.OnDenial = choice },
					run: func(o *run.Options) { o.Provider = noting{m, c.record, new(int)} }}, calls(tool.RunCommand, c.call), text("x"))
				want, asked := run.Done, 2
				if c.person && choice != agent.GoOn {
					want, asked = run.NeedsHuman, 1
				}
				if err != nil || rep.Reason != want || len(f.seen) != asked {
					t.Fatalf("%s after %d requests: %s, %v", rep.Reason, len(f.seen), rep.Conclusion, err)
				}
				if asked == 1 {
					return
				}
				r := results(t, f.seen[1])[0]
				if denied := r.Err != nil && r.Err.Code == tool.CodeNetworkDenied; denied != c.person {
					t.Errorf("the model is told %+v", r.Err)
				}
			})
		}
	}
}
