package secret_test

import (
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rein-sh/rein/secret"
)

// A text cut anywhere, with the parts that Partial names left out on both sides
// of the cut, shows no part of a value next to the cut.
func TestPartial(t *testing.T) {
	m := secret.NewMasker(secret.New("k", token))
	for name, text := range encodings(token) {
		for cut := 1; cut < len(text); cut++ {
			_, end := m.Partial([]byte("some text, " + text[:cut]))
			start, _ := m.Partial([]byte(text[cut:] + ", some text"))
			if strings.HasPrefix(name, "base64") {
				continue // the characters shared with neighbours stay; see TestPartialBase64
			}
			if end != cut || start != len(text)-cut {
				t.Errorf("%s cut at %d of %d: left out %d and %d", name, cut, len(text), end, start)
			}
		}
	}
	if start, end := m.Partial([]byte("...")); start != 0 || end != 0 {
		t.Errorf("Partial of what has nothing to do with the value: %d, %d", start, end)
	}
	if start, end := m.Partial([]byte(token)); start != 0 || end != 0 {
		t.Errorf("Partial of a whole value: %d, %d: Find has it", start, end)
	}
}

// Where a whole value overlaps what may be a piece of another, only the rest of
// the piece is left out: the value is masked.
func TestPartialOverlap(t *testing.T) {
	m := secret.NewMasker(secret.New("a", "abcdefgh"), secret.New("b", "ghijklmn"))
	if _, end := m.Partial([]byte("text abcdefghij")); end != len("ij") {
		t.Errorf("left out %d at the end", end)
	}
	if start, _ := m.Partial([]byte("cdefghijklmn text")); start != len("cdef") {
		t.Errorf("left out %d at the start", start)
	}
	if start, end := m.Partial([]byte("abcdefgh, ghijklmn")); start != 0 || end != 0 {
		t.Errorf("left out %d and %d of whole values", start, end)
	}
}

// However a text is cut, what is masked in all of it is masked or left out in
// its pieces.
func TestPartialHidesAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	covered := func(m *secret.Masker, b []byte) []bool {
		c := make([]bool, len(b))
		for _, s := range m.Find(b) {
			for i := s.Start; i < s.End; i++ {
				c[i] = true
			}
		}
		return c
	}
	for range 500 {
		values := randomValues(rng)
		m := secret.NewMasker(values...)
		text := []byte(randomText(rng, values, 1+rng.IntN(200)))
		whole := covered(m, text)
		cut := rng.IntN(len(text) + 1)
		_, end := m.Partial(text[:cut])
		start, _ := m.Partial(text[cut:])
		for i, c := range covered(m, text[:cut-end]) {
			if whole[i] && !c {
				t.Fatalf("values %q, %q cut at %d: byte %d shows", reveal(values), text, cut, i)
			}
		}
		for i, c := range covered(m, text[cut+start:]) {
			if whole[cut+start+i] && !c {
				t.Fatalf("values %q, %q cut at %d: byte %d shows", reveal(values), text, cut, cut+start+i)
			}
		}
	}
}

func TestPartialBase64(t *testing.T) {
	m := secret.NewMasker(secret.New("k", token))
	text := base64.StdEncoding.EncodeToString([]byte(token + strings.Repeat("x", 3-len(token)%3)))
	for cut := 1; cut < len(text)-4; cut++ {
		if _, end := m.Partial([]byte(text[:cut])); end != cut {
			t.Errorf("cut at %d: left out %d", cut, end)
		}
	}
}
