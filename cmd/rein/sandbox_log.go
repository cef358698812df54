package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/rein-sh/rein/audit"
)

// maxLogs bounds how many processes may use one sandbox at once.
const maxLogs = 256

// openLog continues the audit log of a sandbox, or begins it. A log has one
// writer: who uses the sandbox at the same time records beside it, in
// audit-2.jsonl and so on, each a chain of its own. A log that was altered is
// left as evidence.
func (a *app) openLog(h *host, id string, o audit.Options) (*audit.Log, error) {
	o.ContinueTorn = true
	for n := 1; n <= maxLogs; n++ {
		path := h.logPath(id)
		if n > 1 {
			path = filepath.Join(filepath.Dir(path), fmt.Sprintf("audit-%d.jsonl", n))
		}
		log, err := audit.Open(path, o)
		if audit.ErrorKindOf(err) == audit.ErrorNotFound {
			log, err = audit.Create(path, o)
		}
		switch audit.ErrorKindOf(err) {
		case audit.ErrorLocked, audit.ErrorExists:
			continue
		case audit.ErrorAltered:
			a.note("warning: %s was altered; it is kept as it is, and another log is begun", path)
			continue
		}
		return log, err
	}
	return nil, withHint(errors.New("too many processes use sandbox "+id), "wait until some have ended")
}
