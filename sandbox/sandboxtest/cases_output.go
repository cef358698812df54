package sandboxtest

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// outputCases are about what is kept of a large output.
func outputCases() []Case {
	bounded := caps(sandbox.CapExec, sandbox.CapCaps)
	spills := caps(sandbox.CapExec, sandbox.CapFiles, sandbox.CapCaps, sandbox.CapSpill)
	return []Case{
		{Name: "output/small is complete", Needs: bounded, run: smallOutput},
		{Name: "output/large is cut, counts exact", Needs: bounded, run: largeOutput},
		{Name: "output/exactly the cap", Needs: bounded, run: exactCap},
		{Name: "output/a smaller cap", Needs: bounded, run: smallerCap},
		{Name: "output/one long line", Needs: append(caps(sandbox.CapFiles), bounded...), run: longLine},
		{Name: "output/stderr is kept beside a flood", Needs: bounded, run: floodAndStderr},
		{Name: "output/endless", Needs: bounded, run: endless},
		{Name: "output/pipe status", Needs: caps(sandbox.CapExec, sandbox.CapPipeStatus), run: pipeStatus},
		{Name: "spill/complete and readable", Needs: spills, run: spill},
		{Name: "spill/bounded", Needs: spills, fresh: true, run: spillBounded},
		{Name: "spill/binary, both streams", Needs: spills, run: spillBinary},
	}
}

// missing is how much of an output was left out.
func missing(o execd.Output) int64 { return o.Bytes - int64(len(o.Head)) - int64(len(o.Tail)) }

func smallOutput(e *env) {
	r := e.run("seq 10000")
	e.equal("left out", missing(r.Stdout), int64(0))
	e.equal("exact", stdout(r) == sequence(10000), true)
	e.equal("lines", r.Stdout.Lines, int64(10000))
}

func largeOutput(e *env) {
	want := sequence(500000)
	r := e.run("seq 500000")
	e.wantExit(r, 0)
	e.equal("bytes", r.Stdout.Bytes, int64(len(want)))
	e.equal("lines", r.Stdout.Lines, int64(500000))
	kept := len(r.Stdout.Head) + len(r.Stdout.Tail)
	if kept > execd.MaxCapture || kept < execd.MaxCapture/2 {
		e.Errorf("%d bytes were kept, the cap is %d", kept, execd.MaxCapture)
	}
	if !strings.HasPrefix(want, string(r.Stdout.Head)) || len(r.Stdout.Head) == 0 {
		e.Error("the head is not the beginning")
	}
	if !strings.HasSuffix(want, string(r.Stdout.Tail)) || len(r.Stdout.Tail) == 0 {
		e.Error("the tail is not the end")
	}
	e.equal("lines of the head", r.Stdout.HeadLines, int64(bytes.Count(r.Stdout.Head, []byte("\n"))))
}

func exactCap(e *env) {
	for _, n := range []int{execd.MaxCapture - 1, execd.MaxCapture, execd.MaxCapture + 1} {
		r := e.command(sandbox.Command{Shell: `yes 0123456789abcdef | head -c "$N"`, Env: map[string]string{"N": strconv.Itoa(n)}})
		e.equal("bytes", r.Stdout.Bytes, int64(n))
		if left := missing(r.Stdout); left < 0 || left > 0 && n < execd.MaxCapture/2 {
			e.Errorf("of %d bytes %d were left out", n, left)
		}
		whole := strings.Repeat("0123456789abcdef\n", n/17+1)[:n]
		if !strings.HasPrefix(whole, string(r.Stdout.Head)) || !strings.HasSuffix(whole, string(r.Stdout.Tail)) {
			e.Errorf("of %d bytes the wrong ones were kept", n)
		}
	}
}

func smallerCap(e *env) {
	const most = 64 << 10
	r := e.command(sandbox.Command{Shell: "seq 500000; seq 500000 >&2", Capture: most})
	for name, o := range map[string]execd.Output{"stdout": r.Stdout, "stderr": r.Stderr} {
		e.equal(name+" bytes", o.Bytes, int64(len(sequence(500000))))
		e.equal(name+" has a head and a tail", len(o.Head) > 0 && len(o.Tail) > 0, true)
	}
	if kept := len(r.Stdout.Head) + len(r.Stdout.Tail) + len(r.Stderr.Head) + len(r.Stderr.Tail); kept > most {
		e.Errorf("%d bytes were kept, the cap is %d", kept, most)
	}
}

func longLine(e *env) {
	e.put("line", strings.Repeat("x", 3<<20))
	r := e.command(sandbox.Command{Cwd: e.dir, Shell: "cat line"})
	e.equal("bytes", r.Stdout.Bytes, int64(3<<20))
	e.equal("lines", r.Stdout.Lines, int64(1))
	e.equal("only x", strings.Trim(stdout(r), "x"), "")
}

func floodAndStderr(e *env) {
	r := e.run("seq 400000; echo the reason >&2; exit 1")
	e.equal("stderr", stderr(r), "the reason\n")
	e.wantExit(r, 1)
}

func endless(e *env) {
	var r sandbox.Result
	for timeout := time.Second; timeout <= 16*time.Second && r.Stdout.Bytes <= execd.MaxCapture; timeout *= 4 { // where an interpreter is slow
		r = e.command(sandbox.Command{Shell: "yes endless", Timeout: timeout})
		e.equal("timed out", r.TimedOut(), true)
		e.had(r, timeout, timeout+10*time.Second)
	}
	if r.Stdout.Bytes <= execd.MaxCapture || missing(r.Stdout) <= 0 {
		e.Errorf("only %d bytes in its time, %d left out", r.Stdout.Bytes, missing(r.Stdout))
	}
	if len(r.Stdout.Head)+len(r.Stdout.Tail) > execd.MaxCapture {
		e.Errorf("%d bytes kept", len(r.Stdout.Head)+len(r.Stdout.Tail))
	}
}

func pipeStatus(e *env) {
	r := e.run("true | (exit 3) | true")
	e.wantExit(r, 0)
	if len(r.PipeStatus) != 3 || r.PipeStatus[0] != 0 || r.PipeStatus[1] != 3 || r.PipeStatus[2] != 0 {
		e.Errorf("pipe status %v, want [0 3 0]", r.PipeStatus)
	}
	e.equal("of a simple command", len(e.run("exit 3").PipeStatus), 0)
	r = e.run("exit_with() { return $1; }; exit_with 2 | exit_with 5")
	e.wantExit(r, 5)
	if len(r.PipeStatus) != 2 || r.PipeStatus[0] != 2 || r.PipeStatus[1] != 5 {
		e.Errorf("pipe status %v, want [2 5]", r.PipeStatus)
	}
}

// spilled downloads a spill and checks what is said of it.
func (e *env) spilled(r sandbox.Result) string {
	e.Helper()
	if r.Spill == nil {
		e.Fatalf("no spill: %s", describe(r))
	}
	var b bytes.Buffer
	_, err := e.Download(e.Context(), r.Spill.Path, &b, sandbox.Access{})
	e.must(err)
	e.equal("bytes of the spill", int64(b.Len()), r.Spill.Bytes)
	e.equal("hash of the spill", hash(b.Bytes()), r.Spill.SHA256)
	return b.String()
}

func spill(e *env) {
	r := e.run("seq 500000")
	got := e.spilled(r)
	e.equal("complete", r.Spill.Complete, true)
	e.equal("exact", got == sequence(500000), true)
	e.equal("lines", r.Spill.Lines, int64(500000))
	if !strings.HasPrefix(r.Spill.Path, execd.SpillDir+"/") {
		e.Errorf("the spill is %s", r.Spill.Path)
	}
	c, err := e.ReadFile(e.Context(), r.Spill.Path, sandbox.ReadOptions{Line: 250000, Lines: 2})
	e.must(err)
	e.equal("lines from the middle", strings.TrimSuffix(string(c.Data), "\n"), "250000\n250001")
	e.equal("read by a command", stdout(e.run("tail -n 1 "+r.Spill.Path)), "500000\n")
}

func spillBounded(e *env) {
	r := e.command(sandbox.Command{Shell: "yes 0123456789abcde | head -c 70000000", Timeout: 2 * time.Minute})
	e.equal("bytes printed", r.Stdout.Bytes, int64(70000000))
	e.equal("lines printed", r.Stdout.Lines, int64(70000000/16))
	if r.Spill == nil || r.Spill.Complete || r.Spill.Bytes > execd.DefaultSpillLimit {
		e.Fatalf("the spill of 70 MB: %+v", r.Spill)
	}
	e.spilled(r)
}

func spillBinary(e *env) {
	r := e.run(`printf '\000\377\r\n'; seq 300000; printf 'e\000\n' >&2`)
	got := e.spilled(r)
	e.equal("bytes", r.Spill.Bytes, r.Stdout.Bytes+r.Stderr.Bytes)
	for _, part := range []string{"\x00\xff\r\n1\n", "e\x00\n", "\n300000\n"} {
		if !strings.Contains(got, part) {
			e.Errorf("the spill lacks %q", part)
		}
	}
}
