package approval_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/approval"
)

func TestTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, func(o *approval.Options) { o.Resolvable = true })
		outs := make(chan approval.Outcome, 8)
		ask := func(line string) {
			go func() { outs <- check(t, d, shell(line)) }()
			synctest.Wait()
		}
		ask("a")
		ask("a") // joined
		ask("b")
		ask("c")
		if n := len(d.Pending()); n != approval.MaxPending {
			t.Fatalf("%d pending", n)
		}
		if d.waits != 3 || d.waiting != 3 {
			t.Errorf("%d waits, %d waiting", d.waits, d.waiting)
		}
		ask("d")
		if out := <-outs; out.Code != approval.TooMany {
			t.Errorf("%+v", out)
		}
		texts := []string{}
		for _, q := range d.Pending() {
			texts = append(texts, q.Text)
		}
		if !slices.Equal(texts, []string{"a", "b", "c"}) {
			t.Errorf("%q", texts)
		}
		waiting := d.Pending()
		time.Sleep(time.Minute)
		if err := d.Resolve(waiting[0].ID, waiting[1].Hash, approval.Decision{Approve: true}); !errors.Is(err, approval.ErrAnother) {
			t.Errorf("what was asked is another: %v", err)
		}
		if err := d.Resolve(waiting[0].ID, waiting[0].Hash, approval.Decision{Approve: true, By: "uid 1000"}); err != nil {
			t.Error(err)
		}
		for range 2 {
			if out := <-outs; out.Code != approval.Approved || out.By != "uid 1000" || out.Waited != time.Minute {
				t.Errorf("%+v", out)
			}
		}
		if err := d.Resolve(waiting[0].ID, waiting[0].Hash, approval.Decision{Approve: true}); !errors.Is(err, approval.ErrNotPending) {
			t.Error(err)
		}
		if err := d.Resolve("ask-1", waiting[1].Hash, approval.Decision{Approve: true}); !errors.Is(err, approval.ErrNotPending) {
			t.Error(err)
		}
		for _, q := range waiting[1:] {
			if err := d.Resolve(q.ID, q.Hash, approval.Decision{}); err != nil {
				t.Error(err)
			}
			if out := <-outs; out.Code != approval.Denied {
				t.Errorf("%+v", out)
			}
		}
	})
}

// No question is called as another, not even where one gate takes up after
// another: what was meant for that is no answer here.
func TestNoIDComesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := map[string]string{}
		for range 2 {
			d := newDesk(t, func(o *approval.Options) { o.Resolvable = true })
			for _, line := range []string{"a", "a", "b"} {
				done := make(chan struct{})
				go func() {
					defer close(done)
					check(t, d, shell(line))
				}()
				synctest.Wait()
				q := d.Pending()[0]
				for id, hash := range seen {
					if err := d.Resolve(id, hash, approval.Decision{Approve: true}); !errors.Is(err, approval.ErrNotPending) {
						t.Errorf("what was meant for %s answers %s: %v", id, q.ID, err)
					}
				}
				seen[q.ID] = q.Hash
				if err := d.Resolve(q.ID, q.Hash, approval.Decision{}); err != nil {
					t.Error(err)
				}
				<-done
			}
		}
		if len(seen) != 6 {
			t.Errorf("%v", seen)
		}
	})
}

func TestNotResolvable(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	if err := d.Resolve("ask-1", "", approval.Decision{Approve: true}); err == nil || errors.Is(err, approval.ErrNotPending) {
		t.Error(err)
	}
}

// What an approval for the run cannot be bound to is asked about each time: the
// line stays as it is, and what it starts may not.
func TestNotGranted(t *testing.T) {
	t.Parallel()
	for line, times := range map[string]int{
		"touch a": 1, "touch *": 1, "sh x.sh": 1, "sh -c 'touch a'": 1, "make -f x.mk": 1,
		"cat x | sh": 2, "git x": 2, "cat x | make -f -": 2, "touch a; tar -xf x.tar -T list": 2, "eval \"$x\"": 2,
	} {
		p := saying(approval.Decision{Approve: true, ForRun: true})
		d := newDesk(t, nil, p)
		for range 2 {
			if out := check(t, d, shell(line)); !out.Code.OK() {
				t.Errorf("%s: %+v", line, out)
			}
		}
		if len(p.asked) != times {
			t.Errorf("%s is asked %d times, want %d", line, len(p.asked), times)
		}
	}
}
