package execd_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// against returns a client of a daemon that gives one answer to everything.
func against(t *testing.T, h http.HandlerFunc) *execd.Client {
	t.Helper()
	s := httptest.NewServer(h)
	c := execd.NewClient(execd.Options{BaseURL: s.URL + "/prefix/", Token: secret.New("t", "tok"), Header: http.Header{"X-Extra": {"1"}}})
	t.Cleanup(func() { c.Close(); s.Close() })
	return c
}

// What OpenSandbox's daemon sends, which knows nothing of outcomes.
func TestRunAgainstOpenSandbox(t *testing.T) {
	code := func(n int) *int { return &n }
	for _, c := range []struct {
		name, stream string
		want         execd.Outcome
		err          error
	}{
		{"success", `{"type":"init","text":"id","timestamp":1}

{"type":"ping","text":"pong","timestamp":1}

{"type":"stdout","text":"hello","timestamp":1}

{"type":"stdout","text":"\n","timestamp":1}

{"type":"stderr","text":"é","timestamp":1}

{"type":"execution_complete","execution_time":12,"timestamp":2}

`, execd.Outcome{ExitCode: code(0), DurationMS: 12, Stdout: execd.Output{Bytes: 7, Lines: 2}, Stderr: execd.Output{Bytes: 3, Lines: 1}}, nil},
		{"failure", `{"type":"error","error":{"ename":"CommandExecError","evalue":"3","traceback":["exit status 3"]},"timestamp":2}`,
			execd.Outcome{ExitCode: code(3)}, nil},
		{"killed", `{"type":"error","error":{"ename":"CommandExecError","evalue":"-1","traceback":["signal: killed"]},"timestamp":2}`, execd.Outcome{Signal: "SIGKILL"}, nil},
		{"not started", `{"type":"error","error":{"ename":"CommandExecError","evalue":"fork/exec /bin/bash: argument list too long","traceback":[]},"timestamp":2}`, execd.Outcome{},
			&execd.Error{Status: 400, Code: "CommandExecError", Message: "fork/exec /bin/bash: argument list too long"}},
		{"with the prefix of server-sent events", "event: x\nid: 1\n: comment\ndata: {\"type\":\"execution_complete\",\"timestamp\":2}\n\n", execd.Outcome{ExitCode: code(0)}, nil},
		{"unknown events", `{"type":"status","text":"busy","timestamp":1}` + "\n{}\n" + `{"type":"execution_complete","timestamp":2}`, execd.Outcome{ExitCode: code(0)}, nil},
		{"cut", `{"type":"init","text":"id","timestamp":1}` + "\n\n", execd.Outcome{}, execd.ErrCut},
		{"empty", "", execd.Outcome{}, execd.ErrCut},
		{"a bare error", `{"type":"init","timestamp":1}` + "\n\n" + `{"code":"RUNTIME_ERROR","message":"boom"}`, execd.Outcome{}, &execd.Error{Code: "RUNTIME_ERROR", Message: "boom"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := against(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/prefix/command" || r.Header.Get(execd.TokenHeader) != "tok" || r.Header.Get("X-Extra") != "1" {
					t.Errorf("request %s %v", r.URL, r.Header)
				}
				io.WriteString(w, c.stream)
			})
			got, err := client.Run(t.Context(), execd.RunRequest{Command: "x"}, nil)
			var want *execd.Error
			switch {
			case c.err == nil && err != nil,
				errors.Is(c.err, execd.ErrCut) && !errors.Is(err, execd.ErrCut),
				errors.As(c.err, &want) && !cmp.Equal(err, c.err):
				t.Errorf("error %v, want %v", err, c.err)
			}
			if c.err == nil && got.StartedAt.IsZero() {
				t.Error("no time of start")
			}
			opts := cmpopts.IgnoreFields(execd.Outcome{}, "StartedAt", "DurationMS")
			if d := cmp.Diff(c.want, got, opts); d != "" {
				t.Error(d)
			}
			if c.want.DurationMS != 0 && got.DurationMS != c.want.DurationMS {
				t.Errorf("duration %d", got.DurationMS)
			}
		})
	}
}

// A connection that breaks in the middle is a cut, never a success.
func TestBrokenConnection(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"type":"init","text":"id","timestamp":1}`+"\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	if _, err := c.Run(t.Context(), execd.RunRequest{Command: "x"}, nil); !errors.Is(err, execd.ErrCut) {
		t.Errorf("error %v, want ErrCut", err)
	}
}

// The client returns at the terminal event, whatever the daemon does then.
func TestRunStopsAtTheTerminalEvent(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"type":"execution_complete","timestamp":2}`+"\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	if o, err := c.Run(t.Context(), execd.RunRequest{Command: "x"}, nil); err != nil || o.ExitCode == nil {
		t.Errorf("%+v %v", o, err)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   execd.Error
	}{
		{404, `{"code":"FILE_NOT_FOUND","message":"x: no such file"}`, execd.Error{Status: 404, Code: "FILE_NOT_FOUND", Message: "x: no such file"}},
		{401, `{"error":"Unauthorized: no token"}`, execd.Error{Status: 401, Message: "Unauthorized: no token"}},
		{502, "Bad \xff Gateway\n", execd.Error{Status: 502, Message: "Bad \ufffd Gateway"}},
		{500, "", execd.Error{Status: 500, Message: "500 Internal Server Error"}},
		{302, "", execd.Error{Status: 302, Message: "302 Found"}},
	} {
		client := against(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
			w.WriteHeader(c.status)
			io.WriteString(w, c.body)
		})
		err := client.Ping(t.Context())
		if got, ok := err.(*execd.Error); !ok || *got != c.want {
			t.Errorf("%d %q: got %#v, want %#v", c.status, c.body, err, c.want)
		}
		if execd.IsNotFound(err) != (c.status == 404) {
			t.Errorf("%d: IsNotFound", c.status)
		}
	}
}

// An answer without end ends the request, not our memory.
func TestAnswerIsBounded(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"announced": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(int64(1)<<40))
			io.WriteString(w, "[")
		},
		"streamed": func(w http.ResponseWriter, _ *http.Request) {
			names := `"` + strings.Repeat("x", 1<<20) + `",`
			for _, err := io.WriteString(w, "["); err == nil; {
				_, err = io.WriteString(w, names)
			}
		},
	} {
		_, err := against(t, h).List(t.Context(), "", "/", 1)
		if e, ok := err.(*execd.Error); !ok || e.Code != execd.CodeTooLarge {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestFeaturesOfAnotherDaemon(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	if f, err := c.Features(t.Context()); err != nil || f.CallIDs || f.Spill || f.Separation != "" {
		t.Errorf("%+v %v", f, err)
	}
}

// OpenSandbox's logs know no limit; the cursor still follows what was read.
func TestLogsWithoutLimit(t *testing.T) {
	log := strings.Repeat("0123456789", 150_000)
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		var from int
		fmt.Sscan(r.URL.Query().Get("cursor"), &from)
		w.Header().Set(execd.CursorHeader, fmt.Sprint(len(log)))
		io.WriteString(w, log[from:])
	})
	var got strings.Builder
	for cursor := int64(0); ; {
		b, next, err := c.Logs(t.Context(), "id", cursor)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) == 0 {
			break
		}
		got.Write(b)
		cursor = next
	}
	if got.String() != log {
		t.Errorf("%d of %d bytes", got.Len(), len(log))
	}
}

// A download that ends early is an error of Read.
func TestShortDownload(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "short")
	})
	f, err := c.Download(t.Context(), execd.DownloadRequest{Path: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.ReadAll(f); err == nil {
		t.Error("a short download looked complete")
	}
}

func FuzzStream(f *testing.F) {
	for _, s := range []string{
		"", "\n\n", "data: {}\n", `{"type":"init","text":"id","timestamp":1}`,
		`{"type":"stdout","text":"a","timestamp":1,"rein":{"data":"AAE="}}` + "\n\n" + `{"type":"execution_complete","timestamp":2,"rein":{"outcome":{"exit_code":0}}}` + "\n\n",
		`{"type":"error","error":null}`, `{"type":"error","error":{"evalue":"99999999999999999999"}}`, `{"code":"X"}`, "[1]\n{", "\xff\xfe{",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		o, ended, err := execd.ReadStream(strings.NewReader(string(stream)))
		if ended && err != nil || !ended && err == nil {
			t.Fatalf("ended %v, error %v", ended, err)
		}
		if o.ExitCode != nil && *o.ExitCode < 0 && !strings.Contains(string(stream), "outcome") {
			t.Fatalf("exit code %d", *o.ExitCode)
		}
	})
}

// The quick way and JSON agree on every line.
func FuzzOutputEvent(f *testing.F) {
	for _, s := range []string{
		`{"type":"stdout","timestamp":1,"text":"a"}`, `{"type":"stderr","timestamp":1,"text":"a\"}`, `{"type":"stdout","timestamp":1,"text":"","text":"b"}`,
		`{"type":"stdout","timestamp":1,"rein":{"data":"AAE="}}`, `{"type":"stdout","timestamp":1,"rein":{"data":"A=="}}`, `{"type":"stdout","timestamp":01,"text":"é"}`,
		`{"type":"stdout","timestamp":+1,"text":"a"}`, `{"type":"stdout","timestamp":1,"rein":{"data":"AA\n=="}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		quick, ok := execd.ParseOutput(line)
		if !ok {
			return
		}
		slow, ok, err := execd.ParseEvent(line)
		if err != nil || !ok {
			t.Fatalf("%q: quick %+v, slow %v %v", line, quick, ok, err)
		}
		if d := cmp.Diff(slow, quick, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%q: %s", line, d)
		}
	})
}
