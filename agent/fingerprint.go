package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Fingerprint is the hash of the options that decide what the loop does. The
// model's name is among those of the run; prices are not in it.
func (l *loop) Fingerprint() string {
	fallback := ""
	if l.Fallback != nil {
		fallback = l.Fallback.Name()
	}
	data, _ := json.Marshal(struct { // plain data always encodes
		System          string
		MaxOutputTokens int
		Fallback        string
		Context         Context
		OnDenial        OnDenial
		Retries         int
	}{l.System, l.MaxOutputTokens, fallback, l.Context, l.OnDenial, l.Retries})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
