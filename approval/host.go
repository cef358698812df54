package approval

import (
	"fmt"
	"strings"

	"github.com/rein-sh/rein/egress/policy"
)

// domain is whom a host's name belongs to; empty for an address.
func domain(host string) string {
	if _, err := policy.ParseAddr(host); err == nil {
		return ""
	}
	return policy.Registrable(host)
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
	if owner := domain(r.Host); owner != "" && owner != r.Host {
		text = owner + ": " + target
	}
	for _, why := range policy.Odd(r.Host) {
		text += "\nlook at it: " + why
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
