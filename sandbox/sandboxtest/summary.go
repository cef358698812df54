package sandboxtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/rein-sh/rein/sandbox"
)

// Summary is what one run of the suite has shown.
type Summary struct {
	// With says what the provider was run with, where that is not always the
	// same.
	With         string                       `json:"with,omitempty"`
	Capabilities map[sandbox.Capability]Shown `json:"capabilities"`
}

// Shown is what is known of one capability: what Probe says, and how many cases
// that need it passed. A case counts for each capability it needs. Those skipped
// found that they do not apply, such as one about a token where there is none.
type Shown struct {
	Available  bool   `json:"available"`
	EnforcedBy string `json:"enforced_by,omitempty"`
	Passed     int    `json:"passed,omitempty"`
	Failed     int    `json:"failed,omitempty"`
	Skipped    int    `json:"skipped,omitempty"`
}

// SaveSummary is for Harness.Summary: it writes the summary to a file of a
// directory. Without a directory it does nothing.
func SaveSummary(t *testing.T, dir, name, with string) func(Summary) {
	return func(s Summary) {
		s.With = with
		if dir == "" {
			return
		}
		b, err := json.MarshalIndent(s, "", "  ")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".json"), append(b, '\n'), 0o644)
		}
		if err != nil {
			t.Errorf("saving the summary: %v", err)
		}
	}
}

// tally counts the cases of one run.
type tally struct {
	mu      sync.Mutex
	summary Summary
}

func newTally(r sandbox.Report) *tally {
	t := &tally{summary: Summary{Capabilities: map[sandbox.Capability]Shown{}}}
	for _, a := range r.Abilities {
		s := Shown{Available: a.Available}
		if a.Available {
			s.EnforcedBy = a.EnforcedBy
		}
		t.summary.Capabilities[a.Capability] = s
	}
	return t
}

// count notes how a case ended that was begun.
func (t *tally) count(c Case, of *testing.T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	needs := slices.Clone(c.Needs)
	slices.Sort(needs)
	for _, need := range slices.Compact(needs) {
		s := t.summary.Capabilities[need]
		switch {
		case of.Failed():
			s.Failed++
		case of.Skipped():
			s.Skipped++
		default:
			s.Passed++
		}
		t.summary.Capabilities[need] = s
	}
}
