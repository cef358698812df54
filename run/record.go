package run

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
)

// record is what the files of a run's directory say of it.
type record struct {
	runID, traceID string
	begun          time.Time
	start          runStart
	head           audit.Head

	created *sandbox.Info // the newest sandbox
	killed  bool          // the run has destroyed it
	beside  beside
	inputs  *inputsRecord
	outcome *outcomeRecord
	ended   bool // and only the report is missing
	resumed []Resumption
	last    time.Time

	said   []saying
	call   string          // the id of the newest call with an intent and no result
	edited string          // the command that a person put in its place
	opened string          // the session that it has opened
	told   map[string]bool // the calls that have a result
	judged *judgedRecord
	checks []CheckResult
	patch  *PatchInfo
	files  []Artifact
	net    *NetworkEnd
	output outputRecord

	revoked []Revocation    // by processes that were ended
	network []NetworkChange // made while it worked
	steered bool            // the network's policy was to be changed

	entries int   // of the transcript, that the audit log names
	offset  int64 // where they end
	surplus int64 // bytes after them
}

// readRecord reads what is on record of the run in dir. The audit log has been
// verified; each entry of the transcript that it names is checked against it.
func readRecord(dir string) (*record, error) {
	rec := &record{told: map[string]bool{}}
	f, err := os.Open(filepath.Join(dir, AuditFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	notes := map[int]int{} // entry of the transcript → index in said
	for r, err := range audit.Records(f) {
		if audit.ErrorKindOf(err) == audit.ErrorAltered {
			continue // an incomplete line, which the log accounts for
		}
		if err != nil {
			return nil, err
		}
		if err := rec.take(r, notes); err != nil {
			return nil, fmt.Errorf("record %d of the audit log: %w", r.Seq, err)
		}
	}
	if rec.begun.IsZero() {
		return nil, &ResumeError{Reason: "its beginning is not on record"}
	}
	if !rec.start.Transcript {
		return rec, nil
	}
	return rec, rec.readTranscript(filepath.Join(dir, transcriptFile), notes)
}

// take takes one record of the audit log.
func (rec *record) take(r audit.Record, notes map[int]int) error {
	rec.head, rec.last = audit.Head{Seq: r.Seq, Hash: r.Hash}, r.Time
	if of, err := rec.beside.take(r); of || err != nil {
		return err
	}
	switch r.Kind {
	case audit.KindRunStart:
		rec.runID, rec.traceID, rec.begun = r.RunID, r.TraceID, r.Time
		return json.Unmarshal(r.Data, &rec.start)
	case audit.KindRunInputs:
		return into(&rec.inputs, r.Data)
	case audit.KindSandboxCreated:
		rec.killed, rec.inputs, rec.output = false, nil, outputRecord{}
		return into(&rec.created, r.Data)
	case audit.KindSandboxAttached: // what was brought out is brought out again
		rec.judged, rec.checks, rec.patch, rec.files, rec.net = nil, nil, nil, nil, nil
	case audit.KindRunResumed:
		var again resumptionRecord
		err := json.Unmarshal(r.Data, &again)
		rec.resumed = append(rec.resumed, again.Resumption)
		return err
	case audit.KindKilled:
		rec.killed = true
	case audit.KindRunOutcome:
		return into(&rec.outcome, r.Data)
	case audit.KindRunEnd:
		rec.ended = true
	case audit.KindModelRequest, audit.KindModelReply, audit.KindTool, audit.KindVerdict:
		return rec.takeSaid(r, notes)
	case audit.KindSandboxRenewed, audit.KindLimit, audit.KindBrake, audit.KindHalt, audit.KindRound:
		rec.said = append(rec.said, saying{kind: r.Kind, time: r.Time, data: r.Data})
	case audit.KindCallIntent, audit.KindFileIntent, audit.KindSessionIntent:
		// A worker's, not one of the run's own, nor a look at an earlier one.
		if strings.HasPrefix(r.CallID, callPrefix) && !rec.told[r.CallID] {
			rec.call, rec.opened = r.CallID, ""
		}
	case audit.KindSessionOutcome:
		var s sandbox.SessionRecord
		err := json.Unmarshal(r.Data, &s)
		if r.CallID == rec.call && s.Op == "open" && s.OK {
			rec.opened = s.Session
		}
		return err
	case audit.KindApproval:
		var a approvalRecord
		err := json.Unmarshal(r.Data, &a)
		if a.Kind != approval.Host { // which is asked about while a call is under way
			rec.edited = a.Edited
		}
		return err
	case audit.KindNetworkIntent:
		rec.steered = true
	case audit.KindNetworkSet:
		var c NetworkChange
		err := json.Unmarshal(r.Data, &c)
		rec.network = append(rec.network, c)
		rec.said = append(rec.said, saying{kind: r.Kind, time: r.Time, data: r.Data})
		return err
	default:
		return rec.takeJudged(r)
	}
	return nil
}

// takeSaid takes the record of an entry of the transcript.
func (rec *record) takeSaid(r audit.Record, notes map[int]int) error {
	s := saying{kind: r.Kind, time: r.Time, id: r.CallID, data: r.Data}
	var note saidNote
	if err := json.Unmarshal(r.Data, &note); err != nil {
		return err
	}
	if r.Kind == audit.KindTool {
		if err := json.Unmarshal(r.Data, &s.call); err != nil {
			return err
		}
		rec.told[r.CallID] = true
		if rec.edited = ""; r.CallID == rec.call {
			rec.call = ""
		}
	}
	s.step, s.hash = note.Step, note.Hash
	if r.Kind == audit.KindModelRequest {
		var request struct {
			Note struct {
				Model string `json:"model"`
				Held
			} `json:"note"`
		}
		if err := json.Unmarshal(r.Data, &request); err != nil {
			return err
		}
		s.asks, s.held = request.Note.Model, request.Note.Held
	}
	if note.Entry > 0 {
		notes[note.Entry] = len(rec.said)
		rec.entries = max(rec.entries, note.Entry)
	}
	rec.said = append(rec.said, s)
	return nil
}

// takeJudged takes what was found when the work was saved and judged.
func (rec *record) takeJudged(r audit.Record) error {
	switch r.Kind {
	case audit.KindRunJudged:
		return into(&rec.judged, r.Data)
	case audit.KindAcceptance:
		var c CheckResult
		if err := json.Unmarshal(r.Data, &c); err != nil {
			return err
		}
		rec.checks = append(rec.checks, c)
	case audit.KindNetwork:
		var end NetworkEnd
		if err := json.Unmarshal(r.Data, &end); err != nil {
			return err
		}
		if end.Copy != (audit.Head{}) {
			rec.net = &end
		}
	case audit.KindSecretRevoked:
		var v Revocation
		err := json.Unmarshal(r.Data, &v)
		rec.revoked = append(rec.revoked, v)
		return err
	case audit.KindOutputIntent, audit.KindOutput:
		return rec.output.take(r)
	case audit.KindArtifact:
		var a Artifact
		if err := json.Unmarshal(r.Data, &a); err != nil {
			return err
		}
		if a.Source != "" {
			rec.files = append(rec.files, a)
			return nil
		}
		rec.patch = nil
		return into(&rec.patch, r.Data)
	}
	return nil
}

// into decodes data into a new T.
func into[T any](to **T, data json.RawMessage) error {
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		return err
	}
	*to = v
	return nil
}

// readTranscript reads the entries that the audit log names. One that is
// missing, or is not what the log has the hash of, is a *ResumeError. What
// follows them was written by a rein that died before it recorded it.
func (rec *record) readTranscript(path string, notes map[int]int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	in := bufio.NewReader(f)
	total := int64(0)
	for n := 1; n <= rec.entries; n++ {
		line, err := readLine(in, maxKept-total)
		if err != nil {
			return &ResumeError{RunID: rec.runID, Reason: fmt.Sprintf("entry %d of its transcript, which the audit log names, cannot be read: %v", n, err)}
		}
		total += int64(len(line)) + 1
		i, ok := notes[n]
		if !ok || rec.said[i].hash != hash(line) {
			return &ResumeError{RunID: rec.runID, Reason: fmt.Sprintf("entry %d of its transcript is not what the audit log has the hash of", n)}
		}
		var e transcriptEntry
		if err := json.Unmarshal(line, &e); err != nil {
			return &ResumeError{RunID: rec.runID, Reason: fmt.Sprintf("entry %d of its transcript: %v", n, err)}
		}
		rec.said[i].data, rec.said[i].time = e.Data, e.Time
	}
	rec.offset, rec.surplus = total, st.Size()-total
	return nil
}

// readLine reads a line of at most limit bytes, without its newline.
func readLine(in *bufio.Reader, limit int64) ([]byte, error) {
	var line []byte
	for {
		piece, err := in.ReadSlice('\n')
		if line = append(line, piece...); int64(len(line)) > limit {
			return nil, errors.New("it is too long")
		}
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// brake is the limit on record that stopped the work; nil when none did.
func (rec *record) brake() *Brake {
	for _, s := range rec.said {
		var b Brake
		if s.kind == audit.KindBrake && json.Unmarshal(s.data, &b) == nil {
			return &b
		}
	}
	return nil
}

// worked reports whether the worker had begun.
func (rec *record) worked() bool {
	for _, s := range rec.said {
		if s.entry() {
			return true
		}
	}
	return false
}

// past is what the worker is to do again. The reply of a request at its end
// never came.
func (rec *record) past() *Past {
	p := &Past{begun: rec.call, edited: rec.edited, opened: rec.opened, now: rec.begun, live: make(chan struct{})}
	for i, s := range rec.said {
		s.lost = s.kind == audit.KindModelRequest && !rec.answered(i)
		p.said = append(p.said, s)
	}
	return p
}

// answered reports whether the request at i has a reply.
func (rec *record) answered(i int) bool {
	for _, s := range rec.said[i+1:] {
		if s.entry() {
			return s.kind == audit.KindModelReply
		}
	}
	return false
}

// entry reports whether s is an entry of the worker's.
func (s saying) entry() bool {
	return s.kind == audit.KindModelRequest || s.kind == audit.KindModelReply || s.kind == audit.KindTool || s.kind == audit.KindVerdict
}
