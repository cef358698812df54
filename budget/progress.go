package budget

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"sync"
)

// Progress decides whether a run makes progress: a successful result that is
// new. A call that was made before never counts, whatever it returns; a result
// that differs from an earlier one only in digits, times and dates is not new;
// more output of a background command counts. It keeps one hash for each call
// and result, so its memory is bounded by Limits.MaxToolCalls. All methods may
// be called concurrently. The zero Progress is ready to use.
type Progress struct {
	mu      sync.Mutex
	calls   map[[sha256.Size]byte]bool
	results map[[sha256.Size]byte]bool
	printed map[string]int64
	since   bool
}

// Call tells of a finished call: the tool and its arguments, whether it
// succeeded, and its result as the model saw it, without ids and durations. It
// reports whether that was progress. Arguments that are the same JSON are the
// same call.
func (p *Progress) Call(tool string, args []byte, ok bool, result []byte) bool {
	call := sha256.Sum256(append([]byte(tool+"\x00"), canonical(args)...))
	hash := sha256.Sum256(Normalize(result))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == nil {
		p.calls, p.results = map[[sha256.Size]byte]bool{}, map[[sha256.Size]byte]bool{}
	}
	repeated := p.calls[call]
	p.calls[call] = true
	if !ok || repeated || p.results[hash] {
		return false
	}
	p.results[hash] = true
	p.since = true
	return true
}

// canonical returns JSON without insignificant spaces and with sorted keys;
// anything else as it is.
func canonical(args []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		return args
	}
	b, err := json.Marshal(v)
	if err != nil {
		return args
	}
	return b
}

// Background tells how many bytes the background command id has printed by now,
// and reports whether that was progress: more than ever before.
func (p *Progress) Background(id string, bytes int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if bytes <= p.printed[id] {
		return false
	}
	if p.printed == nil {
		p.printed = map[string]int64{}
	}
	p.printed[id] = bytes
	p.since = true
	return true
}

// Since reports whether there was progress since the last call of Renewed, or
// the beginning.
func (p *Progress) Since() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.since
}

// Renewed tells that the lease was renewed: progress counts from zero again.
// What has been seen is not forgotten.
func (p *Progress) Renewed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = false
}
