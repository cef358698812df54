package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// The longest a name and one of its labels may be (RFC 1035 2.3.4), without the
// final dot.
const (
	maxName  = 253
	maxLabel = 63
)

// Canonical returns the one form of a host's name that rules and requests are
// compared in: lower case, without the final dot. Only letters, digits and
// hyphens may be in a label; one in punycode must be what its decoded form is
// encoded as. An error is a *NameError. An address is no name, in any spelling.
func Canonical(name string) (string, error) {
	s := strings.TrimSuffix(name, ".")
	switch {
	case s == "":
		return "", &NameError{Input: name, Reason: "is empty"}
	case len(s) > maxName:
		return "", &NameError{Input: name, Reason: fmt.Sprintf("has more than %d bytes", maxName)}
	}
	upper, begin, puny := false, 0, false
	for i := 0; i <= len(s); i++ {
		if i == len(s) || s[i] == '.' {
			if err := checkLabel(name, s[begin:i]); err != nil {
				return "", err
			}
			puny = puny || i-begin >= 4 && s[begin+2:begin+4] == "--" && (s[begin]|0x20) == 'x' && (s[begin+1]|0x20) == 'n'
			begin = i + 1
			continue
		}
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-':
		case c >= 'A' && c <= 'Z':
			upper = true
		default:
			return "", badByte(name, i)
		}
	}
	if isNumber(s[strings.LastIndexByte(s, '.')+1:]) {
		return "", &NameError{Input: name, Reason: "ends in a number, as only addresses do", Hint: "a rule for an address has cidr:", Address: true}
	}
	if upper {
		s = strings.ToLower(s)
	}
	if puny {
		if err := checkPunycode(name, s); err != nil {
			return "", err
		}
	}
	return s, nil
}

func checkLabel(name, label string) error {
	switch {
	case label == "":
		return &NameError{Input: name, Reason: "has an empty label", Hint: "one dot between labels"}
	case len(label) > maxLabel:
		return &NameError{Input: name, Reason: fmt.Sprintf("has a label of more than %d bytes", maxLabel)}
	case label[0] == '-' || label[len(label)-1] == '-':
		return &NameError{Input: name, Reason: "has a label that begins or ends with a hyphen"}
	}
	return nil
}

func badByte(name string, at int) error {
	if _, err := ParseAddr(name); err == nil {
		return &NameError{Input: name, Reason: "is an address", Hint: "a rule for an address has cidr:", Address: true}
	}
	e := &NameError{Input: name, Hint: alone(name), Reason: fmt.Sprintf("has %q, and only letters, digits, hyphens and dots may be in a name", name[at:at+1])}
	if name[at] >= 0x80 {
		e.Reason = "has bytes beyond ASCII"
		if ascii, err := idna.Lookup.ToASCII(name); err == nil && ascii != name {
			e.Hint = "write " + ascii
		}
	}
	return e
}

// alone says how the name within a text that is more than a name is written:
// within a URL, before a port, or beside others.
func alone(text string) string {
	if _, err := netip.ParsePrefix(text); err == nil {
		return "a rule for a range has cidr:"
	}
	_, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		rest = text
	}
	rest, _, _ = strings.Cut(rest, "/")
	host, port, hasPort := strings.Cut(rest, ":")
	if strings.Contains(host, ",") {
		return "one host each"
	}
	if host == text { // it is no more than a name
		return ""
	}
	name, err := Canonical(host)
	switch n, e := strconv.ParseUint(port, 10, 16); {
	case err != nil || hasPort && e != nil:
		return ""
	case hasPort:
		return fmt.Sprintf("the port stands apart: host: %s, ports: [%d]", name, n)
	}
	return "write the host alone: " + name
}

// checkPunycode refuses labels that decode to what would be encoded otherwise:
// two texts for one name.
func checkPunycode(name, lower string) error {
	for label := range strings.SplitSeq(lower, ".") {
		if !strings.HasPrefix(label, "xn--") {
			continue
		}
		text, err := idna.Lookup.ToUnicode(label)
		if err == nil && text != label {
			var back string
			if back, err = idna.Lookup.ToASCII(text); err == nil && back == label {
				continue
			}
		}
		return &NameError{Input: name, Reason: "has a label in punycode that is not well formed"}
	}
	return nil
}

// isNumber reports whether resolvers may read a last label as a part of an
// address: digits only, or hexadecimal with 0x.
func isNumber(label string) bool {
	hex := len(label) >= 2 && label[0] == '0' && label[1]|0x20 == 'x'
	if hex {
		label = label[2:]
	}
	for i := range len(label) {
		c := label[i]
		if c >= '0' && c <= '9' || hex && c|0x20 >= 'a' && c|0x20 <= 'f' {
			continue
		}
		return false
	}
	return true
}

// ParseAddr reads an address in every spelling that some program understands:
// in brackets, with a zone (which is dropped) or a final dot, IPv4 of one to
// four parts, each decimal, octal or hexadecimal as inet_aton reads them. An
// IPv4 address mapped to IPv6 is returned as IPv4.
func ParseAddr(text string) (netip.Addr, error) {
	s := text
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if s, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(s, ":") {
			return netip.Addr{}, notAddr(text)
		}
	}
	if strings.Contains(s, ":") {
		addr, err := netip.ParseAddr(s)
		if err != nil {
			return netip.Addr{}, notAddr(text)
		}
		return addr.WithZone("").Unmap(), nil
	}
	s = strings.TrimSuffix(s, ".")
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr, nil
	}
	return aton(text, s)
}

// aton reads IPv4 as inet_aton does: the last part fills the bytes that are
// left.
func aton(text, s string) (netip.Addr, error) {
	parts := strings.SplitN(s, ".", 5)
	if len(parts) > 4 {
		return netip.Addr{}, notAddr(text)
	}
	var value uint64
	for i, part := range parts {
		n, err := atonPart(part)
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (4 - i)
		}
		if err != nil || n >= 1<<bits {
			return netip.Addr{}, notAddr(text)
		}
		value = value<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), nil
}

func atonPart(s string) (uint64, error) {
	if s == "" || s[0] == '+' || s[0] == '-' || strings.Contains(s, "_") {
		return 0, errors.New("no number")
	}
	switch {
	case len(s) > 1 && s[0] == '0' && s[1]|0x20 == 'x':
		if len(s) == 2 { // some read 0x as 0
			return 0, nil
		}
		return strconv.ParseUint(s[2:], 16, 33)
	case len(s) > 1 && s[0] == '0':
		return strconv.ParseUint(s[1:], 8, 33)
	}
	return strconv.ParseUint(s, 10, 33)
}

func notAddr(text string) error { return fmt.Errorf("%s is no address", quote(text)) }

// quote shows text that may be long or odd.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "…"
	}
	return strconv.QuoteToASCII(s)
}
