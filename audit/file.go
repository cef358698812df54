package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Create makes a new log of mode 0600 at path, and the directories it lacks
// with mode 0700. An existing file is ErrorExists. The file is locked until
// Close: a second writer gets ErrorLocked.
func Create(path string, o Options) (*Log, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &Error{Kind: ErrorIO, Op: "create", Subject: path, Err: err}
	}
	f, err := openLocked("create", path, os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	if o.Sync {
		if err := syncDir(dir); err != nil {
			return nil, &Error{Kind: ErrorIO, Op: "create", Subject: path, Err: errors.Join(err, f.Close())}
		}
	}
	return &Log{options: o.withDefaults(), subject: path, w: f, file: f}, nil
}

// Open continues an existing log after verifying all of it. An altered log is
// ErrorAltered, and one with an incomplete last line ErrorTorn unless
// Options.ContinueTorn is set; neither is changed. A symbolic link is refused.
func Open(path string, o Options) (*Log, error) {
	f, err := openLocked("open", path, 0)
	if err != nil {
		return nil, err
	}
	l := &Log{options: o.withDefaults(), subject: path, w: f, file: f}
	if err := l.resume(f); err != nil {
		if cerr := f.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
		return nil, err
	}
	return l, nil
}

// resume takes the chain up where the file ends.
func (l *Log) resume(f *os.File) error {
	v := verify(f, expectation{})
	l.head = v.Last
	switch {
	case v.OK():
		return nil
	case v.State == Torn && l.options.ContinueTorn:
		return l.continueTorn(v.fragment)
	case v.State == Torn:
		return &Error{Kind: ErrorTorn, Op: "open", Subject: l.subject, Err: errors.New(v.Reason),
			Hint: "the writer died while it wrote; continue with ContinueTorn to record the tear and go on"}
	case v.State == Unknown:
		return &Error{Kind: ErrorIO, Op: "open", Subject: l.subject, Err: v.Err}
	}
	return &Error{Kind: ErrorAltered, Op: "open", Subject: l.subject, Err: errors.New(v.Reason),
		Hint: "keep the file as evidence and begin another log"}
}

// continueTorn ends the incomplete line and records it, in one write.
func (l *Log) continueTorn(torn fragment) error {
	if torn.tear.Complete {
		l.head = torn.head
	}
	data, err := marshal(torn.tear)
	if err != nil {
		return l.refuse(ErrorInvalid, KindTear, err, "")
	}
	_, err = l.append(Record{Kind: KindTear, Data: data}, []byte("\n"))
	return err
}

// openLocked opens a regular file for appending and reading, and locks it
// against other writers. The lock is flock(2): it belongs to this opening of
// the file and ends with it, however the process ends.
func openLocked(op, path string, create int) (*os.File, error) {
	// O_NONBLOCK keeps the opening of a FIFO from waiting for its other end.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|create, 0o600)
	if err != nil {
		kind, hint := ErrorIO, ""
		switch {
		case errors.Is(err, fs.ErrExist):
			kind, hint = ErrorExists, "Open continues an existing log"
		case errors.Is(err, fs.ErrNotExist):
			kind = ErrorNotFound
		case errors.Is(err, syscall.ELOOP):
			kind, err = ErrorInvalid, errors.New("it is a symbolic link")
		}
		return nil, &Error{Kind: kind, Op: op, Subject: path, Err: err, Hint: hint}
	}
	if err := lock(f); err != nil {
		err.Op, err.Subject = op, path
		f.Close() // nothing was written: the error that matters is err
		return nil, err
	}
	return f, nil
}

func lock(f *os.File) *Error {
	info, err := f.Stat()
	if err != nil {
		return &Error{Kind: ErrorIO, Err: err}
	}
	if !info.Mode().IsRegular() {
		return &Error{Kind: ErrorInvalid, Err: fmt.Errorf("it is no regular file (%s)", info.Mode().Type())}
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return &Error{Kind: ErrorIO, Err: err}
	}
	var locked error
	if err := conn.Control(func(fd uintptr) { locked = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) }); err != nil {
		return &Error{Kind: ErrorIO, Err: err}
	}
	switch {
	case errors.Is(locked, syscall.EWOULDBLOCK):
		return &Error{Kind: ErrorLocked, Err: errors.New("another process is writing it"), Hint: "wait until that run has ended"}
	case locked != nil:
		return &Error{Kind: ErrorIO, Err: locked}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
