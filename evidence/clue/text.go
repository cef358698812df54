package clue

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// scanned bounds how much of a line is looked at.
const scanned = 512

// text is the part of a line that is looked at, as it is read: with 1 for every
// digit but 0, since of a number only matters whether it is 0, and zeros behind
// it, so that eight bytes can be taken from any place in it.
type text struct {
	bytes [scanned + stride]byte
	size  int
}

// stride is how many bytes are looked at at once: those of a uint64, the first
// in its lowest bits.
const (
	stride = 8
	each   = 0x0101010101010101 // 1 for each of them
	tops   = each << 7          // their highest bits: where a test of each leaves its result
)

// next takes the line that p begins with. It returns how long that is with its
// newline, len(p) if there is none, and a hash of its text.
func (t *text) next(p []byte) (length int, hash uint64) {
	for i := 0; i < scanned; i += stride {
		var w uint64
		if i+stride <= len(p) {
			w = binary.LittleEndian.Uint64(p[i : i+stride : i+stride])
		} else {
			w = ended(p[i:])
		}
		newline := zeros(w ^ each*'\n')
		if newline != 0 {
			w &= first(newline)>>7 - 1
		}
		w = folded(w)
		binary.LittleEndian.PutUint64(t.bytes[i:][:stride], w)
		hash = mixed(hash, w)
		if newline != 0 {
			i += bits.TrailingZeros64(newline) / 8
			t.end(i)
			return min(i+1, len(p)), hash
		}
	}
	t.end(scanned)
	if n := bytes.IndexByte(p[scanned:], '\n'); n >= 0 {
		return scanned + n + 1, hash
	}
	return len(p), hash
}

// ended is the few bytes of p with a newline behind them.
func ended(p []byte) uint64 {
	w := uint64('\n')
	for n := len(p); n > 0; n-- {
		w = w<<8 | uint64(p[n-1])
	}
	return w
}

// end ends the text, before carriage returns.
func (t *text) end(size int) {
	for size > 0 && t.bytes[size-1] == '\r' {
		size--
	}
	t.size = size
	binary.LittleEndian.PutUint64(t.bytes[size:], 0)
}

// folded is w with 1 for the digits from 1 to 9.
func folded(w uint64) uint64 {
	ones := between(w&^tops, '1', '9') &^ w >> 7
	return w&^(ones*0x0f) | ones
}

const prime = 0x9e3779b97f4a7c15

// mixed is a hash of what hash is one of, and w.
func mixed(hash, w uint64) uint64 {
	hash = (hash ^ w) * prime
	return hash ^ hash>>32
}

// first leaves the lowest bit of w only.
func first(w uint64) uint64 { return w & -w }

// zeros sets the highest bit of the first byte of w that is 0, and perhaps of
// some that follow it.
func zeros(w uint64) uint64 { return (w - each) &^ w & tops }

// between sets the highest bit of each byte of w, all below 0x80, that is from
// first to last.
func between(w uint64, first, last byte) uint64 {
	return (w + each*uint64(0x80-first)) &^ (w + each*uint64(0x7f-last)) & tops
}

// letters sets the highest bit of each byte of w that is a letter.
func letters(w uint64) uint64 { return between(w&^tops|each*0x20, 'a', 'z') &^ w }

// spell reads the letters from a place on: where they end, a number that is the
// word's whatever the case of its letters, and whether there is a capital.
func (t *text) spell(from int) (end int, key uint64, capitals bool) {
	found := uint64(0)
	for end = from; ; end += stride {
		w := binary.LittleEndian.Uint64(t.bytes[end:])
		others := letters(w) ^ tops
		before := first(others)>>7 - 1 // the bits of the letters before the first of them
		found |= before & tops &^ (w << 2)
		key = key*prime ^ (w|each*0x20)&before
		if others != 0 {
			return end + bits.TrailingZeros64(others)/8, key, found != 0
		}
	}
}

// cased returns whether a word is all in capitals, and what its last part means
// if a capital after a small letter divides it.
func (t *text) cased(from, end int) (upper bool, part kind) {
	word, at := t.bytes[from:end], 0
	upper, small := true, false
	for i, c := range word {
		before := small
		small = c >= 'a'
		if before && !small {
			at = i
		}
		upper = upper && !small
	}
	if at > 0 {
		_, key, _ := t.spell(from + at)
		part = lookUp(key)
	}
	return upper, part
}
