package sandbox

import (
	"context"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/secret"
)

// Sandbox is one isolated machine, and the only way to do anything to it.
// Create and Attach are its only constructors and both take the audit log, so
// that nothing is done to a sandbox unrecorded: the intent is written before
// the effect and the outcome after it. When the intent cannot be written the
// effect does not happen.
//
// All methods may be called concurrently. Errors are *Error. A program's own
// failure is a value in Result, never an error.
//
// Every operation has an end: a context without a deadline gets one of
// DefaultOpTimeout, except Run, Wait, Upload and Download, which end with their
// command or transfer.
type Sandbox struct {
	info Info
}

// Options say on whose behalf a sandbox is used and where that is recorded.
type Options struct {
	// Log is required: a nil Log is an error.
	Log *audit.Log
	// Masker masks captured output in results and parameters in the record.
	// Nil masks nothing.
	Masker *secret.Masker
	// RunID and TraceID go into every record; empty outside a run.
	RunID, TraceID string
	// Now is the clock of durations and call ids; nil is time.Now.
	Now func() time.Time
}

// Bounds of the operations that must happen although the caller has gone, and
// of single short requests.
const (
	DefaultOpTimeout = 30 * time.Second // one short request of a context without deadline
	InterruptTimeout = 10 * time.Second // an interrupt after cancellation, and the wait for its outcome
	KillTimeout      = 60 * time.Second // Kill and its verification
	VerifyTimeout    = 10 * time.Second // asking what became of a call whose stream was lost
)

// Create makes a sandbox and returns when its execd answers. What Spec asks and
// the provider cannot honour is refused (KindUnsupported); nothing is left
// behind by a Create that fails. The caller owns the sandbox and must Kill it;
// if it does not, the sandbox ends at its TTL.
func Create(ctx context.Context, p Provider, spec Spec, o Options) (*Sandbox, error) {
	panic("sandbox: not written")
}

// Attach returns a Sandbox for one that exists already. It never changes it,
// least of all its end. KindNotFound when there is none, KindLost when it ended
// by itself.
func Attach(ctx context.Context, p Provider, id string, o Options) (*Sandbox, error) {
	panic("sandbox: not written")
}

// ID is the provider's id of the sandbox.
func (s *Sandbox) ID() string { panic("sandbox: not written") }

// Info is what is known of the sandbox without asking: as of Create or Attach,
// the last Refresh, and with the end of the last Renew.
func (s *Sandbox) Info() Info { panic("sandbox: not written") }

// Refresh asks the provider for the sandbox's state now.
func (s *Sandbox) Refresh(ctx context.Context) (Info, error) { panic("sandbox: not written") }

// Features says which of rein's additions this sandbox's execd honours.
func (s *Sandbox) Features() execd.Features { panic("sandbox: not written") }

// Renew moves the end of the sandbox to until, earlier or later, and returns
// the end now in force. KindNotFound when it has ended already.
func (s *Sandbox) Renew(ctx context.Context, until time.Time) (time.Time, error) {
	panic("sandbox: not written")
}

// Pause stops everything in the sandbox without ending it; KindUnsupported
// when the provider has no CapPause.
func (s *Sandbox) Pause(ctx context.Context) error { panic("sandbox: not written") }

// Resume undoes Pause.
func (s *Sandbox) Resume(ctx context.Context) error { panic("sandbox: not written") }

// Metrics is the sandbox's own use of its resources. It is not recorded.
func (s *Sandbox) Metrics(ctx context.Context) (execd.Metrics, error) { panic("sandbox: not written") }

// Kill ends the sandbox and returns when the provider has confirmed that it is
// gone. It is idempotent, and shielded: it goes on for KillTimeout when ctx has
// ended. Commands still running end with KindLost.
func (s *Sandbox) Kill(ctx context.Context) error { panic("sandbox: not written") }

// Close releases the connections. The sandbox lives on until Kill or its TTL.
func (s *Sandbox) Close() error { panic("sandbox: not written") }
