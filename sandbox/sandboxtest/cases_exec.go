package sandboxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// caps names the capabilities of a row.
func caps(c ...sandbox.Capability) []sandbox.Capability { return c }

func execCases() []Case {
	exec, execFiles := caps(sandbox.CapExec), caps(sandbox.CapExec, sandbox.CapFiles)
	exact := caps(sandbox.CapExec, sandbox.CapCaps)
	return []Case{
		{Name: "exec/success", Needs: exec, run: success},
		{Name: "exec/exit codes", Needs: exec, run: exitCodes},
		{Name: "exec/not found is 127", Needs: exec, run: notFound},
		{Name: "exec/not executable is 126", Needs: execFiles, run: notExecutable},
		{Name: "exec/syntax error", Needs: exec, run: syntaxError},
		{Name: "exec/stderr apart", Needs: exec, run: stderrApart},
		{Name: "exec/binary output", Needs: exact, run: binaryOutput},
		{Name: "exec/invalid UTF-8", Needs: exact, run: invalidUTF8},
		{Name: "exec/counts", Needs: exact, run: counts},
		{Name: "exec/CRLF kept", Needs: exact, run: crlf},
		{Name: "exec/script of 100 KB", Needs: execFiles, run: func(e *env) { script(e, 100<<10) }},
		{Name: "exec/script of 1 MiB", Needs: append(caps(sandbox.CapCallIDs), execFiles...), run: func(e *env) { script(e, 1<<20) }},
		{Name: "exec/NUL in a command refused", Needs: exec, run: nulCommand},
		{Name: "exec/environment of a command", Needs: exec, run: environment},
		{Name: "exec/environment of the sandbox", Needs: exec, run: specEnvironment},
		{Name: "exec/working directory", Needs: execFiles, run: cwd},
		{Name: "exec/bad working directory", Needs: execFiles, run: badCwd},
		{Name: "exec/files shared, variables not", Needs: execFiles, run: shared},
		{Name: "exec/odd file names", Needs: append(caps(sandbox.CapConfine), exact...), run: oddNames},
		{Name: "exec/concurrency", Needs: exec, run: concurrency},
		{Name: "exec/stdin at end-of-file", Needs: exec, run: stdinEOF},
		{Name: "exec/timeout keeps partial output", Needs: exec, run: timeoutPartial},
		{Name: "exec/streamed output exact", Needs: exact, run: streamed},
		{Name: "exec/slow reader loses nothing", Needs: exec, run: slowReader},
		{Name: "exec/cancel ends the command", Needs: execFiles, breaks: true, run: cancelled},
		{Name: "exec/duration", Needs: exec, run: duration},
	}
}

func (e *env) wantExit(r sandbox.Result, code int) {
	e.Helper()
	if r.ExitCode == nil || *r.ExitCode != code || r.Signal != "" {
		e.Errorf("want exit code %d, got %s", code, describe(r))
	}
}

func stdout(r sandbox.Result) string { return text(r.Stdout.Head, r.Stdout.Tail) }
func stderr(r sandbox.Result) string { return text(r.Stderr.Head, r.Stderr.Tail) }

func success(e *env) {
	r := e.run("true")
	e.wantExit(r, 0)
	if !r.OK() || r.SandboxID != e.ID() || r.CallID == "" {
		e.Errorf("ok %v, sandbox %q, call %q", r.OK(), r.SandboxID, r.CallID)
	}
	e.equal("output", stdout(r)+stderr(r), "")
}

func exitCodes(e *env) {
	for _, code := range []int{1, 2, 7, 100, 127, 255} {
		r := e.run(fmt.Sprintf("exit %d", code))
		e.wantExit(r, code)
		e.equal("ok", r.OK(), false)
	}
}

func notFound(e *env) {
	r := e.run("no-such-program-5309 --flag")
	e.wantExit(r, 127)
	if !strings.Contains(stderr(r), "no-such-program-5309") {
		e.Errorf("stderr %q does not name the program", stderr(r))
	}
}

func notExecutable(e *env) {
	p := e.put("data", "plain text\n")
	e.sh("chmod 644 data")
	e.wantExit(e.run(p), 126)
}

func syntaxError(e *env) {
	r := e.run("if true; then")
	if r.ExitCode == nil || *r.ExitCode == 0 || stderr(r) == "" {
		e.Errorf("a syntax error gave %s", describe(r))
	}
}

func stderrApart(e *env) {
	r := e.run("echo out; echo err >&2; echo out2; exit 3")
	e.equal("stdout", stdout(r), "out\nout2\n")
	e.equal("stderr", stderr(r), "err\n")
	e.wantExit(r, 3)
}

func binaryOutput(e *env) {
	r := e.run(`printf 'a\000b\001\377\r\n\033[0m'`)
	e.equal("stdout", stdout(r), "a\x00b\x01\xff\r\n\x1b[0m")
}

func invalidUTF8(e *env) {
	r := e.run(`printf '\303\050 \342\202 \xf0\x9f\x98' >&2; printf '\300\257'`)
	e.equal("stderr", stderr(r), "\xc3( \xe2\x82 \xf0\x9f\x98")
	e.equal("stdout", stdout(r), "\xc0\xaf")
}

func counts(e *env) {
	for _, c := range []struct {
		shell        string
		bytes, lines int64
	}{
		{`printf ''`, 0, 0}, {`printf 'a'`, 1, 1}, {`printf 'a\n'`, 2, 1}, {`printf 'a\nb'`, 3, 2}, {`printf '\n\n'`, 2, 2},
	} {
		r := e.run(c.shell)
		e.equal("bytes of "+c.shell, r.Stdout.Bytes, c.bytes)
		e.equal("lines of "+c.shell, r.Stdout.Lines, c.lines)
		e.equal("stderr bytes", r.Stderr.Bytes, int64(0))
	}
}

func crlf(e *env) {
	r := e.run(`printf 'one\r\ntwo\r\n\rthree'`)
	e.equal("stdout", stdout(r), "one\r\ntwo\r\n\rthree")
}

// script runs a command that holds n bytes of awkward text and saves them.
func script(e *env, n int) {
	line := "it's \"quoted\" $HOME `x` \\ ü€😀 \t * ; & | # %s\r\n"
	body := strings.Repeat(line, n/len(line)) + "end\n"
	e.command(sandbox.Command{Cwd: e.dir, Shell: "cat > copy <<'REIN-END'\n" + body + "REIN-END\n"})
	var got bytes.Buffer
	_, err := e.Download(e.Context(), e.dir+"/copy", &got, sandbox.Access{})
	e.must(err)
	if got.String() != body {
		e.Errorf("a script of %d bytes arrived changed: %d bytes", len(body), got.Len())
	}
}

func nulCommand(e *env) {
	_, err := e.Sandbox.Run(e.Context(), sandbox.Command{Shell: "echo a\x00b"})
	e.wantKind(err, sandbox.KindInvalid)
}

func environment(e *env) {
	r := e.command(sandbox.Command{Shell: `printf '%s|' "$AWKWARD" "$EMPTY" "${EMPTY-unset}"; echo`,
		Env: map[string]string{"AWKWARD": envValue, "EMPTY": ""}})
	e.equal("environment", stdout(r), envValue+"|||\n")
	r = e.run(`echo "${AWKWARD-unset}"`)
	e.equal("the next command's", stdout(r), "unset\n")
}

func specEnvironment(e *env) {
	r := e.run(`printf '%s\n' "$REIN_SUITE"`)
	e.equal("environment", stdout(r), envValue+"\n")
	r = e.command(sandbox.Command{Shell: `echo "$REIN_SUITE"`, Env: map[string]string{"REIN_SUITE": "own"}})
	e.equal("the command's own", stdout(r), "own\n")
}

func cwd(e *env) {
	e.equal("default", strings.TrimSpace(stdout(e.run("pwd"))), e.Info().Cwd)
	e.equal("given", strings.TrimSpace(e.sh("pwd")), e.dir)
	e.sh("mkdir 'a b'")
	r := e.command(sandbox.Command{Shell: "pwd", Cwd: e.dir + "/a b"})
	e.equal("with a space", strings.TrimSpace(stdout(r)), e.dir+"/a b")
}

func badCwd(e *env) {
	file := e.put("file", "")
	for _, dir := range []string{e.dir + "/missing", file} {
		_, err := e.Sandbox.Run(e.Context(), sandbox.Command{Shell: "touch " + e.dir + "/ran", Cwd: dir})
		e.wantKind(err, sandbox.KindInvalid, sandbox.KindNotFound)
	}
	if _, err := e.Stat(e.Context(), e.dir+"/ran", sandbox.Access{}); sandbox.KindOf(err) != sandbox.KindNotFound {
		e.Errorf("the command ran: %v", err)
	}
}

func shared(e *env) {
	e.sh("echo kept > file; export LOST=1; cd /")
	e.equal("file and variable", e.sh(`cat file; echo "${LOST-unset}"`), "kept\nunset\n")
}

// names that have surprised programs before; no "/" and no NUL.
func names() []string {
	return []string{
		"with space", " lead", "trail ", "-rf", "--", "a'b", `a"b`, "a`b", "$HOME", `back\slash`, "new\nline", "tab\t",
		"*", "?", "[a]", "{a,b}", "~", "#", "&", ";", "|", "<>", "ü", "日本語", "😀", "e\u0301", "..."[:3], "a%20b", "%", "+",
		strings.Repeat("n", 255), "\u202egnp", "CON", ".hidden",
	}
}

func oddNames(e *env) {
	for _, name := range names() {
		e.put(name, "content of "+name)
		r := e.command(sandbox.Command{Cwd: e.dir, Shell: `cat -- "./$NAME"`, Env: map[string]string{"NAME": name}})
		e.equal("content of "+strconv.Quote(name), stdout(r), "content of "+name)
	}
	infos, err := e.List(e.Context(), e.dir, 1, sandbox.Access{})
	e.must(err)
	var got []string
	for _, i := range infos {
		got = append(got, strings.TrimPrefix(i.Path, e.dir+"/"))
	}
	want := names()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		e.Errorf("listed %q, want %q", got, want)
	}
}

func concurrency(e *env) {
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			r, err := e.Sandbox.Run(e.Context(), sandbox.Command{Shell: fmt.Sprintf("echo %d; sleep 0.1; echo %d >&2; exit %d", i, i, i)})
			if err != nil {
				e.Error(err)
				return
			}
			e.wantExit(r, i)
			e.equal("stdout", stdout(r), fmt.Sprintf("%d\n", i))
			e.equal("stderr", stderr(r), fmt.Sprintf("%d\n", i))
		})
	}
	wg.Wait()
}

func stdinEOF(e *env) {
	e.within(5*time.Second, func() {
		r := e.run("cat; read line; echo $?")
		e.equal("stdout", stdout(r), "1\n")
	})
}

func timeoutPartial(e *env) {
	e.within(3*time.Second, func() {
		r := e.command(sandbox.Command{Shell: "echo before; echo early >&2; sleep 300; echo after", Timeout: time.Second})
		if !r.TimedOut() || r.ExitCode != nil || r.OK() {
			e.Errorf("a timeout gave %s", describe(r))
		}
		e.equal("stdout", stdout(r), "before\n")
		e.equal("stderr", stderr(r), "early\n")
	})
}

func streamed(e *env) {
	var out, errs bytes.Buffer
	var last int64
	r, err := e.Sandbox.Run(e.Context(), sandbox.Command{
		Shell: `seq 200000; printf 'x\000\377'; seq 1000 >&2; exit 5`, Timeout: time.Minute,
		Stdout: &out, Stderr: &errs, Progress: func(n int64) { last = max(last, n) },
	})
	e.must(err)
	e.wantExit(r, 5)
	want := sequence(200000) + "x\x00\xff"
	if out.String() != want {
		e.Errorf("stdout: %d bytes with hash %s, want %d with %s", out.Len(), hash(out.Bytes()), len(want), hash([]byte(want)))
	}
	e.equal("stderr", errs.String() == sequence(1000), true)
	e.equal("bytes counted", r.Stdout.Bytes, int64(len(want)))
	if last == 0 || last > int64(len(want)+errs.Len()) {
		e.Errorf("progress ended at %d of %d bytes", last, len(want)+errs.Len())
	}
}

func sequence(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		b.WriteString(strconv.Itoa(i))
		b.WriteByte('\n')
	}
	return b.String()
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// slow is a writer that takes its time with the first writes.
type slow struct {
	bytes.Buffer
	wait   func(time.Duration)
	writes int
}

func (s *slow) Write(p []byte) (int, error) {
	if s.writes++; s.writes <= 10 {
		s.wait(30 * time.Millisecond)
	}
	return s.Buffer.Write(p)
}

func slowReader(e *env) {
	out := &slow{wait: e.wait}
	r, err := e.Sandbox.Run(e.Context(), sandbox.Command{Shell: "seq 100000", Stdout: out, Timeout: time.Minute})
	e.must(err)
	e.wantExit(r, 0)
	e.equal("complete", out.String() == sequence(100000), true)
}

func cancelled(e *env) {
	ctx, cancel := context.WithCancel(e.Context())
	id := "cancel-" + e.dir[5:]
	e.within(5*time.Second, func() {
		go func() {
			defer cancel()
			e.appears("started")
		}()
		_, err := e.Sandbox.Run(ctx, sandbox.Command{CallID: id, Cwd: e.dir, Shell: "touch started; sleep 300; touch after", Timeout: time.Minute})
		e.wantKind(err, sandbox.KindTimeout)
	})
	if _, err := e.Stat(e.Context(), e.dir+"/after", sandbox.Access{}); sandbox.KindOf(err) != sandbox.KindNotFound {
		e.Errorf("the command went on: %v", err)
	}
	if e.suite.report.Has(sandbox.CapCallIDs) {
		e.eventually(5*time.Second, "the command has ended by the interrupt", func() bool {
			s, err := e.Status(e.Context(), id)
			e.must(err)
			return !s.Running && s.Result.KilledBy == execd.KilledByInterrupt
		})
	}
}

// appears waits until a file of the case's directory exists; it may be called
// in any goroutine.
func (e *env) appears(name string) bool {
	for deadline := time.Now().Add(e.scale(15 * time.Second)); time.Now().Before(deadline); {
		if _, err := e.Stat(e.Context(), e.dir+"/"+name, sandbox.Access{}); err == nil {
			return true
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-e.Context().Done():
			return false
		}
	}
	e.Errorf("file %s did not appear", name)
	return false
}

func duration(e *env) {
	r := e.run("sleep 0.3")
	if r.DurationMS < 300 || r.DurationMS > 3000 {
		e.Errorf("sleep 0.3 took %d ms", r.DurationMS)
	}
	if age := time.Since(r.StartedAt); age < 0 || age > time.Minute {
		e.Errorf("started at %v", r.StartedAt)
	}
}
