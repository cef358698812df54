package mcphosts_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// all is make test-clients: every client, and the table.
var all = flag.Bool("all", false, "every client, and the table")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is the version of Node that the clients need, from npm: that of a distribution
// may be older.
const node = "node@22"

// place is a scratch folder in which clients of npm's are installed.
type place struct{ dir, rein string }

// newPlace installs packages of npm's.
func newPlace(t *testing.T, packages ...string) *place {
	t.Helper()
	rein, err := filepath.Abs("../../bin/rein")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(rein); err != nil {
		t.Fatalf("%v: make build", err)
	}
	p := &place{dir: t.TempDir(), rein: rein}
	args := append([]string{"install", "--no-audit", "--no-fund", "--loglevel=error", node}, packages...)
	if r := p.run(t, 10*time.Minute, "npm", args...); r.err != nil {
		t.Fatalf("npm install %v: %v: %s", packages, r.err, r.stderr)
	}
	return p
}

// ran is how a program ended.
type ran struct {
	stdout, stderr string
	err            error
}

// environ is that of the clients: the home is the scratch folder, so that nothing of
// the user's is read or changed.
func (p *place) environ(more ...string) []string {
	env := []string{"HOME=" + p.dir, "PATH=" + filepath.Join(p.dir, "node_modules/.bin") + ":" + os.Getenv("PATH"), "TERM=dumb",
		"XDG_STATE_HOME=" + p.state(), "XDG_CONFIG_HOME=" + filepath.Join(p.dir, "config")}
	for _, name := range []string{"npm_config_registry", "NPM_CONFIG_REGISTRY", "npm_config_cafile", "NODE_EXTRA_CA_CERTS", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "XDG_RUNTIME_DIR", "USER"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return append(env, more...)
}

func (p *place) state() string { return filepath.Join(p.dir, "state") }

// run runs a program in the folder.
func (p *place) run(t *testing.T, timeout time.Duration, name string, args ...string) ran {
	t.Helper()
	return p.runWith(t, timeout, nil, name, args...)
}

// runWith is run with more of an environment.
func (p *place) runWith(t *testing.T, timeout time.Duration, env []string, name string, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if path := filepath.Join(p.dir, "node_modules/.bin", name); name != "npm" {
		if _, err := os.Stat(path); err == nil {
			name = path
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = p.dir, p.environ(env...), 10*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	return ran{stdout.String(), stderr.String(), err}
}

// serve runs rein mcp over HTTP until the test ends, and returns where it is asked
// without a token: a server here gives requests theirs, for clients that have none.
func (p *place) serve(t *testing.T, flags ...string) string {
	t.Helper()
	cmd := exec.Command(p.rein, append([]string{"mcp", "--http", "127.0.0.1:0", "--no-workspace"}, flags...)...)
	cmd.Env = p.environ()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // Wait says how it went
		if err := cmd.Wait(); err != nil {
			t.Errorf("rein mcp: %v: %s", err, stderr.Bytes())
		}
	})
	lines := bufio.NewScanner(out)
	var said [2]string // the address and the token
	for i := range said {
		if !lines.Scan() {
			t.Fatalf("rein mcp said %q: %s", said, stderr.Bytes())
		}
		said[i] = lines.Text()
	}
	at, err := url.Parse(said[0])
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = at.Scheme, at.Host // and the Host field stays
		r.Out.Header.Set("Authorization", "Bearer "+said[1])
	}, Transport: &http.Transport{DisableKeepAlives: true}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { proxy.ServeHTTP(atOnce{w}, r) }))
	t.Cleanup(s.Close)
	return s.URL + at.Path
}

// atOnce passes the head of an answer on at once, and not with its first byte, which a
// stream of events may not have for long.
type atOnce struct{ http.ResponseWriter }

func (w atOnce) WriteHeader(code int) {
	w.ResponseWriter.WriteHeader(code)
	_ = http.NewResponseController(w.ResponseWriter).Flush() // who has gone is not told
}

func (w atOnce) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// row is a line of the table.
func row(t *testing.T, client, check, saw string) {
	t.Helper()
	t.Logf("%-28s %-44s %s", client, check, saw)
}
