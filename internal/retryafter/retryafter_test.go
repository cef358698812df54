package retryafter_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/rein-sh/rein/internal/retryafter"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestHeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		lines []string // alternating names and values
		want  time.Duration
	}{
		{"nothing", nil, 0},
		{"seconds", []string{"Retry-After", "20"}, 20 * time.Second},
		{"a fraction", []string{"Retry-After", " 1.5 "}, 1500 * time.Millisecond},
		{"milliseconds win", []string{"Retry-After", "20", "Retry-After-Ms", "250"}, 250 * time.Millisecond},
		{"a date", []string{"Retry-After", "Sun, 01 Mar 2026 12:01:30 GMT"}, 90 * time.Second},
		{"a date of before", []string{"Retry-After", "Sun, 01 Mar 2026 11:00:00 GMT"}, 0},
		{"negative", []string{"Retry-After", "-5"}, 0},
		{"not a number", []string{"Retry-After", "NaN"}, 0},
		{"endless", []string{"Retry-After", "Inf"}, retryafter.Max},
		{"too long", []string{"Retry-After", "999999999"}, retryafter.Max},
		{"words", []string{"Retry-After", "soon"}, 0},
		{"the limit that is used up", []string{"X-Ratelimit-Reset-Requests", "1s", "X-Ratelimit-Remaining-Requests", "9",
			"X-Ratelimit-Reset-Tokens", "6m0s", "X-Ratelimit-Remaining-Tokens", "0"}, 6 * time.Minute},
		{"the one that is not", []string{"X-Ratelimit-Reset-Tokens", "6m0s", "X-Ratelimit-Remaining-Tokens", "100"}, 0},
		{"since 1970, in milliseconds", []string{"X-Ratelimit-Reset", "1772366430000", "X-Ratelimit-Remaining", "0"}, 30 * time.Second},
		{"since 1970, in seconds", []string{"X-Ratelimit-Reset", "1772366430"}, 30 * time.Second},
		{"a time", []string{"Anthropic-Ratelimit-Input-Tokens-Reset", "2026-03-01T12:00:41Z", "Anthropic-Ratelimit-Input-Tokens-Remaining", "0"}, 41 * time.Second},
		{"Retry-After wins", []string{"X-Ratelimit-Reset", "60", "Retry-After", "2"}, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			for i := 0; i < len(c.lines); i += 2 {
				h.Set(c.lines[i], c.lines[i+1])
			}
			if got := retryafter.Header(h, now); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"":                                    0,
		"Please try again in 20s. Contact us": 20 * time.Second,
		"Limit 3, Used 3. Please try again in 6m0s.":                6 * time.Minute,
		"please try again in 843ms":                                 843 * time.Millisecond,
		"Please retry in 34.5s.":                                    34500 * time.Millisecond,
		"Please retry after 7 seconds.":                             7 * time.Second,
		"Please wait 60 seconds before":                             time.Minute,
		"try again in 1 hour and 5 minutes":                         65 * time.Minute,
		"try again in about 2 days":                                 retryafter.Max,
		"try again in 20 shoes":                                     0,
		"Try again later":                                           0,
		"retry after 5":                                             0, // of what?
		`{"error":{"retry_after":12.5}}`:                            12500 * time.Millisecond,
		`{"retry_after_ms": "250"}`:                                 250 * time.Millisecond,
		`{"error":{"type":"usage_limit","resets_in_seconds":3600}}`: time.Hour,
		`{"retry_after": "soon"}`:                                   0,
		`{"retry_after": 1.2.3}`:                                    0,
		"try again in 9999999999999999999999999999999h":             0,
		"try again in 99999999999999h":                              retryafter.Max,
	} {
		if got := retryafter.Text(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Time{
		"You will regain access on 2026-04-01 at 00:00 UTC.": time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC),
		"resets 2026-03-01T18:30:00Z":                        time.Date(2026, 3, 1, 18, 30, 0, 0, time.UTC),
		`{"error":{"resets_at":1772370000}}`:                 time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC),
		"on 2026-02-01 at 00:00 UTC":                         {}, // over
		"on 2096-02-01 at 00:00 UTC":                         {}, // not to be believed
		"on 2026-19-01 at 00:00 UTC":                         {},
		"on 2026-04-01":                                      {}, // when, and where?
	} {
		if got := retryafter.Reset(text, now); !got.Equal(want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// Whatever a server sends, the wait is one that can be waited, and a reset is
// ahead.
func FuzzRetryAfter(f *testing.F) {
	f.Add("20", "Please try again in 6m0s.", "6m0s", "0")
	f.Add("Sun, 01 Mar 2026 12:01:30 GMT", `{"retry_after_ms":250}`, "2026-03-01T12:00:41Z", "-1")
	f.Add("-Inf", "regain access on 2026-04-01 at 00:00 UTC", "1772366430000", "NaN")
	f.Fuzz(func(t *testing.T, after, text, reset, remaining string) {
		h := http.Header{"Retry-After": {after}, "X-Ratelimit-Reset-Tokens": {reset}, "X-Ratelimit-Remaining-Tokens": {remaining}}
		for _, d := range []time.Duration{retryafter.Header(h, now), retryafter.Text(text), retryafter.Span(text),
			retryafter.Header(http.Header{"Anthropic-Ratelimit-Tokens-Reset": {reset}}, now)} {
			if d < 0 || d > retryafter.Max {
				t.Errorf("%v", d)
			}
		}
		if at := retryafter.Reset(text, now); !at.IsZero() && !at.After(now) {
			t.Errorf("%v", at)
		}
	})
}
