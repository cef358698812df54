package approval

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rein-sh/rein/secret"
)

// Bounds of asking.
const (
	// DefaultTimeout is how long a person has to answer.
	DefaultTimeout = 10 * time.Minute
	// DefaultGrant is how long an approval for the run holds.
	DefaultGrant = time.Hour
	// MaxPending is how many questions wait at once.
	MaxPending = 3
	// maxAgain is how often one request is asked again because a file it runs was changed
	// meanwhile.
	maxAgain = 2
	// maxText bounds a question's text, in bytes.
	maxText = 16 << 10
)

// Channel is a way to a person. Ask returns their answer; it must return soon
// after ctx ends, which it does when another channel was answered. An error
// means that this way does not work, not that the answer is no; after an
// [UndeliveredError] it is asked again.
type Channel interface {
	Name() string
	Ask(ctx context.Context, q Question) (Decision, error)
}

// Options of a gate. Only Policy is required.
type Options struct {
	Policy *Policy
	// Channels are asked at once; the first answer counts.
	Channels []Channel
	// Resolvable says that somebody may call Resolve, so that a question waits
	// even without a channel.
	Resolvable bool
	Timeout    time.Duration // 0 means DefaultTimeout
	Grant      time.Duration // 0 means DefaultGrant
	RunID      string
	// Files returns the SHA-256 of files inside the sandbox, by path as given;
	// what is not there is left out. Nil: nothing is bound to content.
	Files func(ctx context.Context, cwd string, paths []string) (map[string]string, error)
	// Record is told of every question before it is asked and of every outcome
	// that is not Allowed. Its error means that nothing may be done.
	Record func(Event) error
	// Waiting is called while a person is waited for, until done is called.
	Waiting func(q Question) (done func())
	// Nobody says why nobody can be asked when there is no way to ask; it may be empty.
	Nobody string
	// Warn is told of a channel that does not work. It may be nil.
	Warn   func(format string, args ...any)
	Masker *secret.Masker
}

// Event is what is recorded of a question: Asked, or its outcome.
type Event struct {
	Question Question
	Outcome  *Outcome // nil: it is being asked
}

// Gate judges requests and asks about them. It is safe for concurrent use.
type Gate struct {
	o Options

	mu      sync.Mutex
	pending []*pending
	grants  map[string]grant
}

// ErrNotPending means that no such question waits: it was answered, has expired
// or never was.
var ErrNotPending = errors.New("approval: no such question is pending")

// ErrAnother means that the question that waits is not about what was answered.
var ErrAnother = errors.New("approval: what waits is not what was answered: its hash is another")

// New returns a gate.
func New(o Options) (*Gate, error) {
	if o.Policy == nil {
		return nil, errors.New("approval: no policy")
	}
	if o.Timeout < 0 || o.Grant < 0 {
		return nil, errors.New("approval: a time is negative")
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Grant == 0 {
		o.Grant = DefaultGrant
	}
	if o.Record == nil {
		o.Record = func(Event) error { return nil }
	}
	if o.Waiting == nil {
		o.Waiting = func(Question) func() { return func() {} }
	}
	if o.Warn == nil {
		o.Warn = func(string, ...any) {}
	}
	return &Gate{o: o, grants: map[string]grant{}}, nil
}
