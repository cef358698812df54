package opensandbox

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/rein-sh/rein/sandbox"
)

// Whatever a server answers becomes an error of a kind, in one line of bounded
// length, and a wait within bounds.
func FuzzRefusal(f *testing.F) {
	f.Add(400, `{"code":"A::B","message":"m"}`, "3")
	f.Add(422, `{"detail":[{"loc":["body",1],"msg":"m"}]}`, "Wed, 21 Oct 2099 07:28:00 GMT")
	f.Add(502, "<html>", "-1")
	f.Add(500, `{"detail":"x"}`, "99999999999999999999")
	f.Add(503, `null`, "")
	f.Fuzz(func(t *testing.T, status int, body, after string) {
		if status < 300 || status > 599 {
			return
		}
		err := refusal(&http.Response{StatusCode: status, Header: http.Header{"Retry-After": {after}}}, []byte(body))
		p := &Provider{server: newClient(&url.URL{Host: "h"}, noKey, nil)}
		got := p.fault(t.Context(), "op", "subject", err)
		text := got.Error()
		if sandbox.KindOf(got) == "" || len(text) > 20*maxMessage || !utf8.ValidString(text) || strings.ContainsAny(text, "\n\r") {
			t.Errorf("%q of kind %q", text, sandbox.KindOf(got))
		}
		if w := asksToWait(err); w < 0 || w > 24*time.Hour {
			t.Errorf("waits %v", w)
		}
	})
}

// The sum of waits is bounded where the context has no end, and by its end where
// it has one.
func TestPatience(t *testing.T) {
	for name, most := range map[string]time.Duration{"no deadline": 0, "a deadline": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(&url.URL{Scheme: "http", Host: "h"}, noKey, nil)
				asked := 0
				c.http.Transport = roundTripper(func(*http.Request) *http.Response {
					asked++
					return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"2"}}, Body: http.NoBody}
				})
				ctx, want := t.Context(), patience
				if most != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, most)
					defer cancel()
					want = most
				}
				start := time.Now()
				err := c.again(ctx, http.MethodGet, "/sandboxes", nil, nil, nil)
				if took := time.Since(start); took > want || took < want-3*time.Second || asksToWait(err) != 2*time.Second {
					t.Errorf("%v after %v and %d requests, want %v", err, took, asked, want)
				}
			})
		})
	}
}

type roundTripper func(*http.Request) *http.Response

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// slow is a server that answers after a while.
type slow struct {
	after time.Duration
	body  string
}

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(s.after):
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(s.body))}, nil
	}
}

// One that is slow with a request, or with each page of a listing, is not waited
// for longer than that.
func TestSlowServer(t *testing.T) {
	for name, s := range map[string]slow{
		"no answer":  {after: time.Hour},
		"slow pages": {after: patience * 2 / 3, body: `{"items":[],"pagination":{"hasNextPage":true}}`},
		"no JSON":    {after: patience * 2 / 3, body: `{`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &Provider{server: newClient(&url.URL{Scheme: "http", Host: "h"}, noKey, nil)}
				p.server.http.Transport = s
				start := time.Now()
				_, err := p.List(t.Context(), nil)
				if took := time.Since(start); sandbox.KindOf(err) != sandbox.KindUnavailable || took > patience {
					t.Errorf("%v of kind %q after %v", err, sandbox.KindOf(err), took)
				}
			})
		})
	}
}

// Sandboxes are read tolerantly: any answer that is JSON of the right shape
// gives an Info, whose labels do not show rein's own.
func FuzzSandbox(f *testing.F) {
	f.Add(`{"id":"a","status":{"state":"Running"},"createdAt":"2026-01-02T03:04:05.678Z","expiresAt":null,"metadata":{"rein.sh/attempt":"x"}}`)
	f.Add(`{"status":{"state":"Failed","reason":"OOM\n"},"createdAt":"2026-01-02T03:04:05","image":{}}`)
	f.Add(`{"createdAt":""}`)
	f.Fuzz(func(t *testing.T, text string) {
		var r remote
		if json.Unmarshal([]byte(text), &r) != nil {
			return
		}
		p := &Provider{server: newClient(&url.URL{Host: "h"}, noKey, nil), opts: Options{StateDir: t.TempDir()}}
		i := p.info(r)
		if _, ok := i.Labels[labelAttempt]; ok || i.Provider != name || i.ExpiresAt.IsZero() != r.ExpiresAt.IsZero() {
			t.Errorf("%+v", i)
		}
	})
}

// An endpoint is an http address without a password, a query or surprises, or
// none.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"h:1/p", "https://h", "[::1]:80/a/b/", "u:p@h", "h?x", "0.0.0.0", "h#f", "//h", "h:99999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := &Provider{opts: Options{EndpointScheme: "http"}}
		got, _, err := p.address(text)
		if err != nil {
			return
		}
		u, err := url.Parse(got)
		if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(got, "/") {
			t.Errorf("%q gave %q (%v)", text, got, err)
		}
	})
}

// A server elsewhere gives no address that means something else here: not as it
// is written, and not by what a name stands for.
func TestEndpointElsewhere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for server, c := range map[string]struct {
		yes, no string
		local   bool
	}{
		"sandboxes.example.com": {"sandboxes.example.com SANDBOXES.example.com 10.0.0.1 192.168.1.1 fd00::1 example.org",
			"127.0.0.1 127.9.9.9 ::1 ::ffff:127.0.0.1 localhost LOCALHOST. a.localhost 169.254.169.254 ::ffff:169.254.169.254 fe80::1 fe80::1%eth0 224.0.0.1 ff02::1 0.0.0.0 ::", false},
		"127.0.0.1":   {"127.0.0.1 localhost ::1 10.0.0.1", "169.254.169.254 fe80::1 0.0.0.0", true},
		"localhost":   {"127.0.0.1 localhost ::1", "169.254.169.254", true},
		"169.254.1.1": {"169.254.1.1 10.0.0.1", "169.254.169.254 127.0.0.1", false},
	} {
		p := &Provider{server: newClient(&url.URL{Scheme: "http", Host: net.JoinHostPort(server, "8080")}, noKey, nil)}
		for host := range strings.FieldsSeq(c.yes) {
			if err := p.admits(host); err != nil {
				t.Errorf("server %s: %v", server, err)
			}
		}
		for host := range strings.FieldsSeq(c.no) {
			if p.admits(host) == nil {
				t.Errorf("server %s: %s is admitted", server, host)
			}
		}
		conn, err := p.dial(t.Context(), "tcp", "localhost:"+port)
		if err == nil {
			conn.Close()
		}
		if (err == nil) != c.local || err != nil && !strings.Contains(err.Error(), "where the server is not") {
			t.Errorf("server %s: a name of the loopback: %v", server, err)
		}
	}
}

// What a sandbox says of itself cannot make a path that is none, or set what is
// the server's.
func FuzzFindings(f *testing.F) {
	f.Add("machine=x86_64\nuid=0\nhome=/root\ndir=/tmp\nrun=yes\nenv=UEFUSD0vYmluAA==\n")
	f.Add("dir=tmp\ndir=/a\nenv=RVhFQ0RfQQ==")
	f.Fuzz(func(t *testing.T, text string) {
		got := parseFindings(text)
		if got.dir != "" && !path.IsAbs(got.dir) {
			t.Errorf("dir %q", got.dir)
		}
		for k := range got.env {
			if k == "" || strings.ContainsAny(k, "=\x00") || strings.HasPrefix(k, "EXECD_") {
				t.Errorf("variable %q", k)
			}
		}
	})
}
