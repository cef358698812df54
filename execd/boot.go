package execd

// Boot is what the host tells execd at birth: one JSON object on its standard
// input, which the daemon reads to the end and then replaces by /dev/null.
// The token is in no environment, argument or file.
type Boot struct {
	Token string `json:"token"`
	// Listen is the TCP address to serve, such as "10.88.0.2:44772".
	Listen string `json:"listen"`
	// AllowFrom is the only peer address that is answered; empty allows all.
	AllowFrom string `json:"allow_from,omitempty"`
	// UID and GID run user commands; SameUser keeps execd's own (the runtime
	// maps a single id) and confines commands in a nested pid namespace.
	UID      uint32 `json:"uid"`
	GID      uint32 `json:"gid"`
	SameUser bool   `json:"same_user,omitempty"`
	// Guest says that execd is one process among others in a sandbox that
	// somebody else made, without privileges to confine commands with: they run
	// as its own user, in its own namespaces. It excludes SameUser and UID.
	Guest bool `json:"guest,omitempty"`
	// Home, Cwd and Env are what user commands start with.
	Home string            `json:"home"`
	Cwd  string            `json:"cwd"`
	Env  map[string]string `json:"env,omitempty"`
	// Owned directories are created and given to the user before readiness.
	Owned []string `json:"owned,omitempty"`
	// SpillBudget bounds all spills together, in bytes (0: DefaultSpillBudget).
	SpillBudget int64 `json:"spill_budget,omitempty"`
	// MemoryLimit and CPULimit are reported by /metrics (0: not limited).
	MemoryLimit int64   `json:"memory_limit,omitempty"`
	CPULimit    float64 `json:"cpu_limit,omitempty"`
	// MaxProcesses bounds the user's processes (0: not limited by execd).
	MaxProcesses int `json:"max_processes,omitempty"`
	// Cgroup is the sandbox's own cgroup v2 directory, in which execd makes a
	// child that holds user commands to MaxProcesses; empty: RLIMIT_NPROC does.
	Cgroup string `json:"cgroup,omitempty"`
	// OOMEventsFD is an inherited descriptor of the sandbox's memory event
	// counter (memory.events, or memory.oom_control on cgroup v1); 0: none.
	OOMEventsFD int `json:"oom_events_fd,omitempty"`
}

// ReadyLine is what execd prints on standard output, followed by a newline,
// once it listens.
const ReadyLine = "rein-execd ready"
