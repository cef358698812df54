// Package retryafter reads what a server says about when to ask again: in
// headers, and in the words of an error. Servers are not trusted: what they ask
// for is bounded, and what makes no sense asks for nothing.
package retryafter

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Max bounds what a server may ask for; more is as good as never.
const Max = 24 * time.Hour

// Header is the wait that the headers of a refusal ask for; 0 for none. In
// order: retry-after-ms (OpenAI, Azure), Retry-After in seconds or as a date
// (RFC 9110, 10.2.3), and the latest reset of a limit of which nothing remains:
// x-ratelimit-reset-* (OpenAI and those who copied it), x-ratelimit-reset
// (OpenRouter and others), anthropic-ratelimit-*-reset.
func Header(h http.Header, now time.Time) time.Duration {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		if n, ok := number(h.Get(u.name)); ok {
			return scaled(n, u.unit)
		}
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return bounded(at.Sub(now))
	}
	return resets(h, now)
}

// most is how many headers are looked at for resets.
const most = 64

// resets is the latest reset of a limit that is used up.
func resets(h http.Header, now time.Time) time.Duration {
	var wait time.Duration
	looked := 0
	for name := range h {
		remaining, ok := remainingOf(strings.ToLower(name))
		if !ok {
			continue
		}
		if looked++; looked > most {
			break
		}
		if n, known := number(h.Get(remaining)); known && n > 0 {
			continue
		}
		wait = max(wait, moment(h.Get(name), now))
	}
	return wait
}

// remainingOf is the header with what remains of the limit whose reset is in
// the header name.
func remainingOf(name string) (string, bool) {
	switch {
	case strings.HasPrefix(name, "x-ratelimit-reset"):
		return "x-ratelimit-remaining" + name[len("x-ratelimit-reset"):], true
	case strings.HasPrefix(name, "anthropic-ratelimit-") && strings.HasSuffix(name, "-reset"):
		return strings.TrimSuffix(name, "reset") + "remaining", true
	}
	return "", false
}

// moment is how long it is until what a reset header says: a span ("6m0s"), a
// time (RFC 3339), seconds from now, or seconds or milliseconds since 1970.
func moment(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if n, ok := number(value); ok {
		switch {
		case n >= 1e11:
			return bounded(time.UnixMilli(int64(min(n, 1e15))).Sub(now))
		case n >= 1e9:
			return bounded(time.Unix(int64(n), 0).Sub(now))
		}
		return scaled(n, time.Second)
	}
	if at, err := time.Parse(time.RFC3339, value); err == nil {
		return bounded(at.Sub(now))
	}
	return Span(value)
}

func number(s string) (float64, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	return n, err == nil && !math.IsNaN(n)
}

func scaled(n float64, unit time.Duration) time.Duration {
	return time.Duration(min(max(n*float64(unit), 0), float64(Max)))
}

func bounded(d time.Duration) time.Duration { return min(max(d, 0), Max) }
