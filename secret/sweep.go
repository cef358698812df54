package secret

// sweep turns the hits of a scan into disjoint spans: a hit that overlaps the
// one before it extends it, and adds its own mark when that differs. It sees
// the hits in order of their starts and keeps nothing but the newest end, so it
// can go on over pieces of a text.
type sweep struct {
	covered int    // end of the newest span, may lie beyond what was scanned
	mark    string // newest mark
}

// take returns what a hit adds: the mark to write, if any, and whether it
// begins a new span. A hit inside the newest span adds nothing.
func (s *sweep) take(start, end int, mark string) (write string, fresh bool) {
	if end <= s.covered {
		return "", false
	}
	fresh = start >= s.covered
	if fresh || mark != s.mark {
		write = mark
	}
	s.covered, s.mark = end, mark
	return write, fresh
}

// scanner is a matcher's scan, or one of less.
type scanner func(b []byte, final bool, hit func(start, end int, mark string)) int

// replace appends b masked to out and returns it and how far it came in b (see
// scan). It appends nothing, and says so with clean, when no byte of what it
// passed was to be masked.
func (s *sweep) replace(scan scanner, b []byte, final bool, out []byte) (_ []byte, passed int, clean bool) {
	clean = s.covered == 0
	copied := s.covered
	passed = scan(b, final, func(start, end int, mark string) {
		write, fresh := s.take(start, end, mark)
		if fresh {
			out = append(out, b[copied:start]...)
		}
		out = append(out, write...)
		copied = s.covered
		clean = false
	})
	if !clean && copied < passed {
		out = append(out, b[copied:passed]...)
	}
	s.covered = max(0, s.covered-passed)
	return out, passed, clean
}
