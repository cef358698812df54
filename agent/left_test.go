package agent_test

import (
	"strings"
	"testing"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
)

// newest is all that the newest message of a request says.
func newest(req model.Request) string {
	m := req.Messages[len(req.Messages)-1]
	text := m.Text
	for _, r := range m.Results {
		text += r.Content
	}
	return text
}

// Every step shows what is left, whatever its newest message is, and says of a
// limit that is nearly used up.
func TestEveryStepShowsWhatIsLeft(t *testing.T) {
	t.Parallel()
	rep, f, err := play(t, setup{limits: func(l *budget.Limits) { l.MaxSteps, l.MaxToolCalls = 20, 13 },
		run: func(o *run.Options) { o.Accept, o.Retry = []run.Check{{Shell: "test -e made"}}, 1 }},
		sh("echo one"), text(""), stopped(text("half a"), model.StopLength),
		sh("echo same"), sh("echo same"), sh("echo same"), // and the model is told
		text("done"), // which is not accepted
		sh("touch made"),
		sh("echo 1"), sh("echo 2"), sh("echo 3"), sh("echo 4"), sh("echo 5"), sh("echo 6"), sh("echo 7"), sh("echo 8"), // 16 steps
		text("done"))
	if err != nil || rep.Reason != run.Done {
		t.Fatalf("%s, %v", rep.Conclusion, err)
	}
	for i, req := range f.seen[1:] {
		said := newest(req)
		line := said[strings.LastIndexByte(said, '\n')+1:]
		if !strings.HasPrefix(line, "Left for this task: ") {
			t.Errorf("request %d: %q", i+2, said)
		}
		for want, here := range map[string]bool{
			"over 80 % of the tool calls": i >= 13 && i < 15, // 11 and 12 of 13
			"over 95 % of the tool calls": i >= 15,
			"over 80 % of the replies":    i >= 15, // 16 of 20
			"Warning":                     i >= 13,
		} {
			if strings.Contains(line, want) != here {
				t.Errorf("request %d: %q; %q: %v", i+2, line, want, here)
			}
		}
	}
}
