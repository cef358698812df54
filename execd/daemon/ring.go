package daemon

// ring keeps the last bytes of a terminal's output, and counts all of them.
type ring struct {
	buf   []byte // grows to max
	max   int
	total int64
}

func (r *ring) add(p []byte) {
	if over := len(p) - r.max; over > 0 {
		r.total += int64(over)
		p = p[over:]
		r.align()
	}
	if len(r.buf) < r.max {
		n := min(len(p), r.max-len(r.buf))
		r.buf = append(r.buf, p[:n]...)
		r.total += int64(n)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(r.buf[r.total%int64(r.max):], p)
		r.total += int64(n)
		p = p[n:]
	}
}

// align empties a ring all of which is about to be replaced: the byte at offset
// n has its place at n modulo max.
func (r *ring) align() {
	if len(r.buf) < r.max {
		r.buf = append(r.buf, make([]byte, r.max-len(r.buf))...)
	}
}

// since returns a copy of what is kept from an offset on, and the offset at
// which that begins.
func (r *ring) since(offset int64) ([]byte, int64) {
	offset = min(max(offset, r.total-int64(len(r.buf))), r.total)
	out := make([]byte, 0, r.total-offset)
	for at := offset; at < r.total; {
		from := int(at % int64(r.max))
		n := min(int64(len(r.buf)-from), r.total-at)
		out = append(out, r.buf[from:from+int(n)]...)
		at += n
	}
	return out, offset
}
