package daemon

import "slices"

// ring keeps the last bytes of a terminal's output, of which of its streams each
// is, and counts all of them.
type ring struct {
	buf   []byte // grows to max
	max   int
	total int64
	turns []turn // where another stream begins, oldest first
}

// turn is where output of a stream begins: 0 is stdout, 1 stderr.
type turn struct {
	at     int64
	stream int
}

// maxTurns bounds what is kept of streams that alternate; output before the
// oldest turn is forgotten with those before it.
const maxTurns = 8192

func (r *ring) add(stream int, p []byte) {
	if n := len(r.turns); n == 0 || r.turns[n-1].stream != stream {
		if n == maxTurns {
			r.turns = slices.Delete(r.turns, 0, maxTurns/2)
		}
		r.turns = append(r.turns, turn{r.total, stream})
	}
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

// kept is output of one stream, and its offset.
type kept struct {
	stream int
	from   int64
	data   []byte
}

// since returns a copy of what is kept from an offset on: in pieces of one
// stream each or, where they need not be told apart, in one.
func (r *ring) since(offset int64, apart bool) []kept {
	offset = max(offset, r.total-int64(len(r.buf)))
	if len(r.turns) > 0 {
		offset = max(offset, r.turns[0].at)
	}
	var out []kept
	if !apart {
		if offset < r.total {
			out = append(out, kept{0, offset, r.copy(offset, r.total)})
		}
		return out
	}
	for i, t := range r.turns {
		from, to := max(offset, t.at), r.total
		if i+1 < len(r.turns) {
			to = r.turns[i+1].at
		}
		if from < to {
			out = append(out, kept{t.stream, from, r.copy(from, to)})
		}
	}
	return out
}

// copy returns the bytes between two offsets, all of which are kept.
func (r *ring) copy(from, to int64) []byte {
	out := make([]byte, 0, to-from)
	for at := from; at < to; {
		i := int(at % int64(r.max))
		n := min(int64(len(r.buf)-i), to-at)
		out = append(out, r.buf[i:i+int(n)]...)
		at += n
	}
	return out
}
