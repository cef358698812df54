// Package daemon is what runs inside a sandbox: OpenSandbox's execd API over
// HTTP, with rein's optional additions (see package execd for the wire).
//
// It imports nothing of rein but package execd, so that the binary stays small
// and starts within milliseconds. Commands come from a Machine; files are
// those beneath Config.Root.
package daemon

import (
	"errors"
	"net/http"
)

// Config is what a Server needs. Machine and Token are required.
type Config struct {
	// Token must accompany every request in execd.TokenHeader.
	Token string
	// Machine runs the commands. The server closes it in Close.
	Machine Machine
	// Root is the directory that is "/" for file operations: "/" in a real
	// sandbox (the default), a temporary directory elsewhere. When it is not
	// "/", nothing outside it can be reached.
	Root string
	// StateDir is an absolute path of the sandbox where the daemon keeps
	// spills ("out") and results. Default: the parent of execd.SpillDir.
	StateDir string
	// Home and Cwd are where commands and relative paths start. Defaults: "/".
	Home, Cwd string
	// Env is added to the clean environment of every command.
	Env map[string]string
	// User owns the files the daemon creates for a client, when the daemon may
	// give files away; nil leaves them the daemon's own.
	User *User
	// SpillBudget bounds all spills together, in bytes (0:
	// execd.DefaultSpillBudget).
	SpillBudget int64
	// MemoryLimit (bytes) and CPULimit (cores) are reported by /metrics; 0
	// means not limited.
	MemoryLimit int64
	CPULimit    float64
	// Version is reported by /rein/features.
	Version string
}

// User is a numeric user and group.
type User struct{ UID, GID uint32 }

// Server answers execd's API. It is safe for concurrent use.
type Server struct {
	cfg Config
	mux *http.ServeMux
}

// New checks cfg and returns a server.
func New(cfg Config) (*Server, error) {
	if cfg.Token == "" {
		return nil, errors.New("execd: a token is required")
	}
	if cfg.Machine == nil {
		return nil, errors.New("execd: a machine is required")
	}
	return &Server{cfg: cfg, mux: http.NewServeMux()}, nil
}

// Handler returns the HTTP handler.
func (s *Server) Handler() http.Handler { return s.mux }

// Close ends every command and releases the machine.
func (s *Server) Close() error { return s.cfg.Machine.Close() }
