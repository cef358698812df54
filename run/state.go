package run

import (
	"context"
	"errors"
	"io"
	"time"
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

// List returns the runs under stateDir, newest first.
func List(stateDir string) ([]Summary, error) { return nil, errors.ErrUnsupported }

// Find returns the directory of the run whose id is, or uniquely begins with,
// id; "last" is the newest.
func Find(stateDir, id string) (string, error) { return "", errors.ErrUnsupported }

// ReadReport reads the report in a run's directory.
func ReadReport(dir string) (*Report, error) { return nil, errors.ErrUnsupported }

// WriteMarkdown writes the report for people.
func (r *Report) WriteMarkdown(w io.Writer) error { return errors.ErrUnsupported }

// Concern is something in a patch that a person should decide about.
type Concern struct {
	Path string
	Kind string // "hook", "ci", "executable", "dotfile"
	Why  string
}

// Apply applies the patch of the run in dir to the host directory target.
// Everything is checked before anything is written: paths that lead outside,
// also through symbolic links, and contents that do not match are refused and
// change nothing. For each file that could run by itself later confirm is
// asked; false stops without a change. A nil confirm refuses.
func Apply(ctx context.Context, dir, target string, confirm func(Concern) (bool, error)) ([]Change, error) {
	return nil, errors.ErrUnsupported
}
