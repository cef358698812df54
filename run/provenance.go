package run

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/rein-sh/rein/run/repository"
)

// standTimeout bounds looking for changed files of the workspace's repository.
const standTimeout = 10 * time.Second

// stand notes at which commit the workspace is, and how much of it has changed
// since.
func (r *runner) stand() {
	h, err := repository.Read(r.o.Workspace.Dir)
	switch {
	case errors.Is(err, repository.ErrNone):
	case err != nil:
		r.warn("at which commit the workspace is could not be read: %v", err)
	default:
		r.report.Provenance.Commit, r.report.Provenance.Ref = h.Commit, h.Ref
		ctx, cancel := context.WithTimeout(context.Background(), standTimeout)
		defer cancel()
		n, err := repository.Changed(ctx, r.o.Workspace.Dir)
		if err != nil {
			r.warn("whether the workspace's files are those of its commit could not be told: %v", err)
			return
		}
		r.report.Provenance.Changed = &n
	}
}

// produced lists the files that came of a run.
func produced(rep *Report) []Produced {
	var out []Produced
	if rep.Patch != nil {
		out = append(out, Produced{Path: patchFile, SHA256: rep.Patch.SHA256})
	}
	for _, a := range rep.Artifacts {
		name, err := filepath.Rel(rep.Dir, a.Path)
		if err != nil {
			name = a.Path
		}
		out = append(out, Produced{Path: name, SHA256: a.SHA256})
	}
	return out
}
