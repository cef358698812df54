package run

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run/workspace"
)

// What another process needs to go on with a run, besides the audit log and the
// transcript.
const (
	invocationFile = "invocation.json"
	inputsFile     = "inputs.json"
)

// maxKept bounds a file of a run's directory that is read whole.
const maxKept = 256 << 20

// fingerprint is the hash of what decides how a run is done. A run is resumed
// with the options it began with, or not at all: its limits are not changed by
// its death.
func (o *Options) fingerprint() string {
	data, _ := json.Marshal(struct { // plain data always encodes
		Task             string
		Target           Target
		Limits           budget.Limits
		Workspace        Workspace
		Accept           []Check
		Fresh            bool `json:",omitempty"`
		Retry            int  `json:",omitempty"`
		Protect          []string
		Artifacts        []string
		NoShell          bool
		Search           bool
		Sessions         any
		KeepOutput       bool
		Model, ConfigSum string
		Lease            budget.Terms
		Tools            []string `json:",omitempty"`
		Approval         string   `json:",omitempty"`
		Worker           string   `json:",omitempty"`
	}{o.Task, o.Target, o.Limits, o.Workspace, o.Accept, o.Fresh, o.Retry, o.Protect, o.Artifacts, o.NoShell, o.Search, o.Sessions, o.KeepOutput, o.Model, o.ConfigHash,
		o.Lease, o.toolPrints(), o.Approval.fingerprint(), o.worker})
	return hash(data)
}

// keepInvocation writes what the caller can make the options from again.
func (r *runner) keepInvocation() error {
	if r.o.Invocation == nil {
		return nil
	}
	return os.WriteFile(filepath.Join(r.dir, invocationFile), r.o.Masker.JSON(r.o.Invocation), 0o600)
}

// Invocation is Options.Invocation of the run in dir, masked; a *ResumeError when the
// run cannot be gone on with.
func Invocation(dir string) (json.RawMessage, error) {
	data, err := readKept(dir, invocationFile)
	if errors.Is(err, fs.ErrNotExist) {
		if rec, err := readRecord(dir); err == nil && rec.start.Agent != nil {
			return nil, rec.resumable(Options{ID: filepath.Base(dir)}) // which says whose it was
		}
		return nil, &ResumeError{Reason: "how it was begun is not on record"}
	}
	if err == nil && !json.Valid(data) {
		err = &ResumeError{Reason: invocationFile + " is no JSON"}
	}
	return data, err
}

func readKept(dir, name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKept+1))
	if err == nil && len(data) > maxKept {
		err = errors.New(f.Name() + " is too large")
	}
	return data, err
}

// keptInputs is what inputs.json holds: what was copied in, and what the working
// directory held before.
type keptInputs struct {
	Workspace *workspace.Manifest `json:"workspace,omitempty"`
	Standing  standing            `json:"standing,omitempty"`
}

// inputsRecord is the data of audit.KindRunInputs.
type inputsRecord struct {
	Files     int    `json:"files"`
	Bytes     int64  `json:"bytes"`
	InputTree string `json:"input_tree,omitempty"`
	// Hash is the SHA-256 of inputs.json; empty when that could not be kept.
	Hash string `json:"inputs_sha256,omitempty"`
}

// keepInputs records that the inputs are in the sandbox, and what they are.
func (r *runner) keepInputs() error {
	k := keptInputs{Standing: r.there}
	rec := inputsRecord{InputTree: r.report.Provenance.InputTree}
	if r.inputs != nil {
		m := r.inputs.Manifest()
		k.Workspace = &m
		rec.Files, rec.Bytes = r.inputs.Files, r.inputs.Bytes
	}
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if len(r.o.Masker.FindKnown(data)) > 0 {
		r.warn("the run cannot be resumed after a crash: the names of its inputs hold a known secret, and are not kept")
		return r.record(audit.KindRunInputs, "", rec)
	}
	rec.Hash = hash(data)
	if err := os.WriteFile(filepath.Join(r.dir, inputsFile), data, 0o600); err != nil {
		return err
	}
	return r.record(audit.KindRunInputs, "", rec)
}

// restoreInputs takes the inputs up from inputs.json.
func (r *runner) restoreInputs(rec inputsRecord) error {
	data, err := readKept(r.dir, inputsFile)
	if err != nil {
		return err
	}
	var k keptInputs
	if hash(data) != rec.Hash {
		return &ResumeError{RunID: r.o.ID, Reason: inputsFile + " is not what the audit log names"}
	}
	if err := json.Unmarshal(data, &k); err != nil {
		return err
	}
	r.there = k.Standing
	r.report.Provenance.InputTree = rec.InputTree
	if k.Workspace == nil {
		return nil
	}
	tree, err := workspace.Restore(*k.Workspace)
	if err != nil {
		return err
	}
	r.hasInputs(tree)
	return r.keepCopies()
}

// outcomeRecord is the data of audit.KindRunOutcome.
type outcomeRecord struct {
	Reason Reason `json:"reason"`
	Detail string `json:"detail,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Answer's hash; the transcript has it.
	Answer string `json:"answer_sha256,omitempty"`
}

// recordOutcome records how the work ended.
func (r *runner) recordOutcome(out Outcome) {
	rec := outcomeRecord{Reason: out.Reason, Detail: out.Detail, Hint: out.Hint}
	if out.Answer != "" {
		rec.Answer = hash([]byte(out.Answer))
	}
	if err := r.record(audit.KindRunOutcome, "", rec); err != nil {
		r.warn("%v", err)
	}
}

// judgedRecord is the data of audit.KindRunJudged.
type judgedRecord struct {
	Accepted string      `json:"accepted"`
	Said     string      `json:"said,omitempty"`
	Breaches []Protected `json:"breaches,omitempty"` // of protected files, the first maxTold
	Error    string      `json:"error,omitempty"`
}

// recordJudged records that the outputs are saved, and what was found, before
// the sandbox is destroyed.
func (r *runner) recordJudged() {
	r.mu.Lock()
	rec := judgedRecord{Accepted: r.report.Accepted, Said: r.said}
	for _, p := range r.report.Protected {
		if !p.Unchanged && len(rec.Breaches) < maxTold {
			rec.Breaches = append(rec.Breaches, p)
		}
	}
	r.mu.Unlock()
	if r.failed != nil {
		rec.Error = r.failed.Error()
	}
	if err := r.record(audit.KindRunJudged, "", rec); err != nil {
		r.warn("%v", err)
	}
}
