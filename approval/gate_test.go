package approval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// person answers questions in tests.
type person struct {
	name   string
	answer func(ctx context.Context, q approval.Question) (approval.Decision, error)

	mu    sync.Mutex
	asked []approval.Question
}

func (p *person) Name() string { return p.name }

func (p *person) Ask(ctx context.Context, q approval.Question) (approval.Decision, error) {
	p.mu.Lock()
	p.asked = append(p.asked, q)
	p.mu.Unlock()
	return p.answer(ctx, q)
}

func saying(d approval.Decision) *person {
	return &person{name: "terminal", answer: func(context.Context, approval.Question) (approval.Decision, error) { return d, nil }}
}

func silent() *person {
	return &person{name: "silent", answer: func(ctx context.Context, _ approval.Question) (approval.Decision, error) {
		<-ctx.Done()
		return approval.Decision{}, ctx.Err()
	}}
}

// desk is a gate and what it recorded.
type desk struct {
	*approval.Gate
	mu      sync.Mutex
	events  []approval.Event
	waiting int
	waits   int
	files   map[string]string
}

func (d *desk) codes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var codes []string
	for _, e := range d.events {
		if e.Outcome == nil {
			codes = append(codes, "asked")
		} else {
			codes = append(codes, string(e.Outcome.Code))
		}
	}
	return codes
}

func newDesk(t *testing.T, change func(*approval.Options), channels ...approval.Channel) *desk {
	t.Helper()
	d := &desk{files: map[string]string{}}
	o := approval.Options{
		Policy: policy(t, approval.Ask, approval.Rule{Action: approval.Allow, Command: "ls"}, approval.Rule{Action: approval.Deny, Command: "rm"}),
		RunID:  "run", Channels: channels,
		Record: func(e approval.Event) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.events = append(d.events, e)
			return nil
		},
		Waiting: func(approval.Question) func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.waits++
			d.waiting++
			return func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.waiting--
			}
		},
		Files: func(_ context.Context, _ string, paths []string) (map[string]string, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			sums := map[string]string{}
			for _, p := range paths {
				if s, ok := d.files[p]; ok {
					sums[p] = s
				}
			}
			return sums, nil
		},
	}
	if change != nil {
		change(&o)
	}
	var err error
	if d.Gate, err = approval.New(o); err != nil {
		t.Fatal(err)
	}
	return d
}

func check(t *testing.T, d *desk, r approval.Request) approval.Outcome {
	t.Helper()
	out, err := d.Check(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	broken := &person{name: "broken", answer: func(context.Context, approval.Question) (approval.Decision, error) {
		return approval.Decision{}, errors.New("no such address")
	}}
	for name, tt := range map[string]struct {
		channels []approval.Channel
		line     string
		want     approval.Code
		codes    []string
		waited   time.Duration
	}{
		"allowed":        {nil, "ls", approval.Allowed, nil, 0},
		"denied by rule": {[]approval.Channel{saying(approval.Decision{Approve: true})}, "rm x", approval.DeniedByRule, []string{"denied_by_rule"}, 0},
		"approved":       {[]approval.Channel{saying(approval.Decision{Approve: true})}, "cp a b", approval.Approved, []string{"asked", "approved"}, 0},
		"denied":         {[]approval.Channel{saying(approval.Decision{})}, "cp a b", approval.Denied, []string{"asked", "approval_denied"}, 0},
		"timed out":      {[]approval.Channel{silent()}, "cp a b", approval.TimedOut, []string{"asked", "approval_timed_out"}, approval.DefaultTimeout},
		"no channel":     {nil, "cp a b", approval.NoChannel, []string{"approval_no_channel"}, 0},
		"broken channel": {[]approval.Channel{broken}, "cp a b", approval.NoChannel, []string{"asked", "approval_no_channel"}, 0},
		"one works":      {[]approval.Channel{broken, silent(), saying(approval.Decision{Approve: true})}, "cp a b", approval.Approved, []string{"asked", "approved"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, nil, tt.channels...)
				out := check(t, d, shell(tt.line))
				if out.Code != tt.want || out.Waited != tt.waited {
					t.Errorf("%+v", out)
				}
				if !out.Code.OK() && out.Reason == "" {
					t.Error("no reason")
				}
				if got := d.codes(); !slices.Equal(got, tt.codes) {
					t.Errorf("recorded %q, want %q", got, tt.codes)
				}
				if d.waiting != 0 || len(d.Pending()) != 0 {
					t.Error("something still waits")
				}
			})
		})
	}
}

// A channel that a question does not get through is tried again, and is said to
// be at once; when none got it through, nobody was asked.
func TestUndelivered(t *testing.T) {
	t.Parallel()
	refused := func() *person {
		return &person{name: "webhook", answer: func(context.Context, approval.Question) (approval.Decision, error) {
			return approval.Decision{}, &approval.UndeliveredError{Err: errors.New("connection refused")}
		}}
	}
	later := refused()
	later.answer = func(context.Context, approval.Question) (approval.Decision, error) {
		if len(later.asked) < 3 {
			return approval.Decision{}, &approval.UndeliveredError{Err: errors.New("connection refused")}
		}
		return approval.Decision{Approve: true}, nil
	}
	broken := &person{name: "broken", answer: func(context.Context, approval.Question) (approval.Decision, error) {
		return approval.Decision{}, errors.New("no key")
	}}
	for name, tt := range map[string]struct {
		channels   []approval.Channel
		resolvable bool
		want       approval.Code
		reason     string
		warnings   int
	}{
		"never":           {[]approval.Channel{refused()}, false, approval.NoChannel, "webhook: connection refused", 1},
		"none ever":       {[]approval.Channel{broken, refused()}, false, approval.NoChannel, "broken: no key, nor by webhook: connection refused", 2},
		"at last":         {[]approval.Channel{later}, false, approval.Approved, "", 1},
		"another waits":   {[]approval.Channel{silent(), refused()}, false, approval.TimedOut, "connection refused", 1},
		"others may know": {[]approval.Channel{refused()}, true, approval.TimedOut, "connection refused", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var warned []string
				d := newDesk(t, func(o *approval.Options) {
					o.Resolvable = tt.resolvable
					o.Warn = func(format string, args ...any) {
						mu.Lock()
						defer mu.Unlock()
						warned = append(warned, fmt.Sprintf(format, args...))
					}
				}, tt.channels...)
				out := check(t, d, shell("cp a b"))
				if out.Code != tt.want || !strings.Contains(out.Reason, tt.reason) || len(warned) != tt.warnings {
					t.Errorf("%+v, warned %q", out, warned)
				}
			})
		})
	}
}

// A question is what is run, where and from which files, as it can be seen.
func TestQuestion(t *testing.T) {
	t.Parallel()
	p := saying(approval.Decision{Approve: true})
	d := newDesk(t, func(o *approval.Options) { o.Masker = secret.NewMasker(secret.New("key", "hunter2hunter2")) }, p)
	d.files["./x.sh"] = "aa"
	r := shell("./x.sh a\u202eb\x1b[31m hunter2hunter2\u200b")
	r.Env = map[string]string{"B": "hunter2hunter2", "A": "1"}
	out := check(t, d, r)
	q := p.asked[0]
	if strings.ContainsAny(q.Text, "\u202e\x1b\u200b") || strings.Contains(q.Text, "hunter2") || !q.Hidden {
		t.Errorf("%+v", q)
	}
	if !slices.Equal(q.Env, []string{"A", "B"}) || q.Files["./x.sh"] != "aa" || q.Cwd != "/workspace" || q.Why == "" || q.RunID != "run" || q.ID == "" {
		t.Errorf("%+v", q)
	}
	if out.Hash != q.Hash || len(q.Hash) != 64 || !q.Expires.Equal(q.Asked.Add(approval.DefaultTimeout)) {
		t.Errorf("%+v %+v", out, q)
	}
	check(t, d, shell("cp "+strings.Repeat("é", 20<<10)))
	if q := p.asked[1]; !q.Cut || len(q.Text) > 17<<10 {
		t.Errorf("%d bytes, cut %v", len(q.Text), q.Cut)
	}
}

// What an answer is bound to: each part makes another question.
func TestHash(t *testing.T) {
	t.Parallel()
	p := saying(approval.Decision{Approve: true})
	d := newDesk(t, nil, p)
	base := shell("./x.sh")
	seen := map[string]bool{}
	ask := func(r approval.Request) {
		out := check(t, d, r)
		if seen[out.Hash] {
			t.Errorf("%+v has the hash of another", r)
		}
		seen[out.Hash] = true
	}
	ask(base)
	r := base
	r.Cwd = "/other"
	ask(r)
	r = base
	r.Env = map[string]string{"A": "1"}
	ask(r)
	r.Env = map[string]string{"A": "2"}
	ask(r)
	r = base
	r.Command = "./x.sh "
	ask(r)
	d.files["./x.sh"] = "aa"
	ask(base)
	d.files["./x.sh"] = "bb"
	ask(base)
	if out := check(t, d, base); !seen[out.Hash] {
		t.Error("the same request has another hash")
	}
	// The id of a call has no part in it.
	r = base
	r.CallID = "other"
	if out := check(t, d, r); !seen[out.Hash] {
		t.Error("the call's id is part of the hash")
	}
}

// What a line reads as programs that cannot be judged is not known, and nothing
// is granted for it.
func TestGrantUnparsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := saying(approval.Decision{Approve: true, ForRun: true, By: "alice"})
		d := newDesk(t, nil, p)
		for range 2 {
			if out := check(t, d, shell("./x.sh # \\\n")); out.Code != approval.Approved {
				t.Errorf("%+v", out)
			}
		}
	})
}

func TestGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := saying(approval.Decision{Approve: true, ForRun: true, By: "alice"})
		d := newDesk(t, nil, p)
		d.files["./x.sh"] = "aa"
		for i, want := range []approval.Code{approval.Approved, approval.Granted, approval.Granted} {
			if out := check(t, d, shell("./x.sh")); out.Code != want || out.By != "alice" {
				t.Errorf("%d: %+v", i, out)
			}
		}
		if len(p.asked) != 1 {
			t.Errorf("asked %d times", len(p.asked))
		}
		d.files["./x.sh"] = "bb" // another script
		if out := check(t, d, shell("./x.sh")); out.Code != approval.Approved {
			t.Errorf("%+v", out)
		}
		if out := check(t, d, shell("./x.sh -f")); out.Code != approval.Approved {
			t.Errorf("%+v", out)
		}
		time.Sleep(approval.DefaultGrant)
		if out := check(t, d, shell("./x.sh")); out.Code != approval.Approved {
			t.Errorf("a grant does not expire: %+v", out)
		}
		if len(p.asked) != 4 {
			t.Errorf("asked %d times", len(p.asked))
		}
	})
	// Without it an approval is for one time, and so is a denial.
	p := saying(approval.Decision{Approve: true})
	d := newDesk(t, nil, p)
	check(t, d, shell("cp a b"))
	check(t, d, shell("cp a b"))
	if len(p.asked) != 2 {
		t.Errorf("asked %d times", len(p.asked))
	}
	p = saying(approval.Decision{ForRun: true})
	d = newDesk(t, nil, p)
	check(t, d, shell("cp a b"))
	if out := check(t, d, shell("cp a b")); out.Code != approval.Denied || len(p.asked) != 1 {
		t.Errorf("%+v after %d", out, len(p.asked))
	}
}

// A script that is changed between the approval and the execution is asked
// about again.
func TestChanged(t *testing.T) {
	t.Parallel()
	var d *desk
	n := 0
	p := &person{name: "terminal"}
	p.answer = func(context.Context, approval.Question) (approval.Decision, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if n++; n < 2 {
			d.files["./x.sh"] = fmt.Sprint(n)
		}
		return approval.Decision{Approve: true}, nil
	}
	d = newDesk(t, nil, p)
	d.files["./x.sh"] = "0"
	if out := check(t, d, shell("sh ./x.sh && ls")); out.Code != approval.Approved {
		t.Errorf("%+v", out)
	}
	if len(p.asked) != 2 || p.asked[0].Again || !p.asked[1].Again || p.asked[1].Files["./x.sh"] != "1" {
		t.Errorf("%+v", p.asked)
	}
	// A file that appears, or that goes away, is a change as well.
	n = 0
	delete(d.files, "./x.sh")
	if out := check(t, d, shell("./x.sh")); out.Code != approval.Approved || n != 2 {
		t.Errorf("%+v after %d questions", out, n)
	}
	// One that never stays the same is not run.
	p.answer = func(context.Context, approval.Question) (approval.Decision, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		n++
		d.files["./x.sh"] = fmt.Sprint(n)
		return approval.Decision{Approve: true}, nil
	}
	if out := check(t, d, shell("./x.sh")); out.Code != approval.Changed {
		t.Errorf("%+v", out)
	}
}

func TestFilesUnknown(t *testing.T) {
	t.Parallel()
	p := saying(approval.Decision{Approve: true})
	d := newDesk(t, func(o *approval.Options) {
		o.Files = func(context.Context, string, []string) (map[string]string, error) {
			return nil, errors.New("no sandbox")
		}
	}, p)
	if out := check(t, d, shell("./x.sh")); out.Code.OK() || len(p.asked) != 0 {
		t.Errorf("%+v", out)
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	for edited, want := range map[string]approval.Code{
		"ls -l":    approval.Approved,
		"mv a b":   approval.Approved, // asked about again it would be by whoever wrote it
		"cp a b":   approval.Approved,
		"rm a":     approval.DeniedByRule,
		"ls; rm a": approval.DeniedByRule,
	} {
		d := newDesk(t, nil, saying(approval.Decision{Approve: true, ForRun: true, Command: edited}))
		out := check(t, d, shell("cp a b"))
		if out.Code != want {
			t.Errorf("%s: %+v", edited, out)
		}
		if changed := edited != "cp a b" && want == approval.Approved; (out.Command == edited) != changed {
			t.Errorf("%s: %+v", edited, out)
		}
		last := d.events[len(d.events)-1]
		if last.Outcome.Command != out.Command || last.Question.Text != "cp a b" {
			t.Errorf("recorded %+v", last)
		}
	}
	d := newDesk(t, nil, saying(approval.Decision{Approve: true, Command: "ls"}))
	if out := check(t, d, approval.Request{Kind: approval.Host, Host: "example.com"}); out.Code != approval.Denied {
		t.Errorf("a host was edited: %+v", out)
	}
	if out := check(t, d, shell("cp "+strings.Repeat("x", 20<<10))); out.Code != approval.Denied {
		t.Errorf("what was not seen whole was edited: %+v", out)
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, func(o *approval.Options) { o.Resolvable = true }, silent())
		ctx, cancel := context.WithCancel(context.Background())
		outs := make(chan approval.Outcome, 2)
		for _, ctx := range []context.Context{ctx, context.Background()} {
			go func() {
				out, err := d.Check(ctx, shell("a"))
				if err != nil {
					t.Error(err)
				}
				outs <- out
			}()
			synctest.Wait()
		}
		cancel()
		if out := <-outs; out.Code != approval.Interrupted {
			t.Errorf("%+v", out)
		}
		synctest.Wait()
		// Who had joined the question asks it now.
		q := d.Pending()
		if len(q) != 1 {
			t.Fatalf("%d pending", len(q))
		}
		if err := d.Resolve(q[0].ID, q[0].Hash, approval.Decision{Approve: true}); err != nil {
			t.Error(err)
		}
		if out := <-outs; out.Code != approval.Approved {
			t.Errorf("%+v", out)
		}
	})
}

// What cannot be recorded is not asked, and not done.
func TestUnrecorded(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	p := saying(approval.Decision{Approve: true})
	d := newDesk(t, func(o *approval.Options) { o.Record = func(approval.Event) error { return full } }, p)
	for _, line := range []string{"cp a b", "rm x"} {
		if out, err := d.Check(context.Background(), shell(line)); !errors.Is(err, full) {
			t.Errorf("%s: %+v %v", line, out, err)
		}
	}
	if len(p.asked) != 0 {
		t.Error("it was asked")
	}
}
