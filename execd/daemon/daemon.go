// Package daemon is what runs inside a sandbox: OpenSandbox's execd API over
// HTTP, with rein's optional additions (see package execd for the wire).
//
// It imports nothing of rein but package execd, so that the binary stays small
// and starts within milliseconds. Commands come from a Machine; files are
// those beneath Config.Root.
//
// Where OpenSandbox's daemon is known to be wrong this one differs: a stream
// closes at once after its terminal event, every error is JSON with code and
// message, what is missing is 404 and what is in the way is 409.
package daemon

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rein-sh/rein/execd"
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
	// spills ("out") and results. Default: the parent of execd.SpillDir. It is
	// created when missing, and must not be writable by user code.
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
	// StallLimit is how long a client may take no output before it is dropped
	// and the command goes on without it. Default: 10 s.
	StallLimit time.Duration
	// Version is reported by /rein/features.
	Version string
}

// User is a numeric user and group.
type User struct{ UID, GID uint32 }

// Server answers execd's API. It is safe for concurrent use.
type Server struct {
	cfg      Config
	token    [sha256.Size]byte
	env      map[string]string
	files    place
	commands *registry
	sessions sessions
	ptys     ptys

	spillLeft atomic.Int64
	meter     meter

	mu      sync.Mutex
	closed  bool
	closing chan struct{} // closed with closed
	running sync.WaitGroup

	pausing  sync.Mutex // one transition at a time
	paused   atomic.Bool
	changing sync.RWMutex // read-locked while a request changes files, locked while paused
}

// New checks cfg, creates the state directory and returns a server.
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.Token == "":
		return nil, errors.New("execd: a token is required")
	case cfg.Machine == nil:
		return nil, errors.New("execd: a machine is required")
	}
	for _, d := range []struct {
		value *string
		dflt  string
	}{{&cfg.Root, "/"}, {&cfg.StateDir, path.Dir(execd.SpillDir)}, {&cfg.Home, "/"}, {&cfg.Cwd, "/"}} {
		if *d.value == "" {
			*d.value = d.dflt
		}
		if !filepath.IsAbs(*d.value) {
			return nil, fmt.Errorf("execd: %q is not an absolute path", *d.value)
		}
	}
	if cfg.SpillBudget == 0 {
		cfg.SpillBudget = execd.DefaultSpillBudget
	}
	if cfg.StallLimit <= 0 {
		cfg.StallLimit = defaultStall
	}
	s := &Server{cfg: cfg, token: sha256.Sum256([]byte(cfg.Token)), closing: make(chan struct{})}
	s.spillLeft.Store(cfg.SpillBudget)
	if err := s.setEnvironment(); err != nil {
		return nil, err
	}
	if err := s.makeState(); err != nil {
		return nil, err
	}
	files, err := openPlace(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("execd: %w", err)
	}
	s.files = files
	s.commands = newRegistry(s.osPath(path.Join(cfg.StateDir, "results")))
	return s, nil
}

func (s *Server) setEnvironment() error {
	s.env = map[string]string{"HOME": s.cfg.Home, "USER": s.cfg.Machine.Traits().User}
	for _, m := range []map[string]string{cleanEnv, s.cfg.Env} {
		for k, v := range m {
			if err := checkVariable(k, v); err != nil {
				return err
			}
			s.env[k] = v
		}
	}
	return nil
}

// makeState creates the state directories: others may pass through and read
// spills, and may not list or write anything.
func (s *Server) makeState() error {
	for _, d := range []struct {
		name string
		mode os.FileMode
	}{{"", 0o711}, {"out", 0o755}, {"results", 0o700}} {
		p := s.osPath(path.Join(s.cfg.StateDir, d.name))
		if err := os.MkdirAll(p, d.mode); err != nil {
			return fmt.Errorf("execd: state: %w", err)
		}
		if err := os.Chmod(p, d.mode); err != nil {
			return fmt.Errorf("execd: state: %w", err)
		}
	}
	return nil
}

// osPath is where a path of the sandbox is for this process.
func (s *Server) osPath(p string) string { return filepath.Join(s.cfg.Root, p) }

// begin counts one more running command, unless the server is closed.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.running.Add(1)
	}
	return !s.closed
}

// Close ends every command, waits for their results and closes the machine.
func (s *Server) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if again {
		return nil
	}
	close(s.closing)
	s.pausing.Lock()
	if s.paused.Swap(false) { // what waits for its end has nothing else to wait for
		s.changing.Unlock()
	}
	s.pausing.Unlock()
	s.commands.endAll(killWait)
	err := s.cfg.Machine.Close()
	s.running.Wait()
	return errors.Join(err, s.files.close())
}
