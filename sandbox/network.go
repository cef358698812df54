package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress/policy"
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

// SetNetwork changes the policy of a live sandbox of a provider that can;
// KindUnsupported when this one cannot.
func SetNetwork(ctx context.Context, p Provider, id string, d policy.Document) (uint64, error) {
	if _, err := policy.Compile(d); err != nil {
		return 0, InvalidNetwork("change the network", err)
	}
	if n, ok := p.(Networker); ok {
		return n.SetNetwork(ctx, id, d)
	}
	return 0, &Error{Kind: KindUnsupported, Op: "change the network", Subject: id, Err: fmt.Errorf("provider %s cannot change the policy of a live sandbox", p.Name())}
}

// DeniesAll reports whether nothing may leave by d, nor be asked about. Providers
// that know no policy but that one honour it.
func DeniesAll(d policy.Document) bool {
	closed := func(action string) bool { return action == policy.ActionDeny }
	return (d.Default == "" || closed(d.Default)) && !d.ReportOnly && len(d.Bundles) == 0 &&
		!slices.ContainsFunc(d.Rules, func(r policy.Rule) bool { return !closed(r.Action) })
}

// InvalidNetwork is the *Error about a policy that does not compile.
func InvalidNetwork(op string, err error) error {
	e := &Error{Kind: KindInvalid, Op: op, Subject: "network", Err: err}
	if faults, ok := errors.AsType[*policy.Error](err); ok {
		e.Hint = faults.Hint()
	}
	return e
}

// SetNetwork puts another policy in force, recorded before and after, and
// returns its generation. See Networker.
func (s *Sandbox) SetNetwork(ctx context.Context, d policy.Document) (uint64, error) {
	const op = "change the network"
	if err := s.usable(op); err != nil {
		return 0, err
	}
	ctx, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	if err := s.append(audit.KindNetworkIntent, "", NetworkChange{Network: d}); err != nil {
		return 0, err
	}
	start := s.opt.Now()
	generation, err := SetNetwork(ctx, s.provider, s.id, d)
	err = asError(op, s.id, err)
	return generation, also(err, s.append(audit.KindNetworkChanged, "", NetworkChange{Network: d,
		OK: err == nil, Generation: generation, DurationMS: s.since(start), Failure: failure(err)}))
}

// own attaches to the sandbox as an owner, until Close or Kill, where its
// provider has owners.
func (s *Sandbox) own(ctx context.Context, op string) error {
	a, ok := s.provider.(Attacher)
	if !ok {
		return nil
	}
	owner, err := a.Attach(ctx, s.id, Owner{Ask: s.opt.Ask, Meter: s.opt.Meter})
	if err != nil {
		return asError(op, s.id, err)
	}
	s.owner = owner
	return nil
}

// release ends the ownership and closes the connections to execd.
func (s *Sandbox) release() error {
	if s.client != nil {
		s.client.Close()
	}
	if s.owner != nil {
		return s.owner.Close()
	}
	return nil
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
	s.mu.Lock()
	records := log.Records[:0:0]
	for _, r := range log.Records {
		if s.spans.charge(&r, callID) {
			records = append(records, r)
			o.Network = append(o.Network, targetOf(r))
		}
	}
	isNew := log.Head != "" && log.Head != s.anchored && log.Last >= s.lastSeq
	if isNew {
		s.anchored = log.Head
	}
	s.lastSeq = max(s.lastSeq, log.Last)
	s.mu.Unlock()
	if !isNew {
		return records, nil
	}
	return records, s.append(audit.KindNetwork, callID, NetworkAnchor{Last: log.Last, Head: log.Head})
}
