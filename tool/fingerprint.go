package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Fingerprint is the hash of what the model is told of the tool and of the
// program it starts. What a function does is not in it.
func (c Custom) Fingerprint() string {
	data, _ := json.Marshal(struct { // plain data always encodes
		Definition Definition
		Program    *Program `json:",omitempty"`
	}{c.Definition, c.program})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
