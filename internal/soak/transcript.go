package soak

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/model"
)

// noted is what a record has of an entry of the transcript.
type noted struct {
	Entry    int    `json:"transcript_entry"`
	Hash     string `json:"transcript_sha256"`
	Step     int    `json:"step"`
	Executed bool   `json:"executed"`
	Note     struct {
		ID       string           `json:"id"`
		Stop     model.StopReason `json:"stop"`
		Usage    model.Usage      `json:"usage"`
		Error    string           `json:"error"`
		Reserved int64            `json:"reserved_tokens"`
	} `json:"note"`
}

// note is what r has of its entry; of others, nothing.
func note(r audit.Record) (n noted) {
	_ = json.Unmarshal(r.Data, &n) // a record of another shape has none
	return n
}

// said is an entry of the transcript, as far as it is looked at.
type said struct {
	Kind audit.Kind `json:"kind"`
	Data struct {
		NoTools bool `json:"no_tools"`
		Message struct {
			Calls []model.ToolCall
		} `json:"message"`
		Stop        model.StopReason `json:"stop"`
		ModelCallID string           `json:"model_call_id"`
		Tool        string           `json:"tool"`
	} `json:"data"`
}

// transcript wants every entry's hash in the audit log.
func (j *judge) transcript() {
	data, err := os.ReadFile(filepath.Join(j.Dir, "transcript.jsonl"))
	if j.Plan.NoTranscript {
		j.check(os.IsNotExist(err), "there is a transcript: %v", err)
		return
	}
	if err != nil {
		j.fault("transcript: %v", err)
		return
	}
	var lines [][]byte
	if len(data) > 0 {
		lines = bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	}
	n := 0
	for _, r := range j.records {
		at := note(r)
		if at.Entry == 0 && r.Kind != audit.KindModelRequest && r.Kind != audit.KindModelReply {
			continue
		}
		if at.Entry < 1 || at.Entry > len(lines) {
			j.fault("record %d names the entry %d of %d", r.Seq, at.Entry, len(lines))
			continue
		}
		sum := sha256.Sum256(lines[at.Entry-1])
		j.check(hex.EncodeToString(sum[:]) == at.Hash, "entry %d is not what record %d has the hash of", at.Entry, r.Seq)
		n++
	}
	j.check(n == len(lines), "%d entries of the transcript, %d in the record", len(lines), n)
	for i, line := range lines {
		var s said
		if err := json.Unmarshal(line, &s); err != nil {
			j.fault("entry %d of the transcript: %v", i+1, err)
		}
		j.said = append(j.said, s)
	}
	j.inOrder()
}

// inOrder wants exactly one result of each call, in the order of the calls,
// before anything else is said: also where a process was ended between them.
func (j *judge) inOrder() {
	var want []model.ToolCall
	tools := true
	for i, s := range j.said {
		switch s.Kind {
		case audit.KindTool:
			if len(want) == 0 {
				j.fault("entry %d of the transcript: the result of a call that was not made", i+1)
				continue
			}
			j.check(s.Data.Tool == want[0].Name, "entry %d of the transcript: a result of %s for the call of %s", i+1, s.Data.Tool, want[0].Name)
			want = want[1:]
			continue
		case audit.KindModelRequest:
			tools = !s.Data.NoTools
		}
		j.check(len(want) == 0, "entry %d of the transcript: %d calls have no result yet", i+1, len(want))
		want = nil
		if s.Kind == audit.KindModelReply && s.Data.Stop != "" && tools {
			want = s.Data.Message.Calls
		}
	}
	j.check(len(want) == 0 || j.leftBehind(), "%d calls have no result", len(want))
}

// counts holds the report's figures to the record.
func (j *judge) counts() {
	var requests, calls, steps int
	var least, most, held int64 // tokens: of the replies that were counted, and with what the others may have cost
	known := true
	for _, r := range j.records {
		at := note(r)
		steps = max(steps, at.Step)
		switch r.Kind {
		case audit.KindTool:
			if at.Executed {
				calls++
			}
		case audit.KindModelRequest:
			requests++
			least, most = least+held, most+held // of the one before, whose reply never came
			held = at.Note.Reserved
		case audit.KindModelReply:
			switch u := at.Note.Usage; {
			case at.Note.Error == "" && u.Known:
				least, most = least+u.Input+u.Output, most+u.Input+u.Output
				known = known && u.Input >= 0 && u.Output >= 0 && u.Input < 1<<40 && u.Output < 1<<40
			case at.Note.Error == "lost":
				least, most = least+held, most+held
			default:
				most += held
			}
			held = 0
		}
	}
	rep := j.Report
	seen := len(j.seen)
	j.check(requests >= seen && requests <= seen+j.Crashes, "%d requests were recorded, %d made", requests, seen)
	if j.leftBehind() { // and may have been heard of later
		return
	}
	j.check(rep.Calls.Total == calls, "%d calls were made, and the report says %d", calls, rep.Calls.Total)
	j.check(rep.Steps >= steps && rep.Steps <= steps+2, "%d steps are on record, and the report says %d", steps, rep.Steps)
	if j.Crashed {
		least, most = least+held, most+held
	} else {
		most += held
	}
	j.check(!known || rep.Tokens.Total >= least && rep.Tokens.Total <= most, "%d tokens, and by the record %d to %d", rep.Tokens.Total, least, most)
}
