package daemon

import (
	"bytes"
	"testing"
)

func FuzzRing(f *testing.F) {
	f.Add([]byte{1, 2, 9, 200, 3}, int64(4))
	f.Add([]byte{7, 7, 7}, int64(-3))
	f.Add([]byte{1, 128 + 3, 2, 128 + 16, 17}, int64(0))
	f.Fuzz(func(t *testing.T, sizes []byte, since int64) {
		r := ring{max: 16}
		var all, streams []byte
		for i, n := range sizes {
			p := make([]byte, n)
			for k := range p {
				p[k] = byte(i*31 + k)
			}
			which := int(n >> 7) // of a size, the highest bit is the stream
			if n > 0 {
				r.add(which, p)
			}
			all = append(all, p...)
			streams = append(streams, bytes.Repeat([]byte{byte(which)}, len(p))...)
			want := min(max(since, int64(len(all)-min(len(all), 16))), int64(len(all)))
			for _, apart := range []bool{false, true} {
				at := want
				for _, k := range r.since(since, apart) {
					end := at + int64(len(k.data))
					if k.from != at || end > int64(len(all)) || len(k.data) == 0 || !bytes.Equal(k.data, all[at:end]) {
						t.Fatalf("after %v: %q from %d, want %q from %d", sizes[:i+1], k.data, k.from, all[at:], at)
					}
					if apart && bytes.IndexByte(streams[at:end], byte(1-k.stream)) >= 0 {
						t.Fatalf("after %v: of stream %d from %d: %v", sizes[:i+1], k.stream, at, streams[at:end])
					}
					at = end
				}
				if at != int64(len(all)) || r.total != at {
					t.Fatalf("after %v: it ends at %d, total %d, want %d", sizes[:i+1], at, r.total, len(all))
				}
			}
		}
	})
}

// Streams that alternate forever cost no more than so much, and what is kept of
// them is whole.
func TestRingTurns(t *testing.T) {
	r := ring{max: 1 << 20}
	for i := range 5 * maxTurns {
		r.add(i%2, []byte{byte('a' + i%2)})
	}
	pieces := r.since(0, true)
	if len(r.turns) > maxTurns || cap(r.turns) > 2*maxTurns || len(pieces) < maxTurns/2 {
		t.Fatalf("%d turns of %d, %d pieces", len(r.turns), cap(r.turns), len(pieces))
	}
	next := pieces[0].from
	for _, k := range pieces {
		if k.from != next || string(k.data) != string(rune('a'+k.stream)) || k.stream != int(next%2) {
			t.Fatalf("%+v at %d", k, next)
		}
		next++
	}
	if one := r.since(0, false); len(one) != 1 || one[0].from != pieces[0].from || next != r.total {
		t.Errorf("in one: %d pieces; the end %d of %d", len(one), next, r.total)
	}
}
