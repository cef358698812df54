package retryafter

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	// words introduce a wait: "Please try again in 20s.", "Please retry after 7
	// seconds.", "Please wait 60 seconds".
	words = regexp.MustCompile(`(?i)\b(?:try again|retry|wait)(?: your request)?(?: in| after| for)?(?: about| approximately| at least)? +(\d)`)
	// member is a wait as a member of a JSON body, in seconds unless its name
	// says otherwise.
	member = regexp.MustCompile(`(?i)"(?:retry_?after|resets_in|reset_in)(_ms|_?seconds)?"\s*:\s*"?([0-9.]{1,20})`)
	// date is a moment in words: "You will regain access on 2026-11-01 at 00:00
	// UTC."
	date = regexp.MustCompile(`\b(\d{4}-\d{2}-\d{2})(?:T| | at )(\d{2}:\d{2})(?::\d{2}(?:\.\d+)?)? ?(?:UTC|GMT|Z)`)
	// since is a moment as a member of a JSON body, in seconds since 1970.
	since = regexp.MustCompile(`(?i)"resets?_?at"\s*:\s*"?(\d{10})\b`)
)

// Text is the wait that an error's text, or JSON body, asks for in words; 0 for
// none.
func Text(s string) time.Duration {
	if m := words.FindStringSubmatchIndex(s); m != nil {
		if d := Span(s[m[2]:]); d > 0 {
			return d
		}
	}
	m := member.FindStringSubmatch(s)
	if m == nil {
		return 0
	}
	n, ok := number(m[2])
	if !ok {
		return 0
	}
	if strings.EqualFold(m[1], "_ms") {
		return scaled(n, time.Millisecond)
	}
	return scaled(n, time.Second)
}

// farthest is how far ahead a reset may be and still be believed.
const farthest = 400 * 24 * time.Hour

// Reset is the moment, after now, at which an error's text or JSON body says
// that what is used up is there again; zero when it says none.
func Reset(s string, now time.Time) time.Time {
	var at time.Time
	if m := date.FindStringSubmatch(s); m != nil {
		at, _ = time.Parse("2006-01-02 15:04", m[1]+" "+m[2]) // no date is the zero time
	} else if m := since.FindStringSubmatch(s); m != nil {
		n, _ := strconv.ParseInt(m[1], 10, 64) // ten digits always fit
		at = time.Unix(n, 0).UTC()
	}
	if !at.After(now) || at.Sub(now) > farthest {
		return time.Time{}
	}
	return at
}

var units = map[string]time.Duration{
	"ms": time.Millisecond, "millisecond": time.Millisecond, "milliseconds": time.Millisecond,
	"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
}

// Span reads the time span at the beginning of s: "34.07s", "6m0s", "1 hour and
// 5 minutes". What follows it does not matter; 0 when there is none.
func Span(s string) time.Duration {
	var sum float64
	for range len(units) {
		n, rest, ok := part(s)
		if !ok {
			break
		}
		sum += n
		rest = strings.TrimPrefix(strings.TrimLeft(rest, " ,"), "and ")
		s = strings.TrimLeft(rest, " ")
	}
	return scaled(sum, 1)
}

// part reads one number and its unit, as nanoseconds.
func part(s string) (ns float64, rest string, ok bool) {
	digits := span(s, func(c byte) bool { return c >= '0' && c <= '9' || c == '.' })
	n, ok := number(s[:digits])
	if !ok || digits > 20 {
		return 0, s, false
	}
	s = strings.TrimPrefix(s[digits:], " ")
	letters := span(s, func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' })
	unit, ok := units[strings.ToLower(s[:letters])]
	return n * float64(unit), s[letters:], ok
}

// span is how many bytes at the beginning of s are wanted.
func span(s string, wanted func(byte) bool) int {
	n := 0
	for n < len(s) && wanted(s[n]) {
		n++
	}
	return n
}
