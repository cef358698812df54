package run

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
)

// network takes the record of the sandbox's network over into the run's
// directory, while the sandbox still is there to be asked.
func (r *runner) network(ctx context.Context) {
	recorder, ok := r.o.Provider.(sandbox.NetworkRecorder)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sandbox.DefaultOpTimeout)
	defer cancel()
	log, err := recorder.NetworkRecords(ctx, r.box.ID(), 0)
	if err != nil {
		r.warn("the record of the network could not be read: %v", err)
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, rec := range log.Records {
		if err := enc.Encode(rec); err != nil {
			r.warn("the record of the network could not be written: %v", err)
			return
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, networkFile), r.o.Masker.Bytes(b.Bytes()), 0o600); err != nil {
		r.warn("the record of the network could not be written: %v", err)
	}
	r.mu.Lock()
	r.report.NetworkObserved = true
	r.report.Network = log.Records[:min(len(log.Records), MaxNetwork)]
	r.report.NetworkHead = log.Head
	r.mu.Unlock()
	if err := r.record(audit.KindNetwork, "", sandbox.NetworkAnchor{Last: log.Last, Head: log.Head}); err != nil {
		r.warn("%v", err)
	}
}
