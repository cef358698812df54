package daemon

import (
	"bytes"
	"testing"
)

func FuzzRing(f *testing.F) {
	f.Add([]byte{1, 2, 9, 200, 3}, int64(4))
	f.Add([]byte{7, 7, 7}, int64(-3))
	f.Fuzz(func(t *testing.T, sizes []byte, since int64) {
		r := ring{max: 16}
		var all []byte
		for i, n := range sizes {
			p := make([]byte, n)
			for k := range p {
				p[k] = byte(i*31 + k)
			}
			r.add(p)
			all = append(all, p...)
			got, from := r.since(since)
			want := min(max(since, int64(len(all)-min(len(all), 16))), int64(len(all)))
			if from != want || !bytes.Equal(got, all[want:]) || r.total != int64(len(all)) {
				t.Fatalf("after %v: %q from %d, want %q from %d", sizes[:i+1], got, from, all[want:], want)
			}
		}
	})
}
