package sandboxtest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// callCases are about call ids and background commands.
func callCases() []Case {
	calls := caps(sandbox.CapExec, sandbox.CapFiles, sandbox.CapCallIDs)
	background := caps(sandbox.CapExec, sandbox.CapFiles, sandbox.CapCallIDs, sandbox.CapBackground)
	return []Case{
		{Name: "calls/same id twice", Needs: calls, run: twice},
		{Name: "calls/same id at once", Needs: calls, run: atOnce},
		{Name: "calls/same id after a cut connection", Needs: calls, run: cutConnection},
		{Name: "calls/outcome known after a cut connection", Needs: calls, run: cutFinished},
		{Name: "calls/failed call is stored too", Needs: calls, run: storedFailure},
		{Name: "calls/ids that are none", Needs: calls, run: badIDs},
		{Name: "calls/unknown id", Needs: calls, run: unknownID},
		{Name: "background/runs on", Needs: background, run: backgroundRunsOn},
		{Name: "background/logs by cursor", Needs: background, run: backgroundLogs},
		{Name: "background/exit code", Needs: background, run: backgroundExit},
		{Name: "background/timeout", Needs: background, run: backgroundTimeout},
		{Name: "background/interrupt", Needs: background, run: backgroundInterrupt},
		{Name: "background/many", Needs: background, run: backgroundMany},
	}
}

func (e *env) id(name string) string { return name + "-" + e.dir[5:] }

func twice(e *env) {
	c := sandbox.Command{CallID: e.id("twice"), Cwd: e.dir, Shell: "echo ran >> runs; echo out; echo err >&2; exit 4"}
	first, second := e.command(c), e.command(c)
	e.equal("known", fmt.Sprint(first.Known, second.Known), "false true")
	for _, r := range []sandbox.Result{first, second} {
		e.wantExit(r, 4)
		e.equal("output", stdout(r)+stderr(r), "out\nerr\n")
	}
	e.equal("runs", e.get(e.dir+"/runs"), "ran\n")
}

func atOnce(e *env) {
	c := sandbox.Command{CallID: e.id("once"), Cwd: e.dir, Shell: "echo ran >> runs; sleep 0.3; echo out; exit 6"}
	var wg sync.WaitGroup
	var fresh atomic.Int64
	for range 8 {
		wg.Go(func() {
			r, err := e.Sandbox.Run(e.Context(), c)
			if err != nil {
				e.Error(err)
				return
			}
			e.wantExit(r, 6)
			e.equal("output", stdout(r), "out\n")
			if !r.Known {
				fresh.Add(1)
			}
		})
	}
	wg.Wait()
	e.equal("calls that ran it", fresh.Load(), int64(1))
	e.equal("runs", e.get(e.dir+"/runs"), "ran\n")
}

// cutter is a provider whose connections to sandboxes can be cut.
type cutter struct {
	sandbox.Provider
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cutter) Endpoint(ctx context.Context, id string, port int) (sandbox.Endpoint, error) {
	ep, err := c.Provider.Endpoint(ctx, id, port)
	dial := ep.DialContext
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	ep.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			c.mu.Lock()
			c.conns = append(c.conns, conn)
			c.mu.Unlock()
		}
		return conn, err
	}
	return ep, err
}

// cut closes every connection there is.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

func cutConnection(e *env) {
	via := &cutter{Provider: e.suite.provider}
	sb := e.attach(via)
	c := sandbox.Command{CallID: e.id("cut"), Cwd: e.dir, Timeout: time.Minute,
		Shell: "echo ran >> runs; touch started; sleep 0.7; echo finished; exit 8"}
	go func() {
		if e.appears("started") {
			via.cut()
		}
	}()
	r, err := sb.Run(e.Context(), c) // asks what became of it
	e.must(err)
	e.wantExit(r, 8)
	r = e.command(c)
	e.wantExit(r, 8)
	e.equal("output", stdout(r), "finished\n")
	e.equal("known", r.Known, true)
	e.equal("runs", e.get(e.dir+"/runs"), "ran\n")
}

func cutFinished(e *env) {
	via := &cutter{Provider: e.suite.provider}
	sb := e.attach(via)
	for i := range 5 { // between commands, before and after the connection is reused
		via.cut()
		c := sandbox.Command{CallID: e.id(fmt.Sprint("cut", i)), Cwd: e.dir, Shell: fmt.Sprintf("echo %d >> lines; exit %d", i, i)}
		r, err := sb.Run(e.Context(), c)
		if sandbox.KindOf(err) == sandbox.KindUnavailable { // the request died with its connection
			r, err = sb.Run(e.Context(), c)
		}
		e.must(err)
		e.wantExit(r, i)
	}
	e.equal("lines", e.get(e.dir+"/lines"), "0\n1\n2\n3\n4\n")
}

func storedFailure(e *env) {
	c := sandbox.Command{CallID: e.id("slow"), Cwd: e.dir, Shell: "echo ran >> runs; sleep 60", Timeout: 300 * time.Millisecond}
	for range 2 {
		e.equal("timed out", e.command(c).TimedOut(), true)
	}
	e.equal("runs", e.get(e.dir+"/runs"), "ran\n")
}

func badIDs(e *env) {
	for _, id := range []string{"a b", "../x", "a/b", "ü", strings.Repeat("x", 65)} {
		_, err := e.Sandbox.Run(e.Context(), sandbox.Command{CallID: id, Shell: "touch " + e.dir + "/ran"})
		e.wantKind(err, sandbox.KindInvalid)
	}
	e.equal("size of a file nobody made", e.size("ran"), int64(0))
}

func unknownID(e *env) {
	_, err := e.Status(e.Context(), "nobody-ran-this")
	e.wantKind(err, sandbox.KindNotFound)
	e.wantKind(e.Interrupt(e.Context(), "nobody-ran-this"), sandbox.KindNotFound)
	_, _, err = e.Logs(e.Context(), "nobody-ran-this", 0)
	e.wantKind(err, sandbox.KindNotFound)
}

// start runs a command in the background.
func (e *env) start(id, shell string, timeout time.Duration) sandbox.Result {
	e.Helper()
	var r sandbox.Result
	e.within(20*time.Second, func() { // it does not wait for its command, which may take a minute
		r = e.command(sandbox.Command{CallID: id, Shell: shell, Cwd: e.dir, Background: true, Timeout: timeout})
	})
	if !r.Background || r.ExitCode != nil || r.OK() {
		e.Errorf("a start in the background gave %s", describe(r))
	}
	return r
}

// outcome waits for a background command.
func (e *env) outcome(id string) sandbox.Result {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.scale(20*time.Second))
	defer cancel()
	r, err := e.Sandbox.Wait(ctx, id)
	e.must(err)
	return r
}

func backgroundRunsOn(e *env) {
	id := e.id("bg")
	r := e.start(id, "touch started; until test -e go; do sleep 0.05; done; echo finished", time.Minute)
	if r.LogPath == "" {
		e.Error("no log path")
	}
	e.appears("started")
	s, err := e.Status(e.Context(), id)
	e.must(err)
	e.equal("running", s.Running, true)
	e.put("go", "")
	r = e.outcome(id)
	e.wantExit(r, 0)
	e.equal("log", e.logs(id), "finished\n")
}

// logs reads the whole log in pieces.
func (e *env) logs(id string) string {
	e.Helper()
	var all strings.Builder
	for cursor := int64(0); ; {
		piece, next, err := e.Logs(e.Context(), id, cursor)
		e.must(err)
		if next != cursor+int64(len(piece)) {
			e.Fatalf("cursor went from %d to %d over %d bytes", cursor, next, len(piece))
		}
		if len(piece) == 0 {
			return all.String()
		}
		all.Write(piece)
		cursor = next
	}
}

func backgroundLogs(e *env) {
	id := e.id("logs")
	e.start(id, `for i in 1 2 3 4 5 6 7 8 9 10; do echo "line $i"; sleep 0.05; done; echo last >&2`, time.Minute)
	var got strings.Builder
	cursor := int64(0)
	for running := true; running; {
		s, err := e.Status(e.Context(), id)
		e.must(err)
		running = s.Running // before the read, so that the last read has all
		piece, next, err := e.Logs(e.Context(), id, cursor)
		e.must(err)
		got.Write(piece)
		cursor = next
		e.wait(10 * time.Millisecond)
	}
	want := ""
	for i := 1; i <= 10; i++ {
		want += fmt.Sprintf("line %d\n", i)
	}
	e.equal("log", got.String(), want+"last\n")
}

func backgroundExit(e *env) {
	id := e.id("exit")
	e.start(id, "exit 3", time.Minute)
	e.wantExit(e.outcome(id), 3)
	s, err := e.Status(e.Context(), id)
	e.must(err)
	if s.Running || s.Result == nil {
		e.Errorf("status of an ended command: %+v", s)
	}
}

func backgroundTimeout(e *env) {
	id := e.id("late")
	e.start(id, "echo early; sleep 300", time.Second)
	r := e.outcome(id)
	e.equal("timed out", r.TimedOut(), true)
	e.had(r, time.Second, 15*time.Second)
	e.equal("log", e.logs(id), "early\n")
}

func backgroundInterrupt(e *env) {
	id := e.id("stop")
	e.start(id, "sleep 300", time.Minute)
	e.must(e.Interrupt(e.Context(), id))
	e.within(6*time.Second, func() { e.equal("killed by", e.outcome(id).KilledBy, execd.KilledByInterrupt) })
}

func backgroundMany(e *env) {
	for i := range 10 {
		e.start(e.id(fmt.Sprint("many", i)), fmt.Sprintf("echo %d; exit %d", i, i), time.Minute)
	}
	for i := range 10 {
		e.wantExit(e.outcome(e.id(fmt.Sprint("many", i))), i)
		e.equal("log", e.logs(e.id(fmt.Sprint("many", i))), fmt.Sprintf("%d\n", i))
	}
}
