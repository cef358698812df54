package vault

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash"
	"regexp"
	"slices"
	"strings"
)

// Key marks the placeholders of a host, so that its sandboxes know each other's.
type Key [32]byte

const (
	// minRandom is how many characters of a placeholder must be its own, and
	// minFree how many besides a fixed beginning: fewer would be met by chance,
	// or tell much of a short key.
	minRandom = 8
	minFree   = 16
	// minSealed is how many characters of a placeholder have to be its code for
	// it to be known by: by fewer, other text would be taken for one.
	minSealed = 8
	// maxValue bounds a secret, in bytes.
	maxValue = 16 << 10
)

// fixed is the beginning of a key that says of what kind it is, and stays in its
// placeholder: programs look at it. Each is one that a vendor documents: what only
// looks like such a beginning may be a part of the key.
var fixed = regexp.MustCompile(`^(?:gh[opusr]_|github_pat_|glpat-|sk-(?:proj-|svcacct-|ant-(?:api|admin)[0-9]{2}-|live-|test-)?|[sr]k_(?:live|test)_|pk_(?:live|test)_|` +
	`xox[abposr]-|xapp-|npm_|pypi-|hf_|dop_v1_|whsec_|AKIA|ASIA|AIza|ya29\.|SG\.|gsk_|xai-|tvly-|rein_)`)

// shape is what a placeholder has in common with its secret: the length, the
// kinds of characters, and how it begins.
type shape struct {
	text  string // the secret, with its kind in the place of each free character
	begin int    // how many bytes are fixed
	free  []int  // positions that are the placeholder's own
	hex   byte   // 'a' or 'A' where all letters are hexadecimal digits of that case
}

// shapeOf is the shape of a secret. An error says why it can have none.
func shapeOf(text string) (*shape, error) {
	s := &shape{text: text}
	if loc := fixed.FindStringIndex(text); loc != nil {
		s.begin = loc[1]
	}
	if s.find(); len(s.free) < minFree && s.begin > 0 {
		s.begin = 0
		s.find()
	}
	switch {
	case len(text) > maxValue:
		return nil, fmt.Errorf("it is longer than %d bytes", maxValue)
	case len(s.free) < minRandom:
		return nil, fmt.Errorf("it has %d letters and digits, and a placeholder that looks like it needs %d to be told from other text", len(s.free), minRandom)
	}
	template := []byte(text)
	for _, at := range s.free {
		template[at] = kindOf(text[at])
	}
	s.text = string(template)
	return s, nil
}

// find collects the free positions, and whether they are hexadecimal.
func (s *shape) find() {
	s.free, s.hex = nil, 0
	lower, upper, other := false, false, false
	for i := s.begin; i < len(s.text); i++ {
		c := s.text[i]
		switch kindOf(c) {
		case 0:
			continue
		case 'a':
			lower, other = true, other || c > 'f'
		case 'A':
			upper, other = true, other || c > 'F'
		}
		s.free = append(s.free, i)
	}
	switch {
	case other || lower == upper:
	case lower:
		s.hex = 'a'
	default:
		s.hex = 'A'
	}
}

// kindOf is 'a', 'A' or '0' for letters and digits, else 0.
func kindOf(c byte) byte {
	switch {
	case c >= 'a' && c <= 'z':
		return 'a'
	case c >= 'A' && c <= 'Z':
		return 'A'
	case c >= '0' && c <= '9':
		return '0'
	}
	return 0
}

// alphabet is what may stand at a free position: of a hexadecimal secret any
// digit of such, else a character of the secret's kind there.
func (s *shape) alphabet(at int) string {
	const digits, small, capital = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	switch kind := kindOf(s.text[at]); {
	case s.hex == 'a':
		return digits + small[:6]
	case s.hex == 'A':
		return digits + capital[:6]
	case kind == 'a':
		return small
	case kind == 'A':
		return capital
	}
	return digits
}

// maxCode bounds the parts that say whose a placeholder is, in characters:
// telling that takes no longer for a long one.
const maxCode = 32

// parts are the positions of what is random, of its authentication code, and of
// what is random besides.
func (s *shape) parts() (random, code, rest []int) {
	half := min(len(s.free)/2, maxCode)
	end := min(len(s.free), half+maxCode)
	return s.free[:half], s.free[half:end], s.free[end:]
}

// placeholder makes one for a secret. A part of it is an authentication code of another:
// so every sandbox of a host knows a placeholder of any other.
func (s *shape) placeholder(key Key, secret string) string {
	out := []byte(s.text)
	first, _, rest := s.parts()
	mac := hmac.New(sha256.New, key[:])
	for {
		random := make([]byte, len(s.free)*2)
		_, _ = rand.Read(random) // never fails
		for i, at := range append(slices.Clone(first), rest...) {
			out[at] = pick(s.alphabet(at), random[2*i:])
		}
		s.code(mac, string(out), func(at int, c byte) bool {
			out[at] = c
			return true
		})
		if string(out) != secret {
			return string(out)
		}
	}
}

func pick(alphabet string, two []byte) byte {
	return alphabet[(int(two[0])<<8|int(two[1]))%len(alphabet)]
}

// code calls do with the authentication code's characters for a text, until it
// returns false, and reports whether it did not.
func (s *shape) code(mac hash.Hash, text string, do func(at int, c byte) bool) bool {
	random, code, _ := s.parts()
	var buf [maxCode]byte
	for i, at := range random {
		buf[i] = text[at]
	}
	stream := buf[:len(random)]
	for i, at := range code {
		if i%(sha256.Size/2) == 0 {
			mac.Reset()
			mac.Write(stream)
			stream = mac.Sum(buf[:0])
		}
		if !do(at, pick(s.alphabet(at), stream[i%(sha256.Size/2)*2:])) {
			return false
		}
	}
	return true
}

// is reports whether a text of the shape's length is a placeholder of this host.
func (s *shape) is(key Key, text string) bool {
	return s.matches(hmac.New(sha256.New, key[:]), text)
}

func (s *shape) matches(mac hash.Hash, text string) bool {
	if len(text) != len(s.text) {
		return false
	}
	_, code, _ := s.parts()
	end := code[len(code)-1] + 1
	return s.fits(text, 0, end) && s.code(mac, text, func(at int, c byte) bool { return text[at] == c }) && s.fits(text, end, len(text))
}

// fits reports whether a part of a text has the shape's characters.
func (s *shape) fits(text string, from, to int) bool {
	next, _ := slices.BinarySearch(s.free, from)
	for i := from; i < to; i++ {
		if next == len(s.free) || s.free[next] != i {
			if text[i] != s.text[i] {
				return false
			}
			continue
		}
		if strings.IndexByte(s.alphabet(i), text[i]) < 0 {
			return false
		}
		next++
	}
	return true
}

// maxCandidates is how many codes are computed for one text.
const maxCandidates = 2048

// within finds a placeholder of this host in a text. What has too much that could
// be one is many.
func (s *shape) within(key Key, text string) (found, many bool) {
	if len(s.free)-len(s.free)/2 < minSealed {
		return false, false
	}
	mac := hmac.New(sha256.New, key[:])
	_, code, _ := s.parts()
	end := code[len(code)-1] + 1
	tried := 0
	for i := 0; i+len(s.text) <= len(text); i++ {
		if !s.fits(text[i:], 0, end) {
			continue
		}
		if tried++; tried > maxCandidates {
			return false, true
		}
		if s.matches(mac, text[i:i+len(s.text)]) {
			return true, false
		}
	}
	return false, false
}

// Recognize returns what knows the placeholders of these secrets that a host with
// this key has made, for this sandbox or another. It keeps no value.
func Recognize(key Key, secrets []Secret) func(text []byte) bool {
	var shapes []*shape
	for _, s := range secrets {
		if of, err := shapeOf(s.Value.Reveal()); err == nil {
			shapes = append(shapes, of)
		}
	}
	return func(text []byte) bool {
		return slices.ContainsFunc(shapes, func(s *shape) bool { return len(text) == len(s.text) && s.is(key, string(text)) })
	}
}
