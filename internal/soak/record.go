package soak

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
)

// read reads what the run has on record.
func (j *judge) read() {
	data, err := os.ReadFile(filepath.Join(j.Dir, "audit.jsonl"))
	if err != nil {
		j.fault("audit: %v", err)
		return
	}
	j.audit, j.records = data, parse(j, data)
	j.transcript()
}

// outcomes are the kinds that say what came of an intent.
var outcomes = map[audit.Kind]audit.Kind{
	audit.KindCallOutcome: audit.KindCallIntent, audit.KindFileOutcome: audit.KindFileIntent,
	audit.KindSandboxCreated: audit.KindSandboxIntent, audit.KindSandboxFailed: audit.KindSandboxIntent,
	audit.KindSandboxRenewed: audit.KindRenewIntent, audit.KindKilled: audit.KindKillIntent, audit.KindKillFailed: audit.KindKillIntent,
	audit.KindCleared: audit.KindClearIntent, audit.KindSessionOutcome: audit.KindSessionIntent,
	audit.KindOutput: audit.KindOutputIntent,
}

// record wants an audit log that verifies, with an outcome for every intent
// and exactly one record of every call. What was under way when a process was
// ended is explained by the record that another goes on, which follows it.
func (j *judge) record() {
	checked, wrong, err := run.Compare(j.Dir)
	j.check(err == nil && len(wrong) == 0 && len(checked) > 0, "the run's files %v are not what its log says: %v, %v", checked, wrong, err)
	v := audit.Verify(bytes.NewReader(j.audit), j.Report.AuditHead.String())
	j.check(v.State == audit.Intact, "audit: %+v", v)
	if len(j.records) == 0 {
		return
	}
	first, last := j.records[0].Kind, j.records[len(j.records)-1].Kind
	j.check(first == audit.KindRunStart && last == audit.KindRunEnd, "the record begins with %s and ends with %s", first, last)
	open, explained := map[string]int{}, map[string]int{}
	began, results := map[string]bool{}, map[string]int{}
	resumed := 0
	for _, r := range j.records {
		j.check(r.RunID == j.Report.RunID && r.TraceID == j.Report.TraceID, "record %d is of run %s", r.Seq, r.RunID)
		of, outcome := outcomes[r.Kind]
		switch what := string(of) + " " + r.CallID; {
		case outcome && open[what] > 0:
			open[what]--
		case outcome && explained[what] > 0:
			explained[what]--
		case outcome && resumed > 0 && began[r.CallID] && strings.Contains(string(r.Data), `"tool":"wait"`):
			// The call had ended, and the process with it before its result was
			// told of: the next one asks what came of it, and has that on record.
		case outcome:
			j.fault("record %d: %s without an intent", r.Seq, r.Kind)
		case r.Kind == audit.KindRunResumed:
			resumed++
			explained, open = open, map[string]int{}
			under := 0
			for _, n := range explained {
				under += n
			}
			j.check(under <= 2, "%d things were under way when the process was ended: %v", under, explained)
		case r.Kind == audit.KindTool:
			results[r.CallID]++
		case slices.Contains(slices.Collect(maps.Values(outcomes)), r.Kind):
			open[string(r.Kind)+" "+r.CallID]++
			began[r.CallID] = began[r.CallID] || strings.HasPrefix(r.CallID, "call_")
		}
	}
	for what, n := range open {
		j.check(n == 0, "%s: %d more intents than outcomes", what, n)
	}
	for id, n := range results {
		j.check(n == 1 && id != "", "call %q has %d results", id, n)
	}
	for id, worker := range began {
		j.check(!worker || results[id] == 1 || j.leftBehind(), "call %q was begun, and has no result", id)
	}
	j.check(resumed == len(j.Report.Resumed) && (resumed > 0) == j.Crashed && resumed <= j.Crashes, "resumed %d times, and the report says %d", resumed, len(j.Report.Resumed))
}

// leftBehind reports whether a worker may have been left behind, or its last
// reply not been taken any more.
func (j *judge) leftBehind() bool {
	for i := range j.seen {
		r := j.Plan.Replies[min(i, len(j.Plan.Replies)-1)]
		if r.Deaf || r.Panic {
			return true
		}
	}
	return false
}

func parse(j *judge, data []byte) (records []audit.Record) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var r audit.Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			j.fault("audit: %v", err)
		}
		records = append(records, r)
	}
	return records
}
