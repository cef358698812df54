package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// SweepReport says what a sweep did.
type SweepReport struct {
	Removed []string `json:"removed"` // ids
	Kept    []string `json:"kept"`    // live sandboxes that were left alone
}

// Sweep removes what is left of orphans: sandboxes whose keeper is gone, be it
// that their deadline passed or that it was killed. With all, live ones are
// ended too. Sandboxes of other state directories are never touched. It goes
// on past failures and returns them together.
func (p *Provider) Sweep(ctx context.Context, all bool) (SweepReport, error) {
	ids, err := p.liveIDs()
	if err != nil {
		return SweepReport{}, err
	}
	var report SweepReport
	var errs []error
	for _, id := range ids {
		if p.creating(id) || (!all && p.kept(id)) {
			report.Kept = append(report.Kept, id)
			continue
		}
		if err := p.remove(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		report.Removed = append(report.Removed, id)
	}
	return report, errors.Join(append(errs, p.sweepUnborn(), p.sweepIDs())...)
}

// kept reports whether the sandbox still has its keeper.
func (p *Provider) kept(id string) bool {
	var keeper processID
	return readJSON(filepath.Join(p.dir(id), keeperFile), &keeper) == nil && keeper.alive()
}

// unbornName is the pattern of a directory that self makes for a sandbox: it says
// whose it is before anything is in it.
func unbornName(self processID) string { return fmt.Sprintf("new-%d.%d-*", self.PID, self.Start) }

// abandoned reports whether who made a directory, as its name says, has ended.
func abandoned(dir string) bool {
	var by processID
	if n, _ := fmt.Sscanf(filepath.Base(dir), "new-%d.%d-", &by.PID, &by.Start); n != 2 {
		return false
	}
	now, runs, err := lookAt(by.PID)
	return err != nil || !runs || now.Start != by.Start
}

// sweepUnborn removes directories whose creator ended before they had a name.
func (p *Provider) sweepUnborn() error {
	unborn, err := filepath.Glob(filepath.Join(p.liveDir(), "new-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range unborn {
		var creator processID
		err := readJSON(filepath.Join(dir, creatorFile), &creator)
		if errors.Is(err, fs.ErrNotExist) && justMade(dir) && !abandoned(dir) || err == nil && creator.alive() {
			continue // not written yet, or being written
		}
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// makingTime is more than enough between making something and saying in it
// whose it is.
const makingTime = time.Minute

// justMade reports whether path may be about to be filled in.
func justMade(path string) bool {
	st, err := os.Stat(path)
	return err == nil && time.Since(st.ModTime()) < makingTime
}

// sweepIDs releases id ranges whose sandbox has no directory any more.
func (p *Provider) sweepIDs() error {
	entries, err := os.ReadDir(p.idsDir())
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	var errs []error
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		path := filepath.Join(p.idsDir(), e.Name())
		id, err := os.Readlink(path)
		if err != nil {
			continue // already gone, or no claim
		}
		if _, err := os.Stat(p.dir(id)); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}
