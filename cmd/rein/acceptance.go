package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/run"
)

// acceptance is what a run is judged by: the checks of the target, then of the
// file, then of the flags.
type acceptance struct {
	checks  []run.Check
	protect []string
	fresh   bool
	retry   int
	output  string // absolute directory of this host, or ""
}

// acceptanceFlags are the flags of "rein run" about what comes of the work.
type acceptanceFlags struct {
	commands, protect []string
	file, output      string
	fresh             bool
	retry             int
}

func (a *app) acceptance(t config.Target, f acceptanceFlags) (acceptance, error) {
	if slices.ContainsFunc(f.commands, func(c string) bool { return strings.TrimSpace(c) == "" }) {
		return acceptance{}, usage("--accept COMMAND, or leave it out", "--accept has no command")
	}
	sources := []config.Acceptance{t.Acceptance}
	if f.file != "" {
		data, err := readChecks(f.file)
		if err != nil {
			return acceptance{}, err
		}
		named, err := config.ParseAcceptance(f.file, data)
		if err != nil {
			return acceptance{}, err
		}
		sources = append(sources, named)
	}
	var out acceptance
	if f.output != "" {
		dir, err := filepath.Abs(f.output)
		if err != nil {
			return out, err
		}
		out.output = dir
	}
	for _, s := range sources {
		out.checks = append(out.checks, s.RunChecks()...)
		out.protect = append(out.protect, s.Protected...)
		out.fresh = out.fresh || s.Fresh
		out.retry = max(out.retry, s.Retry)
	}
	out.checks = append(out.checks, checks(f.commands)...)
	out.protect = append(out.protect, f.protect...)
	out.fresh, out.retry = out.fresh || f.fresh, max(out.retry, f.retry)
	if len(out.checks) == 0 && (f.fresh || f.retry > 0) {
		return out, usage("--accept COMMAND or --accept-file FILE", "there are no checks to run anew or again")
	}
	return out, nil
}

// readChecks reads a file of checks, which its user has named.
func readChecks(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold us
	if err != nil {
		return nil, absent(path, err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, usage("name a file of checks", "--accept-file %s is no regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, config.MaxFileSize+1))
	if err != nil {
		return nil, absent(path, err)
	}
	return data, nil
}
