package wire_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
)

// What a refusal says about when to ask again is read from its headers, then
// from its words; what is used up names when it is there again.
func TestWhenToAskAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		header http.Header
		body   string
		after  time.Duration
		reset  time.Duration // from now; 0 for none
	}{
		{"seconds", 429, http.Header{"Retry-After": {"20"}}, "try again in 5s", 20 * time.Second, 0},
		{"words", 429, nil, "Rate limit reached. Please try again in 6m0s.", 6 * time.Minute, 0},
		{"date", 503, http.Header{"Retry-After": {"Sat, 01 Jan 2000 00:01:00 GMT"}}, "busy", time.Minute, 0},
		{"limit", 429, http.Header{"X-Ratelimit-Reset-Tokens": {"1m30s"}, "X-Ratelimit-Remaining-Tokens": {"0"}}, "", 90 * time.Second, 0},
		{"quota in words", 402, nil, "You will regain access on 2000-01-03 at 00:00 UTC.", 0, 48 * time.Hour},
		{"quota with a wait", 402, http.Header{"Retry-After": {"3600"}}, "spent", time.Hour, time.Hour},
		{"quota without", 402, nil, "spent", 0, 0},
		{"not of a quota", 500, nil, "see 2000-01-03 at 00:00 UTC", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // at midnight of 1 January 2000
				h := http.Header{"Content-Type": {"text/plain"}}
				for name, values := range c.header {
					h[name] = values
				}
				_, err := ask(t, link(t, wire.Options{Transport: transport(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: c.status, Header: h, Body: io.NopCloser(strings.NewReader(c.body))}, nil
				})}), "https://models.example/v1")
				e, ok := errors.AsType[*model.Error](err)
				if !ok || e.RetryAfter != c.after {
					t.Fatalf("%+v, want to wait %v", err, c.after)
				}
				var want time.Time
				if c.reset > 0 {
					want = time.Now().Add(c.reset)
				}
				if !e.Reset.Equal(want) || strings.Contains(e.Error(), "there again at "+e.Reset.UTC().Format(time.RFC3339)) == want.IsZero() {
					t.Errorf("%v, want %v; %s", e.Reset, want, e)
				}
			})
		})
	}
}
