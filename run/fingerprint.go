package run

import (
	"encoding/json"
	"time"
)

// Fingerprinter is a Worker with settings of its own. A run is resumed by a
// worker with the same Fingerprint, or not at all.
type Fingerprinter interface {
	Worker
	Fingerprint() string
}

// workedBy is the fingerprint of a worker, empty for one without.
func workedBy(w Worker) string {
	if f, ok := w.(Fingerprinter); ok {
		return f.Fingerprint()
	}
	return ""
}

// toolPrints are the hashes of the tools besides the built-in ones.
func (o *Options) toolPrints() []string {
	var all []string
	for _, t := range o.Tools {
		all = append(all, t.Fingerprint())
	}
	return all
}

// fingerprint is the hash of what is allowed. Who answers, and how long that is
// waited for, may differ from process to process.
func (a *Approval) fingerprint() string {
	if a == nil {
		return ""
	}
	data, _ := json.Marshal(struct { // plain data always encodes
		Policy string
		Grant  time.Duration
	}{a.Policy.Fingerprint(), a.Grant})
	return hash(data)
}
