package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The keys of this test, by what rein is told they are. It is told nothing of stray,
// which looks like a key, nor of control, which does not and so is found wherever the
// others would be.
var nowhere = map[string]string{
	"token":   "ghp_Zq81tRw02LmNxPa7uVy3Bd5Ce6Gh9JkQsT4f",
	"field":   `k9"q\w/<e>&+%=?Zr41xP;s~Lm7Yd2`,
	"made":    "sk-proj-9fWe77xKd0PmT1bYvX-8nLc2Hp5Rz6Ag9DjSuTrM2",
	"team":    "T3am-é€-s3cr3t-0f-the-\"t3am\"\\x",
	"model":   "mk-5Vx0Lq8Tz3Rb6Nw1Hy4Jd7Kf2Gs9Pc",
	"stray":   "glpat-" + "Rk3vQ9sXw7ZtPb2LmN8c",
	"control": "c0ntr0l-that-1s-n0-k3y-at-a11-8Qz",
}

// echoes is a server that says what it was sent, in every encoding: as text, in
// which the gateway masks keys, and as data that it passes on as it is. So keys
// come into the sandbox after all, and out of it.
type echoes struct {
	mu   sync.Mutex
	seen map[string]bool // keys that arrived
	sums []string        // of what was said as data
}

func (e *echoes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	var out bytes.Buffer
	for name, value := range map[string]string{"token": strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "field": r.Header.Get("X-Odd"),
		"made": strings.TrimPrefix(string(body), "made="), "team": nowhere["team"], "control": nowhere["control"]} {
		e.mu.Lock()
		e.seen[name] = e.seen[name] || value == nowhere[name]
		e.mu.Unlock()
		for _, how := range slices.Sorted(func(yield func(string) bool) {
			for how := range encoded(value) {
				if !yield(how) {
					return
				}
			}
		}) {
			fmt.Fprintf(&out, "%s in %s: %s\n", name, how, encoded(value)[how])
		}
		w.Header().Set("X-Echo-"+name, strings.Map(func(r rune) rune {
			if r > '~' {
				return '?'
			}
			return r
		}, value))
	}
	w.Header().Set("Content-Type", "text/plain")
	if r.URL.Path == "/data" {
		w.Header().Set("Content-Type", "application/octet-stream")
		e.mu.Lock()
		e.sums = append(e.sums, fmt.Sprintf("%x", sha256.Sum256(out.Bytes())))
		e.mu.Unlock()
	}
	_, _ = w.Write(out.Bytes())
}

// told is what a command of this test is started in.
type told struct {
	t         *testing.T
	dir, said string // what is searched; where commands print to
	env       []string
	n         int
	echoed    string // the port of the server
}

// rein runs a command and keeps what it says, in files that are searched.
func (o *told) rein(args ...string) (out string, code int) {
	o.t.Helper()
	cmd := o.command(args...)
	code = -1
	if err := cmd.Run(); cmd.ProcessState != nil {
		code = cmd.ProcessState.ExitCode()
	} else {
		o.t.Fatal(err)
	}
	b, err := os.ReadFile(cmd.Stdout.(*os.File).Name())
	if err != nil {
		o.t.Fatal(err)
	}
	return string(b), code
}

func (o *told) command(args ...string) *exec.Cmd {
	o.t.Helper()
	o.n++
	cmd := exec.Command("rein", args...)
	cmd.Dir, cmd.Env = o.dir, o.env
	for suffix, to := range map[string]*io.Writer{"out": &cmd.Stdout, "err": &cmd.Stderr} {
		f, err := os.Create(filepath.Join(o.said, fmt.Sprintf("%02d-%s-%s.%s", o.n, args[0], args[min(1, len(args)-1)], suffix)))
		if err != nil {
			o.t.Fatal(err)
		}
		o.t.Cleanup(func() { f.Close() })
		*to = f
	}
	return cmd
}

func (o *told) write(name, text string) string {
	o.t.Helper()
	path := filepath.Join(o.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		o.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	return path
}

func call(tool string, arguments map[string]any) map[string]any {
	return map[string]any{"calls": []any{map[string]any{"tool": tool, "arguments": arguments}}}
}

// script writes the script of a model that has a sandbox ask for its keys and show
// them, and that says them itself.
func (o *told) script() string {
	fetch := fmt.Sprintf(`curl -sSi -D heads -d "made=$MADE" https://example.com:%s`, o.echoed)
	var steps []any
	for _, c := range []string{
		"echo $TOKEN > placeholder; cat placeholder; env",
		fetch + "/text",
		fetch + "/data -o f; sed '1,/^\\r*$/d' f > data; sha256sum data; cat data",
		"cat data heads >&2; exit 3",
		"for i in $(seq 40); do cat data; done",
		`$(sed -n 's/^token in exact: //p' data)`,
		"cd data",
		"echo " + nowhere["token"] + " " + nowhere["control"] + " " + nowhere["stray"],
	} {
		steps = append(steps, call("run_command", map[string]any{"command": c}))
	}
	steps = append(steps, call("read_file", map[string]any{"path": "data"}), call("read_file", map[string]any{"path": "none-" + nowhere["token"]}),
		call("write_file", map[string]any{"path": "copy", "content": "a key: " + nowhere["made"]}))
	for _, at := range []int{7, 60, 133, 500, 901, 1777} {
		steps = append(steps, call("read_file", map[string]any{"path": "data", "unit": "bytes", "offset": at, "limit": 777}))
	}
	var all []string
	for name, key := range nowhere {
		if name != "model" { // of which these runs are not told
			all = append(all, key)
		}
	}
	slices.Sort(all)
	// In a patch nothing is masked: it has the sandbox's files as they are.
	steps = append(steps, call("run_command", map[string]any{"command": "rm -f data f heads copy placeholder"}))
	steps = append(steps, map[string]any{"text": "What I have seen: " + strings.Join(all, " and ")})
	b, err := json.Marshal(map[string]any{"steps": steps})
	if err != nil {
		o.t.Fatal(err)
	}
	return string(b)
}

// cuts is the script of a model that says keys where what it says is cut.
func (o *told) cuts() string {
	var calls []any
	for n := 20; n < 300; n += 17 {
		calls = append(calls, map[string]any{"tool": "run_command", "arguments": map[string]any{"command": ": " + strings.Repeat("x", n) + nowhere["token"]}})
	}
	for n := 195; n < 245; n += 10 {
		calls = append(calls, map[string]any{"tool": "read_file", "arguments": map[string]any{"path": strings.Repeat("d/", n) + nowhere["stray"]}})
	}
	b, err := json.Marshal(map[string]any{"steps": []any{map[string]any{"calls": calls}, map[string]any{"text": "done " + nowhere["control"]}}})
	if err != nil {
		o.t.Fatal(err)
	}
	return string(b)
}

// newTold starts what a run of this test speaks to, and configures rein.
func newTold(t *testing.T, e *echoes) *told {
	t.Helper()
	bin := binaries(t)
	o := &told{t: t, dir: t.TempDir()}
	o.said = filepath.Join(o.dir, "said")
	sealed := httptest.NewUnstartedServer(e)
	sealed.Config.ErrorLog = log.New(io.Discard, "", 0)
	sealed.StartTLS()
	t.Cleanup(sealed.Close)
	_, o.echoed, _ = net.SplitHostPort(sealed.Listener.Addr().String())
	for _, d := range []string{"said", "tmp", "home", "collected"} {
		if err := os.Mkdir(filepath.Join(o.dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var spans int
	var mu sync.Mutex
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		spans++
		if err := os.WriteFile(filepath.Join(o.dir, "collected", fmt.Sprint(spans)), b, 0o600); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(collector.Close)
	names, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { serveNames(names) })
	t.Cleanup(func() { names.Close(); served.Wait() })
	// Where the keys come from is not searched: rein did not write it.
	source := t.TempDir()
	for name, key := range map[string]string{"field": nowhere["field"], "made": nowhere["made"]} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range map[string]string{"script.yaml": o.script(), "cuts.yaml": o.cuts()} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ca := o.write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sealed.Certificate().Raw})))
	use := fmt.Sprintf("host: example.com, ports: [%s]", o.echoed)
	o.write("home/.config/rein/config.yaml", fmt.Sprintf(`
egress: {resolvers: [%q], upstream_ca: %q}
telemetry: {endpoint: %q, content: true}
redaction: {secrets: [{name: team, env: TEAM}]}
secrets:
  token: {env: HOST_TOKEN, variable: TOKEN, use: [{%[4]s, as: bearer}]}
  field: {file: %[5]q, variable: FIELD, use: [{%[4]s, as: header, name: X-Odd}]}
  made: {command: [/bin/cat, %[6]q], variable: MADE, use: [{%[4]s, as: substitute, in: [body]}]}
targets:
  default:
    secrets: [token, field, made]
    network:
      rules: [{host: example.com, ports: [%[7]s], proto: https}, {cidr: 127.0.0.1, ports: [%[7]s], proto: tls}]
`, names.LocalAddr().String(), ca, collector.URL, use, filepath.Join(source, "field"), filepath.Join(source, "made"), o.echoed))
	o.env = []string{"PATH=" + os.Getenv("PATH") + string(filepath.ListSeparator) + bin, "HOME=" + filepath.Join(o.dir, "home"), "TMPDIR=" + filepath.Join(o.dir, "tmp"),
		"HOST_TOKEN=" + nowhere["token"], "TEAM=" + nowhere["team"], "MODEL_KEY=" + nowhere["model"], "SCRIPT=" + filepath.Join(source, "script.yaml"), "CUTS=" + filepath.Join(source, "cuts.yaml"), "GORACE=atexit_sleep_ms=0"}
	t.Cleanup(func() { o.rein("sandbox", "gc", "--all") })
	return o
}

func (o *told) value(name string) string {
	for _, kv := range o.env {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			return v
		}
	}
	return ""
}

// Of a run in which every key came into the sandbox and out of it, in every
// encoding, no key is in anything that rein wrote: its state, its configuration,
// what it printed, its temporary files, and what it sent to a collector.
func TestKeysAreNowhere(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("curl is what asks: in CI it is installed, or this fails")
	}
	for _, runtime := range []string{"gvisor", "runc"} {
		t.Run(runtime, func(t *testing.T) {
			if _, err := exec.LookPath(runtime); runtime == "runc" && err != nil && os.Getenv("CI") != "true" {
				t.Skip("runc is not installed: in CI it is, or this fails")
			}
			t.Parallel()
			e := &echoes{seen: map[string]bool{}}
			o := newTold(t, e)
			o.works(runtime)
			o.fails()
			o.goesOn(runtime)
			o.byHand(runtime)
			if text := strings.Join(o.shown("transcript.jsonl"), ""); len(e.sums) == 0 || !slices.ContainsFunc(e.sums, func(sum string) bool { return strings.Contains(text, sum) }) {
				t.Error("no sandbox had what the server said as it is: this test shows nothing")
			}
			for _, want := range []string{"TOKEN=ghp_", "MADE=sk-proj-", "[secret:token]", "[secret:field base64]", "[secret:made hex]", "[secret:team json]", "[secret:?gitlab-token]"} {
				if !strings.Contains(strings.Join(o.shown("transcript.jsonl"), ""), want) {
					t.Errorf("what models were sent lacks %s", want)
				}
			}
			for name := range nowhere {
				if !e.seen[name] && name != "model" && name != "stray" {
					t.Errorf("the key %s never came back: this test shows nothing of it", name)
				}
			}
			found, files := search(t, o.dir)
			t.Logf("%d files; the control is in %d", files, len(found["control"]))
			for _, must := range []string{"audit.jsonl", "transcript.jsonl", "report.json", "report.md", "/said/", "/collected/", "/output/"} {
				if !slices.ContainsFunc(found["control"], func(where string) bool { return strings.Contains(where, must) }) {
					t.Errorf("what is no key is not found in %s: a key might not be either", must)
				}
			}
			delete(found, "control")
			for name, where := range found {
				t.Errorf("the key %s is in %s", name, strings.Join(where, "\n\t"))
			}
		})
	}
}

// shown is what files of a name hold.
func (o *told) shown(name string) (texts []string) {
	o.t.Helper()
	paths, err := filepath.Glob(filepath.Join(o.dir, "home/.local/state/rein/runs/*", name))
	if err != nil {
		o.t.Fatal(err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			o.t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	return texts
}

// works has a run ask for the keys and end well, and everything that is there of
// it printed.
func (o *told) works(runtime string) {
	out, code := o.rein("run", "--runtime", runtime, "--keep-output", "--max-tool-calls", "30", "--model", "script:"+o.value("SCRIPT"), "Show "+nowhere["token"]+" and "+nowhere["control"])
	if code != 0 {
		o.t.Errorf("the run: exit code %d: %s", code, out)
	}
	if out, code := o.rein("run", "--runtime", runtime, "--json", "--max-tool-calls", "30", "--model", "script:"+o.value("CUTS"), "Show "+nowhere["team"]); code != 0 {
		o.t.Errorf("the run with cuts: exit code %d: %s", code, out)
	}
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"show", "last"}, {"show", "last", "--json"}, {"report", "last"}, {"report", "last", "--json"},
		{"verify", "last"}, {"verify", "last", "--json"}} {
		if out, code := o.rein(append([]string{"runs"}, args...)...); code != 0 {
			o.t.Errorf("rein runs %q: exit code %d: %s", args, code, out)
		}
	}
	o.rein("runs", "replay", "last") // what the model said of keys is not on record, so it is not the same
	o.rein("egress", "suggest", "last")
	o.rein("config", "show")
}

// fails has a model's server, and a shell, tell rein its own key in an error.
func (o *told) fails() {
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s %s","type":"invalid_request_error","code":"invalid_api_key"}}`,
			strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), nowhere["control"])
	}))
	defer vendor.Close()
	if _, code := o.rein("run", "--model", "openai/m1", "--key-env", "MODEL_KEY", "--base-url", vendor.URL+"/v1", "--price", "0,0", "Do it."); code != 8 {
		o.t.Errorf("with a key that is refused: exit code %d", code)
	}
	o.rein("runs", "show", "last")
	o.rein("probe", "--model", "openai/m1", "--key-env", "MODEL_KEY", "--base-url", vendor.URL+"/v1")
}

// goesOn kills a run in which the keys are shown, and has another go on with it.
func (o *told) goesOn(runtime string) {
	cmd := o.command("run", "--runtime", runtime, "--max-tool-calls", "30", "--model", "script:"+o.value("SCRIPT"), "Show it.")
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	said := cmd.Stderr.(*os.File).Name()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(said); err == nil && bytes.Count(b, []byte("run_command")) >= 3 {
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	o.rein("runs", "report", "last")
	if out, code := o.rein("runs", "resume", "last"); code != 0 && code != 2 { // 2: the kill came too late
		o.t.Errorf("resumed: exit code %d: %s", code, out)
	}
	o.rein("runs", "show", "last")
}

// byHand uses a sandbox outside a run. What its programs print is the user's, as it
// is, and goes where nobody searches.
func (o *told) byHand(runtime string) {
	out, code := o.rein("sandbox", "create", "--runtime", runtime)
	id := strings.TrimSpace(out)
	if code != 0 || id == "" {
		o.t.Fatalf("create: exit code %d", code)
	}
	// While it lives, too, as long as no program in it has written one.
	found, _ := search(o.t, o.dir)
	delete(found, "control")
	for name, where := range found {
		o.t.Errorf("while a sandbox lives, the key %s is in %s", name, strings.Join(where, "\n\t"))
	}
	fetch := fmt.Sprintf(`curl -sS -d "made=$MADE" https://example.com:%s/data -o data; echo %s`, o.echoed, nowhere["control"])
	said := o.said
	o.said = o.t.TempDir()
	for _, command := range []string{fetch, "cat data", "ls none-" + nowhere["token"], "echo '" + nowhere["field"] + "'"} {
		o.rein("sandbox", "exec", id, "--", "sh", "-c", command)
	}
	o.said = said
	for _, args := range [][]string{{"ls", "--json"}, {"log", id}, {"log", id, "--json"}, {"cp", id + ":" + "none-" + nowhere["token"], "x"}, {"exec", nowhere["token"], "--", "ls"}} {
		o.rein(append([]string{"sandbox"}, args...)...)
	}
	o.watch()
	if _, code := o.rein("sandbox", "kill", id); code != 0 {
		o.t.Errorf("kill: exit code %d", code)
	}
}

// watch looks at the arguments and environments of all processes, but for those
// that rein has its own keys from.
func (o *told) watch() {
	seen := 0
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		o.t.Fatal(err)
	}
	for _, p := range paths {
		line, err := os.ReadFile(filepath.Join(p, "cmdline"))
		if err != nil || !bytes.Contains(line, []byte("rein-keep")) && !bytes.Contains(line, []byte("runsc")) && !bytes.Contains(line, []byte("rein-execd")) {
			continue
		}
		seen++
		env, _ := os.ReadFile(filepath.Join(p, "environ")) // of some nobody's
		for name, key := range nowhere {
			if how := finds(slices.Concat(line, []byte{0}, env), key); how != "" {
				o.t.Errorf("the key %s is in what %s was started with (%s)", name, bytes.SplitN(line, []byte{0}, 2)[0], how)
			}
		}
	}
	if seen == 0 {
		o.t.Error("no process of a sandbox was seen")
	}
}
