package soak

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// begun is a call of the worker that something was begun for in the sandbox.
type begun struct {
	at       time.Time
	intent   sandbox.CallIntent
	box      string
	function bool // of the host
	// least and most are the timeouts it may have: where it was sent twice,
	// nobody knows which one arrived.
	least, most int64
	again       bool
	// orphan is one whose process was ended: how long it was until the next one
	// asked what became of it says nothing.
	orphan bool
}

// ending is what it may take to learn how a command ended that has run into its
// timeout: execd ends it, or is asked, interrupted and asked again, and then the
// provider whether the sandbox is there, and what it has of the network.
const ending = 2*sandbox.InterruptTimeout + 3*sandbox.VerifyTimeout + 5*time.Second

// timeouts holds every call to the time it may take, and every sandbox to its
// time to live at birth.
func (j *judge) timeouts() {
	asked := j.asked()
	open, times := map[string]begun{}, map[string]int64{}
	granted := map[wish]int{}
	births, processes := 0, 1
	for _, r := range j.records {
		switch r.Kind {
		case audit.KindRunResumed:
			processes++
			for id, b := range open {
				b.orphan = true
				open[id] = b
			}
		case audit.KindSandboxIntent:
			if j.birth(r) {
				births++
			}
			j.check(births <= processes, "%d sandboxes were asked for by %d processes", births, processes)
		case audit.KindCallIntent:
			var b begun
			if json.Unmarshal(r.Data, &b.intent) != nil {
				j.fault("record %d is no intent of a call", r.Seq)
			}
			if !strings.HasPrefix(r.CallID, "call_") {
				continue
			}
			if j.function(r, granted) {
				open[r.CallID] = begun{at: r.Time, box: r.SandboxID, function: true}
				continue
			}
			old, again := times[r.CallID]
			b.at, b.box = r.Time, r.SandboxID
			b.least, b.most = b.intent.TimeoutMS, b.intent.TimeoutMS
			if b.again = again; again {
				b.least, b.most = min(b.least, old), max(b.most, old)
			}
			open[r.CallID], times[r.CallID] = b, b.intent.TimeoutMS
			j.begins(r, b, again)
		case audit.KindCallOutcome:
			if b, ok := open[r.CallID]; ok {
				delete(open, r.CallID)
				j.ends(r, b)
			}
		case audit.KindHalt:
			for id, b := range open {
				j.cutShort(r, id, b)
			}
		case audit.KindKilled:
			for id, b := range open {
				j.check(b.box != r.SandboxID || j.leftBehind() || j.Crashed, "the call %s goes on after its sandbox was destroyed", id)
			}
		case audit.KindTool:
			var t struct {
				Tool string `json:"tool"`
				Hash string `json:"parameters_sha256"`
			}
			given, ok := times[r.CallID]
			if err := json.Unmarshal(r.Data, &t); err != nil || !ok || t.Tool != tool.RunCommand && t.Tool != tool.SessionRun {
				continue
			}
			args, known := asked[t.Hash]
			most := args.Timeout * 1000
			if most == 0 {
				most = float64(j.Plan.Limits.CallTimeout.Milliseconds())
			}
			j.check(known, "the arguments of call %s are not those of any reply", r.CallID)
			j.check(args.Background || float64(given) <= most, "the call %s was given %d ms, and may take %v", r.CallID, given, most)
		}
	}
	for w, n := range j.Functions.calls {
		j.check(n <= granted[w], "%+v was called %d times, and %d times on record", w, n, granted[w])
	}
}

// cutShort looks at a call that is under way when the work is stopped for the
// sandbox's end: it would have ended by itself. What is not so is a command in
// the background, what a process that was ended had begun, and a sandbox that
// could not be renewed or that was given another end.
func (j *judge) cutShort(r audit.Record, id string, b begun) {
	if b.function || b.intent.Background || b.again || len(j.Plan.Provider.Renew) > 0 || len(j.Plan.Changes) > 0 || j.Report.Reason != run.NoProgress {
		return
	}
	end := b.at.Add(time.Duration(b.most) * time.Millisecond)
	j.check(!end.After(r.Time.Add(time.Second)), "the call %s was stopped for the sandbox's end, %s before its own", id, end.Sub(r.Time))
}

// function counts the call of a function, if r is the beginning of one.
func (j *judge) function(r audit.Record, granted map[wish]int) bool {
	var f struct {
		Function   bool   `json:"function"`
		Parameters string `json:"parameters"`
	}
	var w wish
	if json.Unmarshal(r.Data, &f) != nil || !f.Function {
		return false
	}
	j.check(json.Unmarshal([]byte(f.Parameters), &w) == nil, "record %d: parameters %s", r.Seq, f.Parameters)
	granted[w]++
	return true
}

// times are what a call of run_command says about its time.
type times struct {
	Timeout    float64 `json:"timeout_seconds"`
	Background bool    `json:"background"`
}

// asked is what the calls of all replies ask for, by the hash of their arguments.
func (j *judge) asked() map[string]times {
	all := map[string]times{}
	for _, s := range j.seen {
		if s.Reply == nil {
			continue
		}
		for _, c := range s.Reply.Message.Calls {
			sum := sha256.Sum256([]byte(c.Arguments))
			var t times
			_ = json.Unmarshal([]byte(c.Arguments), &t) // what is no JSON asks for nothing, and is not begun
			all[hex.EncodeToString(sum[:])] = t
		}
	}
	return all
}

// birth looks at what a sandbox is asked to live, and reports whether it is one
// to work in.
func (j *judge) birth(r audit.Record) bool {
	var c sandbox.CreateIntent
	if json.Unmarshal(r.Data, &c) != nil {
		j.fault("record %d is no intent to create", r.Seq)
	}
	if c.Labels[run.LabelRole] != "" {
		return false // of the checks
	}
	l := j.Plan.Limits
	ttl := l.TTL
	if ttl == 0 {
		ttl = min(l.MaxWallTime, 15*time.Minute) + 3*time.Minute
	}
	left := j.Start.Add(l.MaxWallTime + 3*time.Minute).Sub(r.Time)
	want := min(ttl, left).Milliseconds()
	j.check(c.TTLMS > 0 && c.TTLMS <= want+1 && c.TTLMS >= want-1000, "the sandbox was to live %d ms at birth, and not %d", c.TTLMS, want)
	return true
}

// begins looks at what a call is given when it begins: at most what a call may
// ask for, and no more than is left of the run, nor of the sandbox with the
// renewal that may be due. What had begun before a process was ended is only
// asked for again.
func (j *judge) begins(r audit.Record, b begun, again bool) {
	timeout := time.Duration(b.intent.TimeoutMS) * time.Millisecond
	l := j.Plan.most()
	j.check(timeout > 0, "the call %s has no timeout", r.CallID)
	j.check(b.intent.Tool != "nap" || timeout <= napTimeout, "the call %s of nap was given %s", r.CallID, timeout)
	j.check(b.intent.Tool != "show" || timeout <= l.CallTimeout, "the call %s of show was given %s", r.CallID, timeout)
	j.check(b.intent.Background || timeout <= l.MaxCallTimeout, "the call %s was given %s of %s", r.CallID, timeout, l.MaxCallTimeout)
	late := r.Time.Add(timeout).Sub(j.Start)
	j.check(again || late <= l.MaxWallTime, "the call %s may go on until %s, and the run until %s", r.CallID, late, l.MaxWallTime)
	if end := j.Provider.end(b.box, r.Time); !again && !b.intent.Background {
		end = end.Add(budget.Estimate(l.MaxWallTime) - budget.SaveBefore)
		j.check(!r.Time.Add(timeout).After(end), "the call %s may go on until %s, and the sandbox's outputs are saved from %s on", r.CallID, late, end.Sub(j.Start))
	}
}

// ends looks at what a call took.
func (j *judge) ends(r audit.Record, b begun) {
	var o sandbox.CallOutcome
	if json.Unmarshal(r.Data, &o) != nil {
		j.fault("record %d is no outcome of a call", r.Seq)
	}
	if b.intent.Background {
		return
	}
	timeout := time.Duration(b.most) * time.Millisecond
	if b.function {
		timeout = j.Plan.Limits.CallTimeout
		j.check(r.Time.Sub(b.at) <= timeout, "the function of call %s took %s of %s", r.CallID, r.Time.Sub(b.at), timeout)
		return
	}
	took := r.Time.Sub(b.at)
	j.check(b.orphan || took <= timeout+ending, "the call %s took %s of %s", r.CallID, took, timeout)
	whole := !o.Verified && o.Failure == nil && !o.Known
	j.check(!whole || o.DurationMS <= b.most+1000, "the call %s ran for %d ms of %d", r.CallID, o.DurationMS, b.most)
	j.check(!o.Timeout || o.DurationMS >= b.least, "the call %s timed out after %d ms of %d", r.CallID, o.DurationMS, b.least)
	if end := j.Provider.end(b.box, r.Time); !end.IsZero() {
		j.check(!r.Time.After(end.Add(ending)), "the call %s ended %s after its sandbox", r.CallID, r.Time.Sub(end))
	}
}
