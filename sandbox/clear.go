package sandbox

import (
	"context"
	"errors"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/execd"
)

// ClearRecord is the data of audit.KindClearIntent and KindCleared.
type ClearRecord struct {
	Tool      string `json:"tool"`
	Processes int    `json:"processes,omitempty"` // that were ended
	// Of the outcome.
	Ending
}

// Clear ends every process that commands, sessions, terminals and the image's
// entrypoint have started, also those that changed their session or lost their
// parents, and returns how many there were once none is left. Commands that run
// meanwhile end as interrupted ones. KindUnsupported under an execd that is not
// rein's: then nothing is known of what is left.
func (s *Sandbox) Clear(ctx context.Context, a Access) (int, error) {
	r := ClearRecord{Tool: a.tool()}
	if !s.features.Clear {
		return 0, &Error{Kind: KindUnsupported, Op: "clear", Subject: s.id, Err: errors.New("this sandbox's execd cannot end what commands left behind")}
	}
	ctx, cancel := bounded(ctx, 2*execd.ClearTimeout)
	defer cancel()
	subject := s.id
	err := s.recorded(ctx, a, recording{op: "clear", subject: &subject, ending: &r.Ending, data: &r,
		intent: audit.KindClearIntent, outcome: audit.KindCleared}, func(ctx context.Context) error {
		c, err := s.client.Clear(ctx)
		r.Processes = c.Processes
		return err
	})
	return r.Processes, err
}
