package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/execd/daemon"
)

// inSession runs a command with rein's members and returns what it printed.
func inSession(t *testing.T, r *rig, session string, req execd.RunRequest) (stdout string, o execd.Outcome) {
	t.Helper()
	if req.Rein == nil {
		req.Rein = &execd.RunOptions{Capture: 1 << 20}
	}
	o, err := r.RunInSession(t.Context(), session, req, nil)
	if err != nil {
		t.Fatalf("%q: %v", req.Command, err)
	}
	return string(o.Stdout.Head) + string(o.Stdout.Tail), o
}

func newSession(t *testing.T, r *rig) string {
	t.Helper()
	id, err := r.CreateSession(t.Context(), execd.SessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestSessionKeepsDirectoryAndVariables(t *testing.T) {
	for name, opts := range users(t) {
		t.Run(name, func(t *testing.T) {
			r := serve(t, opts)
			if f, err := r.Features(t.Context()); err != nil || !f.Sessions {
				t.Fatalf("features %+v, %v", f, err)
			}
			id, other := newSession(t, r), newSession(t, r)
			_, o := inSession(t, r, id, execd.RunRequest{Command: "mkdir -p sub; cd sub; export X=$'a b\\n\\'\"ü' Y=2; local=3; false"})
			if o.ExitCode == nil || *o.ExitCode != 1 || o.Session == nil || !o.Session.Kept || o.Session.Cwd != r.work+"/sub" {
				t.Fatalf("outcome %+v, session %+v", o, o.Session)
			}
			got, _ := inSession(t, r, id, execd.RunRequest{Command: `printf '%s|%s|%s|%s' "$X" "$Y" "$local" "$PWD"; exit 7`})
			if want := "a b\n'\"ü|2||" + r.work + "/sub"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			got, _ = inSession(t, r, id, execd.RunRequest{Command: `cd - >/dev/null; unset X; echo "$PWD"; env | grep -c -e REIN -e BASH_ENV`})
			if got != r.work+"\n0\n" {
				t.Errorf("cd -: %q", got)
			}
			if got, _ = inSession(t, r, id, execd.RunRequest{Command: `echo "${X-unset}"`}); got != "unset\n" {
				t.Errorf("a variable that was unset: %q", got)
			}
			if got, _ = inSession(t, r, other, execd.RunRequest{Command: `echo "${Y-unset} $PWD"`}); got != "unset "+r.work+"\n" {
				t.Errorf("another session: %q", got)
			}
		})
	}
}

// What a command does to its own shell is no reason to lose the session.
func TestSessionSurvivesItsCommands(t *testing.T) {
	r := serve(t, bestUser())
	id := newSession(t, r)
	inSession(t, r, id, execd.RunRequest{Command: "export KEPT=yes"})
	big := strings.Repeat("x", 100<<10)
	for _, c := range []struct {
		command string
		kept    bool
	}{
		{"export LOST=1; kill -9 $$", false},
		{"export LOST=1; exec true", false},
		{"export LOST=1; trap : EXIT", false},
		{"export LOST=1; export A=" + big + " B=" + big + " C=" + big, false},
		{"export PATH=/nowhere; cat() { :; }; printf() { :; }", true},
		{"export PATH=/bin:/usr/bin; set -eu; unset HOME PWD; false", false},
		{"echo 'unterminated", true},
		{"( exit 3 ) | false | true", true},
		{"export BASH_ENV=/dev/null", true},
		{"set -x; export U=1", true},
		{"sleep 1000 & export V=1", true},
	} {
		_, o := inSession(t, r, id, execd.RunRequest{Command: c.command})
		if o.Session == nil || o.Session.Kept != c.kept || c.kept == (o.Session.Reason != "") {
			t.Errorf("%.60s: %+v %+v", c.command, o, o.Session)
		}
	}
	if got, _ := inSession(t, r, id, execd.RunRequest{Command: `echo "$KEPT${LOST-}$U$V ${BASH_ENV-} $SHLVL"`}); got != "yes11 /dev/null 0\n" && got != "yes11 /dev/null 1\n" {
		t.Errorf("after all that: %q", got)
	}
	if _, o := inSession(t, r, id, execd.RunRequest{Command: "true | exit 3 | true"}); !slices.Equal(o.PipeStatus, []int{0, 3, 0}) {
		t.Errorf("pipe status %v", o.PipeStatus)
	}
	left, err := filepath.Glob(r.stateDir + "/cmd/*.st")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestSessionAsOpenSandboxHasIt(t *testing.T) {
	r := serve(t, bestUser())
	dir := r.work + "/made/for/it"
	id, err := r.CreateSession(t.Context(), execd.SessionRequest{Cwd: dir})
	if err != nil {
		t.Fatal(err)
	}
	run := func(req execd.RunRequest) []execd.Event {
		var list []execd.Event
		if _, err := r.RunInSession(t.Context(), id, req, func(e execd.Event) { list = append(list, e) }); err != nil {
			t.Fatal(err)
		}
		return list
	}
	list := run(execd.RunRequest{Command: "pwd; echo e >&2; echo o; touch mine"})
	if list[0].Type != execd.EventInit || list[0].Text != id {
		t.Errorf("init %+v", list[0])
	}
	if got := texts(list, execd.EventStdout); !slices.Equal(got, []string{dir, "e", "o"}) || len(texts(list, execd.EventStderr)) != 0 {
		t.Errorf("stdout %q, stderr %q", got, texts(list, execd.EventStderr))
	}
	if last := list[len(list)-1]; last.Type != execd.EventComplete {
		t.Errorf("last %+v", last)
	}
	run(execd.RunRequest{Command: "true", Cwd: "/"})
	if got := texts(run(execd.RunRequest{Command: "pwd"}), execd.EventStdout); !slices.Equal(got, []string{"/"}) {
		t.Errorf("a cwd does not stay: %q", got)
	}
	list = run(execd.RunRequest{Command: "sh -c 'exit 7'"})
	if last := list[len(list)-1]; last.Error == nil || last.Error.Name != "CommandExecError" || last.Error.Value != "7" {
		t.Errorf("last %+v", last)
	}
	start := time.Now()
	list = run(execd.RunRequest{Command: "sleep 1000 & sleep 1000", Timeout: 300})
	if last := list[len(list)-1]; last.Error == nil || last.Error.Name != "CommandExecError" || last.Error.Value != "-1" ||
		!strings.Contains(last.Error.Traceback[0], "timeout after") || time.Since(start) > 30*time.Second {
		t.Errorf("at a timeout, after %v: %+v", time.Since(start), last)
	}
	if err := r.DeleteSession(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"run": func() error {
			_, err := r.RunInSession(t.Context(), id, execd.RunRequest{Command: "true"}, nil)
			return err
		}(),
		"delete": r.DeleteSession(t.Context(), id),
	} {
		if e, ok := errors.AsType[*execd.Error](err); !ok || e.Status != 404 || e.Code != execd.CodeSessionNotFound {
			t.Errorf("%s of a deleted session: %v", what, err)
		}
	}
}

func TestSessionRunsOneCommandAtATime(t *testing.T) {
	r := serve(t, bestUser())
	id := newSession(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan bool)
	var first sync.WaitGroup
	first.Go(func() {
		_, err := r.RunInSession(ctx, id, execd.RunRequest{Command: "export X=1; sleep 1000"}, func(execd.Event) {
			select {
			case started <- true:
			case <-ctx.Done():
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
	})
	<-started
	_, err := r.RunInSession(t.Context(), id, execd.RunRequest{Command: "true"}, nil)
	if e, ok := errors.AsType[*execd.Error](err); !ok || e.Status != 409 {
		t.Errorf("a second command: %v", err)
	}
	cancel() // without an id it ends with its connection
	first.Wait()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		_, err := r.RunInSession(t.Context(), id, execd.RunRequest{Command: "true"}, nil)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the session stays taken: %v", err)
		}
	}
	// With one it does not, and asking again runs nothing.
	req := execd.RunRequest{Command: "echo once >>n; wc -l <n", Rein: &execd.RunOptions{ID: "call-1", Capture: 4096}}
	for range 2 {
		if got, o := inSession(t, r, id, req); got != "1\n" || o.Session == nil || !o.Session.Kept {
			t.Errorf("by id: %q %+v", got, o)
		}
	}
	// Deleting ends what runs.
	done := make(chan execd.Outcome, 1)
	var second sync.WaitGroup
	second.Go(func() {
		o, err := r.RunInSession(t.Context(), id, execd.RunRequest{Command: "sleep 1000", Rein: &execd.RunOptions{ID: "call-2", Capture: 1}}, func(e execd.Event) {
			if e.Type == execd.EventInit {
				started <- true
			}
		})
		if err != nil {
			t.Error(err)
		}
		done <- o
	})
	<-started
	if err := r.DeleteSession(t.Context(), id); err != nil {
		t.Error(err)
	}
	if o := <-done; o.KilledBy != execd.KilledByInterrupt {
		t.Errorf("ended by %q", o.KilledBy)
	}
	second.Wait()
}

func TestSessionsAreBounded(t *testing.T) {
	r := serve(t, bestUser())
	for range execd.MaxSessions {
		newSession(t, r)
	}
	_, err := r.CreateSession(t.Context(), execd.SessionRequest{})
	if e, ok := errors.AsType[*execd.Error](err); !ok || e.Status != 429 || e.Code != execd.CodeTooMany {
		t.Errorf("one too many: %v", err)
	}
	for body, code := range map[string]string{
		`{"command":""}`:                        execd.CodeInvalidBody,
		`{"command":"true","timeout":-1}`:       execd.CodeInvalidBody,
		`{"command":"true","background":true}`:  execd.CodeInvalidBody,
		`{"command":"true","uid":5}`:            execd.CodeInvalidBody,
		`{"command":"true","cwd":"/nowhere"}`:   execd.CodeSessionNotFound,
		`{"command":"true","envs":{"A=B":"c"}}`: execd.CodeSessionNotFound,
	} {
		resp := post(t, r, "/session/none/run", body)
		b, _ := io.ReadAll(resp.Body)
		if !strings.Contains(string(b), code) {
			t.Errorf("%s: %d %s", body, resp.StatusCode, b)
		}
	}
}

// The same with the shell of an image without bash.
func TestSessionWithoutBash(t *testing.T) {
	for _, shell := range []string{"/bin/dash", "/bin/busybox"} {
		if _, err := os.Stat(shell); err != nil {
			continue
		}
		out := daemon.StateOfShell(t, shell, publicDir(t), "export A='x y'; cd /usr; (exit 3)\nexit 5")
		if want := "/usr A=x y"; out != want {
			t.Errorf("%s: %q, want %q", shell, out, want)
		}
	}
}

func BenchmarkSession(b *testing.B) {
	r := serve(b, bestUser())
	id, err := r.CreateSession(b.Context(), execd.SessionRequest{})
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		if _, err := r.RunInSession(b.Context(), id, execd.RunRequest{Command: fmt.Sprint("export N=", i), Rein: &execd.RunOptions{Capture: 1}}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
