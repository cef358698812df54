package daemon_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/execd/daemon"
)

func post(t *testing.T, r *rig, route, body string) *http.Response {
	t.Helper()
	return request(t, r, http.MethodPost, route, strings.NewReader(body), nil)
}

func request(t *testing.T, r *rig, method, route string, body io.Reader, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+route, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(execd.TokenHeader, testToken)
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close(); http.DefaultClient.CloseIdleConnections() })
	return resp
}

func TestRefusedRequests(t *testing.T) {
	r := serve(t, bestUser())
	for _, c := range []struct {
		method, route, body string
		status              int
		code                string
	}{
		{"POST", "/command", `{"command":""}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"  \n"}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"a\u0000b"}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true","timeout":-1}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true","gid":1}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true","rein":{"argv":[""]}}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true","rein":{"argv":["a","b\u0000"]}}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true","rein":{"fixed":true}}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true","cwd":"/no/such"}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true","cwd":"/etc/passwd"}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true","cwd":"$NO_SUCH_VARIABLE"}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true","envs":{"A=B":"c"}}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true","uid":0}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true","rein":{"id":"../x"}}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true","rein":{"capture":1048577}}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true","rein":{"spill":true}}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true"`, 400, execd.CodeInvalidBody},
		{"POST", "/command", `{"command":"true"} {}`, 400, execd.CodeInvalidBody},
		{"POST", "/command", ``, 400, execd.CodeInvalidBody},
		{"DELETE", "/command", ``, 400, execd.CodeMissingQuery},
		{"DELETE", "/command?id=unknown", ``, 404, execd.CodeCommandNotFound},
		{"GET", "/command/status/unknown", ``, 404, execd.CodeCommandNotFound},
		{"GET", "/command/unknown/logs", ``, 404, execd.CodeCommandNotFound},
		{"GET", "/command/x/y", ``, 404, execd.CodeNotFound},
		{"GET", "/rein/port?local=0", ``, 400, execd.CodeInvalidQuery},
		{"GET", "/nothing", ``, 404, execd.CodeNotFound},
		{"PUT", "/ping", ``, 405, execd.CodeNotAllowed},
	} {
		if os.Geteuid() != 0 && strings.Contains(c.body, `"uid":0`) {
			continue
		}
		resp := request(t, r, c.method, c.route, strings.NewReader(c.body), nil)
		wantError(t, c.method+" "+c.route+" "+c.body, resp, c.status, c.code)
	}
}

// wantError checks that an answer is an error that every client can read.
func wantError(t *testing.T, what string, resp *http.Response, status int, code string) {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != status || resp.Header.Get("Content-Type") != "application/json" ||
		!bytes.Contains(b, []byte(`"code":"`+code+`"`)) || !bytes.Contains(b, []byte(`"message":"`)) {
		t.Errorf("%s: got %d %q, want %d with code %s", what, resp.StatusCode, b, status, code)
	}
}

func TestTokenOnEveryRoute(t *testing.T) {
	r := serve(t, bestUser())
	for _, route := range []string{"/ping", "/command", "/files/info", "/metrics", "/rein/features", "/nothing"} {
		for _, token := range []string{"", "wrong", testToken + "x"} {
			resp := request(t, r, http.MethodGet, route, nil, http.Header{http.CanonicalHeaderKey(execd.TokenHeader): {token}})
			wantError(t, route, resp, 401, execd.CodeUnauthorized)
		}
	}
	if err := r.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEnvironmentAndCwd(t *testing.T) {
	r := serve(t, bestUser(), func(c *daemon.Config) { c.Env = map[string]string{"FROM_BOOT": "1", "PAGER": "less"} })
	if err := os.Mkdir(filepath.Join(r.work, "sub dir ü"), 0o755); err != nil {
		t.Fatal(err)
	}
	list := events(t, r, execd.RunRequest{Command: `pwd; echo "$FROM_BOOT $HERE $PAGER $HOME $CI"; env | grep -c '^REIN\|^BASH_ENV' || true`,
		Cwd: "~/sub dir ü", Envs: map[string]string{"HERE": "a b"}})
	want := []string{r.work + "/sub dir ü", "1 a b less " + r.work + " 1", "0"}
	if got := texts(list, execd.EventStdout); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestScriptsOfAnyLength(t *testing.T) {
	r := serve(t, bestUser())
	for _, n := range []int{100 << 10, 1 << 20} {
		script := "echo begin # " + strings.Repeat("é'\"\\$", n/7) + "\r\necho end; cat <<'X' | cksum\n" + strings.Repeat("\t≠ line\r\n", 100) + "X\n"
		o, err := r.Run(t.Context(), execd.RunRequest{Command: script, Rein: &execd.RunOptions{Capture: 1000}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if o.ExitCode == nil || *o.ExitCode != 0 || !strings.HasPrefix(string(o.Stdout.Head)+string(o.Stdout.Tail), "begin\nend\n") || o.Stderr.Bytes != 0 {
			t.Errorf("script of %d bytes: %+v", len(script), o)
		}
	}
	left, err := filepath.Glob(r.stateDir + "/cmd/*.sh")
	if err != nil || len(left) != 0 {
		t.Errorf("scripts left: %v %v", left, err)
	}
}

func TestPipeStatus(t *testing.T) {
	r := serve(t, bestUser())
	for _, c := range []struct {
		command string
		code    int
		stdout  string
		status  []int
	}{
		{"false | true", 0, "", []int{1, 0}},
		{"exit 3 | exit 4", 4, "", []int{3, 4}},
		{"false | true; exit 9", 9, "", []int{1, 0}},
		{"false | true; true", 0, "", nil},
		{"set -eo pipefail; false | true", 1, "", []int{1, 0}},
		{"set -x; false | true", 0, "", []int{1, 0}},
		{"trap 'echo mine' EXIT; false | true", 0, "mine\n", nil},
		{"echo $LINENO; false | true", 0, "1\n", []int{1, 0}},
		{"echo 'a|b'", 0, "a|b\n", nil},
		{"false || echo c", 0, "c\n", nil},
		{"set -C; IFS=; false | true", 0, "", []int{1, 0}},
		{"bash -c 'trap -p EXIT; echo $BASH_ENV$REIN_PIPE_STATUS' | cat", 0, "\n", []int{0, 0}},
	} {
		o, err := r.Run(t.Context(), execd.RunRequest{Command: c.command, Rein: &execd.RunOptions{Capture: 1000}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if o.ExitCode == nil || *o.ExitCode != c.code || !slices.Equal(o.PipeStatus, c.status) || string(o.Stdout.Head) != c.stdout {
			t.Errorf("%s: code %v, pipe status %v, stdout %q; want %d, %v, %q", c.command, o.ExitCode, o.PipeStatus, o.Stdout.Head, c.code, c.status, c.stdout)
		}
	}
}

func TestSameIDRunsOnce(t *testing.T) {
	r := serve(t, bestUser())
	req := execd.RunRequest{Command: "echo $RANDOM$RANDOM; echo x >> runs; sleep 0.1; exit 5", Rein: &execd.RunOptions{ID: "once", Capture: 1000, Spill: true}}
	var mu sync.Mutex
	var known int
	outcomes := make([]execd.Outcome, 8)
	var wg sync.WaitGroup
	for i := range outcomes {
		wg.Go(func() {
			o, err := r.Run(t.Context(), req, func(e execd.Event) {
				if e.Type == execd.EventInit && e.Rein != nil && e.Rein.Known {
					mu.Lock()
					known++
					mu.Unlock()
				}
			})
			if err != nil {
				t.Error(err)
			}
			outcomes[i] = o
		})
	}
	wg.Wait()
	for _, o := range outcomes[1:] {
		if d := cmp.Diff(outcomes[0], o); d != "" {
			t.Errorf("two answers for one id: %s", d)
		}
	}
	if known != len(outcomes)-1 {
		t.Errorf("%d of %d were told that the id is known", known, len(outcomes)-1)
	}
	if b, err := os.ReadFile(filepath.Join(r.work, "runs")); err != nil || string(b) != "x\n" {
		t.Errorf("it ran: %q %v", b, err)
	}
	// Also long afterwards, from the disk, and as events.
	lines := texts(events(t, r, execd.RunRequest{Command: "something else", Rein: &execd.RunOptions{ID: "once"}}), execd.EventStdout)
	if want := strings.TrimSuffix(string(outcomes[0].Stdout.Head), "\n"); len(lines) != 1 || lines[0] != want {
		t.Errorf("stored output %q, want %q", lines, want)
	}
}

func TestIDOfAFailedStartIsFree(t *testing.T) {
	r := serve(t, bestUser())
	req := execd.RunRequest{Command: "echo on", Envs: map[string]string{"BIG": strings.Repeat("x", 200<<10)}, Rein: &execd.RunOptions{ID: "again", Capture: 100}}
	if _, err := r.Run(t.Context(), req, nil); !hasStatus(err, 400) {
		t.Fatalf("an environment the kernel refuses: %v, want status 400", err)
	}
	req.Envs = nil
	if o, err := r.Run(t.Context(), req, nil); err != nil || string(o.Stdout.Head) != "on\n" {
		t.Errorf("%+v %v", o, err)
	}
}

func TestCommandOutlivesItsConnection(t *testing.T) {
	r := serve(t, bestUser())
	ctx, cancel := context.WithCancel(t.Context())
	_, err := r.Run(ctx, execd.RunRequest{Command: "echo begun; sleep 0.3; echo done > file", Rein: &execd.RunOptions{ID: "alone", Raw: true}}, func(e execd.Event) {
		if e.Type == execd.EventStdout {
			cancel()
		}
	})
	if err == nil {
		t.Fatal("a cancelled run gave no error")
	}
	st := ended(t, r, "alone")
	if st.ExitCode == nil || *st.ExitCode != 0 || st.Rein.Outcome.Stdout.Bytes != 6 {
		t.Errorf("status %+v", st)
	}
	if _, err := os.Stat(filepath.Join(r.work, "file")); err != nil {
		t.Error(err)
	}
}

func TestInterrupt(t *testing.T) {
	r := serve(t, bestUser())
	var id string
	start := time.Now()
	list := []execd.Event{}
	_, err := r.Run(t.Context(), execd.RunRequest{Command: "echo begun; sleep 1000"}, func(e execd.Event) {
		list = append(list, e)
		switch e.Type {
		case execd.EventInit:
			id = e.Text
		case execd.EventStdout:
			if err := r.Interrupt(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
	if last := list[len(list)-1]; last.Type != execd.EventError || last.Error.Value != "-1" {
		t.Errorf("last event %+v", last)
	}
	if err := r.Interrupt(t.Context(), id); !hasStatus(err, 409) {
		t.Errorf("interrupt of what has ended: %v, want status 409", err)
	}
}

func TestBackgroundAndLogs(t *testing.T) {
	r := serve(t, bestUser())
	const command = "until [ -e go ]; do sleep 0.01; done; for i in $(seq 200); do echo line $i; test $((i % 50)) = 0 && sleep 0.05; done; sleep 0.05; printf end >&2; exit 3"
	list := events(t, r, execd.RunRequest{Command: command, Background: true, Timeout: 20_000})
	if len(list) != 2 || list[1].Type != execd.EventComplete {
		t.Fatalf("events %+v", list)
	}
	// Its events have ended, and it has not.
	if err := os.WriteFile(filepath.Join(r.work, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	id := list[0].Text
	var log []byte
	var cursor int64
	for running := true; running; {
		st, err := r.Status(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		running = st.Running // asked before the log, so that the last round gets all
		for {
			b, next, err := r.Logs(t.Context(), id, cursor)
			if err != nil {
				t.Fatal(err)
			}
			if next != cursor+int64(len(b)) {
				t.Fatalf("cursor %d + %d bytes gave %d", cursor, len(b), next)
			}
			log, cursor = append(log, b...), next
			if len(b) == 0 {
				break
			}
		}
	}
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if string(log) != want.String()+"end" {
		t.Errorf("log %q", log)
	}
	st := ended(t, r, id)
	if st.Content != command || st.ExitCode == nil || *st.ExitCode != 3 || st.FinishedAt == nil || st.Rein.LogPath == "" || st.Rein.Bytes != int64(len(log)) {
		t.Errorf("status %+v", st)
	}
	if b, next, err := r.Logs(t.Context(), id, 1<<40); err != nil || len(b) != 0 || next != 1<<40 {
		t.Errorf("past the end: %d bytes, cursor %d, %v", len(b), next, err)
	}
}

func TestSpill(t *testing.T) {
	r := serve(t, bestUser(), func(c *daemon.Config) { c.SpillBudget = 3 << 20 })
	run := func(id, command string, limit int64) *execd.Spill {
		t.Helper()
		o, err := r.Run(t.Context(), execd.RunRequest{Command: command, Rein: &execd.RunOptions{ID: id, Capture: 100, Spill: true, SpillLimit: limit}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if o.Spill == nil {
			t.Fatalf("%s: no spill: %+v", id, o)
		}
		b, err := os.ReadFile(o.Spill.Path)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(b)) != o.Spill.Bytes || sum(b) != o.Spill.SHA256 || int64(bytes.Count(b, []byte("\n"))) != o.Spill.Lines {
			t.Errorf("%s: file of %d bytes, described as %+v", id, len(b), o.Spill)
		}
		return o.Spill
	}
	if s := run("a", "seq 100000; seq 10 >&2", 0); !s.Complete || s.Bytes != 588895+21 {
		t.Errorf("a: %+v", s)
	}
	if s := run("b", "yes | head -c 2000000", 1<<20); s.Complete || s.Bytes != 1<<20 {
		t.Errorf("b: limit: %+v", s)
	}
	if s := run("c", "yes | head -c 9000000", 0); s.Complete || s.Bytes != 3<<20-588916-1<<20 {
		t.Errorf("c: budget: %+v", s)
	}
	// User code reads spills and cannot change them.
	list := events(t, r, execd.RunRequest{Command: fmt.Sprintf("cat %[1]s/out/a | wc -c; echo x >> %[1]s/out/a || rm -f %[1]s/out/a || echo protected; ls %[1]s/results", r.stateDir)})
	if os.Geteuid() == 0 {
		if got := texts(list, execd.EventStdout); !slices.Equal(got, []string{"588916", "protected"}) {
			t.Errorf("from inside: %q", got)
		}
	}
}

// A reader that takes nothing is dropped; the command goes on and its result
// is stored.
func TestMetricsAndFeatures(t *testing.T) {
	r := serve(t, bestUser(), func(c *daemon.Config) { c.CPULimit = 1.5 })
	m, err := r.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m.CPUCount != 1.5 || m.CPUUsedPct < 0 || m.CPUUsedPct > 100 || m.MemUsedMiB <= 0 || m.MemUsedMiB > m.MemTotalMiB {
		t.Errorf("metrics %+v", m)
	}
	f, err := r.Features(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := "reduced"
	if os.Geteuid() == 0 {
		want = "full"
	}
	if !f.CallIDs || !f.Spill || !f.Capture || !f.PipeStatus || f.Separation != want {
		t.Errorf("features %+v", f)
	}
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func TestWatchMetrics(t *testing.T) {
	r := serve(t, bestUser())
	resp := request(t, r, http.MethodGet, "/metrics/watch", nil, nil)
	var m execd.Metrics
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil || m.CPUCount <= 0 || m.Timestamp == 0 {
		t.Errorf("%+v %v", m, err)
	}
	resp.Body.Close() // the daemon notices, and closes without it
}
