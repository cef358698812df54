package policy

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsPathPattern reports whether s can name the paths of requests: a path in its
// plain form, or the beginning of paths and a *.
func IsPathPattern(s string) bool {
	prefix := strings.TrimSuffix(s, "*")
	return plainPath(prefix) && !strings.Contains(prefix, "*")
}

// PathMatches reports whether a pattern names the path of a request, as it was
// sent; a query after it does not count. A path that is not in its plain form,
// which a server could read as another one, is named by none.
func PathMatches(pattern, path string) bool {
	if path, _, _ = strings.Cut(path, "?"); !plainPath(path) {
		return false
	}
	prefix, open := strings.CutSuffix(pattern, "*")
	return path == pattern || open && strings.HasPrefix(path, prefix)
}

// PathsMeet reports whether there are paths that two patterns name.
func PathsMeet(a, b string) bool {
	p, openA := strings.CutSuffix(a, "*")
	q, openB := strings.CutSuffix(b, "*")
	switch {
	case openA && openB:
		return strings.HasPrefix(p, q) || strings.HasPrefix(q, p)
	case openA:
		return strings.HasPrefix(q, p)
	case openB:
		return strings.HasPrefix(p, q)
	}
	return p == q
}

// plainPath reports whether servers cannot read a path as another one: it
// begins with a slash, and has no empty or dotted segments, no escapes that
// hide those, no backslash and no parameters.
func plainPath(path string) bool {
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "\\;?#") ||
		strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return false
	}
	plain, err := url.PathUnescape(path)
	if err != nil || !utf8.ValidString(plain) || strings.ContainsFunc(plain, unicode.IsControl) {
		return false // some read overlong UTF-8, or end a name at a control character
	}
	lower := strings.ToLower(path)
	for _, hidden := range []string{"//", "%2e", "%2f", "%5c", "%00", "%25", "%3b"} {
		if strings.Contains(lower, hidden) {
			return false
		}
	}
	for segment := range strings.SplitSeq(plain, "/") {
		if segment != "" && strings.Trim(segment, ". ") == "" { // some leave out spaces
			return false
		}
	}
	return true
}

// Overrides are the methods and paths that fields of a request name, by which
// some servers go instead of its first line.
func Overrides(fields map[string][]string) (methods, paths []string) {
	for name, values := range fields {
		switch strings.ReplaceAll(strings.ToLower(name), "_", "-") {
		case "x-http-method-override", "x-http-method", "x-method-override":
			for _, v := range values {
				methods = append(methods, strings.ToUpper(v))
			}
		case "x-original-url", "x-rewrite-url":
			paths = append(paths, values...)
		}
	}
	return methods, paths
}
