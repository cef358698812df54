package run

import (
	"context"
	"fmt"
	"strings"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/sandbox"
)

// entrypointTold is how much of a failed entrypoint's output the report keeps.
const entrypointTold = 300

// entrypoint looks at what the image started, which records its end, and warns
// when it failed: what was to run beside the work then did not.
func (r *runner) entrypoint(ctx context.Context) {
	if len(r.box.Info().Entrypoint) == 0 || r.o.Target.Spec.NoEntrypoint {
		return
	}
	st, err := r.box.Status(ctx, sandbox.EntrypointID)
	if err != nil {
		r.warn("what became of what the image started is not known: %v", err)
		return
	}
	if st.Running || st.Result == nil || st.Result.OK() {
		return
	}
	how := "it has no exit code"
	if c := st.Result.ExitCode; c != nil {
		how = fmt.Sprintf("exit code %d", *c)
	} else if st.Result.Signal != "" {
		how = st.Result.Signal
	}
	log, _, err := r.box.Logs(ctx, sandbox.EntrypointID, max(0, st.Bytes-4<<10)) // room for values to be masked whole
	if err != nil {
		log = []byte("its output could not be read: " + err.Error())
	}
	show := func(text string, cut func(string, int) string) string {
		return cut(evidence.Visible(strings.TrimSpace(r.o.Masker.String(text))), entrypointTold)
	}
	r.warn("what the image starts, %s, failed: %s: %s", show(strings.Join(r.box.Info().Entrypoint, " "), evidence.Cut), how, show(string(log), evidence.CutFront))
}
