package sandboxtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// env is what a case works with: its test, its sandbox, and a directory in it
// that is its own.
type env struct {
	*testing.T
	*sandbox.Sandbox
	suite *suite
	dir   string
}

func hostFile(t *testing.T, secret string) string {
	name := filepath.Join(t.TempDir(), "host-file")
	if err := os.WriteFile(name, []byte(secret), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// create makes a sandbox that ends with the case, unless it failed.
func (e *env) create(change func(*sandbox.Spec)) *sandbox.Sandbox {
	e.Helper()
	spec := e.suite.spec()
	if change != nil {
		change(&spec)
	}
	sb, err := sandbox.Create(e.Context(), e.suite.provider, spec, sandbox.Options{Log: record()})
	if err != nil {
		e.Fatalf("create: %v (hint: %s)", err, sandbox.HintOf(err))
	}
	e.Cleanup(func() {
		defer sb.Close()
		if e.Failed() {
			if _, err := e.suite.provider.Get(context.Background(), sb.ID()); sandbox.KindOf(err) == sandbox.KindNotFound {
				return // the case has ended it
			}
			e.Logf("sandbox %s is kept until %v", sb.ID(), sb.Info().ExpiresAt)
			return
		}
		if err := sb.Kill(context.Background()); err != nil {
			e.Errorf("kill %s: %v", sb.ID(), err)
		}
	})
	return sb
}

// attach is another client of the same sandbox over a provider of its own.
func (e *env) attach(p sandbox.Provider) *sandbox.Sandbox {
	e.Helper()
	sb, err := sandbox.Attach(e.Context(), p, e.ID(), sandbox.Options{Log: record()})
	e.must(err)
	e.Cleanup(func() { sb.Close() })
	return sb
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// wantKind fails unless err is of one of kinds.
func (e *env) wantKind(err error, kinds ...sandbox.Kind) {
	e.Helper()
	for _, k := range kinds {
		if err != nil && sandbox.KindOf(err) == k {
			return
		}
	}
	e.Errorf("error %v of kind %q, want %q", err, sandbox.KindOf(err), kinds)
}

func (e *env) equal(what string, got, want any) {
	e.Helper()
	if got != want {
		e.Errorf("%s is %#v, want %#v", what, got, want)
	}
}

// command runs c with a default timeout and fails when it could not be run.
func (e *env) command(c sandbox.Command) sandbox.Result {
	e.Helper()
	if c.Timeout == 0 {
		c.Timeout = e.scale(30 * time.Second)
	}
	r, err := e.Sandbox.Run(e.Context(), c)
	if err != nil {
		e.Fatalf("run %.200q: %v", c.Shell, err)
	}
	return r
}

// run runs a shell text in the case's directory, if there is one yet.
func (e *env) run(shell string) sandbox.Result {
	e.Helper()
	return e.command(sandbox.Command{Shell: shell})
}

// sh runs a shell text in the case's directory, which must succeed, and returns
// its standard output.
func (e *env) sh(shell string) string {
	e.Helper()
	r := e.command(sandbox.Command{Shell: shell, Cwd: e.dir})
	if !r.OK() {
		e.Fatalf("%.300s\n%s", shell, describe(r))
	}
	return text(r.Stdout.Head, r.Stdout.Tail)
}

// put writes a file of the case's directory.
func (e *env) put(name, content string) string {
	e.Helper()
	p := e.dir + "/" + name
	_, err := e.WriteFile(e.Context(), p, []byte(content), sandbox.WriteOptions{})
	e.must(err)
	return p
}

// get reads a file.
func (e *env) get(name string) string {
	e.Helper()
	c, err := e.ReadFile(e.Context(), name, sandbox.ReadOptions{Max: 4 << 20})
	e.must(err)
	return string(c.Data)
}

func (e *env) scale(d time.Duration) time.Duration {
	if e.suite.Factor > 0 {
		return time.Duration(float64(d) * e.suite.Factor)
	}
	return d
}

// within fails when f takes longer than d.
func (e *env) within(d time.Duration, f func()) {
	e.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > e.scale(d) {
		e.Errorf("took %v, more than %v", took.Round(time.Millisecond), e.scale(d))
	}
}

// had fails when the command ran shorter or longer, by what execd measured: how
// long the command had, not how long the news of its end took.
func (e *env) had(r sandbox.Result, least, most time.Duration) {
	e.Helper()
	if had := time.Duration(r.DurationMS) * time.Millisecond; had < least || had > e.scale(most) {
		e.Errorf("it ran for %v, want %v to %v", had, least, e.scale(most))
	}
}

// eventually waits until ok, and fails when that takes longer than d.
func (e *env) eventually(d time.Duration, what string, ok func() bool) {
	e.Helper()
	deadline := time.Now().Add(e.scale(d))
	for !ok() {
		if time.Now().After(deadline) {
			e.Fatalf("after %v still not: %s", e.scale(d), what)
		}
		e.wait(20 * time.Millisecond)
	}
}

// wait lets time pass for what has no event to wait for: a sandbox's clock, and
// programs that must not do something any more.
func (e *env) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-e.Context().Done():
		e.Fatal(e.Context().Err())
	}
}

func describe(r sandbox.Result) string {
	code := "unknown"
	if r.ExitCode != nil {
		code = strconv.Itoa(*r.ExitCode)
	}
	return fmt.Sprintf("exit code %s, signal %q, killed by %q\nstdout: %.500q\nstderr: %.500q", code, r.Signal, r.KilledBy,
		text(r.Stdout.Head, r.Stdout.Tail), text(r.Stderr.Head, r.Stderr.Tail))
}

func text(parts ...[]byte) string {
	var b strings.Builder
	for _, p := range parts {
		b.Write(p)
	}
	return b.String()
}

// noise returns n bytes that depend on seed alone.
func noise(seed uint64, n int) []byte {
	var key [32]byte
	key[0] = byte(seed)
	b := make([]byte, n)
	rand.NewChaCha8(key).Read(b)
	return b
}
