package run

import (
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/tool"
)

// functionIntent is the data of audit.KindCallIntent for a function of the host
// program's: what it is given is in the transcript.
type functionIntent struct {
	Tool           string `json:"tool"`
	Function       bool   `json:"function"` // else it is a sandbox.CallIntent
	Parameters     string `json:"parameters"`
	ParametersHash string `json:"parameters_sha256"`
}

// functionOutcome is the data of audit.KindCallOutcome for one.
type functionOutcome struct {
	Tool        string `json:"tool"`
	Function    bool   `json:"function"`
	OK          bool   `json:"ok"`
	DurationMS  int64  `json:"duration_ms"`
	OutputBytes int64  `json:"output_bytes"`
	Why         string `json:"why,omitempty"`
}

// beginFunction records that a function is about to be called, so that a run
// that is resumed does not call it again.
func (r *runner) beginFunction(c tool.Call) (ended func(tool.Result) error, err error) {
	begun := time.Now()
	err = r.record(audit.KindCallIntent, c.ID, functionIntent{Tool: c.Name, Function: true, Parameters: r.parameters(c), ParametersHash: hash(c.Arguments)})
	return func(res tool.Result) error {
		return r.record(audit.KindCallOutcome, c.ID, functionOutcome{Tool: c.Name, Function: true, OK: res.OK,
			DurationMS: time.Since(begun).Milliseconds(), OutputBytes: res.OutputBytes, Why: why(res)})
	}, err
}
