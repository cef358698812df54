package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/sandbox"
)

// networkFile is a sandbox's network record, in StateDir/sandboxes/ID.
const networkFile = "network.jsonl"

// keptRecords are held in memory for callers; older ones are in the file.
const keptRecords = 32768

// maxNetworkBytes is how much a sandbox can have written about it. What leaves
// would leave unrecorded then, so that nothing does any more.
const maxNetworkBytes = 64 << 20

// networkLog is the keeper's record of what its sandbox tried: network.jsonl
// with its own hash chain, and the newest records for whoever asks.
type networkLog struct {
	log *audit.Log
	// full is called once, from record, when there is no more room or nothing
	// can be written. What still comes is written where it can be: the gateway
	// has little left then.
	full func()

	mu      sync.Mutex
	left    int64 // bytes
	sealed  bool
	records []sandbox.NetworkRecord
	head    audit.Head
	err     error // the first failure to write; reported by Close and to callers
}

func newNetworkLog(dir string) (*networkLog, error) {
	log, err := audit.Create(filepath.Join(dir, networkFile), audit.Options{})
	if err != nil {
		return nil, err
	}
	return &networkLog{log: log, left: maxNetworkBytes}, nil
}

// record is the gateway's egress.Options.Record.
func (n *networkLog) record(a egress.Attempt) {
	r := sandbox.NetworkRecord{
		Time: a.Time, Until: a.Until, Count: a.Count, Proto: string(a.Proto), Name: a.Name,
		Port: int(a.Port), Verdict: a.Verdict, Rule: a.Rule, Reason: a.Reason,
		BytesIn: a.BytesIn, BytesOut: a.BytesOut, DurationMS: a.Duration.Milliseconds(), Generation: a.Generation,
	}
	if a.Address.IsValid() {
		r.Address = a.Address.String()
	}
	if a.Owner != "" {
		r.Attribution = sandbox.Attribution{How: sandbox.ByPort, CallID: a.Owner}
	}
	if n.take(r) {
		n.full()
	}
}

// isFull reports whether full was, or is about to be, called.
func (n *networkLog) isFull() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sealed
}

// take writes a record, and reports whether it was the last there is room for.
func (n *networkLog) take(r sandbox.NetworkRecord) (last bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.write(r)
	if n.sealed || n.left > 0 && n.err == nil {
		return false
	}
	n.sealed = true
	n.write(sandbox.NetworkRecord{Time: r.Time, Count: 1, Proto: "other", Verdict: "deny", Rule: "limit:records",
		Reason: fmt.Sprintf("the network record has %d MiB: nothing leaves this sandbox any more", maxNetworkBytes>>20)})
	return true
}

func (n *networkLog) write(r sandbox.NetworkRecord) {
	rec, err := n.log.Append(audit.Entry{Kind: audit.KindNetwork, Data: r})
	if err != nil {
		n.err = errors.Join(n.err, err)
		return
	}
	if line, err := json.Marshal(rec); err == nil { // as it was written, but for its last byte
		n.left -= int64(len(line)) + 1
	}
	r.Seq = rec.Seq
	n.head = audit.Head{Seq: rec.Seq, Hash: rec.Hash}
	if len(n.records) == keptRecords {
		n.records = append(n.records[:0], n.records[keptRecords/2:]...)
	}
	n.records = append(n.records, r)
}

// since returns the records after a sequence number.
func (n *networkLog) since(after uint64) (sandbox.NetworkLog, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return sandbox.NetworkLog{}, n.err
	}
	out := sandbox.NetworkLog{Head: n.head.Hash, Last: n.head.Seq}
	for _, r := range n.records {
		if r.Seq > after {
			out.Records = append(out.Records, r)
		}
	}
	return out, nil
}

// Close ends the record and returns what went wrong with it.
func (n *networkLog) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return errors.Join(n.err, n.log.Close())
}
