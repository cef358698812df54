package leak

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode/utf16"
)

// span is how many bytes of a form are looked for: a part of a key is found, too,
// and nobody could guess it from its hash.
const span = 24

// Trace is a text that whoever looks for it is not told: it has hashes of parts of
// the forms in which a text is found.
type Trace struct {
	Name   string  `json:"name"`
	Prints []Print `json:"prints"`
}

// Print is one part of a form.
type Print struct {
	Form string `json:"form"`
	Hash uint64 `json:"hash"` // a rolling one, which says where to look
	Sum  string `json:"sum"`  // SHA-256, in hexadecimal
}

// NewTrace makes the trace of a text of 32 bytes or more: as it is, backwards,
// percent-encoded, in UTF-16, hexadecimal and base64 at each alignment.
func NewTrace(name, text string) Trace {
	t := Trace{Name: name}
	backwards := []byte(text)
	slices.Reverse(backwards)
	digits := hex.EncodeToString([]byte(text))
	var wide []byte
	for _, u := range utf16.Encode([]rune(text)) {
		wide = binary.LittleEndian.AppendUint16(wide, u)
	}
	t.add("plain", text)
	t.add("backwards", string(backwards))
	t.add("percent-encoded", url.QueryEscape(text))
	t.add("UTF-16", string(wide))
	t.add("hexadecimal", digits)
	t.add("hexadecimal", strings.ToUpper(digits))
	for shift := range 3 {
		data := []byte("xyz"[:shift] + text)
		first, end := (8*shift+5)/6, 8*len(data)/6 // without what also has bits of its neighbours
		t.add("base64", base64.StdEncoding.EncodeToString(data)[first:end])
		t.add("base64", base64.URLEncoding.EncodeToString(data)[first:end])
	}
	return t
}

// add takes three parts of a form: after its beginning, which other keys share, in
// its middle, and at its end.
func (t *Trace) add(form, text string) {
	for _, at := range []int{8, (len(text) - span) / 2, len(text) - span} {
		if at < 0 || at+span > len(text) {
			continue
		}
		part := []byte(text[at : at+span])
		p := Print{Form: form, Hash: roll(part), Sum: sumOf(part)}
		if !slices.ContainsFunc(t.Prints, func(q Print) bool { return q.Sum == p.Sum }) {
			t.Prints = append(t.Prints, p)
		}
	}
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// base of the rolling hash, whose modulus is 2 to the 64th.
const base = 0x9E3779B97F4A7C15

func roll(b []byte) (h uint64) {
	for _, c := range b {
		h = h*base + uint64(c) + 1
	}
	return h
}

// Finder looks for traces. Safe for concurrent use.
type Finder struct {
	prints map[uint64][]named
	maybe  [1 << 10]uint64 // a bit for the upper 16 of each hash
	leaves [256]uint64     // what a byte that leaves the span takes with it
	zero   uint64          // the hash of a span of zeros
}

type named struct {
	name string
	Print
}

// NewFinder returns a Finder of traces.
func NewFinder(traces ...Trace) *Finder {
	f := &Finder{prints: map[uint64][]named{}}
	for _, t := range traces {
		for _, p := range t.Prints {
			f.prints[p.Hash] = append(f.prints[p.Hash], named{t.Name, p})
			f.maybe[p.Hash>>54] |= 1 << (p.Hash >> 48 & 63)
		}
	}
	f.zero = roll(make([]byte, span))
	power := uint64(1)
	for range span {
		power *= base
	}
	for c := range f.leaves {
		f.leaves[c] = (uint64(c) + 1) * power
	}
	return f
}

// buffers are what is read into: most files are short.
var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

var zeros [64 << 10]byte

// Find reads to the end, and returns how much that was and which traces it has:
// the name of each, and the form. What cannot be read is an error; what was found
// before it counts.
func (f *Finder) Find(r io.Reader) (n int64, found map[string]string, err error) {
	pooled := buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(pooled)
	buf := pooled[:]
	kept, h := 0, uint64(0) // of buf, what was looked through; the hash of its last span
	for {
		m, err := r.Read(buf[kept:])
		n += int64(m)
		end := kept + m
		if m > 2*span && bytes.Equal(buf[kept+span:end], zeros[:m-span]) { // as most of what a program has set aside
			end = kept + span
		}
		for i := kept; i < end; i++ {
			h = h*base + uint64(buf[i]) + 1
			if i < span-1 {
				continue
			}
			if i >= span {
				h -= f.leaves[buf[i-span]]
			}
			if f.maybe[h>>54]>>(h>>48&63)&1 == 0 {
				continue
			}
			for _, p := range f.prints[h] {
				if sumOf(buf[i-span+1:i+1]) == p.Sum {
					if found == nil {
						found = map[string]string{}
					}
					found[p.name] = p.Form
				}
			}
		}
		if end < kept+m {
			h = f.zero
		}
		kept += m
		switch {
		case errors.Is(err, io.EOF):
			return n, found, nil
		case err != nil:
			return n, found, err
		}
		if kept > span { // the byte that leaves next is the first
			copy(buf, buf[kept-span:kept])
			kept = span
		}
	}
}
