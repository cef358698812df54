package wrap_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/wrap"
)

// recorded are ends that were provoked, with what each agent wrote then: see
// docs/wrap.md for how. An empty kind is none.
var recorded = []struct {
	agent, name string
	code        int
	finished    bool
	kind        wrap.FailureKind
	says        string // in the answer, or in the failure's message
	turns       int
	tools       int
}{
	{"codex", "ok", 0, true, "", "it adds now", 1, 4},
	{"codex", "budget", 1, false, wrap.Spent, "rein: the budget of this run is used up", 1, 2},
	{"codex", "badkey", 1, false, wrap.BadKey, "unexpected status 401 Unauthorized", 1, 0},
	{"codex", "nokey", 1, false, wrap.BadKey, "Missing environment variable", 1, 0},
	{"codex", "refusal", 0, false, wrap.Refusal, "ended without a word", 1, 0},
	{"codex", "model", 1, false, wrap.NoModel, "The model `gpt-5.5` does not exist", 1, 0},
	{"codex", "context", 1, false, wrap.TooLong, "ran out of room", 1, 0},
	{"codex", "cut", 1, false, wrap.NoVendor, "stream disconnected before completion", 1, 1},
	{"codex", "cutclean", 1, false, wrap.NoVendor, "stream disconnected before completion", 1, 4},
	{"codex", "unavailable", 1, false, wrap.NoVendor, "experiencing high demand", 1, 0},
	{"codex", "asked", 1, false, wrap.NotAllowed, "rein: the request may not go on", 1, 0},
	{"codex", "stopped", 143, false, "", "", 1, 0},

	{"claude", "ok", 0, true, "", "it adds now", 5, 4},
	{"claude", "budget", 1, false, wrap.Spent, "API Error: 402 rein: the budget of this run is used up", 4, 3},
	{"claude", "permission", 0, false, wrap.NotAllowed, "the last call was refused", 2, 1},
	{"claude", "turns", 1, false, wrap.OutOfTurns, "Reached maximum number of turns (2)", 3, 2},
	{"claude", "model", 1, false, wrap.NoModel, "There's an issue with the selected model", 1, 0},
	{"claude", "context", 1, false, wrap.TooLong, "Prompt is too long", 1, 0},
	{"claude", "badkey", 1, false, wrap.BadKey, "Invalid API key", 1, 0},
	{"claude", "nokey", 1, false, wrap.BadKey, "Not logged in", 1, 0},
	{"claude", "refusal", 1, false, wrap.Refusal, "unable to respond to this request", 1, 0},
	{"claude", "cut", 1, false, wrap.NoVendor, "Failed to parse JSON", 2, 1},
	{"claude", "asked", 1, false, wrap.NotAllowed, "rein: the request may not go on", 1, 0},
	{"claude", "unavailable", 1, false, wrap.NoVendor, "API Error: 500", 1, 0},
	{"claude", "stopped", 143, false, "", "", 0, 0},

	{"gemini", "ok", 0, true, "", "it adds now", 0, 4},
	{"gemini", "budget", 147, false, wrap.Spent, "rein: the budget of this run is used up", 0, 2},
	{"gemini", "badkey", 144, false, wrap.BadKey, "API key not valid", 0, 0},
	{"gemini", "permission", 0, false, wrap.NotAllowed, "the last call was refused", 0, 1},
	{"gemini", "turns", 53, false, wrap.OutOfTurns, "Reached max session turns", 0, 2},
	{"gemini", "model", 1, false, wrap.NoModel, "is not found for API version", 0, 0},
	{"gemini", "context", 144, false, wrap.TooLong, "The input token count", 0, 0},
	{"gemini", "nokey", 41, false, wrap.BadKey, "you must specify the GEMINI_API_KEY", 0, 0},
	{"gemini", "asked", 144, false, wrap.NotAllowed, "rein: the request may not go on", 0, 0},
	{"gemini", "unavailable", 143, false, wrap.NoVendor, "failed with status 500", 0, 0},
	{"gemini", "stopped", 143, false, "", "", 0, 0},
	{"gemini", "cut", 0, true, "", "it adds now", 0, 4}, // it asked again
	// It does not tell that an answer was one of refusal.
	{"gemini", "refusal", 0, true, "", "I would rather not do that.", 0, 0},

	{"opencode", "ok", 0, true, "", "it adds now", 5, 4},
	{"opencode", "badkey", 1, false, wrap.BadKey, "invalid x-api-key", 0, 0},
	{"opencode", "budget", 1, false, wrap.Spent, "rein: the budget of this run is used up", 2, 2},
	{"opencode", "permission", 0, false, wrap.NotAllowed, "The user rejected permission", 1, 1},
	{"opencode", "model", 1, false, wrap.NoModel, "model: claude-x", 0, 0},
	{"opencode", "context", 1, false, wrap.TooLong, "prompt is too long", 0, 0},
	{"opencode", "refusal", 1, false, wrap.Refusal, "content filter", 1, 0},

	{"qwen", "ok", 0, true, "", "it adds now", 5, 4},
	{"qwen", "budget", 0, false, wrap.Spent, "[API Error: 402 rein: the budget of this run is used up", 3, 2},
	{"qwen", "badkey", 0, false, wrap.BadKey, "[API Error: 401 Incorrect API key", 1, 0},
	{"qwen", "permission", 0, false, wrap.NotAllowed, "the last call was refused", 2, 1},
	{"qwen", "nokey", 1, false, wrap.BadKey, "Missing API key", 0, 0},
	{"qwen", "turns", 53, false, wrap.OutOfTurns, "Reached max session turns", 0, 2},
	{"qwen", "refusal", 0, false, wrap.Refusal, "ended with empty response text", 1, 0},
	{"qwen", "model", 0, false, wrap.NoModel, "does not exist", 1, 0},
	{"qwen", "context", 0, false, wrap.TooLong, "maximum context length", 1, 0},
	{"qwen", "unavailable", 143, false, "", "", 0, 0}, // it tries again and says nothing
	{"qwen", "stopped", 143, false, "", "", 0, 0},
	{"qwen", "cut", 0, false, wrap.NoVendor, "without a finish reason", 2, 1},
}

// streams are what an agent wrote; stderr may be empty.
func streams(t *testing.T, agent, name string) (stdout, stderr []byte) {
	t.Helper()
	stdout, err := os.ReadFile("testdata/outputs/" + agent + "/" + name + ".stdout")
	if err != nil {
		t.Fatal(err)
	}
	stderr, err = os.ReadFile("testdata/outputs/" + agent + "/" + name + ".stderr")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return stdout, stderr
}

// read gives a new reader both streams in pieces of n bytes.
func read(agent string, stdout, stderr []byte, n, code int) (wrap.Reading, []wrap.Activity) {
	r := wrap.Readers[agent]()
	var told []wrap.Activity
	pieces := func(b []byte, to func([]byte) []wrap.Activity) {
		for len(b) > 0 {
			k := min(n, len(b))
			told = append(told, to(b[:k])...)
			b = b[k:]
		}
	}
	pieces(stderr, r.Stderr)
	pieces(stdout, r.Stdout)
	return r.End(code, 0), told
}

func TestRecordedEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range recorded {
		t.Run(tt.agent+" "+tt.name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr := streams(t, tt.agent, tt.name)
			got, told := read(tt.agent, stdout, stderr, len(stdout)+1, tt.code)
			said, kind := got.Answer, wrap.FailureKind("")
			if got.Failure != nil {
				said, kind = got.Failure.Message, got.Failure.Kind
			}
			if got.Finished != tt.finished || kind != tt.kind || !strings.Contains(said, tt.says) || got.Turns != tt.turns || got.Tools != tt.tools {
				t.Errorf("finished %v, %q: %q, %d turns, %d tools; want %v, %q: %q, %d, %d",
					got.Finished, kind, said, got.Turns, got.Tools, tt.finished, tt.kind, tt.says, tt.turns, tt.tools)
			}
			if got.Unknown > 0 {
				t.Errorf("%d lines were not understood", got.Unknown)
			}
			for _, a := range told {
				if a.Text == "" || a.Kind == "" || strings.ContainsAny(a.Text, "\n\r\x1b") {
					t.Errorf("told %+v", a)
				}
			}
			tolerant(t, tt.agent, stdout, stderr, tt.code, got)
		})
	}
}

// tolerant reads the same in other pieces, and with what a terminal and other
// programs put between, to the same end.
func tolerant(t *testing.T, agent string, stdout, stderr []byte, code int, want wrap.Reading) {
	t.Helper()
	for _, n := range []int{1, 7, 4096} {
		if got, _ := read(agent, stdout, stderr, n, code); !cmp.Equal(got, want) {
			t.Errorf("in pieces of %d: %s", n, cmp.Diff(want, got))
		}
	}
	const noise = "\x1b[2K\x1b[1mnpm notice\x1b[0m\n{\"type\":\"of.another.age\",\"x\":[{}]}\n{broken\n\n\x1b]0;title\x07\n\xff\xfe\n"
	noisy := []byte(noise)
	for line := range bytes.Lines(stdout) {
		noisy = append(noisy, "\x1b[0m"...)
		noisy = append(noisy, bytes.TrimSuffix(line, []byte("\n"))...)
		noisy = append(noisy, "\x1b[0m\r\n"+noise...)
	}
	got, _ := read(agent, noisy, stderr, 1000, code)
	if got.Unknown == 0 {
		t.Error("noise was understood")
	}
	got.Unknown = want.Unknown
	if !cmp.Equal(got, want) {
		t.Errorf("with noise: %s", cmp.Diff(want, got))
	}
}

// An output that stops before its end has no finished result, whatever the exit
// code; a whole one has its, whatever the exit code.
func TestCutOutputs(t *testing.T) {
	t.Parallel()
	for agent := range wrap.Readers {
		stdout, stderr := streams(t, agent, "ok")
		if got, _ := read(agent, stdout, stderr, 4096, 1); !got.Finished || got.Answer == "" || got.Failure != nil {
			t.Errorf("%s: whole, with exit code 1: %+v", agent, got)
		}
		end := bytes.LastIndexByte(bytes.TrimSpace(stdout), '\n') + 1
		for _, cut := range []int{0, 1, end / 2, end - 1, end, end + (len(stdout)-end)/2} {
			for _, code := range []int{0, 1} {
				if got, _ := read(agent, stdout[:cut], stderr, 4096, code); got.Finished {
					t.Errorf("%s: cut at %d of %d, with exit code %d: %+v", agent, cut, len(stdout), code, got)
				}
			}
		}
	}
}

// A line without an end is passed over, and what comes after it is read.
func TestHugeLines(t *testing.T) {
	t.Parallel()
	for agent := range wrap.Readers {
		stdout, stderr := streams(t, agent, "ok")
		r := wrap.Readers[agent]()
		r.Stderr(stderr)
		r.Stdout([]byte(`{"type":"x","text":"`))
		for range 20 {
			r.Stdout(bytes.Repeat([]byte("y"), 1<<20))
		}
		r.Stdout([]byte("\"}\n"))
		r.Stdout(stdout)
		if got := r.End(0, 0); !got.Finished || got.Unknown != 1 {
			t.Errorf("%s: %+v", agent, got)
		}
	}
}

// FuzzReaders: no bytes break a reader, and no noise finishes a work.
func FuzzReaders(f *testing.F) {
	for agent := range wrap.Readers {
		for _, name := range []string{"ok"} {
			b, err := os.ReadFile("testdata/outputs/" + agent + "/" + name + ".stdout")
			if err != nil {
				f.Fatal(err)
			}
			f.Add(agent, b, []byte("at x\nError: y"), 1)
		}
	}
	f.Fuzz(func(t *testing.T, agent string, stdout, stderr []byte, code int) {
		if wrap.Readers[agent] == nil {
			return
		}
		whole, _ := read(agent, stdout, stderr, len(stdout)+len(stderr)+1, code)
		if pieces, _ := read(agent, stdout, stderr, 3, code); !cmp.Equal(whole, pieces) {
			t.Error(cmp.Diff(whole, pieces))
		}
		if whole.Finished && whole.Failure != nil {
			t.Errorf("finished and failed: %+v", whole)
		}
	})
}
