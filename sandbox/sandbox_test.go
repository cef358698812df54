package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/secret"
)

// Every operation has its records, in order, with all the ids.
func TestRecords(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	ctx := t.Context()
	if _, err := f.Run(ctx, sandbox.Command{Shell: "echo hi; exit 3", Tool: "run_command", CallID: "c1", Env: map[string]string{"A": "value"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteFile(ctx, "f", []byte("data"), sandbox.WriteOptions{Access: sandbox.Access{Tool: "write_file", CallID: "c2"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Renew(ctx, time.Now().Add(2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := f.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	want := "sandbox.create.intent sandbox.created call.intent call.outcome file.intent file.outcome " +
		"sandbox.renew.intent sandbox.renewed sandbox.kill.intent sandbox.killed"
	if got := f.kinds(t, audit.KindSandboxIntent); got != want {
		t.Errorf("records are\n%s\nwant\n%s", got, want)
	}
	for _, r := range f.records(t) {
		if r.RunID != "run-1" || r.TraceID != "trace-1" || (r.SandboxID != f.ID()) != (r.Kind == audit.KindSandboxIntent) {
			t.Errorf("record %d: run %q, trace %q, sandbox %q", r.Seq, r.RunID, r.TraceID, r.SandboxID)
		}
	}
	record, in := last[sandbox.CallIntent](t, f, audit.KindCallIntent)
	if record.CallID != "c1" || in.Tool != "run_command" || in.Command != "echo hi; exit 3" || in.TimeoutMS != 60000 || len(in.SHA256) != 64 {
		t.Errorf("intent %+v of call %q", in, record.CallID)
	}
	_, done := last[sandbox.CallOutcome](t, f, audit.KindCallOutcome)
	if done.OK || *done.ExitCode != 3 || done.OutputBytes != 3 || done.Stdout.Lines != 1 || done.Truncated || done.Timeout ||
		done.Why != "exit code 3" || done.Spill == nil {
		t.Errorf("outcome %+v", done)
	}
	_, file := last[sandbox.FileOutcome](t, f, audit.KindFileOutcome)
	if !file.OK || file.Bytes != 4 || len(file.SHA256) != 64 || file.Op != "write" {
		t.Errorf("file outcome %+v", file)
	}
	if strings.Contains(f.log.String(), "value") || strings.Contains(f.log.String(), `"hi\n"`) {
		t.Error("the log holds a variable's value or output")
	}
	if v := audit.Verify(bytes.NewReader(f.log.Bytes()), ""); v.Records != uint64(len(f.records(t))) {
		t.Errorf("the log is %+v", v)
	}
}

func TestLogRequired(t *testing.T) {
	t.Parallel()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	if _, err := sandbox.Create(t.Context(), m, sandbox.Spec{TTL: time.Minute}, sandbox.Options{}); sandbox.KindOf(err) != sandbox.KindInvalid {
		t.Errorf("create without a log: %v", err)
	}
	if _, err := sandbox.Attach(t.Context(), m, "x", sandbox.Options{}); sandbox.KindOf(err) != sandbox.KindInvalid {
		t.Errorf("attach without a log: %v", err)
	}
	if infos, _ := m.List(t.Context(), nil); len(infos) != 0 {
		t.Error("a sandbox was made")
	}
}

// fullDisk fails after some writes.
type fullDisk struct {
	io.Writer
	left int
}

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.left--; d.left < 0 {
		return 0, errors.New("no space left")
	}
	return len(p), nil
}

// What cannot be recorded is not done, but for the end of the sandbox.
func TestUnrecordedIsNotDone(t *testing.T) {
	t.Parallel()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	create := func(left int) (*sandbox.Sandbox, error) {
		return sandbox.Create(t.Context(), m, sandbox.Spec{TTL: time.Minute}, sandbox.Options{Log: audit.New(&fullDisk{left: left}, audit.Options{})})
	}
	for left := range 2 { // neither the intent nor the outcome of the creation
		if _, err := create(left); sandbox.KindOf(err) != sandbox.KindHost {
			t.Errorf("create with room for %d records: %v", left, err)
		}
		if infos, _ := m.List(t.Context(), nil); len(infos) != 0 {
			t.Fatal("an unrecorded sandbox was left")
		}
	}
	sb, err := create(2)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	if r, err := sb.Run(t.Context(), sandbox.Command{Shell: "true"}); err == nil || r.ExitCode != nil {
		t.Errorf("an unrecorded command: %+v, %v", r, err)
	}
	if _, err := sb.WriteFile(t.Context(), "f", nil, sandbox.WriteOptions{}); err == nil {
		t.Error("an unrecorded write was done")
	}
	if err := sb.Kill(t.Context()); err == nil {
		t.Error("an unrecorded kill has no error")
	}
	if infos, _ := m.List(t.Context(), nil); len(infos) != 0 {
		t.Error("the sandbox lives on")
	}
}

func TestKill(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.provider.killErr = errors.New("stuck")
	if err := f.Kill(t.Context()); err == nil || !strings.Contains(err.Error(), "stuck") {
		t.Errorf("a kill that failed: %v", err)
	}
	if _, o := last[sandbox.LifecycleOutcome](t, f, audit.KindKillFailed); o.OK || o.Verified || o.Failure == nil {
		t.Errorf("outcome %+v", o)
	}
	f.provider.killErr = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := f.Kill(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, o := last[sandbox.LifecycleOutcome](t, f, audit.KindKilled); !o.OK || !o.Verified {
		t.Errorf("outcome %+v", o)
	}
	if _, err := f.Run(t.Context(), sandbox.Command{Shell: "true"}); sandbox.KindOf(err) != sandbox.KindNotFound {
		t.Errorf("a run after the kill: %v", err)
	}
	if got := f.kinds(t, audit.KindKillIntent); got != "sandbox.kill.intent sandbox.kill.failed sandbox.kill.intent sandbox.killed" {
		t.Errorf("records are %s", got)
	}
}

// A provider that says it has killed a sandbox is not believed.
func TestKillIsVerified(t *testing.T) {
	t.Parallel()
	short := newFixture(t, nil)
	short.provider.immortal = true
	done := make(chan error, 1)
	go func() { done <- short.Kill(t.Context()) }()
	time.AfterFunc(50*time.Millisecond, func() { _ = short.memory.Kill(context.Background(), short.ID()) })
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, o := last[sandbox.LifecycleOutcome](t, short, audit.KindKilled); o.DurationMS < 30 {
		t.Errorf("it was taken for gone after %d ms, when it was not", o.DurationMS)
	}
}

func TestLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	done := make(chan error, 1)
	go func() {
		_, err := f.Run(t.Context(), sandbox.Command{Shell: "touch started; sleep 60"})
		done <- err
	}()
	f.wait(t, "started")
	f.memory.Lose(f.ID(), "oom")
	err := <-done
	if sandbox.KindOf(err) != sandbox.KindLost || !strings.Contains(err.Error(), "oom") {
		t.Errorf("error %v", err)
	}
	if _, o := last[sandbox.CallOutcome](t, f, audit.KindCallOutcome); o.OK || o.Failure == nil || o.Failure.Kind != sandbox.KindLost || !strings.Contains(o.Why, "oom") {
		t.Errorf("outcome %+v", o)
	}
	if _, err := f.Stat(t.Context(), "/", sandbox.Access{}); sandbox.KindOf(err) != sandbox.KindLost {
		t.Errorf("a later operation: %v", err)
	}
	if _, err := sandbox.Attach(t.Context(), f.provider, f.ID(), sandbox.Options{Log: audit.New(io.Discard, audit.Options{})}); sandbox.KindOf(err) != sandbox.KindLost {
		t.Errorf("attach: %v", err)
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	cause := errors.New("the user had enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		f.wait(t, "started")
		cancel(cause)
	}()
	r, err := f.Run(ctx, sandbox.Command{CallID: "c", Shell: "echo partial; touch started; sleep 60; touch after"})
	if sandbox.KindOf(err) != sandbox.KindTimeout || !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
	if r.KilledBy != execd.KilledByInterrupt || out(r) != "partial\n" {
		t.Errorf("result %+v", r)
	}
	if _, o := last[sandbox.Interrupted](t, f, audit.KindInterrupt); !o.OK {
		t.Errorf("interrupt %+v", o)
	}
	before := f.log.Len()
	if _, err := f.Run(ctx, sandbox.Command{Shell: "true"}); sandbox.KindOf(err) != sandbox.KindTimeout {
		t.Errorf("a run with a context that has ended: %v", err)
	}
	if f.log.Len() != before {
		t.Error("a run that never began was recorded")
	}
}

// A writer that fails ends the command.
func TestWriterFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	r, err := f.Run(t.Context(), sandbox.Command{Shell: "yes", Stdout: &fullDisk{left: 3}})
	if sandbox.KindOf(err) != sandbox.KindHost || r.KilledBy != execd.KilledByInterrupt {
		t.Errorf("result %+v, error %v", r, err)
	}
}

func TestMasking(t *testing.T) {
	t.Parallel()
	const value = "hunter2-hunter2"
	f := newFixture(t, secret.NewMasker(secret.New("password", value)))
	r, err := f.Run(t.Context(), sandbox.Command{Shell: "echo before " + value + "; echo " + value + " >&2"})
	if err != nil {
		t.Fatal(err)
	}
	if got := out(r); got != "before [secret:password]\n" || string(r.Stderr.Head) != "[secret:password]\n" {
		t.Errorf("output %q, %q", got, r.Stderr.Head)
	}
	if int64(len(r.Stdout.Head)+len(r.Stdout.Tail)) != r.Stdout.Bytes {
		t.Errorf("%d bytes of %d: something seems to be left out", len(r.Stdout.Head), r.Stdout.Bytes)
	}
	if _, o := last[sandbox.CallOutcome](t, f, audit.KindCallOutcome); o.Stdout.Bytes != int64(len("before "+value+"\n")) {
		t.Errorf("the record counts %d bytes", o.Stdout.Bytes)
	}
	if strings.Contains(f.log.String(), value) {
		t.Error("the value is in the log")
	}
	// A command so long that its summary is cut within a value.
	pad := strings.Repeat("x", 2040)
	if _, err := f.Run(t.Context(), sandbox.Command{Shell: ": " + pad + value}); err != nil {
		t.Fatal(err)
	}
	if _, in := last[sandbox.CallIntent](t, f, audit.KindCallIntent); strings.Contains(in.Command, value[:6]) || in.Bytes != 2+len(pad)+len(value) {
		t.Errorf("summary ends in %q", in.Command[2030:])
	}
}

// At the cut of a large output no part of a value is left.
func TestMaskingAtTheCut(t *testing.T) {
	t.Parallel()
	const value = "0123456789abcdef0123456789abcdef"
	f := newFixture(t, secret.NewMasker(secret.New("key", value)))
	r, err := f.Run(t.Context(), sandbox.Command{Shell: "yes " + value + " | head -c 4000000"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Stdout.Bytes <= int64(len(r.Stdout.Head)+len(r.Stdout.Tail)) {
		t.Fatal("nothing was cut")
	}
	for _, part := range []string{string(r.Stdout.Head), string(r.Stdout.Tail)} {
		rest := strings.Trim(strings.ReplaceAll(part, "[secret:key]", ""), "\n")
		// head -c cuts the last line by itself: that piece is the program's own.
		if len(rest) > 0 && !strings.HasPrefix(value, rest) || len(rest) >= len(value) {
			t.Errorf("left over: %.80q", rest)
		}
	}
	if strings.HasSuffix(strings.TrimSuffix(string(r.Stdout.Head), "\n"), value[:8]) {
		t.Error("the head ends in a piece of the value")
	}
}
