package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run/control"
	"github.com/rein-sh/rein/secret"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a run that writes down what it is asked.
type desk struct {
	mu    sync.Mutex
	asked []string
	held  chan struct{} // nil: answers at once
}

func (d *desk) note(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, s)
}

func (d *desk) Status(ctx context.Context) (control.Status, error) {
	if d.held != nil {
		close(d.held)
		<-ctx.Done()
		return control.Status{}, &control.Error{Code: control.CodeEnding, Message: "the run ends"}
	}
	return control.Status{RunID: "01R", Doing: "thinking", Steps: 3}, nil
}

func (d *desk) Limit(_ context.Context, by control.Peer, l budget.Limit, n int64) (control.Change, error) {
	if by.UID != uint32(os.Geteuid()) || by.PID != int32(os.Getpid()) {
		return control.Change{}, errors.New("the peer is wrong")
	}
	d.note("limit " + l.Format(n))
	return control.Change{Limit: l, Old: "1", New: l.Format(n)}, nil
}

func (d *desk) Pending(context.Context) ([]control.Pending, error) { return nil, nil }

func (d *desk) Approve(_ context.Context, _ control.Peer, a control.Answer) error {
	if a.ID != "a1" {
		return &control.Error{Code: control.CodeNotFound, Message: "nothing " + a.ID + " is pending", Advice: "rein runs ls"}
	}
	d.note(string(a.Decision) + " " + string(a.Scope) + " " + a.Hash + " " + a.Reason)
	return nil
}

func (d *desk) Stop(_ context.Context, _ control.Peer, why string) error {
	d.note("stop " + why)
	return nil
}

func (d *desk) Network(_ context.Context, _ control.Peer, action control.Method, h control.Host) (control.NetworkChange, error) {
	d.note(fmt.Sprintf("%s %s %d %s", action, h.Host, h.Port, h.Proto))
	return control.NetworkChange{Action: string(action), Host: h.Host, Port: h.Port, Generation: 2}, nil
}

func (d *desk) Rotate(_ context.Context, _ control.Peer, name string, value secret.Value) error {
	d.note("rotate " + name + " " + value.Reveal())
	return nil
}

func serve(t *testing.T, dir string, h control.Handler) {
	t.Helper()
	s, err := control.Serve(dir, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func dial(t *testing.T, dir string) *control.Client {
	t.Helper()
	c, err := control.Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestEveryMethod(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), &desk{}
	serve(t, dir, d)
	st, err := os.Stat(filepath.Join(dir, control.File))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("the socket is %v, %v", st, err)
	}
	c, ctx := dial(t, dir), t.Context()
	status, err := c.Status(ctx)
	if err != nil || status.Doing != "thinking" || status.Steps != 3 {
		t.Errorf("status %+v, %v", status, err)
	}
	ch, err := c.Limit(ctx, budget.LimitTokens, 2_000_000)
	if diff := cmp.Diff(control.Change{Limit: budget.LimitTokens, Old: "1", New: "2000000"}, ch); err != nil || diff != "" {
		t.Errorf("limit: %v %s", err, diff)
	}
	if ch, err := c.Allow(ctx, control.Host{Host: "example.com", Port: 22, Proto: "tcp"}); err != nil || ch.Action != "allow" || ch.Generation != 2 {
		t.Errorf("allow: %+v, %v", ch, err)
	}
	if ch, err := c.Deny(ctx, control.Host{Host: "example.com"}); err != nil || ch.Action != "deny" {
		t.Errorf("deny: %+v, %v", ch, err)
	}
	if list, err := c.Pending(ctx); err != nil || list == nil || len(list) != 0 {
		t.Errorf("pending %v, %v", list, err)
	}
	if err := c.Approve(ctx, control.Answer{ID: "a1", Hash: "h", Decision: control.Deny, Scope: control.ForRun, Reason: "no"}); err != nil {
		t.Error(err)
	}
	err = c.Approve(ctx, control.Answer{ID: "zz", Hash: "h", Decision: control.Approve})
	if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodeNotFound || e.Hint() == "" {
		t.Errorf("an unknown id gives %v", err)
	}
	if err := errors.Join(c.Rotate(ctx, "github", secret.Value{}), c.Rotate(ctx, "github", secret.New("github", "a <value>"))); err != nil {
		t.Error(err)
	}
	if err := c.Stop(ctx, "enough"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"limit 2000000", "allow example.com 22 tcp", "deny example.com 0 ", "deny run h no", "rotate github ", "rotate github a <value>", "stop enough"}, d.asked); diff != "" {
		t.Error(diff)
	}
}

func TestManyClients(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve(t, dir, &desk{})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			c, err := control.Dial(t.Context(), dir)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for range 20 {
				if _, err := c.Status(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestMoreClientsThanServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve(t, dir, &desk{})
	for range 32 {
		if _, err := dial(t, dir).Status(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, err := dial(t, dir).Status(t.Context())
	if e, ok := errors.AsType[*control.Error](err); ok && e.Code != control.CodeBusy || err == nil {
		t.Errorf("the 33rd client got %v", err)
	}
}

func TestLongDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120), strings.Repeat("e", 120))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	serve(t, dir, &desk{})
	if _, err := dial(t, dir).Status(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStaleSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(dir, control.File)})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close() // as a process that dies leaves it
	if _, err := control.Dial(t.Context(), dir); !errors.Is(err, control.ErrNotRunning) {
		t.Errorf("dial: %v", err)
	}
	serve(t, dir, &desk{})
	if _, err := control.Serve(dir, &desk{}); !errors.Is(err, control.ErrServed) {
		t.Errorf("a second server: %v", err)
	}
	if _, err := dial(t, dir).Status(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	if _, err := control.Dial(t.Context(), t.TempDir()); !errors.Is(err, control.ErrNotRunning) {
		t.Errorf("dial: %v", err)
	}
}

// What is under way when the run ends is answered, and the socket is gone.
func TestCloseDuringAnswer(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), &desk{held: make(chan struct{})}
	s, err := control.Serve(dir, d)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, dir)
	got := make(chan error, 1)
	go func() { _, err := c.Status(context.Background()); got <- err }()
	<-d.held
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if e, ok := errors.AsType[*control.Error](<-got); !ok || e.Code != control.CodeEnding {
		t.Errorf("the answer was %v", e)
	}
	if _, err := os.Stat(filepath.Join(dir, control.File)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestContextOfTheClient(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), &desk{held: make(chan struct{})}
	serve(t, dir, d)
	c := dial(t, dir)
	ctx, cancel := context.WithCancelCause(t.Context())
	mine := errors.New("mine")
	go func() { <-d.held; cancel(mine) }()
	if _, err := c.Status(ctx); !errors.Is(err, mine) {
		t.Errorf("the error is %v", err)
	}
}

func TestHostileClients(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve(t, dir, &desk{})
	for name, bytes := range map[string]string{
		"no JSON":      "hello\n",
		"too long":     `{"v":1,"method":"` + strings.Repeat("x", control.MaxRequest) + "\"}\n",
		"two values":   `{"v":1,"method":"status"} {}` + "\n",
		"unknown":      `{"v":1,"method":"status","more":1}` + "\n",
		"half a line":  `{"v":1`,
		"just newline": "\n",
	} {
		conn, err := net.Dial("unix", filepath.Join(dir, control.File))
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		conn.Write([]byte(bytes))
		conn.(*net.UnixConn).CloseWrite()
		answer := make([]byte, 4096)
		n, _ := conn.Read(answer)
		conn.Close()
		if name == "half a line" {
			if n != 0 {
				t.Errorf("%s: answered %s", name, answer[:n])
			}
			continue
		}
		if err := control.ParseResponse(answer[:n], nil); err == nil {
			t.Errorf("%s: answered %s", name, answer[:n])
		} else if e, ok := errors.AsType[*control.Error](err); !ok || e.Code != control.CodeMalformed && e.Code != control.CodeUnsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := dial(t, dir).Status(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestParseRequest(t *testing.T) {
	for _, c := range []struct{ line, code string }{
		{`{"v":1,"method":"status"}`, ""},
		{`{"v":1,"method":"pending"}`, ""},
		{`{"v":1,"method":"stop"}`, ""},
		{`{"v":1,"method":"limit","limit":"max_tokens","amount":5}`, ""},
		{`{"v":1,"method":"approve","id":"x","hash":"h","decision":"approve"}`, ""},
		{`{"v":1,"method":"approve","id":"x","decision":"approve"}`, control.CodeInvalid},
		{`{"v":1,"method":"status","hash":"h"}`, control.CodeInvalid},
		{`{"v":2,"method":"status"}`, control.CodeUnsupported},
		{`{"method":"status"}`, control.CodeUnsupported},
		{`{"v":1,"method":"fly"}`, control.CodeUnsupported},
		{`{"v":1,"method":"limit","limit":"max_tokens"}`, control.CodeInvalid},
		{`{"v":1,"method":"limit","limit":"max_tokens","amount":-5}`, control.CodeInvalid},
		{`{"v":1,"method":"limit","limit":"max_tokens","amount":1.5}`, control.CodeMalformed},
		{`{"v":1,"method":"limit","amount":5}`, control.CodeInvalid},
		{`{"v":1,"method":"status","id":"x"}`, control.CodeInvalid},
		{`{"v":1,"method":"approve","id":"x","hash":"h","decision":"maybe"}`, control.CodeInvalid},
		{`{"v":1,"method":"approve","id":"","hash":"h","decision":"deny"}`, control.CodeInvalid},
		{`{"v":1,"method":"rotate"}`, control.CodeInvalid},
		{`{"v":1,"method":"rotate","secret":"key","host":"example.com"}`, control.CodeInvalid},
		{`{"v":1,"method":"status","secret":"key"}`, control.CodeInvalid},
		{`{"v":1,"method":"rotate","secret":"key","value":"` + strings.Repeat("x", 16<<10+1) + `"}`, control.CodeInvalid},
		{`{"v":1,"method":"approve","id":"x","hash":"h","decision":"deny","scope":"ever"}`, control.CodeInvalid},
		{`{"v":1,"method":"stop","reason":"` + strings.Repeat("x", 2000) + `"}`, control.CodeInvalid},
		{`[1]`, control.CodeMalformed},
		{"{\"v\":1,\"method\":\"st\xffatus\"}", control.CodeMalformed},
		{``, control.CodeMalformed},
	} {
		_, err := control.ParseRequest([]byte(c.line))
		code := ""
		if e, ok := errors.AsType[*control.Error](err); ok {
			code = e.Code
		}
		if code != c.code || (err == nil) != (c.code == "") {
			t.Errorf("%s: %v, want code %q", c.line, err, c.code)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{`{"v":1,"method":"status"}`, `{"v":1,"method":"limit","limit":"max_cost","amount":5}`,
		`{"v":1,"method":"approve","id":"x","hash":"h","decision":"deny","scope":"run","reason":"no"}`, `{"v":1,"method":"stop"}`, `{"v":1,"method":"allow","host":"*.example.com","port":443,"proto":"tls"}`, `{"v":1,"method":"deny","host":"192.0.2.0/24"}`, `{"v":1,"method":"rotate","secret":"key","value":"abcdef"}`, `{"v":9}`, "{", "\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := control.ParseRequest(line)
		if err != nil {
			if _, ok := errors.AsType[*control.Error](err); !ok {
				t.Fatalf("a fault that is no *Error: %v", err)
			}
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := control.ParseRequest(again); err != nil || twice != r {
			t.Fatalf("%s is read as %+v, %v", again, twice, err)
		}
	})
}

func FuzzParseResponse(f *testing.F) {
	f.Add([]byte(`{"v":1,"ok":true,"result":{"run_id":"x"}}`))
	f.Add([]byte(`{"v":1,"ok":false,"error":{"code":"failed","message":"x"}}`))
	f.Add([]byte(`{"v":1,"ok":false}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var s control.Status
		if control.ParseResponse(line, &s) != nil {
			return
		}
		result, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		good, err := json.Marshal(control.Response{V: control.Version, OK: true, Result: result})
		if err != nil {
			t.Fatal(err)
		}
		var again control.Status
		if err := control.ParseResponse(good, &again); err != nil {
			t.Fatalf("%s is not read again: %v", good, err)
		}
	})
}
