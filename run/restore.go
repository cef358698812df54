package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run/workspace"
	"github.com/rein-sh/rein/sandbox"
)

// restored is the data of audit.KindRestore.
type restored struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256,omitempty"` // of a file
	Gone   bool   `json:"removed,omitempty"`
	Check  string `json:"check,omitempty"` // that had changed it
}

// restore makes protected files what they were again, from the host's copy, so
// that the checks judge the work and not what was made of the checks. Each was
// noted as a breach before, unless it was a check that changed it.
func (r *runner) restore(ctx context.Context, box *sandbox.Sandbox, breached []pair, check string) error {
	var errs []error
	back := slices.Clone(breached)
	// What was added goes first: it may stand where something has to come back.
	slices.SortStableFunc(back, func(a, b pair) int { return bit(a.before != nil) - bit(b.before != nil) })
	for _, s := range back {
		err := r.restoreOne(ctx, box, s)
		if err == nil {
			rec := restored{Path: s.path, Gone: s.before == nil, Check: check}
			if s.before != nil {
				rec.SHA256 = s.before.SHA256
			}
			err = r.record(audit.KindRestore, "", rec)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is protected, and cannot be made what it was: %w", s.path, err))
		}
		if len(errs) >= maxTold || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// putBack restores what the patch has found changed. What cannot be restored is
// a breach already, so that the checks cannot turn it into success.
func (r *runner) putBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	if err := r.restore(ctx, r.box, r.breached, ""); err != nil {
		r.warn("%v", err)
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (r *runner) restoreOne(ctx context.Context, box *sandbox.Sandbox, s pair) error {
	cwd := box.Info().Cwd
	at := path.Join(cwd, s.path)
	if s.before == nil {
		if misnamed(s.path) {
			return errors.New(noUTF8)
		}
		return box.Remove(ctx, at, access(cwd))
	}
	if err := clearWay(ctx, box, s.path); err != nil {
		return err
	}
	if s.before.Type == workspace.Link {
		return link(ctx, box, []string{fmt.Sprintf("ln -s -- %s %s", quote(s.before.Target), quote(s.path))})
	}
	data, err := r.inputs.Content(s.before)
	if err != nil {
		return err
	}
	_, err = box.Upload(ctx, at, bytes.NewReader(data), sandbox.WriteOptions{Mode: s.before.Perm, Access: access(cwd)})
	return err
}

// clearWay removes what is at name, and what above it is no directory: a link
// would lead what comes back elsewhere.
func clearWay(ctx context.Context, box *sandbox.Sandbox, name string) error {
	cwd := box.Info().Cwd
	parts := strings.Split(name, "/")
	for i := 1; i <= len(parts); i++ {
		at := path.Join(cwd, path.Join(parts[:i]...))
		info, err := box.Stat(ctx, at, access(cwd))
		switch {
		case sandbox.KindOf(err) == sandbox.KindNotFound && i < len(parts):
			return box.Mkdir(ctx, path.Join(cwd, path.Dir(name)), 0o755, access(cwd))
		case sandbox.KindOf(err) == sandbox.KindNotFound:
			return nil
		case err != nil:
			return err
		case i == len(parts) || info.Type != "directory":
			if err := box.Remove(ctx, at, access(cwd)); err != nil {
				return err
			}
		}
	}
	return nil
}
