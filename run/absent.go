package run

import (
	"errors"
	"strings"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// warnAbsent says what this sandbox lacks of what rein's own have, so that the
// report is not read for more than it is.
func (r *runner) warnAbsent(f execd.Features, info sandbox.Info) {
	var lacks []string
	for _, l := range []struct {
		has  bool
		what string
	}{
		{f.CallIDs, "call_ids: what became of a call whose connection broke stays unknown"},
		{f.Capture, "caps: output is not bounded where it is made, and its bytes are not exact"},
		{f.Spill, "spill: output that is cut is kept nowhere"},
		{f.Sessions, "stderr_in_sessions: what a command in a session prints on both streams arrives as one"},
		{f.Clear, "clear: what got away from a command the agent ran may still run while the work is judged"},
		{f.Argv, "argv: checks and narrow tools are started by the sandbox's shell, their words quoted, and programs without a path by its PATH"},
		{f.CallIDs, "confine: no file is brought in or out, and there is no patch"},
	} {
		if !l.has {
			lacks = append(lacks, l.what)
		}
	}
	if len(lacks) > 0 {
		r.warn("the sandbox's execd is not rein's, and lacks %s", strings.Join(lacks, "; "))
	}
	if info.Network == "dns" {
		r.warn("the network policy stops names only: programs can connect to any address")
	}
}

// hasFiles reports whether files can be moved in and out without leaving the
// directory they are of, which only rein's own execd sees to.
func (r *runner) hasFiles() bool { return r.box.Features().CallIDs }

// filesNeeded refuses a run whose files could not be moved, before it costs
// anything.
func (r *runner) filesNeeded() error {
	if r.hasFiles() || r.o.Workspace.Dir == "" && len(r.o.Artifacts) == 0 && len(r.o.Protect) == 0 {
		return nil
	}
	return &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "run", Subject: r.box.ID(),
		Err:  errors.New("only rein's own execd moves files in and out, and it is not in this sandbox"),
		Hint: "rein probe says why; without a workspace, artifacts and protected files the run can go on"}
}
