package tool_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// A session_create that had begun, and is on record as having opened a session,
// opens no other.
func TestBegunOpening(t *testing.T) {
	t.Parallel()
	b := newBench(t, withSessions(tool.Sessions{Max: 1, Calls: 3}))
	id, err := b.box.OpenSession(t.Context(), sandbox.SessionOptions{Cwd: "sub"}, sandbox.Access{})
	if err != nil {
		t.Fatal(err)
	}
	r := b.set.Run(t.Context(), tool.Call{ID: "call_1", Name: tool.SessionCreate, Arguments: []byte(`{"cwd":"sub"}`), Begun: true, Opened: id})
	if !r.OK || r.Session == nil || r.Session.ID != id || r.Session.CallsLeft != 3 {
		t.Errorf("%+v %v", r, r.Err)
	}
	if r := b.raw(tool.SessionRun, `{"session_id":"`+id+`","command":"pwd"}`); !r.OK || !strings.HasSuffix(r.Stdout, "/sub\n") {
		t.Errorf("%+v %v", r, r.Err)
	}
	failed(t, b.raw(tool.SessionCreate, `{}`), tool.Fixable, tool.CodeSessionLimit)
}

// A session of another's execd is not taken up, and the model is told why.
func TestRecalledWithoutIDs(t *testing.T) {
	t.Parallel()
	b, _ := foreign(t, func(o *tool.Options) { o.Sessions.Max = 1 })
	id, err := b.box.OpenSession(t.Context(), sandbox.SessionOptions{}, sandbox.Access{})
	if err != nil {
		t.Fatal(err)
	}
	b.set.Recall(tool.Call{ID: "call_1", Name: tool.SessionCreate, Arguments: []byte(`{}`)},
		tool.Result{OK: true, Session: &tool.Session{ID: id, CallsLeft: 50, SecondsLeft: 1800}}, time.Now())
	r := b.raw(tool.SessionRun, `{"session_id":"`+id+`","command":"true"}`)
	failed(t, r, tool.Fixable, tool.CodeSessionGone)
	if !strings.Contains(r.Err.Message, "cannot be taken up again") {
		t.Error(r.Err.Message)
	}
	if r := b.raw(tool.SessionCreate, `{}`); !r.OK { // it takes no room
		t.Errorf("%+v %v", r, r.Err)
	}
}
