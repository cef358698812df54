package agent_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/tool"
)

// sessionOf is the session that was opened first, as the model was told of it.
func sessionOf(t *testing.T, req *model.Request) string {
	t.Helper()
	for _, m := range req.Messages {
		for _, r := range m.Results {
			if id := regexp.MustCompile(`"session":\{"id":"([^"]+)"`).FindStringSubmatch(r.Content); id != nil {
				return id[1]
			}
		}
	}
	t.Errorf("no session was opened: %+v", req.Messages)
	return ""
}

func inSession(t *testing.T, command string) answer {
	return func(req *model.Request) (*model.Reply, error) {
		args, _ := json.Marshal(map[string]string{"session_id": sessionOf(t, req), "command": command})
		return calls(tool.SessionRun, string(args))(req)
	}
}

func closing(t *testing.T) answer {
	return func(req *model.Request) (*model.Reply, error) {
		return calls(tool.SessionClose, `{"session_id":"`+sessionOf(t, req)+`"}`)(req)
	}
}

// lately are the results that the model was told last.
func lately(req *model.Request) string {
	told := ""
	for _, r := range req.Messages[len(req.Messages)-1].Results {
		told += r.Content
	}
	return told
}

// A session that was open when rein was ended is there when the run goes on,
// with its directory, its variables, and what is left of its commands and time.
func TestResumedSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		defer mem.Close()
		var process *mortal
		told := map[string]string{}
		deaths := 0
		noted := func(name string, a answer) answer {
			return func(req *model.Request) (*model.Reply, error) {
				told[name] = lately(req)
				return a(req)
			}
		}
		p := &plot{failed: map[int]bool{2: true}, answers: []answer{
			calls(tool.SessionCreate, "{}"),
			inSession(t, "mkdir sub; cd sub; export X=kept"),
			func(req *model.Request) (*model.Reply, error) {
				if deaths++; deaths == 1 {
					process.die()
				}
				return inSession(t, "echo $X in ${PWD##*/}")(req)
			},
			noted("state", inSession(t, "true")),
			noted("last", inSession(t, "true")),
			noted("over", text("done")),
		}}
		rep := livesTwice(t, mem, p, run.Options{ID: run.NewID(), Task: "x", Limits: budget.Long(), Sessions: tool.Sessions{Max: 1, Calls: 3}},
			func(m *mortal, resumed bool) {
				if process = m; resumed {
					time.Sleep(time.Minute)
				}
			})
		if rep.Reason != run.Done || len(rep.Resumed) != 1 {
			t.Errorf("%s, resumed %d times", rep.Conclusion, len(rep.Resumed))
		}
		for name, want := range map[string]string{"state": `"stdout":"kept in sub\n"`, "last": `"calls_left":0`, "over": "it has run the 3 commands that it may"} {
			if !strings.Contains(told[name], want) {
				t.Errorf("%s: no %s in %s", name, want, told[name])
			}
		}
		if left := regexp.MustCompile(`"seconds_left":(\d+)`).FindStringSubmatch(told["state"]); left == nil || left[1] > "1740" || left[1] < "1700" {
			t.Errorf("seconds left: %v", left)
		}
	})
}

// A session that was closed is not opened again by a resumption.
func TestResumedClosedSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
		defer mem.Close()
		var process *mortal
		told, deaths := "", 0
		p := &plot{failed: map[int]bool{2: true}, answers: []answer{
			calls(tool.SessionCreate, "{}"),
			closing(t),
			func(req *model.Request) (*model.Reply, error) {
				if deaths++; deaths == 1 {
					process.die()
				}
				return inSession(t, "true")(req)
			},
			func(req *model.Request) (*model.Reply, error) {
				told = lately(req)
				return calls(tool.SessionCreate, "{}")(req) // there is room
			},
			func(req *model.Request) (*model.Reply, error) {
				told += lately(req)
				return text("done")(req)
			},
		}}
		livesTwice(t, mem, p, run.Options{ID: run.NewID(), Task: "x", Limits: budget.Long(), Sessions: tool.Sessions{Max: 1}},
			func(m *mortal, _ bool) { process = m })
		if !strings.Contains(told, "it was closed") || !strings.Contains(told, `"calls_left":50`) {
			t.Error(told)
		}
	})
}

// Wherever a process dies, a session's commands are executed once, in one
// session, whose state is what they left.
func TestResumedSessionAnywhere(t *testing.T) {
	t.Parallel()
	story := func(t *testing.T) []answer {
		return []answer{
			calls(tool.SessionCreate, `{"cwd":"in"}`),
			inSession(t, "export N=1; echo line-1 >> log; sleep 2"),
			inSession(t, "export N=$((N+1)); echo line-$N >> log; sleep 2; mkdir d; cd d"),
			inSession(t, "echo line-$((N+1)) >> ../log; cp ../log ../copy"),
			text("all done"),
		}
	}
	points := 0
	for seed := range 25 {
		synctest.Test(t, func(t *testing.T) {
			mem := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
			defer mem.Close()
			l := &life{t: t, outside: mem, model: &plot{failed: map[int]bool{2: true}, answers: story(t)}, rng: rand.New(rand.NewPCG(uint64(seed), 3))}
			l.o = run.Options{ID: run.NewID(), Task: "the task", Limits: budget.Long(), Sessions: tool.Sessions{Max: 1}, Artifacts: []string{"in/log"}}
			at := 0
			if seed > 0 {
				at = points * seed / 25
			}
			state, rep, n := l.live(t.TempDir(), at, false)
			if seed == 0 {
				points = n
			}
			if rep == nil {
				_, rep, _ = l.live(state, 0, logged(state))
			}
			if rep.Reason != run.Done || len(rep.Artifacts) != 1 {
				t.Fatalf("died at %d of %d: %s %+v", at, points, rep.Conclusion, rep.Artifacts)
			}
			log, err := os.ReadFile(filepath.Join(rep.Dir, "artifacts", "in", "log"))
			if err != nil || string(log) != "line-1\nline-2\nline-3\n" {
				t.Errorf("died at %d of %d: %q, %v", at, points, log, err)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
