package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/internal/trajectory"
)

// What is promised: the tokens, in percent of those with whole results; the
// share of one result in a request; and the length and number of trajectories.
const (
	maxTokens  = 50
	maxLargest = history.DefaultShare
	minCalls   = 30
	minPlayed  = 10
)

type table struct {
	strategy history.Strategy
	played   int
	whole    int64
	sent     int64
}

func newTable(s history.Strategy) *table {
	fmt.Printf("strategy %s\n\n%-14s %5s %10s %10s %6s %8s %5s %7s %7s\n", s, "trajectory", "calls", "whole", "tokens", "%", "re-read", "used", "missing", "largest")
	return &table{strategy: s}
}

// play plays one trajectory with whole results and with the strategy.
func (t *table) play(ctx context.Context, env trajectory.Env, c config, tr trajectory.Trajectory) error {
	dir, err := os.MkdirTemp(env.StateDir, "project.")
	if err != nil {
		return err
	}
	if err := tr.Project(dir, filepath.Join(c.scripts, "projects")); err != nil {
		return fmt.Errorf("%s: %w", tr.Name, err)
	}
	base, err := trajectory.Play(ctx, env, tr.Script, dir, trajectory.Whole)
	if err != nil {
		return fmt.Errorf("%s, with whole results: %w", tr.Name, err)
	}
	m, err := trajectory.Play(ctx, env, tr.Script, dir, t.strategy)
	if err != nil {
		return fmt.Errorf("%s, with strategy %s: %w", tr.Name, t.strategy, err)
	}
	if c.verbose {
		fmt.Println(strings.Join(m.Notes, "\n"))
	}
	t.played++
	t.whole += base.Tokens()
	t.sent += m.Tokens()
	percent := 100 * float64(m.Tokens()) / float64(base.Tokens())
	fmt.Printf("%-14s %5d %10d %10d %5.1f%% %8d %5d %7d %6.1f%%\n", tr.Name, m.Calls, base.Tokens(), m.Tokens(), percent, m.Reread, m.Used, len(m.Missing), m.Largest)
	var missed []string
	if m.Calls < minCalls || m.Calls != base.Calls {
		missed = append(missed, fmt.Sprintf("%d calls, and %d with whole results", m.Calls, base.Calls))
	}
	if m.Largest > maxLargest {
		missed = append(missed, fmt.Sprintf("one result held %.1f%% of a request", m.Largest))
	}
	missed = append(missed, m.Missing...)
	if len(missed) > 0 {
		return fmt.Errorf("%s: %s", tr.Name, strings.Join(missed, "; "))
	}
	return nil
}

// end prints the sum of all, and says whether it is as promised. What is
// promised is of all trajectories: of some that were chosen, their sum is only
// shown.
func (t *table) end(chosen bool) error {
	if t.played == 0 || t.whole == 0 {
		return fmt.Errorf("strategy %s: no trajectory was played", t.strategy)
	}
	percent := 100 * float64(t.sent) / float64(t.whole)
	fmt.Printf("%-14s %5s %10d %10d %5.1f%%\n\n", "all", "", t.whole, t.sent, percent)
	switch {
	case chosen:
		fmt.Printf("not judged: %d of the trajectories\n\n", t.played)
		return nil
	case t.played < minPlayed:
		return fmt.Errorf("strategy %s: %d trajectories were played, and %d or more are promised", t.strategy, t.played, minPlayed)
	}
	if percent > maxTokens {
		return fmt.Errorf("strategy %s: %.1f%% of the tokens with whole results, more than %d%%", t.strategy, percent, maxTokens)
	}
	return nil
}
