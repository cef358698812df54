package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"
)

// PrunePolicy says which runs' records are removed.
type PrunePolicy struct {
	// Age removes what has ended, or has last been written to, so long ago; 0:
	// nothing because of its age.
	Age time.Duration
	// Bytes removes the oldest until all runs together take no more; 0: nothing
	// because of its size.
	Bytes int64
	// All also removes runs that were killed and could be resumed. One that works
	// is never removed.
	All bool
	// DryRun removes nothing, and says what would be.
	DryRun bool
}

// Pruned is a run that was removed, or would be.
type Pruned struct {
	RunID     string    `json:"run_id"`
	EndedAt   time.Time `json:"ended_at"` // or last written to
	Ended     bool      `json:"ended"`    // else it could have been resumed
	Bytes     int64     `json:"bytes"`
	Because   string    `json:"because"` // "age" or "size"
	directory string
}

// prunedPrefix begins the name of a run's directory that is being removed. No
// run is found under it.
const prunedPrefix = ".pruned-"

// Prune removes the records of runs in stateDir, with all that they brought out,
// oldest first, and returns those it has removed, also beside an error. Which
// are there, and whether one works, is asked for each right before it goes.
func Prune(ctx context.Context, stateDir string, p PrunePolicy) ([]Pruned, error) {
	base := filepath.Join(stateDir, "runs")
	items, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var runs []Pruned
	var errs []error
	total := int64(0)
	for _, d := range items {
		dir := filepath.Join(base, d.Name())
		if strings.HasPrefix(d.Name(), prunedPrefix) && !p.DryRun { // left by one that was ended
			errs = append(errs, os.RemoveAll(dir))
			continue
		}
		if _, err := ulid.ParseStrict(d.Name()); err != nil || !d.IsDir() {
			continue
		}
		r, err := prunable(dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		total += r.Bytes
		runs = append(runs, r)
	}
	slices.SortStableFunc(runs, func(a, b Pruned) int { return a.EndedAt.Compare(b.EndedAt) })
	var gone []Pruned
	for _, r := range runs {
		if r.Because = p.because(r, total); r.Because == "" || ctx.Err() != nil {
			continue
		}
		removed, err := p.remove(r)
		if errs = append(errs, err); removed {
			gone = append(gone, r)
			total -= r.Bytes
		}
	}
	return gone, errors.Join(append(errs, ctx.Err())...)
}

// because says why a run is to be removed, if it is.
func (p PrunePolicy) because(r Pruned, total int64) string {
	switch {
	case !r.Ended && !p.All:
	case p.Age > 0 && time.Since(r.EndedAt) >= p.Age:
		return "age"
	case p.Bytes > 0 && total > p.Bytes:
		return "size"
	}
	return ""
}

// prunable looks at the run in dir.
func prunable(dir string) (Pruned, error) {
	r := Pruned{RunID: filepath.Base(dir), directory: dir}
	last := time.Time{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it works, and has removed it
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.IsDir() {
			return nil
		}
		r.Bytes += info.Size()
		if filepath.Dir(name) != dir {
			return nil
		}
		if info.ModTime().After(last) {
			last = info.ModTime()
		}
		if d.Name() == reportFile {
			r.Ended = true
		}
		return nil
	})
	if r.EndedAt = last; last.IsZero() { // it has just begun
		r.EndedAt = time.Now()
	}
	if rep, err := ReadReport(dir); r.Ended && err == nil && !rep.EndedAt.IsZero() {
		r.EndedAt = rep.EndedAt
	}
	return r, err
}

// remove removes a run, unless it works. Nobody can begin to work on it
// meanwhile: the lock of its audit log is held until it has another name.
func (p PrunePolicy) remove(r Pruned) (bool, error) {
	log, err := os.OpenFile(filepath.Join(r.directory, AuditFile), os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if log == nil && time.Since(r.EndedAt) < time.Minute { // it may be about to begin
		return false, nil
	}
	if log != nil {
		defer log.Close()
		switch err := syscall.Flock(int(log.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("run %s: whether it works cannot be found out: %w", r.RunID, err)
		}
	}
	if p.DryRun {
		return true, nil
	}
	away := filepath.Join(filepath.Dir(r.directory), prunedPrefix+r.RunID)
	if err := os.Rename(r.directory, away); err != nil {
		return false, err
	}
	return true, os.RemoveAll(away)
}
