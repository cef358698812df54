package run

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run/patch"
)

// Summary is one line of the list of runs.
type Summary struct {
	RunID     string    `json:"run_id"`
	StartedAt time.Time `json:"started_at"`
	Task      string    `json:"task,omitempty"`
	Reason    Reason    `json:"reason,omitempty"` // empty: unfinished, or its report is unreadable
	Accepted  string    `json:"accepted,omitempty"`
	Dir       string    `json:"dir"`
}

// List returns the runs under stateDir, newest first. There are none where
// there is no such directory.
func List(stateDir string) ([]Summary, error) {
	items, err := os.ReadDir(filepath.Join(stateDir, "runs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Summary
	for _, d := range slices.Backward(items) { // by name, which begins with the time
		id, err := ulid.ParseStrict(d.Name())
		if err != nil || !d.IsDir() {
			continue
		}
		s := Summary{RunID: d.Name(), StartedAt: ulid.Time(id.Time()), Dir: filepath.Join(stateDir, "runs", d.Name())}
		if rep, err := ReadReport(s.Dir); err == nil {
			s.StartedAt, s.Task, s.Reason, s.Accepted = rep.StartedAt, rep.Task, rep.Reason, rep.Accepted
		} else {
			s.Task = begunTask(s.Dir)
		}
		out = append(out, s)
	}
	return out, nil
}

// begunTask is the task of a run as its first record has it; empty when there
// is none.
func begunTask(dir string) string {
	f, err := os.Open(filepath.Join(dir, AuditFile))
	if err != nil {
		return ""
	}
	defer f.Close()
	for rec, err := range audit.Records(f) {
		var start struct{ Task string }
		if err != nil || json.Unmarshal(rec.Data, &start) != nil {
			return ""
		}
		return start.Task
	}
	return ""
}

// ErrNoRuns is what Find returns for the newest run where there is none.
var ErrNoRuns = errors.New("there are no runs yet")

// Find returns the directory of the run whose id is, or uniquely begins with,
// id; "last" is the newest.
func Find(stateDir, id string) (string, error) {
	runs, err := List(stateDir)
	if err != nil {
		return "", err
	}
	if len(runs) == 0 {
		return "", ErrNoRuns
	}
	if id == "last" {
		return runs[0].Dir, nil
	}
	var found []Summary
	for _, s := range runs {
		if id != "" && strings.HasPrefix(s.RunID, strings.ToUpper(id)) {
			found = append(found, s)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("there is no run %q", id)
	case 1:
		return found[0].Dir, nil
	}
	return "", fmt.Errorf("%d runs begin with %q", len(found), id)
}

// maxReport bounds a report that is read.
const maxReport = 64 << 20

// ReadReport reads the report in a run's directory.
func ReadReport(dir string) (*Report, error) {
	f, err := os.Open(filepath.Join(dir, reportFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxReport))
	if err != nil {
		return nil, err
	}
	rep := &Report{}
	if err := json.Unmarshal(data, rep); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	if rep.Version != ReportVersion {
		return nil, fmt.Errorf("%s: version %q is not %s", f.Name(), rep.Version, ReportVersion)
	}
	return rep, nil
}

// Concern is something in a patch that a person should decide about.
type Concern = patch.Concern

// ErrApplied says that the directory is what the patch would make of it.
var ErrApplied = errors.New("the patch is applied already: every file is what it makes of it; nothing was changed")

// Apply applies the patch of the run in dir to the host directory target.
// Everything is checked before anything is written: the patch is the one the
// report names, paths that lead outside, also through symbolic links, and
// contents that do not match are refused and change nothing. For each file
// that was to be left unchanged (Options.Protect), then for each that could run
// by itself later, confirm is asked; false stops without a change. A nil
// confirm refuses. The error is ErrApplied when it has been applied.
func Apply(ctx context.Context, dir, target string, confirm func(Concern) (bool, error)) ([]Change, error) {
	rep, err := ReadReport(dir)
	if err != nil {
		return nil, err
	}
	if rep.Patch == nil {
		return nil, errors.New("the run brought out no patch")
	}
	f, err := os.Open(filepath.Join(dir, patchFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != rep.Patch.SHA256 {
		return nil, fmt.Errorf("%s is not the patch of the report: its SHA-256 is %s, not %s", f.Name(), got, rep.Patch.SHA256)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	var breaches []Concern
	for _, p := range rep.Protected {
		if !p.Unchanged {
			breaches = append(breaches, Concern{Path: p.Path, Kind: "protected", Why: "the run was to leave it unchanged"})
		}
	}
	done, err := patch.Apply(ctx, target, f, confirm, breaches...)
	if errors.Is(err, patch.ErrMismatch) {
		if _, again := f.Seek(0, io.SeekStart); again != nil {
			return nil, errors.Join(err, again)
		}
		if was, again := patch.Applied(ctx, target, f); again != nil || was {
			return nil, cmp.Or(again, ErrApplied)
		}
	}
	var out []Change
	for _, c := range done {
		out = append(out, Change{Path: c.Path, Kind: string(c.Kind)})
	}
	return out, err
}

// write writes the report and provenance.json, masked, and returns the report
// as it was written.
func (r *runner) write() (*Report, error) {
	rep, err := masked(r.report, r.o.Masker)
	if err != nil {
		return r.report, err
	}
	data, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return rep, err
	}
	prov, err := json.MarshalIndent(rep.Provenance, "", "  ")
	if err != nil {
		return rep, err
	}
	var md bytes.Buffer
	if err := rep.WriteMarkdown(&md); err != nil {
		return rep, err
	}
	return rep, errors.Join(
		os.WriteFile(filepath.Join(r.dir, provenanceFile), append(prov, '\n'), 0o600),
		os.WriteFile(filepath.Join(r.dir, markdownFile), r.o.Masker.Bytes(md.Bytes()), 0o600),
		// Last, and whole or not at all: a run with a report is finished.
		replace(filepath.Join(r.dir, reportFile), append(data, '\n')),
	)
}

// reportHash is that of the report as it is to be written.
func (r *runner) reportHash() (string, error) {
	rep, err := masked(r.report, r.o.Masker)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(rep)
	if err != nil {
		return "", err
	}
	return reportHash(data)
}

func replace(name string, data []byte) error {
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}
