package soak

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/rein-sh/rein/audit"
)

// record wants an audit log that verifies, with an outcome for every intent
// and exactly one record of every call, and the transcript it has the hashes of.
func (j *judge) record() {
	data, err := os.ReadFile(filepath.Join(j.Dir, "audit.jsonl"))
	if err != nil {
		j.fault("audit: %v", err)
		return
	}
	v := audit.Verify(bytes.NewReader(data), j.Report.AuditHead.String())
	j.check(v.State == audit.Intact, "audit: %+v", v)
	records := parse(j, data)
	if len(records) == 0 {
		return
	}
	j.check(records[0].Kind == audit.KindRunStart && records[len(records)-1].Kind == audit.KindRunEnd, "the record begins with %s and ends with %s", records[0].Kind, records[len(records)-1].Kind)
	open := map[string]int{}
	results := map[string]int{}
	requests := 0
	for _, r := range records {
		j.check(r.RunID == j.Report.RunID && r.TraceID == j.Report.TraceID, "record %d is of run %s", r.Seq, r.RunID)
		switch r.Kind {
		case audit.KindCallIntent:
			open["call "+r.CallID]++
		case audit.KindCallOutcome:
			open["call "+r.CallID]--
		case audit.KindFileIntent:
			open["file"]++
		case audit.KindFileOutcome:
			open["file"]--
		case audit.KindSandboxIntent:
			open["sandbox"]++
		case audit.KindSandboxCreated, audit.KindSandboxFailed:
			open["sandbox"]--
		case audit.KindRenewIntent:
			open["renew"]++
		case audit.KindSandboxRenewed:
			open["renew"]--
		case audit.KindTool:
			results[r.CallID]++
		case audit.KindModelRequest:
			requests++
		}
	}
	for what, n := range open {
		j.check(n == 0 || j.Crashed && n > 0, "%s: %d more intents than outcomes", what, n)
	}
	for id, n := range results {
		j.check(n == 1 && id != "", "call %q has %d results", id, n)
	}
	j.check(requests == len(j.Model.Seen) || j.Crashed, "%d requests were recorded, %d made", requests, len(j.Model.Seen))
	asked, late := 0, 0
	for _, s := range j.Model.Seen {
		switch n := s.calls(); {
		case s.Over.Sub(j.Start) < j.Plan.Limits.MaxWallTime:
			asked += n
		default: // at the very moment the time was over: taken or not
			late += n
		}
	}
	if !j.leftBehind() && !j.Crashed {
		j.check(len(results) >= asked && len(results) <= asked+late, "%d results of %d calls", len(results), asked)
	}
	j.transcript(records)
}

// calls is how many calls the reply asks for that must be answered.
func (s Seen) calls() int {
	if s.Reply == nil || s.Reply.Stop == "" || len(s.Request.Tools) == 0 {
		return 0
	}
	return len(s.Reply.Message.Calls)
}

// leftBehind reports whether a worker may have been left behind, or its last
// reply not been taken any more.
func (j *judge) leftBehind() bool {
	for i := range j.Model.Seen {
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

// transcript wants every entry's hash in the audit log.
func (j *judge) transcript(records []audit.Record) {
	data, err := os.ReadFile(filepath.Join(j.Dir, "transcript.jsonl"))
	if j.Plan.NoTranscript {
		j.check(os.IsNotExist(err), "there is a transcript: %v", err)
		return
	}
	if err != nil {
		j.fault("transcript: %v", err)
		return
	}
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	n := 0
	for _, r := range records {
		var note struct {
			Entry int    `json:"transcript_entry"`
			Hash  string `json:"transcript_sha256"`
		}
		said := r.Kind == audit.KindModelRequest || r.Kind == audit.KindModelReply
		err := json.Unmarshal(r.Data, &note)
		if err == nil && note.Entry == 0 && !said {
			continue
		}
		if err != nil || note.Entry < 1 || note.Entry > len(lines) {
			j.fault("record %d names the entry %d of %d: %v", r.Seq, note.Entry, len(lines), err)
			continue
		}
		sum := sha256.Sum256(lines[note.Entry-1])
		j.check(hex.EncodeToString(sum[:]) == note.Hash, "entry %d is not what record %d has the hash of", note.Entry, r.Seq)
		n++
	}
	j.check(n == len(lines) || n == 0 && len(data) == 0, "%d entries of the transcript, %d in the record", len(lines), n)
}
