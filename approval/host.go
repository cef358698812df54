package approval

import (
	"fmt"
	"strings"

	"golang.org/x/net/idna"

	"github.com/rein-sh/rein/egress/policy"
)

// domain is whom a host's name belongs to; empty for an address.
func domain(host string) string {
	if _, err := policy.ParseAddr(host); err == nil {
		return ""
	}
	return policy.Registrable(host)
}

// odd says what of a host's name does not look as if a person had chosen it: a
// name is sent to its owner by being asked for, and can carry data there.
func odd(host string) []string {
	if _, err := policy.ParseAddr(host); err == nil {
		return nil
	}
	var all []string
	for _, label := range policy.Encoded(host) {
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
	for _, why := range odd(r.Host) {
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
