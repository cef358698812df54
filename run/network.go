package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
)

// NetworkCopy is the data of the first record of network.jsonl, and says of
// what the others are a copy. They are masked, so the copy has a chain of its
// own.
type NetworkCopy struct {
	// SandboxID's own record ended with its record number Last, whose hash is
	// Head. Heads of it are in the audit log, from call to call.
	SandboxID string `json:"sandbox_id"`
	sandbox.NetworkAnchor
	// Records follow; Missing older ones the provider no longer had.
	Records int    `json:"records"`
	Missing uint64 `json:"missing,omitempty"`
}

// NetworkEnd is the data of the last record of audit.KindNetwork: the head of
// the sandbox's own record, and that of its copy, network.jsonl.
type NetworkEnd struct {
	sandbox.NetworkAnchor
	Copy audit.Head `json:"copy"`
}

// network takes the record of the sandbox's network over into the run's
// directory, while the sandbox still is there to be asked.
func (r *runner) network(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sandbox.DefaultOpTimeout)
	defer cancel()
	log, err := sandbox.NetworkRecords(ctx, r.o.Provider, r.box.ID(), 0)
	if sandbox.KindOf(err) == sandbox.KindUnsupported {
		return // nobody keeps one, and the report says so
	}
	if err != nil {
		r.warn("the record of the network could not be read: %v", err)
		return
	}
	head, err := r.copyNetwork(log)
	if err != nil {
		r.warn("the record of the network could not be copied: %v", err)
	}
	r.mu.Lock()
	r.report.NetworkObserved = true
	r.report.Network = log.Records[:min(len(log.Records), MaxNetwork)]
	r.report.Hosts, r.report.HostsLeft = hostsOf(log.Records)
	if head != (audit.Head{}) {
		r.report.NetworkHead = head.String()
	}
	r.mu.Unlock()
	if err := r.record(audit.KindNetwork, "", NetworkEnd{sandbox.NetworkAnchor{Last: log.Last, Head: log.Head}, head}); err != nil {
		r.warn("%v", err)
	}
}

// copyNetwork writes network.jsonl and returns its head: that of what could be
// written, when there is an error.
func (r *runner) copyNetwork(log sandbox.NetworkLog) (head audit.Head, err error) {
	out, err := audit.Create(filepath.Join(r.dir, NetworkFile), audit.Options{Masker: r.o.Masker})
	if err != nil {
		return audit.Head{}, err
	}
	defer func() { head, err = out.Head(), errors.Join(err, out.Close()) }()
	first := NetworkCopy{SandboxID: r.box.ID(), NetworkAnchor: sandbox.NetworkAnchor{Last: log.Last, Head: log.Head}, Records: len(log.Records)}
	if first.Missing = missing(log); first.Missing > 0 {
		r.warn("the %d oldest records of the network are missing: the provider keeps only the newest", first.Missing)
	}
	entry := audit.Entry{Kind: audit.KindNetwork, RunID: r.o.ID, TraceID: r.o.TraceID, SandboxID: r.box.ID(), Data: first}
	if _, err := out.Append(entry); err != nil {
		return head, err
	}
	for _, rec := range log.Records {
		entry.Data = rec
		if _, err := out.Append(entry); err != nil {
			return head, fmt.Errorf("record %d: %w", rec.Seq, err)
		}
	}
	return head, nil
}

// missing is how many of the records up to log.Last, which are numbered from 1,
// log does not have.
func missing(log sandbox.NetworkLog) uint64 {
	return log.Last - min(log.Last, uint64(len(log.Records)))
}
