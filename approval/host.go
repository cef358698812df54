package approval

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/rein-sh/rein/egress/policy"
)

// Domain is the part of a host's name that somebody registered: who it is that
// would be reached. It is empty for an address, and for a name that no registry
// gives away.
func Domain(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	domain, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return ""
	}
	return domain
}

// Bounds of what a name of people's making looks like.
const (
	longLabel  = 16 // characters; shorter ones carry little
	longPrefix = 64 // of all that stands before the domain
)

// Odd says what of a host's name does not look as if a person had chosen it: a
// name is sent to its owner by being asked for, and can carry data there.
func Odd(host string) []string {
	var odd []string
	before := strings.TrimSuffix(strings.TrimSuffix(host, Domain(host)), ".")
	if _, err := netip.ParseAddr(host); err == nil {
		before = ""
	}
	if len(before) > longPrefix {
		odd = append(odd, fmt.Sprintf("%d characters stand before the domain, which could be data", len(before)))
	}
	for label := range strings.SplitSeq(host, ".") {
		if strings.HasPrefix(label, "xn--") {
			if text, err := idna.Display.ToUnicode(label); err == nil && text != label {
				odd = append(odd, label+" is shown as "+text+" elsewhere, and may look like another name")
			}
		} else if encoded(label) {
			odd = append(odd, label+" looks like encoded data")
		}
	}
	return odd
}

// encoded reports whether a label looks like hexadecimal, base32 or base64 more
// than like words: it is long, and has digits all over, or hardly any vowels.
func encoded(label string) bool {
	plain := strings.ReplaceAll(label, "-", "")
	if len(plain) < longLabel {
		return false
	}
	digits, vowels, changes := 0, 0, 0
	was := false
	for i, c := range []byte(plain) {
		is := c >= '0' && c <= '9'
		switch {
		case is:
			digits++
		case strings.IndexByte("aeiouy", c) >= 0:
			vowels++
		}
		if i > 0 && is != was {
			changes++
		}
		was = is
	}
	letters := len(plain) - digits
	return changes >= 4 || digits*2 >= len(plain) || vowels*6 < letters
}

// hostText is what a person reads of a host: who it belongs to comes first.
func hostText(r Request) string {
	target := r.Host
	if r.Port != 0 {
		target += fmt.Sprintf(" port %d", r.Port)
	}
	if r.Proto != "" {
		target += " (" + r.Proto + ")"
	}
	text := target
	if domain := Domain(r.Host); domain != "" && domain != r.Host {
		text = domain + ": " + target
	}
	for _, odd := range Odd(r.Host) {
		text += "\nlook at it: " + odd
	}
	for _, doing := range r.Doing {
		text += "\nwhile it works on " + doing
	}
	return text
}

// checkHost judges the pattern of a rule: a name, an address, "*.name", or "*".
func checkHost(pattern string) error {
	name := strings.TrimPrefix(pattern, "*.")
	if pattern == "*" {
		return nil
	}
	if _, err := policy.ParseAddr(name); err == nil && name == pattern {
		return nil
	}
	_, err := policy.Canonical(name)
	return err
}

// canonicalHost is the form in which hosts are compared; what is none stays as it is.
func canonicalHost(host string) string {
	if addr, err := policy.ParseAddr(host); err == nil {
		return addr.String()
	}
	name, err := policy.Canonical(host)
	if err != nil {
		return strings.ToLower(host)
	}
	return name
}

// hostMatches compares hosts; "*." in front stands for any labels, "*" for every
// host.
func hostMatches(pattern, host string) bool {
	host = canonicalHost(host)
	if pattern == "*" {
		return true
	}
	if beneath, ok := strings.CutPrefix(pattern, "*."); ok {
		return strings.HasSuffix(host, "."+canonicalHost(beneath))
	}
	return canonicalHost(pattern) == host
}

// HostPatterns are the hosts that the rules of a policy are about.
func (p *Policy) HostPatterns() []string {
	var all []string
	for _, r := range p.rules {
		if r.Host != "" {
			all = append(all, r.Host)
		}
	}
	slices.SortFunc(all, cmp.Compare)
	return slices.Compact(all)
}
