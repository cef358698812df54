package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// Files of a live sandbox, in StateDir/live/ID. They are written once, before
// what they describe exists; whatever changes is asked of the keeper.
const (
	creatorFile = "creator.json" // processID of who is creating it; removed when it runs
	infoFile    = "sandbox.json" // liveInfo
	keeperFile  = "keeper.json"  // processID of the keeper
	nestFile    = "nest.json"    // processID of the nest
	endedFile   = "ended"        // made empty; the keeper writes into it when it has ended the sandbox
	socketFile  = "keeper.sock"
	logFile     = "keeper.log" // what the runtime and execd said, bounded
)

// liveInfo is what is known of a sandbox from birth.
type liveInfo struct {
	sandbox.Info
	// CgroupPaths are the cgroups to remove when it is gone.
	CgroupPaths []string `json:"cgroup_paths,omitempty"`
	// IDBase is the first host id of the sandbox's user namespace; 0 when it
	// maps only the user's own.
	IDBase int `json:"id_base,omitempty"`
}

// processID names one process for ever: its pid, its start time in clock ticks
// after boot (proc(5), field 22 of stat), and the boot.
type processID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// identify returns the identity of a running process.
func identify(pid int) (processID, error) {
	p, _, err := lookAt(pid)
	return p, err
}

// lookAt returns the identity of a process, and whether its first thread runs:
// a zombie's does not.
func lookAt(pid int) (p processID, runs bool, err error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false, err
	}
	// The command name, in parentheses, may hold anything, also parentheses.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return p, false, fmt.Errorf("/proc/%d/stat: unexpected form", pid)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return p, false, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return p, false, err
	}
	p = processID{PID: pid, Start: start, Boot: string(bytes.TrimSpace(boot))}
	return p, fields[0] != "Z" && fields[0] != "X", nil
}

// alive reports whether this very process still runs.
func (p processID) alive() bool {
	now, runs, err := lookAt(p.PID)
	return err == nil && runs && now == p
}

// readJSON decodes one of the files above.
func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writeJSON replaces path atomically.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// dir is the directory of a live sandbox. The id has been checked.
func (p *Provider) dir(id string) string { return filepath.Join(p.liveDir(), id) }

// checkID refuses what cannot be an id, so that no path is made from it.
func checkID(op, id string) error {
	if !strings.HasPrefix(id, idPrefix) || len(id) > 40 || strings.Trim(id[len(idPrefix):], "0123456789abcdefghijklmnopqrstuvwxyz") != "" {
		return notFound(op, id)
	}
	return nil
}

func notFound(op, id string) error {
	return &sandbox.Error{Kind: sandbox.KindNotFound, Op: op, Subject: id,
		Err: errors.New("no such sandbox"), Hint: "rein sandbox ls"}
}

// liveIDs lists the sandboxes that have a directory.
func (p *Provider) liveIDs() ([]string, error) {
	entries, err := os.ReadDir(p.liveDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &sandbox.Error{Kind: sandbox.KindHost, Op: "list", Subject: p.liveDir(), Err: err}
	}
	var ids []string
	for _, e := range entries {
		if checkID("list", e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// until returns the deadline of a time to live that begins now.
func until(ttl time.Duration) time.Time { return time.Now().Add(ttl).Round(0) }
