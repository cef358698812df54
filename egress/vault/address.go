package vault

import (
	"net/http"
	"slices"
	"strings"

	"github.com/rein-sh/rein/egress/policy"
)

// addressed refuses a request to where a secret is a part of the address, and
// this address has none: what stands there instead can be somebody else's. What
// the method is counts as little as for other credentials.
func (q *request) addressed(r *http.Request) error {
	_, others := policy.Overrides(r.Header)
	var missing *bound
	for _, b := range q.vault.hosts[q.to] {
		if b.As != Substitute || slices.Contains(b.In, InHeader) || slices.Contains(b.In, InBody) {
			continue
		}
		if len(others) > 0 {
			return refuse(RuleForeign, "a field of the request names another address, which some servers go by, and %s is a part of addresses there", b.of.name)
		}
		if slices.Contains(q.put, b) {
			return nil
		}
		if b.addresses(q.path) {
			missing = b
		}
	}
	if missing != nil {
		return refuse(RuleForeign, "the address of the request does not hold this sandbox's placeholder of %s, as all have to that the binding is for: its paths say which", missing.of.name)
	}
	return nil
}

// addresses reports whether a server may take a path for one of the binding's.
func (b *bound) addresses(path string) bool {
	if len(b.Paths) == 0 || !policy.PathMatches("/*", path) { // any, or one that can be read as another
		return true
	}
	path = strings.ToLower(unescape(path))
	return slices.ContainsFunc(b.Paths, func(pattern string) bool {
		prefix, open := strings.CutSuffix(strings.ToLower(unescape(pattern)), "*")
		return path == prefix || open && strings.HasPrefix(path, prefix)
	})
}
