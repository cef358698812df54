package run_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/run/control"
	"github.com/rein-sh/rein/tool"
)

// What is asked about a narrow tool says where it runs and with which
// variables, and is bound to the program that lies there.
func TestApprovalOfAProgram(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workspace.Dir = lay(t, map[string]string{"deploy.sh": "echo wrong", "scripts/deploy.sh": "#!/bin/sh\necho one $TO"})
	narrow, err := tool.Program{Name: "deploy", Description: "Deploys.", Argv: []string{"sh", "./deploy.sh"}, Cwd: "scripts",
		Env: map[string]string{"TO": "staging"}}.Tool()
	if err != nil {
		t.Fatal(err)
	}
	o.Tools = []tool.Custom{narrow}
	var session *run.Session
	var asked []approval.Question
	o.Approval = judged(t, []approval.Channel{asker(func(ctx context.Context, q approval.Question) (approval.Decision, error) {
		if asked = append(asked, q); len(asked) == 1 {
			if r := shell(t, ctx, session, "echo 'echo two $TO' > scripts/deploy.sh"); !r.OK {
				t.Error(r.Err)
			}
		}
		return approval.Decision{Approve: true}, nil
	})}, approval.Rule{Action: approval.Ask, Tool: "deploy"})
	do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		session = s
		if r := call(t, ctx, s, "deploy", map[string]any{}); !r.OK || r.Stdout != "two staging\n" {
			t.Errorf("%+v %v", r, r.Err)
		}
		return done("done")
	})
	if len(asked) != 2 || !asked[1].Again {
		t.Fatalf("%+v", asked)
	}
	for _, q := range asked {
		if !strings.HasSuffix(q.Cwd, "/scripts") || !slices.Equal(q.Env, []string{"TO"}) || len(q.Files["./deploy.sh"]) != 64 {
			t.Errorf("%+v", q)
		}
	}
	if asked[0].Files["./deploy.sh"] == asked[1].Files["./deploy.sh"] || asked[0].Hash == asked[1].Hash {
		t.Error("it is not bound to the script")
	}
}

// A command in a session is bound to the directory the session is in, and to its
// state: what was allowed for the run before another command is asked about
// after it.
func TestApprovalInASession(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Sessions.Max = 1
	o.Workspace.Dir = lay(t, map[string]string{"x.sh": "echo top", "sub/x.sh": "echo sub"})
	var asked []approval.Question
	o.Approval = judged(t, []approval.Channel{asker(func(_ context.Context, q approval.Question) (approval.Decision, error) {
		asked = append(asked, q)
		return approval.Decision{Approve: true, ForRun: true}, nil
	})}, approval.Rule{Action: approval.Ask, Form: "shell"})
	do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		set, err := s.Tools()
		if err != nil {
			t.Fatal(err)
		}
		call := func(name, args string) tool.Result {
			return set.Run(ctx, tool.Call{ID: s.NewCallID(), Name: name, Arguments: []byte(args)})
		}
		opened := call(tool.SessionCreate, `{"cwd":"sub"}`)
		if !opened.OK {
			t.Fatalf("%+v", opened.Err)
		}
		in := func(command, want string) {
			t.Helper()
			r := call(tool.SessionRun, `{"session_id":"`+opened.Session.ID+`","command":"`+command+`"}`)
			if !r.OK || r.Stdout != want {
				t.Errorf("%s: %+v %v", command, r, r.Err)
			}
		}
		if r := call(tool.SessionRun, `{"session_id":"made-up","command":"sh x.sh"}`); r.Err == nil || r.Err.Code != tool.CodeSessionGone {
			t.Errorf("%+v %v", r, r.Err)
		}
		in("sh x.sh", "sub\n")
		in("cd ..", "")
		in("sh x.sh", "top\n")
		in("export X=1", "")
		in("sh x.sh", "top\n")
		return done("done")
	})
	if len(asked) != 3 {
		t.Fatalf("asked %d times: %+v", len(asked), asked)
	}
	if !strings.HasSuffix(asked[0].Cwd, "/sub") || strings.HasSuffix(asked[1].Cwd, "/sub") || asked[1].Cwd == "" {
		t.Errorf("%q, %q", asked[0].Cwd, asked[1].Cwd)
	}
	if asked[0].Files["x.sh"] == asked[1].Files["x.sh"] || asked[1].Hash == asked[2].Hash {
		t.Errorf("%+v", asked)
	}
}

// Who answers from outside is told what the answer is bound to.
func TestPendingNamesFiles(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Control = true
	o.Workspace.Dir = lay(t, map[string]string{"x.sh": "echo one"})
	o.Approval = judged(t, nil, approval.Rule{Action: approval.Ask, Form: "shell"})
	o.Approval.Resolvable = true
	do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
		answered := answering(ctx, t, s, func(c *control.Client, q control.Pending) error {
			if len(q.Files["x.sh"]) != 64 {
				t.Errorf("%+v", q)
			}
			return c.Approve(ctx, control.Answer{ID: q.ID, Hash: q.Hash, Decision: control.Approve})
		})
		r := shell(t, ctx, s, "sh x.sh")
		<-answered
		if !r.OK {
			t.Errorf("%+v %v", r, r.Err)
		}
		return done("done")
	})
}
