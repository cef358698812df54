package run

import (
	"context"
	"encoding/json"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
)

// beside is what is on record of sandboxes that were made for the checks alone:
// nothing of it is about the one that is worked in.
type beside struct {
	next bool            // the newest one that was asked for is such
	ids  map[string]bool // those that there were
	left bool            // one may still be there
}

// take takes one record, and reports whether it is about such a sandbox.
func (b *beside) take(r audit.Record) (bool, error) {
	switch r.Kind {
	case audit.KindSandboxIntent:
		var c sandbox.CreateIntent
		err := json.Unmarshal(r.Data, &c)
		b.next = c.Labels[LabelRole] != ""
		b.left = b.left || b.next
		return b.next, err
	case audit.KindSandboxFailed:
		b.left = b.left && !b.next
		return b.next, nil
	case audit.KindSandboxCreated:
		if b.next {
			if b.ids == nil {
				b.ids = map[string]bool{}
			}
			b.ids[r.SandboxID] = true
		}
		return b.next, nil
	case audit.KindKilled:
		b.left = b.left && !b.ids[r.SandboxID]
		return b.ids[r.SandboxID], nil
	}
	return b.ids[r.SandboxID] && r.Kind == audit.KindSandboxAttached, nil
}

// clearBeside destroys what was made for the checks by the process that was
// ended: they are made again in another.
func (r *runner) clearBeside(ctx context.Context, rec *record) {
	if !rec.beside.left {
		return
	}
	if err := r.clear(ctx, map[string]string{LabelRun: r.o.ID, LabelRole: roleChecks}); err != nil {
		r.warn("a sandbox that was made for the checks may still be there: %v", err)
	}
}
