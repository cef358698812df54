package sandbox

import (
	"fmt"
	"slices"
)

// Capability names something a provider can do. The names are data: they are
// printed by rein probe, required by configuration, and named by every case of
// the conformance suite. A name that is not in Capabilities is an error
// wherever it is read.
type Capability string

// The capabilities. Append only: the names are written in users' files.
const (
	CapExec          Capability = "exec"           // commands, exit codes, streams apart
	CapProcesses     Capability = "processes"      // real Linux process trees, signals, users
	CapFiles         Capability = "files"          // upload, download, list, move, delete
	CapBackground    Capability = "background"     // commands that outlive their request
	CapCallIDs       Capability = "call_ids"       // a repeated call id returns the stored result
	CapCaps          Capability = "caps"           // output bounded at the source, exact counts
	CapSpill         Capability = "spill"          // full output kept inside as a file
	CapPipeStatus    Capability = "pipe_status"    // exit codes of a pipeline's members
	CapOOMFlag       Capability = "oom_flag"       // which command ran out of memory
	CapLabels        Capability = "labels"         // list by label
	CapRenew         Capability = "renew"          // the end can be moved
	CapPause         Capability = "pause"          // pause and resume
	CapMounts        Capability = "mounts"         // host paths inside
	CapNetworkDeny   Capability = "network_deny"   // outbound traffic refused by default
	CapNetworkRecord Capability = "network_record" // every target tried is recorded
	CapSeparation    Capability = "separation"     // user code runs under another uid than execd
	CapKernel        Capability = "kernel"         // user code does not reach the host's kernel directly
	CapLimitCPU      Capability = "limit_cpu"
	CapLimitMemory   Capability = "limit_memory"
	CapLimitPIDs     Capability = "limit_pids"
	CapLimitDisk     Capability = "limit_disk"

	CapConfine          Capability = "confine"            // file operations held beneath a directory, with exact names, lines and conditions
	CapStderrInSessions Capability = "stderr_in_sessions" // the streams of a session's commands stay apart
	CapSessions         Capability = "sessions"           // commands that share a directory and variables
	CapPTY              Capability = "pty"                // programs that are typed to, at a terminal or with pipes
	CapNetworkRefuse    Capability = "network_refuse"     // what is denied is refused at once, not left to time out
	CapExecdGuard       Capability = "execd_guard"        // user code can neither ask an execd for anything nor end it
	CapTreeEnd          Capability = "tree_end"           // all that a command started ends with it, whatever it did to get away
	CapUnprivileged     Capability = "unprivileged"       // commands hold no privileges and inherit nothing of execd's
	CapNetworkAllow     Capability = "network_allow"      // what the policy names is reached, by name, and nothing else
	CapNetworkAsk       Capability = "network_ask"        // a policy may leave targets to the owner; without one nothing leaves
	CapNetworkLive      Capability = "network_live"       // the policy of a live sandbox can be changed
	CapModels           Capability = "models"             // requests to models' hosts are metered, and nothing else passes there
)

// Capabilities lists every capability in the order they are shown.
var Capabilities = []Capability{
	CapExec, CapProcesses, CapFiles, CapBackground, CapCallIDs, CapCaps, CapSpill,
	CapPipeStatus, CapOOMFlag, CapLabels, CapRenew, CapPause, CapMounts,
	CapNetworkDeny, CapNetworkRecord, CapSeparation, CapKernel,
	CapLimitCPU, CapLimitMemory, CapLimitPIDs, CapLimitDisk,
	CapConfine, CapStderrInSessions, CapSessions, CapPTY, CapNetworkRefuse, CapExecdGuard, CapTreeEnd, CapUnprivileged,
	CapNetworkAllow, CapNetworkAsk, CapNetworkLive, CapModels,
}

// CheckCapabilities returns an error for the first unknown name.
func CheckCapabilities(names []Capability) error {
	for _, n := range names {
		if !slices.Contains(Capabilities, n) {
			return &Error{Kind: KindInvalid, Op: "check", Subject: string(n),
				Err:  fmt.Errorf("no capability has this name"),
				Hint: "rein probe lists the names"}
		}
	}
	return nil
}

// Ability is what Probe says of one capability on this host.
type Ability struct {
	Capability Capability `json:"capability"`
	Available  bool       `json:"available"`
	// EnforcedBy names who does it: "gvisor", "kernel", "cgroup v2", "execd",
	// "keeper"; "nobody" for a limit that cannot be enforced here.
	EnforcedBy string `json:"enforced_by,omitempty"`
	// Reason says why it is not available, or what reduces it.
	Reason string `json:"reason,omitempty"`
	// Remedy is a command or setting to paste that would make it available.
	Remedy string `json:"remedy,omitempty"`
}

// Report is what a provider can do on this host.
type Report struct {
	Provider string `json:"provider"`
	Runtime  string `json:"runtime,omitempty"`
	// Usable is false when no sandbox can be created at all; Problems say why.
	Usable    bool      `json:"usable"`
	Problems  []Problem `json:"problems,omitempty"`
	Abilities []Ability `json:"abilities"`
}

// Problem is one thing on the host that is missing or in the way.
type Problem struct {
	What   string `json:"what"`
	Remedy string `json:"remedy,omitempty"`
	Fatal  bool   `json:"fatal"` // no sandbox can be created until it is mended
}

// Has reports whether c is available.
func (r Report) Has(c Capability) bool {
	return slices.ContainsFunc(r.Abilities, func(a Ability) bool { return a.Capability == c && a.Available })
}
