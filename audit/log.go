package audit

import (
	"io"
	"time"

	"github.com/rein-sh/rein/secret"
)

// MaxLine is the longest line a log may have, in bytes, newline included.
const MaxLine = 1 << 20

// Options configure a Log.
type Options struct {
	// Masker masks Data and ids before they are written. Nil masks nothing.
	Masker *secret.Masker
	// Sync makes Append return only when the record is on the disk (fsync).
	// Without it a record survives the death of rein, but not that of the
	// machine.
	Sync bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// ContinueTorn lets Open continue a log whose last line is incomplete. The
	// line stays as it is; a record of kind audit.tear with its length and hash
	// follows it, and Verify accepts and counts such a line.
	ContinueTorn bool
}

// Head is the newest record of a chain: the proof that a log has not been cut.
// The zero Head is that of an empty log.
type Head struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"`
}

// String is "SEQ:HASH", which Verify takes.
func (h Head) String() string { panic("to come") }

// Log appends records. All methods may be called concurrently; the order of
// the lines is the order of their sequence numbers.
type Log struct{}

// Create makes a new log of mode 0600 at path and the directories it lacks, of
// mode 0700. An existing file is KindExists. The file is locked: a second
// writer gets KindLocked.
func Create(path string, o Options) (*Log, error) { panic("to come") }

// Open continues an existing log after verifying all of it. An altered log is
// KindAltered, and one with an incomplete last line KindTorn unless
// Options.ContinueTorn is set; neither is changed.
func Open(path string, o Options) (*Log, error) { panic("to come") }

// New begins a log on w, one Write a record. Close does not close w.
func New(w io.Writer, o Options) *Log { panic("to come") }

// Append writes one record and returns when the operating system has it (the
// disk, with Options.Sync). After a write that failed half-way every Append
// fails: what is in the file is no longer known.
func (l *Log) Append(e Entry) (Record, error) { panic("to come") }

// Head returns the newest record's number and hash.
func (l *Log) Head() Head { panic("to come") }

// Close releases the lock and the file. Later Appends are KindClosed; Head
// still answers.
func (l *Log) Close() error { panic("to come") }

// ErrorKind classifies an Error; append-only.
type ErrorKind string

// The kinds.
const (
	KindExists   ErrorKind = "exists"    // Create: there is a file already
	KindNotFound ErrorKind = "not_found" // Open: there is none
	KindLocked   ErrorKind = "locked"    // another writer has it
	KindTorn     ErrorKind = "torn"      // the last line is incomplete
	KindAltered  ErrorKind = "altered"   // the chain is broken
	KindInvalid  ErrorKind = "invalid"   // an entry that cannot be encoded, a path that is no log
	KindTooLarge ErrorKind = "too_large" // a record longer than MaxLine
	KindClosed   ErrorKind = "closed"
	KindIO       ErrorKind = "io" // reading or writing failed
)

// Error is what this package returns.
type Error struct {
	Kind    ErrorKind
	Op      string // create, open, append, close, read
	Subject string // the path, or the kind of record
	Err     error
	Hint    string
}

func (e *Error) Error() string { panic("to come") }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
