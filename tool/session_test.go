package tool_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

func withSessions(s tool.Sessions) func(*tool.Options, *budget.Limits) {
	return func(o *tool.Options, _ *budget.Limits) { o.Sessions = s }
}

func TestNoSessionsByDefault(t *testing.T) {
	b := newBench(t, nil)
	if r := b.raw(tool.SessionCreate, `{}`); r.Err == nil || r.Err.Code != tool.CodeUnknownTool {
		t.Errorf("%+v", r)
	}
	b = newBench(t, func(o *tool.Options, _ *budget.Limits) { o.Sessions.Max, o.NoShell = 2, true })
	if r := b.raw(tool.SessionCreate, `{}`); r.Err == nil || r.Err.Code != tool.CodeUnknownTool {
		t.Errorf("without a shell: %+v", r)
	}
}

// Calls at once open no more sessions than there may be.
func TestSessionsOpenedAtOnce(t *testing.T) {
	b := newBench(t, withSessions(tool.Sessions{Max: 3}))
	var opened, refused atomic.Int32
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			switch r := b.raw(tool.SessionCreate, `{}`); {
			case r.OK:
				opened.Add(1)
			case r.Err != nil && r.Err.Code == tool.CodeSessionLimit:
				refused.Add(1)
			default:
				t.Errorf("%+v", r)
			}
		})
	}
	wg.Wait()
	if opened.Load() != 3 || refused.Load() != 9 {
		t.Errorf("%d opened, %d refused, want 3 and 9", opened.Load(), refused.Load())
	}
}

// A session ends with its age, and makes room.
func TestSessionAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, withSessions(tool.Sessions{Max: 1, Age: 90 * time.Second}))
		r := b.raw(tool.SessionCreate, `{}`)
		if !r.OK || r.Session.SecondsLeft != 90 {
			t.Fatalf("%+v %+v", r, r.Session)
		}
		run := `{"session_id":"` + r.Session.ID + `","command":"true"}`
		time.Sleep(time.Minute)
		if r = b.raw(tool.SessionRun, run); !r.OK || r.Session.SecondsLeft > 30 {
			t.Errorf("after a minute: %+v %+v", r, r.Session)
		}
		if r = b.raw(tool.SessionCreate, `{}`); r.Err == nil || r.Err.Code != tool.CodeSessionLimit {
			t.Errorf("a second one: %+v", r)
		}
		time.Sleep(time.Minute)
		if r = b.raw(tool.SessionRun, run); r.Err == nil || r.Err.Code != tool.CodeSessionGone || !strings.Contains(r.Err.Message, "its 90 s are over") {
			t.Errorf("after two: %+v", r.Err)
		}
		if r = b.raw(tool.SessionCreate, `{}`); !r.OK {
			t.Errorf("no room was made: %+v", r)
		}
	})
}

func TestSessionTools(t *testing.T) {
	b := newBench(t, withSessions(tool.Sessions{Max: 2, Calls: 3}))
	open := func() string {
		t.Helper()
		r := b.raw(tool.SessionCreate, `{}`)
		if !r.OK || r.Session == nil || r.Session.CallsLeft != 3 || r.Session.SecondsLeft < 1000 {
			t.Fatalf("%+v %+v", r, r.Session)
		}
		return r.Session.ID
	}
	id := open()
	run := func(command string) tool.Result {
		t.Helper()
		return b.raw(tool.SessionRun, `{"session_id":"`+id+`","command":"`+command+`"}`)
	}
	r := run("mkdir sub; cd sub; export X=1; exit 4")
	if r.OK || r.ExitCode == nil || *r.ExitCode != 4 || !strings.HasSuffix(r.Session.Cwd, "/sub") || r.Session.Lost != "" || r.Session.CallsLeft != 2 {
		t.Errorf("%+v %+v", r, r.Session)
	}
	if r = run("echo $X; pwd; echo e >&2"); r.Stdout != "1\n"+r.Session.Cwd+"\n" || r.Stderr != "e\n" || !r.OK {
		t.Errorf("%+v", r)
	}
	if r = run("yes line | head -c 100000"); !r.Truncated || len(r.Stdout) > 17<<10 || r.Spill == nil {
		t.Errorf("output of %d bytes, truncated %v, spill %v", len(r.Stdout), r.Truncated, r.Spill)
	}
	if r = run("true"); r.Err == nil || r.Err.Code != tool.CodeSessionGone || r.Err.Class != tool.Fixable || !strings.Contains(r.Err.Message, "3 commands") {
		t.Errorf("after its calls: %+v", r.Err)
	}
	// Two at once, and a closed one makes room.
	id = open()
	other := open()
	if r = b.raw(tool.SessionCreate, `{}`); r.Err == nil || r.Err.Code != tool.CodeSessionLimit {
		t.Errorf("a third: %+v", r)
	}
	if r = b.raw(tool.SessionClose, `{"session_id":"`+other+`"}`); !r.OK {
		t.Errorf("close: %+v", r)
	}
	open()
	// One that died is noticed, and said.
	if err := b.box.CloseSession(t.Context(), id, sandbox.Access{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r = run("true"); r.Err == nil || r.Err.Code != tool.CodeSessionGone || !strings.Contains(r.Err.Message, "not there any more") || r.Err.Hint == "" {
			t.Errorf("after its death: %+v", r.Err)
		}
	}
	for name, args := range map[string]string{
		tool.SessionRun: `{"session_id":"x"}`, tool.SessionClose: `{}`, tool.SessionCreate: `{"cwd":""}`,
	} {
		if r := b.raw(name, args); r.Err == nil || r.Err.Code != tool.CodeInvalidArguments {
			t.Errorf("%s%s: %+v", name, args, r.Err)
		}
	}
	if r = b.raw(tool.SessionRun, `{"session_id":"never","command":"true"}`); r.Err == nil || r.Err.Code != tool.CodeSessionGone {
		t.Errorf("a made-up session: %+v", r.Err)
	}
	if r = b.raw(tool.SandboxKill, `{}`); !r.OK {
		t.Errorf("%+v", r)
	}
	if r = run("true"); r.Err == nil || r.Err.Code != tool.CodeSandboxGone {
		t.Errorf("after the end: %+v", r.Err)
	}
}
