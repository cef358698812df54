package sandbox

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/secret"
)

// Sandbox is one isolated machine, and the only way to do anything to it.
// Create and Attach are its only constructors and both take the audit log, so
// that nothing is done to a sandbox unrecorded: the intent is written before
// the effect and the outcome after it. When the intent cannot be written the
// effect does not happen, but for Kill.
//
// All methods may be called concurrently. Errors are *Error. A program's own
// failure is a value in Result, never an error.
//
// Every operation has an end: a context without a deadline gets one of
// DefaultOpTimeout, except Run, Wait, Upload, UploadAll and Download, which end
// with their command or transfer, and Create, for which its provider has one.
// The single requests that Run, Wait and Create make are bounded all the same.
type Sandbox struct {
	provider Provider
	opt      Options
	client   *execd.Client
	features execd.Features
	met      bool // features are known
	id       string
	owner    io.Closer // of an Attacher; nil otherwise. Closed as often as one likes

	killing sync.Mutex // held by Kill

	mu       sync.Mutex
	info     Info
	ended    *Error          // why nothing can be done any more
	killed   bool            // Kill has verified the end
	lastSeq  uint64          // newest network record seen
	anchored string          // head of the network record in the audit
	settled  map[string]bool // the calls whose outcome is recorded, or will be
	spans    spans           // when calls ran
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
	// Env is what the sandbox was made with (Spec.Env), for Attach: it says what
	// may not be overridden with a quiet environment for commands, where its execd
	// has none of its own. Nil: nobody knows, and nothing is added.
	Env map[string]string
	// Ask answers what the network policy leaves open (Attacher), concurrently.
	// Nil is nobody to ask.
	Ask func(context.Context, Question) policy.Answer
	// Meter keeps the budget of requests to Spec.Models. Nil: none passes.
	Meter inference.Meter
	// Now is the clock of durations; nil is time.Now.
	Now func() time.Time
}

// Bounds of the operations that must happen although the caller has gone, and
// of single short requests.
const (
	DefaultOpTimeout = 30 * time.Second // one short request of a context without deadline
	InterruptTimeout = 10 * time.Second // an interrupt after cancellation, and the wait for its outcome
	KillTimeout      = 60 * time.Second // Kill and its verification
	KillGrace        = 10 * time.Second // what is left to a Kill whose context ends meanwhile
	VerifyTimeout    = 10 * time.Second // asking what became of a call whose stream was lost
)

// Create makes a sandbox and returns when its execd answers. What Spec asks and
// the provider cannot honour is refused (KindUnsupported); nothing is left
// behind by a Create that fails. The caller owns the sandbox and must Kill it;
// if it does not, the sandbox ends at its TTL.
func Create(ctx context.Context, p Provider, spec Spec, o Options) (*Sandbox, error) {
	if o.Env = spec.Env; o.Env == nil {
		o.Env = map[string]string{}
	}
	s, err := newSandbox("create", p, o)
	if err != nil {
		return nil, err
	}
	if err := spec.Check(); err != nil {
		return nil, err
	}
	if err := s.append(audit.KindSandboxIntent, "", createIntent(p, spec)); err != nil {
		return nil, err
	}
	start := s.opt.Now()
	info, err := p.Create(ctx, spec)
	if err == nil {
		s.id, s.info = info.ID, info
		if err = s.connect(ctx, "create"); err != nil {
			err = also(err, s.Kill(ctx))
		}
	}
	if err != nil {
		err = asError("create", info.ID, err)
		return nil, also(err, s.append(audit.KindSandboxFailed, "", LifecycleOutcome{
			DurationMS: s.since(start), Failure: failure(err)}))
	}
	err = s.append(audit.KindSandboxCreated, "", info)
	if err == nil && len(info.Entrypoint) > 0 && !spec.NoEntrypoint {
		err = s.startEntrypoint(ctx, info.Entrypoint)
	}
	if err != nil {
		return nil, also(err, s.Kill(ctx))
	}
	return s, nil
}

// EntrypointID is the call id of what the image starts (Info.Entrypoint): it
// runs in the background, and its output is in its log.
const EntrypointID = "entrypoint"

// entrypointTimeout ends it; longer than any sandbox lives.
const entrypointTimeout = 7 * 24 * time.Hour

func (s *Sandbox) startEntrypoint(ctx context.Context, args []string) error {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	_, err := s.Run(ctx, Command{CallID: EntrypointID, Tool: "image entrypoint", Background: true, Timeout: entrypointTimeout,
		Shell: "exec " + strings.Join(quoted, " ")})
	return err
}

// Attach returns a Sandbox for one that exists already. It never changes it,
// least of all its end. KindNotFound when there is none, KindLost when it ended
// by itself.
func Attach(ctx context.Context, p Provider, id string, o Options) (*Sandbox, error) {
	s, err := newSandbox("attach", p, o)
	if err != nil {
		return nil, err
	}
	s.id = id
	short, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	if s.info, err = p.Get(short, id); err != nil {
		return nil, asError("attach", id, err)
	}
	if s.info.State == StateLost {
		return nil, &Error{Kind: KindLost, Op: "attach", Subject: id, Err: errors.New(s.info.Reason)}
	}
	if err := s.connect(short, "attach"); err != nil {
		return nil, err
	}
	if err := s.append(audit.KindSandboxAttached, "", s.info); err != nil {
		return nil, also(err, s.release())
	}
	return s, nil
}

func newSandbox(op string, p Provider, o Options) (*Sandbox, error) {
	if o.Log == nil {
		return nil, &Error{Kind: KindInvalid, Op: op, Err: errors.New("a sandbox needs an audit log")}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Sandbox{provider: p, opt: o, settled: map[string]bool{}}, nil
}

// connect makes the client and, unless the sandbox is paused, uses it.
func (s *Sandbox) connect(ctx context.Context, op string) error {
	ctx, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	if err := s.own(ctx, op); err != nil {
		return err
	}
	ep, err := s.provider.Endpoint(ctx, s.id, execd.Port)
	if err != nil {
		return also(asError(op, s.id, err), s.release())
	}
	s.client = execd.NewClient(execd.Options{BaseURL: ep.BaseURL, Header: ep.Header, DialContext: ep.DialContext})
	if s.Info().State == StatePaused {
		return nil // nothing inside answers; Resume asks
	}
	if err := s.meet(ctx, op); err != nil {
		return also(err, s.release())
	}
	return nil
}

// meet learns what execd can do and where the network record stands.
func (s *Sandbox) meet(ctx context.Context, op string) (err error) {
	if s.features, err = s.client.Features(ctx); err != nil {
		s.client.Close()
		return s.fault(ctx, op, s.id, err)
	}
	s.met = true
	return s.networkBaseline(ctx)
}

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// KillContext is a context for ending a sandbox: it goes on for KillTimeout where ctx
// has ended already, as after a cancelled run, and for KillGrace once ctx ends
// meanwhile, as when who asked for the end is asked to stop.
func KillContext(ctx context.Context) (context.Context, context.CancelFunc) {
	own, cancel := shielded(ctx, KillTimeout)
	if ctx.Err() != nil {
		return own, cancel
	}
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-own.Done():
		case <-time.After(KillGrace):
			cancel()
		}
	})
	return own, func() { stop(); cancel() }
}

// shielded is a context of its own for what must happen although ctx has
// ended.
func shielded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// ID is the provider's id of the sandbox.
func (s *Sandbox) ID() string { return s.id }

// Info is what is known of the sandbox without asking: as of Create or Attach,
// the last Refresh, and with the end of the last Renew.
func (s *Sandbox) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

// Features says which of rein's additions this sandbox's execd honours.
func (s *Sandbox) Features() execd.Features { return s.features }

// Masker masks the known values; it may be nil, which masks nothing.
func (s *Sandbox) Masker() *secret.Masker { return s.opt.Masker }

// Metrics is the sandbox's own use of its resources. It is not recorded.
func (s *Sandbox) Metrics(ctx context.Context) (execd.Metrics, error) {
	if err := s.reachable(ctx, "metrics"); err != nil {
		return execd.Metrics{}, err
	}
	ctx, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	m, err := s.client.Metrics(ctx)
	return m, s.fault(ctx, "metrics", s.id, err)
}

// Close releases the connections. The sandbox lives on until Kill or its TTL,
// with nothing leaving it unless another owns it (Attacher).
func (s *Sandbox) Close() error { return asError("close", s.id, s.release()) }

func (s *Sandbox) since(start time.Time) int64 { return s.opt.Now().Sub(start).Milliseconds() }

// append writes a record of this sandbox.
func (s *Sandbox) append(kind audit.Kind, callID string, data any) error {
	_, err := s.opt.Log.Append(audit.Entry{Kind: kind, RunID: s.opt.RunID, TraceID: s.opt.TraceID,
		SandboxID: s.id, CallID: callID, Data: data})
	if err != nil {
		return &Error{Kind: KindHost, Op: "record", Subject: string(kind), Err: err,
			Hint: "nothing is done to a sandbox that cannot be recorded"}
	}
	return nil
}
