package opensandbox

import (
	"context"
	"encoding/json"
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
		got, err := p.address(text)
		if err != nil {
			return
		}
		u, err := url.Parse(got)
		if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(got, "/") {
			t.Errorf("%q gave %q (%v)", text, got, err)
		}
	})
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
