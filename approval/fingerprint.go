package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Fingerprint is the hash of the rules, in their order, and of the default.
func (p *Policy) Fingerprint() string {
	rules := make([]Rule, 0, len(p.rules))
	for _, r := range p.rules {
		rules = append(rules, r.Rule)
	}
	data, _ := json.Marshal(struct { // plain data always encodes
		Default Action
		Rules   []Rule
	}{p.fallback, rules})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
