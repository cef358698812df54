package sandboxtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// pauseCases are about sandboxes that stand still. Some of them measure how
// long nothing happened, and so let time pass.
func pauseCases() []Case {
	needs := caps(sandbox.CapPause, sandbox.CapExec, sandbox.CapFiles)
	return []Case{
		{Name: "pause/refused without it", run: pauseRefused},
		{Name: "pause/nothing runs meanwhile", Needs: needs, fresh: true, run: pauseStands},
		{Name: "pause/new requests refused", Needs: needs, fresh: true, run: pauseRefusesNew},
		{Name: "pause/open command goes on", Needs: needs, fresh: true, run: pauseOpen},
		{Name: "pause/only once", Needs: needs, fresh: true, run: pauseTwice},
		{Name: "pause/kill", Needs: needs, fresh: true, run: pauseKill},
		{Name: "pause/deadline goes on", Needs: append(caps(sandbox.CapRenew), needs...), fresh: true, run: pauseExpiry},
		{Name: "pause/deadline held", Needs: needs, fresh: true, run: pauseHold},
		{Name: "pause/terminal attached", Needs: append(caps(sandbox.CapPTY), needs...), fresh: true, run: pauseTerminal},
		{Name: "pause/upload open", Needs: needs, fresh: true, run: pauseUpload},
		{Name: "pause/all pairs at once", Needs: append(caps(sandbox.CapRenew), needs...), run: pausePairs},
	}
}

func pauseRefused(e *env) {
	if e.suite.report.Has(sandbox.CapPause) {
		return
	}
	e.wantKind(e.Pause(e.Context(), sandbox.PauseOptions{}), sandbox.KindUnsupported)
	e.wantKind(e.Resume(e.Context()), sandbox.KindUnsupported)
}

func (e *env) pause() {
	e.Helper()
	e.must(e.Pause(e.Context(), sandbox.PauseOptions{}))
	e.state(sandbox.StatePaused)
}

func (e *env) resume() {
	e.Helper()
	e.must(e.Resume(e.Context()))
	e.state(sandbox.StateRunning)
}

func (e *env) state(want sandbox.State) {
	e.Helper()
	info, err := e.Refresh(e.Context())
	e.must(err)
	e.equal("state", info.State, want)
}

func pauseStands(e *env) {
	e.start(e.id("beat"), "while :; do date +%s%N >> times; sleep 0.02; done", time.Minute)
	e.eventually(15*time.Second, "lines are written", func() bool { return e.size("times") > 3*20 })
	e.pause()
	const still = 700 * time.Millisecond
	e.wait(still)
	e.resume()
	// Some lines more: one may have been on its way when everything stopped.
	before := e.size("times")
	e.eventually(10*time.Second, "the command goes on", func() bool { return e.size("times") > before+3*20 })
	var last, longest int64
	for line := range strings.Lines(e.get(e.dir + "/times")) {
		var at int64
		if _, err := fmt.Sscan(line, &at); err != nil {
			continue // the line that is being written
		}
		if last != 0 {
			longest = max(longest, at-last)
		}
		last = at
	}
	if gap := time.Duration(longest); gap < still {
		e.Errorf("the longest gap is %v, the pause was %v", gap, still)
	}
}

func pauseRefusesNew(e *env) {
	e.put("file", "content")
	e.pause()
	_, err := e.Sandbox.Run(e.Context(), sandbox.Command{Shell: "touch ran", Cwd: e.dir})
	e.wantKind(err, sandbox.KindConflict)
	_, err = e.ReadFile(e.Context(), e.dir+"/file", sandbox.ReadOptions{})
	e.wantKind(err, sandbox.KindConflict)
	e.resume()
	e.equal("file", e.get(e.dir+"/file"), "content")
	if _, err := e.Stat(e.Context(), e.dir+"/ran", sandbox.Access{}); sandbox.KindOf(err) != sandbox.KindNotFound {
		e.Errorf("the refused command has run: %v", err)
	}
}

// lineWriter tells when the first line has come.
type lineWriter struct {
	once  sync.Once
	first chan struct{}
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.first) })
	return len(p), nil
}

func pauseOpen(e *env) {
	w := &lineWriter{first: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		r, err := e.Sandbox.Run(e.Context(), sandbox.Command{Cwd: e.dir, Stdout: w, Timeout: time.Minute,
			Shell: "echo begun; for i in 1 2 3 4 5; do sleep 0.1; done; echo ended > end; exit 3"})
		if err == nil && (r.ExitCode == nil || *r.ExitCode != 3) {
			err = fmt.Errorf("it ended otherwise: %s", describe(r))
		}
		done <- err
	}()
	select {
	case <-w.first:
	case err := <-done:
		e.Fatal(err)
	}
	e.pause()
	e.wait(700 * time.Millisecond)
	e.resume()
	e.must(<-done)
	e.equal("end", e.get(e.dir+"/end"), "ended\n")
}

func pauseTwice(e *env) {
	e.wantKind(e.Resume(e.Context()), sandbox.KindConflict)
	e.pause()
	e.wantKind(e.Pause(e.Context(), sandbox.PauseOptions{}), sandbox.KindConflict)
	e.state(sandbox.StatePaused)
	e.resume()
	e.wantKind(e.Resume(e.Context()), sandbox.KindConflict)
	e.sh("true")
}

func pauseKill(e *env) {
	e.start(e.id("sleep"), "sleep 300", time.Minute)
	e.pause()
	e.within(15*time.Second, func() { e.must(e.Kill(e.Context())) })
	e.equal("gone", e.gone(e.ID()), true)
}

func pauseExpiry(e *env) {
	e.pause()
	_, err := e.Renew(e.Context(), time.Now().Add(e.scale(time.Second)))
	e.must(err)
	e.eventually(15*time.Second, "the sandbox is gone", func() bool { return e.gone(e.ID()) })
	e.wantKind(e.Resume(e.Context()), sandbox.KindNotFound)
}

func pauseHold(e *env) {
	end := e.Info().ExpiresAt
	err := e.Pause(e.Context(), sandbox.PauseOptions{Hold: time.Hour})
	if sandbox.KindOf(err) == sandbox.KindUnsupported {
		e.state(sandbox.StateRunning)
		return // refused, not weakened
	}
	e.must(err)
	info, err := e.Refresh(e.Context())
	e.must(err)
	e.equal("end while paused", info.ExpiresAt.Round(0).Equal(end.Add(time.Hour).Round(0)), true)
	e.wait(300 * time.Millisecond)
	e.resume()
	info, err = e.Refresh(e.Context())
	e.must(err)
	if later := info.ExpiresAt.Sub(end); later < 300*time.Millisecond || later > e.scale(30*time.Second) {
		e.Errorf("the end moved by %v for a pause of 300 ms", later)
	}
}

// pauseTerminal has somebody type to a paused sandbox.
func pauseTerminal(e *env) {
	id := e.openTerminal("stty -echo; echo up; while read -r line; do echo \"$line\"; done")
	s := e.attachTerminal(id, execd.AttachOptions{Since: 0})
	s.until("up\r\n")
	e.pause()
	s.types("to be read later\n")
	_, err := e.AttachTerminal(e.Context(), id, execd.AttachOptions{Takeover: true}, sandbox.Access{})
	e.wantKind(err, sandbox.KindConflict)
	type next struct {
		data string
		err  error
	}
	came := make(chan next, 1)
	go func() {
		ev, err := s.Next(e.Context())
		came <- next{string(ev.Data), err}
	}()
	select {
	case n := <-came:
		e.Errorf("while paused: %q, %v", n.data, n.err)
		return
	case <-time.After(500 * time.Millisecond):
	}
	e.resume()
	select {
	case n := <-came:
		e.must(n.err)
		s.seen += n.data
	case <-time.After(e.scale(30 * time.Second)):
		e.Fatal("nothing has been read")
	}
	if !strings.Contains(s.seen, "to be read later\r\n") { // it may come in pieces
		s.until("to be read later\r\n")
	}
	s.types("and on\n")
	s.until("and on\r\n")
}

// pauseUpload has an upload under way when the sandbox is paused: more of it has
// been taken than waits on the way. It ends when the pause has, whatever the
// client has sent meanwhile.
func pauseUpload(e *env) {
	half := noise(7, 24<<20)
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := e.Upload(e.Context(), e.dir+"/file", out, sandbox.WriteOptions{})
		out.CloseWithError(err)
		done <- err
	}()
	_, err := in.Write(half)
	e.must(err)
	e.pause()
	sent := make(chan error, 1)
	go func() {
		_, err := in.Write(half)
		sent <- errors.Join(err, in.Close())
	}()
	select {
	case err := <-done:
		e.Fatalf("it has ended while paused: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	e.resume()
	e.must(<-sent)
	e.must(<-done)
	got, want := sha256.New(), sha256.New()
	_, err = e.Download(e.Context(), e.dir+"/file", got, sandbox.Access{})
	e.must(err)
	want.Write(half)
	want.Write(half)
	e.equal("the hash", hex.EncodeToString(got.Sum(nil)), hex.EncodeToString(want.Sum(nil)))
}
