package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run/control"
	"github.com/rein-sh/rein/tool"
)

// LimitChange is a limit that was changed while the run worked.
type LimitChange struct {
	Time time.Time    `json:"time"`
	Name budget.Limit `json:"name"`
	Old  string       `json:"old"`
	New  string       `json:"new"`
	// Amount is New in the unit of the limit.
	Amount int64  `json:"amount"`
	UID    uint32 `json:"uid"` // who changed it
	PID    int32  `json:"pid"`
}

// Limit implements control.Handler. A change that cannot be recorded is undone. In
// a run that is resumed it comes after those on record.
func (d *desk) Limit(ctx context.Context, by control.Peer, limit budget.Limit, amount int64) (control.Change, error) {
	if err := d.open(); err != nil {
		return control.Change{}, err
	}
	if p := d.r.past; p != nil {
		select {
		case <-p.live:
		case <-ctx.Done():
			return control.Change{}, context.Cause(ctx)
		}
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	r := d.r
	before := r.tree.Limits()
	after, old, err := before.With(limit, amount)
	if err == nil {
		err = checkTools(r.o.Tools, after.MaxCallTimeout)
	}
	if err == nil {
		_, err = r.tree.SetLimit(limit, amount)
	}
	if err != nil {
		return control.Change{}, &control.Error{Code: control.CodeInvalid, Message: err.Error(), Advice: hintOf(err)}
	}
	c := LimitChange{Time: time.Now(), Name: limit, Old: before.Value(limit), New: limit.Format(amount), Amount: amount, UID: by.UID, PID: by.PID}
	if err := d.record(audit.KindLimit, c); err != nil {
		_, undone := r.tree.SetLimit(limit, old)
		return control.Change{}, errors.Join(err, undone)
	}
	r.limitChanged(c)
	r.emit(Event{Kind: EventWarning, Text: fmt.Sprintf("%s is now %s; it was %s (changed by uid %d)", limit, c.New, c.Old, by.UID)})
	return control.Change{Limit: limit, Old: c.Old, New: c.New}, nil
}

// limitChanged has the report say so, and what is in force.
func (r *runner) limitChanged(c LimitChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.LimitChanges = append(r.report.LimitChanges, c)
	for i := range r.report.Limits {
		if l := &r.report.Limits[i]; l.Name == string(c.Name) && l.Layer == c.Name.Layer() {
			l.Value = c.New
		}
	}
}

// checkTools refuses a limit under which a narrow tool would fail in every call.
func checkTools(tools []tool.Custom, most time.Duration) error {
	for _, t := range tools {
		if t.Timeout() > most {
			return &UsageError{Field: "limit " + string(budget.LimitMaxCallTimeout),
				Reason: fmt.Sprintf("the tool %s has %s for a call, more than any may take, %s", t.Name, t.Timeout(), budget.LimitMaxCallTimeout.Format(int64(most))),
				hint:   "leave it at what the tool needs, or more"}
		}
	}
	return nil
}
