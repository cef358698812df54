package run

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rein-sh/rein/audit"
)

// Mismatch is a file of a run that is not as its audit log says.
type Mismatch struct {
	Path   string `json:"path"` // within the run's directory
	Reason string `json:"reason"`
}

// Compare holds the files of the run in dir against its audit log: the entries
// of the transcript, the report, and what was brought out. checked names those
// of which the log says anything. It is as good as the log, which it does not
// judge: see audit.Verify. A log that cannot be read ends it with what it has.
func Compare(dir string) (checked []string, wrong []Mismatch, err error) {
	log, err := os.Open(filepath.Join(dir, AuditFile))
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	hashes := map[int]string{} // of the transcript's entries
	var start runStart
	var end *runEnd
	for r, err := range audit.Records(log) {
		if err != nil {
			break // audit.Verify says why
		}
		var note saidNote
		switch r.Kind {
		case audit.KindRunStart:
			err = json.Unmarshal(r.Data, &start)
		case audit.KindModelRequest, audit.KindModelReply, audit.KindTool, audit.KindVerdict:
			if err = json.Unmarshal(r.Data, &note); note.Entry > 0 {
				hashes[note.Entry] = note.Hash
			}
		case audit.KindRunEnd:
			err = into(&end, r.Data)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("record %d of the audit log: %w", r.Seq, err)
		}
	}
	compare := func(path string, fault error) {
		if checked = append(checked, path); fault != nil {
			wrong = append(wrong, Mismatch{path, fault.Error()})
		}
	}
	if start.Transcript {
		compare(transcriptFile, compareTranscript(filepath.Join(dir, transcriptFile), hashes, end != nil))
	}
	if end == nil {
		return checked, wrong, nil
	}
	if end.Report != "" {
		compare(reportFile, end.compareReport(dir))
	}
	for _, p := range end.Provenance.Outputs {
		compare(p.Path, compareHash(filepath.Join(dir, filepath.FromSlash(p.Path)), p.SHA256))
	}
	return checked, wrong, nil
}

// compareTranscript wants the entries that the log has hashes of, and no other
// when the run has ended: one that was killed may have written more.
func compareTranscript(path string, hashes map[int]string, ended bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReader(f)
	for n := 1; n <= len(hashes); n++ {
		line, err := readLine(in, maxKept)
		switch want, ok := hashes[n]; {
		case err != nil:
			return fmt.Errorf("entry %d, which the audit log names, is not there: %w", n, err)
		case !ok:
			return fmt.Errorf("the audit log does not name entry %d", n)
		case hash(line) != want:
			return fmt.Errorf("entry %d was changed", n)
		}
	}
	if _, err := in.ReadByte(); ended && !errors.Is(err, io.EOF) {
		return fmt.Errorf("there is more than the %d entries that the audit log names", len(hashes))
	}
	return nil
}

// compareReport wants the report that the log has the hash of.
func (e *runEnd) compareReport(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, reportFile))
	if err != nil {
		return err
	}
	sum, err := reportHash(data)
	if err == nil && sum != e.Report {
		err = errors.New("it was changed")
	}
	return err
}

// reportHash is the SHA-256 of a report without the audit log's head, which can
// only be known when the hash is in the log. Members are in the order of their
// names, so that it is the same however the report is written.
func reportHash(report []byte) (string, error) {
	in := json.NewDecoder(bytes.NewReader(report))
	in.UseNumber()
	var members map[string]any
	if err := in.Decode(&members); err != nil {
		return "", err
	}
	delete(members, "audit_head")
	data, err := json.Marshal(members)
	return hash(data), err
}

func compareHash(path, want string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != want {
		return errors.New("it was changed")
	}
	return nil
}
