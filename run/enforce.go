package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
)

// errOpen ends the work of a run whose network may be more open than its record
// says.
var errOpen = errors.New("a change of the network is not on record, and could not be taken back")

// boxes are the sandboxes that have the run's policy.
func (r *runner) boxes() (all []*sandbox.Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range []*sandbox.Sandbox{r.reached, r.judging} {
		if b != nil {
			all = append(all, b)
		}
	}
	return all
}

// enforce puts a policy in force in all boxes, and returns its generation in the
// first. After an error it may be in force in those that are returned.
func enforce(ctx context.Context, boxes []*sandbox.Sandbox, doc policy.Document) (generation uint64, in []*sandbox.Sandbox, err error) {
	for i, box := range boxes {
		n, err := box.SetNetwork(ctx, doc)
		if err == nil || n != 0 || !unchanged(err) {
			in = append(in, box)
		}
		if err != nil {
			return 0, in, err
		}
		if i == 0 {
			generation = n
		}
	}
	return generation, in, nil
}

// unchanged reports whether an error of SetNetwork says that the policy is what it
// was. Of others, as of an answer that is lost, it is not known.
func unchanged(err error) bool {
	switch sandbox.KindOf(err) {
	case sandbox.KindInvalid, sandbox.KindUnsupported, sandbox.KindConflict, sandbox.KindNotFound:
		return true
	}
	return errors.Is(err, sandbox.ErrUnsent)
}

// takeBack puts the policy that was in force in again, and ends a run that may
// reach more because it cannot. It asks no record, which may be what failed.
func (d *desk) takeBack(ctx context.Context, boxes []*sandbox.Sandbox, c NetworkChange, old policy.Document) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.DefaultOpTimeout)
	defer cancel()
	var failed error
	for _, box := range boxes {
		if _, err := sandbox.SetNetwork(ctx, d.r.o.Provider, box.ID(), old); err != nil && sandbox.KindOf(err) != sandbox.KindNotFound {
			failed = errors.Join(failed, err)
		}
	}
	if failed == nil {
		return nil
	}
	d.r.warn("it is not known whether %s: that was asked for by uid %d, failed, and could not be taken back: %v", c, c.UID, failed)
	if c.Action == policy.ActionAllow {
		d.stop(fmt.Errorf("%w: %s", errOpen, c))
	}
	return failed
}

// judges makes box the checks' own, made when that many changes of the network had
// been; nil: there is none any more. A change since is made in it.
func (r *runner) judges(ctx context.Context, box *sandbox.Sandbox, changes int) error {
	r.desk.changing.Lock()
	defer r.desk.changing.Unlock()
	r.mu.Lock()
	r.judging = box
	same := len(r.report.NetworkChanges) == changes
	r.mu.Unlock()
	if box == nil || same {
		return nil
	}
	_, err := box.SetNetwork(ctx, r.networkNow())
	return err
}
