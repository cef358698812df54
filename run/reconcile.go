package run

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
)

// outputRecord is what is on record of the output directory.
type outputRecord struct {
	ours   map[string]syncedFile
	passes int
	// begun is a pass whose end is not on record.
	begun *syncRecord
}

// take takes one record of it.
func (o *outputRecord) take(r audit.Record) error {
	var rec syncRecord
	if err := json.Unmarshal(r.Data, &rec); err != nil {
		return err
	}
	if r.Kind == audit.KindOutputIntent {
		o.begun = &rec
		return nil
	}
	o.begun = nil
	o.apply(rec)
	return nil
}

// apply takes what a pass has changed.
func (o *outputRecord) apply(rec syncRecord) {
	if len(rec.Written)+len(rec.Removed) > 0 {
		o.passes++
	}
	if o.ours == nil {
		o.ours = map[string]syncedFile{}
	}
	for _, f := range rec.Written {
		o.ours[f.Path] = f
	}
	for _, rel := range rec.Removed {
		delete(o.ours, rel)
	}
}

// reopenOutput goes on with Options.Output: what is on record is held against
// what is there. The directory is no reason not to go on with the run.
func (r *runner) reopenOutput(ctx context.Context, rec *record) {
	if r.o.Output == "" {
		return
	}
	m, err := r.newMirror(ctx)
	if err == nil {
		if err = m.reconcile(rec.output); err != nil {
			err = errors.Join(err, m.close())
		}
	}
	if err != nil {
		r.warn("%s is as the process that was ended left it, and is not kept up to date: %v", r.o.Output, err)
		return
	}
	r.mirror = m
}

// reconcile finds out which files of the directory are the run's. A pass that
// was ended in its middle has written those that now are what it was to write.
// What is not there any more is no longer the run's, and written again; what
// somebody has changed stays as it is. Both are said.
func (m *mirror) reconcile(o outputRecord) error {
	m.behind = true
	if err := m.root.RemoveAll(m.staging); err != nil {
		m.r.warn("what was on its way to %s could not be removed: %v", m.info.Dir, err)
	}
	var err error
	if o.begun != nil {
		done := m.cameTo(*o.begun)
		o.apply(done)
		err = m.r.record(audit.KindOutput, "", done)
	}
	m.info.Passes = o.passes
	var missing, changed []string
	for rel, f := range o.ours {
		switch there, exists, err := m.hash(rel); {
		case err == nil && !exists:
			missing = append(missing, rel)
			continue
		case there != f.SHA256:
			changed = append(changed, rel)
		}
		m.ours[rel] = f
		m.info.Files++
		m.info.Bytes += f.Bytes
	}
	slices.Sort(missing)
	slices.Sort(changed)
	if len(missing) > 0 {
		m.r.warn("%d files that the run had written to %s are not there any more: %s", len(missing), m.info.Dir, list(missing))
	}
	if len(changed) > 0 {
		m.r.warn("%d files that the run had written to %s have been changed there, and stay as they are: %s", len(changed), m.info.Dir, list(changed))
	}
	return err
}

// cameTo is what became of a pass that was ended in its middle.
func (m *mirror) cameTo(plan syncRecord) (done syncRecord) {
	for _, f := range plan.Written {
		if there, exists, err := m.hash(f.Path); err == nil && exists && there == f.SHA256 {
			done.Written = append(done.Written, f)
		}
	}
	for _, rel := range plan.Removed {
		if _, exists, err := m.hash(rel); err == nil && !exists {
			done.Removed = append(done.Removed, rel)
		}
	}
	return done
}

// catchUp finds out, once after a resumption, which files of the sandbox need
// not be brought out: those that are as they were before the work, and those
// that have been brought out already.
func (m *mirror) catchUp(ctx context.Context) error {
	if !m.behind {
		return nil
	}
	seen := map[string]execd.FileInfo{}
	err := levels(ctx, m.r.box, m.r.box.Info().Cwd, func(rel string, info execd.FileInfo) (bool, error) {
		ignored, secret := m.r.leftOut(rel, info)
		if ignored || secret || misnamed(rel) {
			return false, nil
		}
		if info.Type != "file" {
			return true, nil
		}
		if f, mine := m.ours[rel]; mine && f.SHA256 == info.SHA256 || !mine && m.unchanged(ctx, info) {
			seen[rel] = info
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	m.seen, m.behind = seen, false
	return nil
}
