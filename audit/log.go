package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rein-sh/rein/secret"
)

// MaxLine is the longest line a log may have, in bytes, newline included.
const MaxLine = 1 << 20

// maxKeptLine bounds the memory of a line that the next one takes, in bytes.
const maxKeptLine = 4 << 10

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
func (h Head) String() string { return strconv.FormatUint(h.Seq, 10) + ":" + h.Hash }

// Log appends records. All methods may be called concurrently; the order of
// the lines is the order of their sequence numbers and times.
type Log struct {
	options Options
	subject string // the path, "" for a plain writer

	mu     sync.Mutex
	w      io.Writer
	file   syncCloser // nil for a plain writer
	head   Head
	broken error  // why nothing can be appended any more
	line   []byte // the newest line, whose memory the next one takes
}

// syncCloser is what a Log needs of its file besides writing.
type syncCloser interface {
	Sync() error
	Close() error
}

// New begins a log on w, one Write a record. Options.Sync needs a file and does
// nothing here; Close does not close w.
func New(w io.Writer, o Options) *Log { return &Log{options: o.withDefaults(), w: w} }

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Append writes one record and returns it when the operating system has it (the
// disk, with Options.Sync). An entry that cannot be encoded or is too large is
// refused and changes nothing. After a write that failed half-way every Append
// fails: what is in the file is no longer known.
func (l *Log) Append(e Entry) (Record, error) {
	if e.Kind == "" || e.Kind == KindTear {
		return Record{}, l.refuse(ErrorInvalid, e.Kind, errors.New("an entry needs a kind other than audit.tear, which only Open writes"), "")
	}
	data, err := l.encodeData(e)
	if err != nil {
		return Record{}, err
	}
	mask := l.options.Masker
	r := Record{
		Kind: e.Kind, RunID: mask.String(e.RunID), TraceID: mask.String(e.TraceID),
		SandboxID: mask.String(e.SandboxID), CallID: mask.String(e.CallID), Data: data,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return Record{}, l.broken
	}
	return l.append(r, nil)
}

// append numbers, links, encodes and writes r after before. The caller holds mu.
func (l *Log) append(r Record, before []byte) (Record, error) {
	r.Seq, r.Prev = l.head.Seq+1, l.head.Hash
	r.Time = l.options.Now().Round(0).UTC()
	line, hash, err := encode(l.line[:0], r)
	if err != nil {
		return Record{}, l.refuse(ErrorInvalid, r.Kind, err, "")
	}
	if l.line = nil; cap(line) <= maxKeptLine {
		l.line = line
	}
	if len(line) > MaxLine {
		return Record{}, l.refuse(ErrorTooLarge, r.Kind, fmt.Errorf("%d bytes; a record has at most %d", len(line), MaxLine),
			"record a summary and the hash of what is large")
	}
	r.Hash = hash
	if len(before) > 0 {
		line = append(before, line...)
	}
	if n, err := l.w.Write(line); err != nil {
		failure := l.refuse(ErrorIO, r.Kind, err, "")
		if n > 0 {
			l.broken = failure
		}
		return Record{}, failure
	}
	if l.options.Sync && l.file != nil {
		if err := l.file.Sync(); err != nil {
			l.broken = l.refuse(ErrorIO, r.Kind, err, "")
			return Record{}, l.broken
		}
	}
	l.head = Head{Seq: r.Seq, Hash: r.Hash}
	return r, nil
}

func (l *Log) refuse(kind ErrorKind, record Kind, err error, hint string) *Error {
	subject := string(record)
	if l.subject != "" {
		subject += " to " + l.subject
	}
	return &Error{Kind: kind, Op: "append", Subject: subject, Err: err, Hint: hint}
}

// encodeData returns e.Data as masked JSON in valid UTF-8; nil when there is none.
func (l *Log) encodeData(e Entry) (json.RawMessage, error) {
	if e.Data == nil {
		return nil, nil
	}
	b, err := marshal(e.Data)
	if err != nil {
		return nil, l.refuse(ErrorInvalid, e.Kind, err, "")
	}
	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, []byte("\ufffd"))
	}
	return l.options.Masker.JSON(b), nil
}

// Head returns the newest record's number and hash.
func (l *Log) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// Close releases the lock and the file. Later Appends are ErrorClosed; Head
// still answers. Closing again does nothing.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ErrorKindOf(l.broken) == ErrorClosed {
		return nil
	}
	l.broken = &Error{Kind: ErrorClosed, Op: "append", Subject: l.subject, Err: errors.New("the log is closed")}
	if l.file == nil {
		return nil
	}
	if err := l.file.Close(); err != nil {
		return &Error{Kind: ErrorIO, Op: "close", Subject: l.subject, Err: err}
	}
	return nil
}
