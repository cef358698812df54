package evidence

// Cut returns at most the first n bytes of s, between characters, with "…" after
// them when something was left out.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:wholeRunes([]byte(s[:max(n, 0)]))] + "…"
}

// CutFront returns at most the last n bytes of s, between characters, with "…"
// before them when something was left out.
func CutFront(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end := s[len(s)-max(n, 0):]
	return "…" + end[brokenRune([]byte(end)):]
}
