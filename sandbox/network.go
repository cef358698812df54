package sandbox

import (
	"context"
	"math"
	"time"

	"github.com/rein-sh/rein/audit"
)

// networkTimeout bounds the reading of the network record after a call.
const networkTimeout = 5 * time.Second

// networkSeen is the newest record of the network that was seen.
func (s *Sandbox) networkSeen() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastSeq
}

// networkBaseline learns where the record stands, so that no call is charged
// with what was tried before it.
func (s *Sandbox) networkBaseline(ctx context.Context) error {
	recorder, ok := s.provider.(NetworkRecorder)
	if !ok {
		return nil
	}
	log, err := recorder.NetworkRecords(ctx, s.id, math.MaxUint64)
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
	recorder, ok := s.provider.(NetworkRecorder)
	if !ok {
		return nil, nil
	}
	ctx, cancel := shielded(ctx, networkTimeout)
	defer cancel()
	log, err := recorder.NetworkRecords(ctx, s.id, since)
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
