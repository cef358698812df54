package run

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/sandbox"
)

// Files of a run's directory. A sandbox outside a run has a directory of its own,
// with an AuditFile.
const (
	AuditFile      = "audit.jsonl"
	transcriptFile = "transcript.jsonl"
	NetworkFile    = "network.jsonl"
	reportFile     = "report.json"
	markdownFile   = "report.md"
	provenanceFile = "provenance.json"
	patchFile      = "patch"
	artifactsDir   = "artifacts"
	outputDir      = "output"
)

// NewID returns a new ULID: unique, and sorted by time.
func NewID() string { return ulid.MustNew(ulid.Now(), rand.Reader).String() }

func newTraceID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// UsageError says that the options make no sense.
type UsageError struct {
	Field  string
	Reason string
	hint   string
}

func (e *UsageError) Error() string { return "run: " + e.Field + ": " + e.Reason }

// Hint says what to do instead.
func (e *UsageError) Hint() string { return e.hint }

func (o *Options) check() error {
	switch {
	case strings.TrimSpace(o.Task) == "":
		return &UsageError{Field: "task", Reason: "it is empty", hint: "say what to do"}
	case o.Provider == nil:
		return &UsageError{Field: "provider", Reason: "there is none"}
	case o.StateDir == "":
		return &UsageError{Field: "state directory", Reason: "it is empty"}
	}
	if o.ID != "" {
		if _, err := ulid.ParseStrict(o.ID); err != nil {
			return &UsageError{Field: "id", Reason: err.Error(), hint: "leave it empty"}
		}
	}
	for _, a := range o.Artifacts {
		if a == "" || !filepath.IsAbs(a) && !filepath.IsLocal(a) {
			return &UsageError{Field: "artifact " + a, Reason: "it leads out of the workspace", hint: "give an absolute path, or one in the workspace"}
		}
		if misnamed(a) {
			return &UsageError{Field: fmt.Sprintf("artifact %+q", a), Reason: noUTF8, hint: "give the file another name in the sandbox"}
		}
	}
	for _, p := range o.Target.ReadPrefixes {
		if !path.IsAbs(p) || path.Clean(p) == "/" {
			return &UsageError{Field: "read prefix " + p, Reason: "it is no absolute directory that could be opened for reading", hint: "give one such as /usr/include"}
		}
	}
	if err := o.checkApproval(); err != nil {
		return err
	}
	return errors.Join(o.checkAcceptance(), o.checkOutput())
}

// begin makes the run's directory and its record. It fills in what o leaves open.
func begin(o *Options) (_ *runner, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.ID == "" {
		o.ID = NewID()
	}
	if o.TraceID == "" {
		o.TraceID = newTraceID()
	}
	if o.Limits == (budget.Limits{}) {
		o.Limits = budget.Standard()
	}
	r := &runner{o: *o, dir: filepath.Join(o.StateDir, "runs", o.ID), started: time.Now(), finished: make(chan struct{})}
	r.desk = &desk{r: r}
	r.tree, err = budget.NewTree(o.Limits, budget.TreeOptions{Warn: r.warnLimit})
	if err != nil {
		return nil, err
	}
	if err := checkTools(o.Tools, o.Limits.MaxCallTimeout); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(r.dir), 0o700); err != nil {
		return nil, err
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, err
	}
	r.log, err = audit.Create(filepath.Join(r.dir, AuditFile), audit.Options{Masker: o.Masker, Sync: o.SyncRecords})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.talk.close(), r.log.Close())
		}
	}()
	if !o.NoTranscript {
		if r.talk, err = newTranscript(filepath.Join(r.dir, transcriptFile), o.Masker); err != nil {
			return nil, err
		}
	}
	if err := r.keepInvocation(); err != nil {
		return nil, err
	}
	r.skeleton()
	return r, r.record(audit.KindRunStart, "", runStart{
		Task: o.Task, Target: r.report.Target, Model: o.Model, Version: o.Version, Limits: r.report.Limits,
		ConfigHash: o.ConfigHash, Workspace: o.Workspace.Dir, Checks: len(o.Accept),
		Options: r.o.fingerprint(), Transcript: r.talk != nil, Agent: r.report.Agent,
	})
}

// runStart is the data of audit.KindRunStart.
type runStart struct {
	Task       string      `json:"task"`
	Target     TargetInfo  `json:"target"`
	Model      string      `json:"model,omitempty"`
	Version    string      `json:"rein,omitempty"`
	Limits     []LimitInfo `json:"limits"`
	ConfigHash string      `json:"config_hash,omitempty"`
	Workspace  string      `json:"workspace,omitempty"`
	Checks     int         `json:"checks"`
	Options    string      `json:"options_sha256,omitempty"`
	Transcript bool        `json:"transcript"`
	Agent      *AgentInfo  `json:"agent,omitempty"`
}

// skeleton fills the report with what is known before anything is done.
func (r *runner) skeleton() {
	spec, _ := json.Marshal(r.o.Target.Spec) // plain data always encodes
	var worker *AgentInfo
	if r.o.Agent != nil {
		copied := *r.o.Agent
		worker = &copied
	}
	r.report = &Report{
		Version: ReportVersion, RunID: r.o.ID, TraceID: r.o.TraceID, Task: r.o.Task, Dir: r.dir,
		Target:   TargetInfo{Name: r.o.Target.Name, Provider: r.o.Provider.Name(), Image: r.o.Target.Spec.Image},
		Accepted: r.o.unjudged(), StartedAt: r.started,
		Agent: worker, Tokens: Tokens{PriceSource: r.o.PriceSource}, Calls: Calls{ByTool: map[string]int{}}, Cleanup: Cleanup{OK: true, Verified: "no sandbox was created"},
		Provenance: Provenance{Rein: r.o.Version, Model: r.o.Model, ConfigHash: r.o.ConfigHash,
			TaskHash: hash([]byte(r.o.Task)), SpecHash: hash(spec)},
	}
	for _, s := range r.o.Limits.List() {
		if worker != nil && (s.Limit.Layer() == "call" || s.Limit == budget.LimitToolCalls) {
			continue // its calls are its own, and nobody bounds them
		}
		by := "rein"
		if worker != nil && s.Limit != budget.LimitWallTime {
			by = "gateway and rein"
		}
		switch s.Limit {
		case budget.LimitCallTimeout, budget.LimitMaxCallTimeout:
			by = "execd"
		case budget.LimitOutputBytes, budget.LimitOutputLines:
			by = "execd and rein"
		case budget.LimitTTL:
			by = "provider " + r.o.Provider.Name()
		}
		r.report.Limits = append(r.report.Limits, LimitInfo{Layer: s.Limit.Layer(), Name: string(s.Limit), Value: s.Value, EnforcedBy: by})
	}
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// describe adds what is known of the sandbox once it exists.
func (r *runner) describe(info sandbox.Info) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.SandboxID = info.ID
	t := &r.report.Target
	t.Runtime, t.Image, t.ImageDigest, t.Separation = info.Runtime, info.Image, info.ImageDigest, info.Separation
	r.report.Provenance.ImageDigest = info.ImageDigest
	for _, l := range info.Limits {
		r.report.Limits = append(r.report.Limits, LimitInfo{Layer: "resource", Name: l.Resource, Value: l.Value, EnforcedBy: l.EnforcedBy})
	}
}

func (r *runner) record(kind audit.Kind, callID string, data any) error {
	e := audit.Entry{Kind: kind, RunID: r.o.ID, TraceID: r.o.TraceID, CallID: callID, Data: data}
	if r.box != nil {
		e.SandboxID = r.box.ID()
	}
	_, err := r.log.Append(e)
	if err != nil {
		return fmt.Errorf("record %s: %w", kind, err)
	}
	return nil
}

// emit tells the watcher, if there is one.
func (r *runner) emit(e Event) {
	r.desk.note(e)
	if r.o.Events == nil {
		return
	}
	r.events.Lock()
	defer r.events.Unlock()
	e.Time = time.Now()
	e.Text = r.o.Masker.String(e.Text)
	if r.tree != nil {
		used := r.tree.Usage()
		e.Tokens, e.CostUSD = used.Tokens, used.Cost.Float()
	}
	r.o.Events(e)
}

func (r *runner) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.mu.Lock()
	r.report.Warnings = append(r.report.Warnings, text)
	r.mu.Unlock()
	if !r.past.Driving() { // else it was told then
		r.emit(Event{Kind: EventWarning, Text: text})
	}
}

func (r *runner) warnLimit(w budget.Warning) { r.warn("%s", w) }
