package sandbox

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/rein-sh/rein/audit"
)

// networkTimeout bounds the reading of the network record after a call.
const networkTimeout = 5 * time.Second

// NetworkRecords asks a provider that keeps a network record for it;
// KindUnsupported when this one keeps none.
func NetworkRecords(ctx context.Context, p Provider, id string, after uint64) (NetworkLog, error) {
	if recorder, ok := p.(NetworkRecorder); ok {
		return recorder.NetworkRecords(ctx, id, after)
	}
	return NetworkLog{}, &Error{Kind: KindUnsupported, Op: "network", Subject: id, Err: fmt.Errorf("provider %s keeps no network record", p.Name())}
}

// networkSeen is the newest record of the network that was seen.
func (s *Sandbox) networkSeen() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastSeq
}

// networkBaseline learns where the record stands, so that no call is charged
// with what was tried before it.
func (s *Sandbox) networkBaseline(ctx context.Context) error {
	log, err := NetworkRecords(ctx, s.provider, s.id, math.MaxUint64)
	if err != nil {
		if KindOf(err) == KindUnsupported {
			return nil
		}
		return asError("network", s.id, err)
	}
	s.lastSeq = log.Last
	return nil
}

// network reads what was tried since a sequence number, puts it into the
// outcome, and anchors the head of the record in the audit when it is new.
func (s *Sandbox) network(ctx context.Context, callID string, since uint64, o *CallOutcome) ([]NetworkRecord, error) {
	ctx, cancel := shielded(ctx, networkTimeout)
	defer cancel()
	log, err := NetworkRecords(ctx, s.provider, s.id, since)
	if err != nil {
		if KindOf(err) != KindUnsupported {
			o.NetworkError = err.Error()
		}
		return nil, nil
	}
	for _, r := range log.Records {
		o.Network = append(o.Network, NetworkTarget{Proto: r.Proto, Name: r.Name, Address: r.Address, Port: r.Port,
			Verdict: r.Verdict, Reason: r.Reason, Count: r.Count})
	}
	s.mu.Lock()
	isNew := log.Head != "" && log.Head != s.anchored && log.Last >= s.lastSeq
	if isNew {
		s.anchored = log.Head
	}
	s.lastSeq = max(s.lastSeq, log.Last)
	s.mu.Unlock()
	if !isNew {
		return log.Records, nil
	}
	return log.Records, s.append(audit.KindNetwork, callID, NetworkAnchor{Last: log.Last, Head: log.Head})
}
