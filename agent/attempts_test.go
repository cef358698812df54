package agent_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

// busy is a provider on which the first command has tried five hundred hosts, the last
// of them in vain.
type busy struct{ sandbox.Provider }

func (busy) NetworkRecords(_ context.Context, _ string, after uint64) (sandbox.NetworkLog, error) {
	const tried = 500
	log := sandbox.NetworkLog{Last: tried, Head: "head"}
	if after > tried { // where the record stands
		return sandbox.NetworkLog{Head: "before"}, nil
	}
	for seq := after + 1; seq <= tried; seq++ {
		n := sandbox.NetworkRecord{Seq: seq, Count: 1, Proto: "tls", Name: fmt.Sprintf("h%d.example", seq), Port: 443, Verdict: "allow", Rule: "rules[0]",
			Reason: "rules[0] allows *.example on port 443 (tls)"}
		if seq == tried {
			n.Verdict, n.Rule, n.Reason = "deny", "tls.name", "the server name is another"
		}
		log.Records = append(log.Records, n)
	}
	return log, nil
}

// However many connections a command made, the model is shown what it printed, and
// first of all what was refused, with the rule.
func TestManyAttempts(t *testing.T) {
	t.Parallel()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	defer m.Close()
	_, f, err := play(t, setup{options: func(o *agent.Options) { o.OnDenial = agent.GoOn },
		run: func(o *run.Options) { o.Provider = busy{m} }}, sh("echo printed; exit 1"), text("done"))
	if err != nil || len(f.seen) != 2 {
		t.Fatalf("%d requests, %v", len(f.seen), err)
	}
	r := results(t, f.seen[1])[0]
	if r.Stdout != "printed\n" || len(r.Network) == 0 || len(r.Network) > tool.MaxNetwork || len(r.Network)+r.NetworkLeft != 500 ||
		r.Network[len(r.Network)-1].Name != "h500.example" {
		t.Errorf("%+v", r)
	}
	if r.Err == nil || r.Err.Code != tool.CodeNetworkDenied ||
		r.Err.Message != "it failed, and it tried to reach h500.example port 443, which was refused: the server name is another (tls.name)" {
		t.Errorf("%+v", r.Err)
	}
}
