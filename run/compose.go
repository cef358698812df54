package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// again finds out what had been used by a worker that had ended, and returns how
// it did.
func (r *runner) again(ctx context.Context, w Resumer, rec *record) (Outcome, error) {
	out, err := r.redrive(ctx, w, rec)
	if rec.outcome == nil {
		return out, err
	}
	if b := rec.brake(); b != nil || rec.outcome.Reason != OverBudget {
		r.mu.Lock()
		r.report.Brake, r.decided = b, true
		r.mu.Unlock()
	}
	return Outcome{Reason: rec.outcome.Reason, Detail: rec.outcome.Detail, Hint: rec.outcome.Hint, Answer: out.Answer, Composed: out.Composed}, nil
}

// compose makes the report of a run whose sandbox is gone, or cannot be had any
// more, from what is on record. why is how that is known; nil: the run had
// destroyed it.
func (r *runner) compose(ctx context.Context, w Resumer, rec *record, why error) (Outcome, error) {
	r.past.closing = func(c tool.Call, begun bool) tool.Result { return rec.closed(c, begun, why) }
	out, _ := r.again(ctx, w, rec) // how a record ends that ends anywhere is no error
	composed := out.Composed
	r.adopt(rec)
	r.report.Cleanup = r.cleared(ctx, rec)
	b, lost := r.report.Brake, Outcome{Reason: Lost, Detail: gone(why), Answer: out.Answer}
	overBudget := func() Outcome {
		return Outcome{Reason: OverBudget, Detail: b.stopped(), Answer: out.Answer}
	}
	switch j := rec.judged; {
	case rec.outcome == nil && j == nil && ctx.Err() != nil && b != nil:
		out = overBudget()
	case rec.outcome == nil && j == nil && ctx.Err() != nil:
		out = Outcome{Reason: Interrupted, Detail: interrupted, Answer: out.Answer}
	case rec.outcome == nil && j == nil:
		out = lost
	case rec.outcome == nil && b != nil:
		out = overBudget()
	case rec.outcome == nil: // the agent had said that it was finished
		r.warn("the agent's last words are missing: it had finished, and rein was ended before it could say more")
		out = Outcome{Reason: Done, Answer: out.Answer}
	case j == nil && out.Reason == Done: // and nothing of it was saved
		out = lost
	case j == nil:
		r.warn("%s", gone(why))
	}
	out.Composed = composed
	if rec.judged != nil && rec.judged.Error != "" {
		return out, errors.New(rec.judged.Error)
	}
	return out, nil
}

// closed is the result of a call that has none on record, and whose sandbox is
// gone.
func (rec *record) closed(c tool.Call, begun bool, why error) tool.Result {
	id := rec.sandboxID()
	switch {
	case c.Name == tool.SandboxKill && rec.judged != nil:
		return tool.Result{OK: true, Stdout: rec.judged.Said, CallID: c.ID, SandboxID: id}
	case begun:
		return tool.Result{CallID: c.ID, SandboxID: id, Err: &tool.Error{Class: tool.Verify, Code: tool.CodeOutcomeUnknown,
			Message: "rein was ended while this call was under way; " + gone(why)}}
	}
	return tool.Result{CallID: c.ID, SandboxID: id, Err: &tool.Error{Class: tool.Fatal, Code: tool.CodeSandboxLost, Message: gone(why)}}
}

// cleared makes sure that nothing of the run is left, and says how that is known.
func (r *runner) cleared(ctx context.Context, rec *record) Cleanup {
	if err := r.clear(context.WithoutCancel(ctx), map[string]string{LabelRun: r.o.ID}); err != nil {
		return Cleanup{Error: err.Error(), Remedy: "rein sandbox kill " + rec.sandboxID()}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.DefaultOpTimeout)
	defer cancel()
	_, err := r.o.Provider.Get(ctx, rec.sandboxID())
	if sandbox.KindOf(err) != sandbox.KindNotFound {
		return Cleanup{Error: "it could not be verified", Remedy: "rein sandbox kill " + rec.sandboxID()}
	}
	return Cleanup{OK: true, Verified: "provider " + r.o.Provider.Name() + " says there is no such sandbox"}
}

// adopt takes over what had been brought out and judged, as far as it is what
// was recorded.
func (r *runner) adopt(rec *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := r.report
	rep.SandboxID = rec.sandboxID()
	if i := rec.created; i != nil {
		t := &rep.Target
		t.Runtime, t.Image, t.ImageDigest, t.Separation = i.Runtime, i.Image, i.ImageDigest, i.Separation
	}
	rep.Checks = rec.checks
	if j := rec.judged; j != nil {
		rep.Accepted, rep.Protected = j.Accepted, j.Breaches
	}
	if p := rec.patch; p != nil && fileHash(filepath.Join(r.dir, patchFile)) == p.SHA256 {
		rep.Patch = p
	}
	for _, a := range rec.files {
		known := slices.ContainsFunc(rep.Artifacts, func(o Artifact) bool { return o.Path == a.Path })
		if !known && fileHash(a.Path) == a.SHA256 {
			rep.Artifacts = append(rep.Artifacts, a)
		}
	}
	if rec.net != nil {
		rep.NetworkObserved, rep.NetworkHead = true, rec.net.Copy.String()
		all := r.copiedNetwork()
		rep.Network = all[:min(len(all), MaxNetwork)]
		rep.Hosts, rep.HostsLeft = hostsOf(all)
	}
}

// fileHash is the SHA-256 of a file; empty when it cannot be read.
func fileHash(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// copiedNetwork is what network.jsonl has.
func (r *runner) copiedNetwork() (out []sandbox.NetworkRecord) {
	f, err := os.Open(filepath.Join(r.dir, NetworkFile))
	if err != nil {
		return nil
	}
	defer f.Close()
	for rec, err := range audit.Records(f) {
		var n sandbox.NetworkRecord
		if err == nil && rec.Seq > 1 && json.Unmarshal(rec.Data, &n) == nil {
			out = append(out, n)
		}
	}
	return out
}
