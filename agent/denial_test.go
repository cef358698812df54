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

// denying is a provider on which every command has tried one host in vain.
type denying struct {
	sandbox.Provider
	asked *int
}

func (d denying) NetworkRecords(_ context.Context, _ string, after uint64) (sandbox.NetworkLog, error) {
	*d.asked++
	log := sandbox.NetworkLog{Last: uint64(*d.asked - 1), Head: "head"}
	for seq := after + 1; seq <= log.Last; seq++ {
		log.Records = append(log.Records, sandbox.NetworkRecord{Seq: seq, Count: 1, Proto: "tcp", Name: "evil.example", Port: 443,
			Verdict: "deny", Reason: "no rule allows it"})
	}
	return log, nil
}

func TestDenial(t *testing.T) {
	t.Parallel()
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
				run: func(o *run.Options) { o.Provider = denying{m, new(int)} }}, sh(c.command), text("x"))
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
