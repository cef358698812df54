package daemon_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/execd/daemon"
)

// events runs a command as a plain client of OpenSandbox does and returns all
// events but pings.
func events(t *testing.T, r *rig, req execd.RunRequest) []execd.Event {
	t.Helper()
	var list []execd.Event
	if _, err := r.Run(t.Context(), req, func(e execd.Event) { list = append(list, e) }); err != nil {
		t.Fatal(err)
	}
	return list
}

// texts are the lines of one output stream.
func texts(list []execd.Event, kind string) []string {
	var lines []string
	for _, e := range list {
		if e.Type == kind {
			lines = append(lines, e.Text)
		}
	}
	return lines
}

// The wire as OpenSandbox's clients read it: one JSON object a line, a blank
// line after each, and nothing after the terminal event.
func TestPlainStream(t *testing.T) {
	r := serve(t, bestUser())
	for _, c := range []struct {
		command        string
		stdout, stderr []string
		evalue         string // "" for success
	}{
		{"echo hello", []string{"hello"}, nil, ""},
		{`printf 'a\n\nb'; echo e >&2`, []string{"a", "\n", "b"}, []string{"e"}, ""},
		{`printf 'crlf\r\n\r\n10%%\r20%%\rdone\n'`, []string{"crlf", "\n", "10%", "20%", "done"}, nil, ""},
		{"exit 7", nil, nil, "7"},
		{"no-such-program-here", nil, []string{"bash: line 1: no-such-program-here: command not found"}, "127"},
		{"kill -9 $$", nil, nil, "-1"},
		{`printf '<&>"\\ \xe2\x80\xa8\xc2\x85 \x1b[0m \xf0\x9f\x98\x80'`, []string{"<&>\"\\ \u2028\u0085 \x1b[0m 😀"}, nil, ""},
		{`printf 'bad \xff\xfe utf-8\n'`, []string{"bad \ufffd\ufffd utf-8"}, nil, ""},
	} {
		list := events(t, r, execd.RunRequest{Command: c.command})
		if list[0].Type != execd.EventInit || len(list[0].Text) != 32 {
			t.Errorf("%s: first event %+v", c.command, list[0])
		}
		if got := texts(list, execd.EventStdout); !slices.Equal(got, c.stdout) {
			t.Errorf("%s: stdout %q, want %q", c.command, got, c.stdout)
		}
		if got := texts(list, execd.EventStderr); !slices.Equal(got, c.stderr) {
			t.Errorf("%s: stderr %q, want %q", c.command, got, c.stderr)
		}
		last := list[len(list)-1]
		switch {
		case c.evalue == "" && last.Type != execd.EventComplete,
			c.evalue != "" && (last.Type != execd.EventError || last.Error.Name != "CommandExecError" || last.Error.Value != c.evalue || len(last.Error.Traceback) == 0):
			t.Errorf("%s: last event %+v", c.command, last)
		}
		for _, e := range list {
			if d := time.Since(time.UnixMilli(e.Timestamp)); d < -time.Minute || d > time.Minute {
				t.Errorf("%s: timestamp %d", c.command, e.Timestamp)
			}
			if e.Rein != nil {
				t.Errorf("%s: a plain client was sent rein's member: %+v", c.command, e)
			}
		}
	}
}

func TestStreamBytes(t *testing.T) {
	r := serve(t, bestUser())
	resp := post(t, r, "/command", `{"command":"echo 1; echo 2 >&2; printf '\\u2028'; exit 3"}`)
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsAny(b, "\u2028\u2029\u0085\r\t") {
		t.Errorf("a line separator is not escaped: %q", b)
	}
	frames := strings.Split(strings.TrimSuffix(string(b), "\n\n"), "\n\n")
	var types []string
	for _, f := range frames {
		if strings.Contains(f, "\n") || !strings.HasPrefix(f, "{") || !strings.HasSuffix(f, "}") {
			t.Errorf("frame %q", f)
		}
		_, after, _ := strings.Cut(f, `"type":"`)
		typ, _, _ := strings.Cut(after, `"`)
		types = append(types, typ)
	}
	if types[0] != "init" || types[1] != "ping" || types[len(types)-1] != "error" {
		t.Errorf("order of events: %v", types)
	}
	if n := strings.Count(strings.Join(types, " "), "error") + strings.Count(strings.Join(types, " "), "execution_complete"); n != 1 {
		t.Errorf("%d terminal events", n)
	}
}

func TestCapture(t *testing.T) {
	r := serve(t, bestUser())
	full := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%d\n", i+1)
		}
		return b.String()
	}
	for _, c := range []struct {
		command        string
		capture        int64
		stdout, stderr execd.Output
	}{
		{"seq 3", 1000, execd.Output{Bytes: 6, Lines: 3, Head: []byte("1\n2\n3\n"), HeadLines: 3}, execd.Output{}},
		{"printf abc >&2", 1000, execd.Output{}, execd.Output{Bytes: 3, Lines: 1, Head: []byte("abc")}},
		{"seq 100000", 1000, execd.Output{Bytes: int64(len(full(100000))), Lines: 100000, Head: []byte(full(100000)[:200]),
			Tail: []byte(full(100000)[len(full(100000))-800:]), HeadLines: int64(strings.Count(full(100000)[:200], "\n"))}, execd.Output{}},
		{"seq 100000 >&2; seq 3", 1000, execd.Output{Bytes: 6, Lines: 3, Head: []byte("1\n2\n3\n"), HeadLines: 3},
			execd.Output{Bytes: int64(len(full(100000))), Lines: 100000, Head: []byte(full(100000)[:198]),
				Tail: []byte(full(100000)[len(full(100000))-796:]), HeadLines: int64(strings.Count(full(100000)[:198], "\n"))}},
	} {
		o, err := r.Run(t.Context(), execd.RunRequest{Command: c.command, Rein: &execd.RunOptions{Capture: c.capture}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.stdout, o.Stdout); d != "" {
			t.Errorf("%s: stdout (-want +got)\n%s", c.command, d)
		}
		if d := cmp.Diff(c.stderr, o.Stderr); d != "" {
			t.Errorf("%s: stderr (-want +got)\n%s", c.command, d)
		}
	}
}

func TestRawOutputIsExact(t *testing.T) {
	r := serve(t, bestUser())
	var out, errs []byte
	o, err := r.Run(t.Context(), execd.RunRequest{Command: `head -c 3000000 /dev/urandom | tee data; printf 'e\xff\r\n' >&2`, Rein: &execd.RunOptions{Raw: true}},
		func(e execd.Event) {
			if e.Rein == nil {
				return
			}
			switch e.Type {
			case execd.EventStdout:
				out = append(out, e.Rein.Data...)
			case execd.EventStderr:
				errs = append(errs, e.Rein.Data...)
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(r.work, "data"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out, want) || string(errs) != "e\xff\r\n" || o.Stdout.Bytes != 3000000 {
		t.Errorf("%d bytes arrived, stderr %q, outcome %+v", len(out), errs, o)
	}
}

func TestLongLines(t *testing.T) {
	r := serve(t, bestUser())
	for _, n := range []int{1 << 20, 3<<20 + 7} {
		list := events(t, r, execd.RunRequest{Command: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", n)})
		lines := texts(list, execd.EventStdout)
		if got := len(strings.Join(lines, "")); got != n {
			t.Errorf("a line of %d bytes arrived as %d bytes", n, got)
		}
		if n == 1<<20 && len(lines) != 1 {
			t.Errorf("a line of 1 MiB came in %d pieces", len(lines))
		}
	}
}

func TestStalledReader(t *testing.T) {
	r := serve(t, bestUser(), func(c *daemon.Config) { c.StallLimit = 200 * time.Millisecond })
	resp := post(t, r, "/command", `{"command":"yes | head -c 50000000; echo over >&2","rein":{"id":"stalled"}}`)
	st := ended(t, r, "stalled")
	if st.ExitCode == nil || *st.ExitCode != 0 || st.Rein.Bytes != 50000005 {
		t.Errorf("status %+v", st)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the stalled stream looks complete")
	}
}

// slowMachine starts a command when it is let.
type slowMachine struct {
	*daemon.OS
	asked, let chan struct{}
}

func (m slowMachine) Start(s daemon.Spec) (daemon.Process, error) {
	m.asked <- struct{}{}
	<-m.let
	return m.OS.Start(s)
}

// A command that is being started is neither unknown nor beyond an interrupt.
func TestCommandThatIsBeingStarted(t *testing.T) {
	slow := slowMachine{asked: make(chan struct{}), let: make(chan struct{})}
	r := serve(t, bestUser(), func(c *daemon.Config) {
		slow.OS = c.Machine.(*daemon.OS)
		c.Machine = slow
	})
	outcome := make(chan execd.Outcome, 1)
	go func() {
		o, _ := r.Run(t.Context(), execd.RunRequest{Command: "sleep 30", Rein: &execd.RunOptions{ID: "slow"}}, nil)
		outcome <- o
	}()
	<-slow.asked
	status, interrupted := make(chan error, 1), make(chan error, 1)
	go func() {
		st, err := r.Status(t.Context(), "slow")
		if err == nil && st.ID != "slow" {
			err = fmt.Errorf("status %+v", st)
		}
		status <- err
	}()
	go func() { interrupted <- r.Interrupt(t.Context(), "slow") }()
	select {
	case err := <-status:
		t.Errorf("the status before it started: %v", err)
		status <- err
	case err := <-interrupted:
		t.Errorf("interrupted before it started: %v", err)
		interrupted <- err
	case <-time.After(100 * time.Millisecond):
	}
	close(slow.let)
	for name, c := range map[string]chan error{"status": status, "interrupt": interrupted} {
		if err := <-c; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if o := <-outcome; o.KilledBy != execd.KilledByInterrupt {
		t.Errorf("outcome %+v", o)
	}
}
