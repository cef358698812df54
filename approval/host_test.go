package approval_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/approval"
)

// Names that carry data, or look like others, are told from those that people
// choose.
func TestOdd(t *testing.T) {
	t.Parallel()
	p := saying(approval.Decision{})
	d := newDesk(t, nil, p)
	for host, want := range map[string]string{
		"example.com": "", "files.pythonhosted.org": "", "registry-1.docker.io": "", "192.0.2.1": "", "us-east-1.amazonaws.com": "",
		"6d7920736563726574206b6579.example.com":       "looks like data",
		"mfrggzdfmztwq2lknnwg23tpobyxe43u.example.com": "looks like data",
		"xn--pypal-4ve.com":                            "may look like another name",
	} {
		check(t, d, approval.Request{Kind: approval.Host, Host: host, Port: 443, Proto: "tls"})
		q := p.asked[len(p.asked)-1]
		if odd := strings.Join(q.Odd, "\n"); (odd == "") != (want == "") || !strings.Contains(odd, want) || !strings.Contains(q.Text, odd) {
			t.Errorf("%s: %q in %q", host, odd, q.Text)
		}
	}
}

// Who a host belongs to is read first, and what is under way last.
func TestHostQuestion(t *testing.T) {
	t.Parallel()
	p := saying(approval.Decision{})
	d := newDesk(t, nil, p)
	check(t, d, approval.Request{Kind: approval.Host, Host: "6d7920736563726574206b6579.t.example.com", Port: 443, Proto: "tls",
		Doing: []string{"run_command: curl https://…"}, Why: "rules[0] asks about *.t.example.com"})
	q := p.asked[0]
	want := "example.com: 6d7920736563726574206b6579.t.example.com port 443 (tls)\n" +
		"look at it: 6d7920736563726574206b6579 looks like data, not like a name\nwhile it works on run_command: curl https://…"
	if q.Text != want || q.Domain != "example.com" || q.Port != 443 || len(q.Odd) != 1 || q.Why != "rules[0] asks about *.t.example.com" {
		t.Errorf("%+v", q)
	}
}

// A host that was allowed once is so to the end of the run, on its port.
func TestHostGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := saying(approval.Decision{Approve: true})
		d := newDesk(t, nil, p)
		host := approval.Request{Kind: approval.Host, Host: "example.com", Port: 443, Proto: "tls", Doing: []string{"one"}}
		if out := check(t, d, host); out.Code != approval.Approved {
			t.Errorf("%+v", out)
		}
		time.Sleep(2 * approval.DefaultGrant)
		host.Doing = []string{"two"}
		if out := check(t, d, host); out.Code != approval.Granted || len(p.asked) != 1 {
			t.Errorf("%+v after %d questions", out, len(p.asked))
		}
		host.Port = 22
		if check(t, d, host); len(p.asked) != 2 {
			t.Errorf("%d questions", len(p.asked))
		}
	})
}

// At most three hosts are asked about at once; without anybody to ask all are denied.
func TestHostsPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, nil, silent())
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		done := make(chan approval.Code, 4)
		for _, host := range []string{"a.example", "b.example", "c.example", "d.example"} {
			go func() {
				out, err := d.Check(ctx, approval.Request{Kind: approval.Host, Host: host, Port: 443})
				if err != nil {
					t.Error(err)
				}
				done <- out.Code
			}()
			synctest.Wait()
		}
		if code := <-done; code != approval.TooMany || len(d.Pending()) != approval.MaxPending {
			t.Errorf("%s, and %d are pending", code, len(d.Pending()))
		}
		cancel()
		for range 3 {
			if code := <-done; code != approval.Interrupted {
				t.Error(code)
			}
		}
	})
	if out := check(t, newDesk(t, nil), approval.Request{Kind: approval.Host, Host: "a.example", Port: 443}); out.Code != approval.NoChannel {
		t.Errorf("%+v", out)
	}
}

// Hosts are compared in one form, and a pattern that is none is refused.
func TestHostRules(t *testing.T) {
	t.Parallel()
	for pattern, hosts := range map[string]map[string]bool{
		"example.com":   {"EXAMPLE.com.": true, "a.example.com": false, "notexample.com": false},
		"*.example.com": {"a.b.example.com": true, "example.com": false, "badexample.com": false},
		"*":             {"192.0.2.1": true, "example.com": true},
		"0xc0000201":    {"192.0.2.1": true, "192.0.2.2": false},
	} {
		p := policy(t, "", approval.Rule{Action: approval.Allow, Host: pattern})
		for host, want := range hosts {
			if got := p.Judge(approval.Request{Kind: approval.Host, Host: host}).Action == approval.Allow; got != want {
				t.Errorf("%s speaks of %s: %t", pattern, host, got)
			}
		}
	}
	for _, pattern := range []string{"*example.com", "a_b", "a..b", "https://example.com", "*.192.0.2.1", "example.com:443"} {
		if _, err := approval.NewPolicy("", approval.Rule{Action: approval.Deny, Host: pattern}); err == nil {
			t.Errorf("%s is a pattern", pattern)
		}
	}
}
