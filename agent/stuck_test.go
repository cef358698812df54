package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
)

// told is the user's messages of a request after the first: what rein said.
func told(req model.Request) (all []string) {
	for _, m := range req.Messages[1:] {
		if m.Role == model.RoleUser {
			all = append(all, m.Text)
		}
	}
	return all
}

// withLast answers with a's until no tools are offered, and then with a word.
func withLast(a answer) answer {
	return func(r *model.Request) (*model.Reply, error) {
		if len(r.Tools) == 0 {
			return text("it would not work")(r)
		}
		return a(r)
	}
}

func TestCirclesAreStopped(t *testing.T) {
	t.Parallel()
	turn := 0
	for _, c := range []struct {
		name  string
		a     answer
		steps int // the last turn included
	}{
		{"the same", sh("cat missing"), 6},
		{"in turn", func(r *model.Request) (*model.Reply, error) {
			turn++
			return sh([]string{"ls", "echo x; exit 1"}[turn%2])(r)
		}, 9},
		{"in one reply", func(r *model.Request) (*model.Reply, error) {
			name, args := cmd("echo 1")
			return calls(slices.Repeat([]string{name, args}, 8)...)(r)
		}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rep, f, err := play(t, setup{}, withLast(c.a))
			if err != nil || rep.Reason != run.Stuck || rep.ExitCode != 5 || rep.Steps != c.steps || rep.Answer != "it would not work" {
				t.Fatalf("%s after %d steps: %s %q, %v", rep.Reason, rep.Steps, rep.Conclusion, rep.Answer, err)
			}
			last := f.seen[len(f.seen)-1]
			said := told(last)
			if len(said) != 2 || !strings.Contains(said[0], "You go round in circles") || !strings.Contains(said[1], "The work is stopped") {
				t.Errorf("told %q", said)
			}
			if !slices.ContainsFunc(rep.Warnings, func(w string) bool { return strings.Contains(w, "round in circles") }) {
				t.Errorf("warnings: %q", rep.Warnings)
			}
			paired(t, last)
		})
	}
}

// A word helps: the model that does something else goes on.
func TestNudgeHelps(t *testing.T) {
	t.Parallel()
	rep, f, err := play(t, setup{}, func(r *model.Request) (*model.Reply, error) {
		if len(told(*r)) > 0 {
			return text("I see")(r)
		}
		return sh("cat missing")(r)
	})
	if err != nil || rep.Reason != run.Done || len(f.seen) != 4 {
		t.Errorf("%s after %d requests, %v", rep.Conclusion, len(f.seen), err)
	}
}

func TestWorkIsNoCircle(t *testing.T) {
	for name, a := range map[string]func(i int) answer{
		"similar files": func(i int) answer {
			return calls("write_file", fmt.Sprintf(`{"path":"f%d","content":"%d"}`, i, i))
		},
		"polling a file": func(i int) answer { return sh("echo x >> progress; wc -l < progress") },
		"waiting": func(i int) answer {
			if i == 0 {
				return calls("run_command", `{"command":"sleep 500","background":true}`)
			}
			return func(r *model.Request) (*model.Reply, error) {
				id := unwrap(t, r.Messages[2].Results[0].Content).Background.ID
				return calls("run_command", fmt.Sprintf(`{"wait":%q,"timeout_seconds":20}`, id))(r)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var answers []answer
				for i := range 12 {
					answers = append(answers, a(i))
				}
				rep, f, err := play(t, setup{}, append(answers, text("x"))...)
				if err != nil || rep.Reason != run.Done || len(told(f.seen[len(f.seen)-1])) != 0 {
					t.Errorf("%s, told %q, %v", rep.Conclusion, told(f.seen[len(f.seen)-1]), err)
				}
			})
		})
	}
}
