package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/run/patch"
	"github.com/rein-sh/rein/run/workspace"
	"github.com/rein-sh/rein/sandbox"
)

// LabelRole is the label that names what a sandbox of a run is for, where that is
// not its work.
const LabelRole = "rein.role"

const roleChecks = "acceptance"

// freshBox makes a sandbox as the run's own was made, with the inputs and a
// patch of them in it and protected files as they were, and says when it ends.
// What the patch leaves out, as build products, is not there.
func (r *runner) freshBox(ctx context.Context, patchName string, need time.Duration) (_ *sandbox.Sandbox, end time.Time, err error) {
	changed, err := r.changed(patchName)
	if err != nil {
		return nil, end, err
	}
	spec := r.spec()
	r.mu.Lock()
	changes := len(r.report.NetworkChanges)
	r.mu.Unlock()
	spec.Network, spec.Models = r.networkNow(), nil // checks ask no models
	spec.TTL = need + SaveTimeout
	spec.Labels = map[string]string{LabelRun: r.o.ID, LabelRole: roleChecks}
	r.emit(Event{Kind: EventCheck, Text: "making a new sandbox for the checks"})
	box, err := sandbox.Create(ctx, r.o.Provider, spec, sandbox.Options{Log: r.log, Masker: r.o.Masker, RunID: r.o.ID, TraceID: r.o.TraceID, Ask: r.askHost})
	if err != nil {
		return nil, end, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.dismiss(ctx, box))
		}
	}()
	if err := r.judges(ctx, box, changes); err != nil {
		return nil, end, err
	}
	filling, cancel := context.WithTimeout(ctx, SaveTimeout) // which its time to live has for it
	defer cancel()
	kept := slices.DeleteFunc(slices.Clone(r.inputs.Entries), func(e *workspace.Entry) bool { _, ok := changed[e.Path]; return ok })
	if err := r.place(filling, box, kept); err != nil {
		return nil, end, err
	}
	if err := overlay(filling, box, changed); err != nil {
		return nil, end, err
	}
	return box, box.Info().ExpiresAt, nil
}

// dismiss destroys the checks' sandbox.
func (r *runner) dismiss(ctx context.Context, box *sandbox.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.KillTimeout)
	defer cancel()
	if err := errors.Join(r.judges(ctx, nil, 0), box.Kill(ctx), box.Close()); err != nil {
		return fmt.Errorf("the checks' sandbox may still be there (rein sandbox kill %s): %w", box.ID(), err)
	}
	return nil
}

// changed is what the patch makes of the inputs' files, by path; a file that is
// no more has the mode Absent. Protected files are left as they were.
func (r *runner) changed(name string) (map[string]patch.Side, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	old := map[string]*workspace.Entry{}
	for _, e := range r.inputs.Entries {
		old[e.Path] = e
	}
	restored := map[string]bool{}
	for _, s := range r.breached {
		restored[s.path] = true
	}
	out := map[string]patch.Side{}
	for p := patch.NewReader(f); ; {
		d, err := p.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if restored[d.Path] {
			continue
		}
		before, err := r.side(old[d.Path])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.Path, err)
		}
		if out[d.Path], err = d.Result(before); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Path, err)
		}
	}
}

// side is an input as a patch sees it.
func (r *runner) side(e *workspace.Entry) (patch.Side, error) {
	switch {
	case e == nil || e.Type == workspace.Dir:
		return patch.Side{}, nil
	case e.Type == workspace.Link:
		return patch.Side{Mode: patch.Link, Data: []byte(e.Target)}, nil
	}
	data, err := r.inputs.Content(e)
	return patch.Side{Mode: mode(e), Data: data}, err
}

// overlay puts changed files into a sandbox.
func overlay(ctx context.Context, box *sandbox.Sandbox, changed map[string]patch.Side) error {
	cwd := box.Info().Cwd
	var files []sandbox.Source
	var links, dirs []string
	for name, s := range changed {
		if s.Mode == patch.Absent {
			continue
		}
		if dir := path.Dir(name); dir != "." {
			dirs = append(dirs, dir)
		}
		if s.Mode == patch.Link {
			links = append(links, fmt.Sprintf("ln -s -- %s %s", quote(string(s.Data)), quote(name)))
			continue
		}
		files = append(files, sandbox.Source{Path: path.Join(cwd, name), Mode: fs.FileMode(s.Mode & 0o777),
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(s.Data)), nil }})
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if err := box.Mkdir(ctx, path.Join(cwd, dir), 0o755, access(cwd)); err != nil {
			return err
		}
	}
	slices.SortFunc(files, func(a, b sandbox.Source) int { return strings.Compare(a.Path, b.Path) })
	for batch := range slices.Chunk(files, batchFiles) {
		if err := box.UploadAll(ctx, cwd, batch, access(cwd)); err != nil {
			return err
		}
	}
	slices.Sort(links)
	return link(ctx, box, links)
}
