package policy

import (
	"math"
	"strings"

	"golang.org/x/net/idna"
)

// What makes a label look like data. Names that people make up are shorter,
// and their letters are not as evenly spread.
const (
	longLabel      = 40 // bytes, whatever is in it
	hexLabel       = 16 // hexadecimal digits
	base32Label    = 16
	digitsLabel    = 10 // decimal digits alone
	consonantLabel = 12
	consonantRun   = 8
	randomLabel    = 20
	randomEntropy  = 3.7 // bits a byte; English words have 3 or less at this length
	longName       = 120
)

// Encoded returns the labels of a name that look like data rather than words:
// hexadecimal, base32, long digits, of high entropy, or very long; of a very
// long name, the longest one. It is a hint for who is asked, and decides
// nothing: data can be made to look like words.
func Encoded(name string) []string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	var out []string
	longest := ""
	for label := range strings.SplitSeq(name, ".") {
		if looksEncoded(label) {
			out = append(out, label)
		}
		if len(label) > len(longest) {
			longest = label
		}
	}
	if out == nil && len(name) > longName {
		out = append(out, longest)
	}
	return out
}

// Odd says what of a host's name does not look as if a person had chosen it, for
// who is asked about it: a label that looks like data, or is shown as another.
func Odd(host string) []string {
	if _, err := ParseAddr(host); err == nil {
		return nil
	}
	var all []string
	for _, label := range Encoded(host) {
		all = append(all, label+" looks like data, not like a name")
	}
	for label := range strings.SplitSeq(host, ".") {
		if !strings.HasPrefix(label, "xn--") {
			continue
		}
		if text, err := idna.Display.ToUnicode(label); err == nil && text != label {
			all = append(all, label+" is shown as "+text+" elsewhere, and may look like another name")
		}
	}
	return all
}

func looksEncoded(label string) bool {
	if len(label) >= longLabel {
		return true
	}
	if strings.HasPrefix(label, "xn--") {
		return false
	}
	if random(strings.NewReplacer("-", "", "_", "").Replace(label)) {
		return true
	}
	for part := range strings.FieldsFuncSeq(label, func(r rune) bool { return r == '-' || r == '_' }) {
		if random(part) {
			return true
		}
	}
	return false
}

// random reports whether letters and digits without hyphens look like data.
func random(s string) bool {
	digits := count(s, "0123456789")
	switch {
	case len(s) >= digitsLabel && digits == len(s):
		return true
	case len(s) >= hexLabel && count(s, "0123456789abcdef") == len(s) && digits >= 3:
		return true
	case len(s) >= base32Label && count(s, "abcdefghijklmnopqrstuvwxyz234567") == len(s) && digits >= 2 && changes(s) >= 4:
		return true
	case len(s) >= consonantLabel && consonants(s) >= consonantRun:
		return true
	}
	return len(s) >= randomLabel && digits >= 2 && changes(s) >= 4 && entropy(s) >= randomEntropy
}

// consonants is the longest run of letters without a vowel.
func consonants(s string) (most int) {
	run := 0
	for i := range len(s) {
		if s[i] < 'a' || s[i] > 'z' || strings.IndexByte("aeiouy", s[i]) >= 0 {
			run = 0
			continue
		}
		run++
		most = max(most, run)
	}
	return most
}

func count(s, set string) (n int) {
	for i := range len(s) {
		if strings.IndexByte(set, s[i]) >= 0 {
			n++
		}
	}
	return n
}

// changes counts how often letters and digits take turns: words with a number
// at the end have one, data has many.
func changes(s string) (n int) {
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	for i := 1; i < len(s); i++ {
		if digit(s[i]) != digit(s[i-1]) {
			n++
		}
	}
	return n
}

// entropy of the bytes of s, in bits a byte.
func entropy(s string) float64 {
	var seen [256]int
	for i := range len(s) {
		seen[s[i]]++
	}
	sum := 0.0
	for _, n := range seen {
		if n > 0 {
			p := float64(n) / float64(len(s))
			sum -= p * math.Log2(p)
		}
	}
	return sum
}
