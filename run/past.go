package run

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/tool"
)

// Past is what a run has on record of its worker: what the model was sent, what
// it answered, and the result of every call, in order. A worker that continues
// a run, or whose run is replayed, does all of it again: its model answers from
// Past.Reply and its tools from Past.Result, while the Session counts what it is
// told, and records nothing, until the record is at its end. What does not
// follow the record ends the run. So whatever a worker keeps in memory is what
// it was. It is driven by one goroutine.
type Past struct {
	mu     sync.Mutex
	said   []saying
	at     int
	begun  string        // the id of the call that had begun, and has no result
	edited string        // the command that a person put in its place
	opened string        // the session that it is on record as having opened
	lost   bool          // the request just done again has no reply
	sent   *saying       // the request just done again
	live   chan struct{} // closed at the end of the record
	now    time.Time     // as the record has it

	between func(saying) // told of what is between the worker's entries
	stop    func() bool  // ends the work as it was ended; whether that was from outside
	stopAt  int          // when so much has been done again
	shields []shield     // the contexts of the worker, from the outside in
	endWork context.CancelCauseFunc

	// Of a replay, and of a run whose sandbox is gone. closing answers the calls
	// that have no result, and then have one.
	closing func(c tool.Call, begun bool) tool.Result
	strict  bool          // there is nothing after the end
	shift   time.Duration // from the record's time to now
	off     *Difference   // the first: what follows it follows from it
}

// saying is one entry of the transcript, or a record between entries.
type saying struct {
	kind audit.Kind
	time time.Time
	step int
	data json.RawMessage // of the transcript
	call toolRecord      // of audit.KindTool
	id   string          // its call_id
	hash string          // of its line in the transcript
	asks string          // the model that a request is for
	held Held            // what was set aside for a request
	lost bool            // a request whose reply never came
}

// Difference is where a replayed run does not do what is on record.
type Difference struct {
	Step     int    `json:"step"`
	Recorded string `json:"recorded"`
	Replayed string `json:"replayed"`
}

func (d Difference) String() string {
	return fmt.Sprintf("step %d: recorded %s; replayed %s", d.Step, d.Recorded, d.Replayed)
}

// OffRecordError says that a worker did not do again what is on record.
type OffRecordError struct{ Difference }

func (e *OffRecordError) Error() string { return "this is not what is on record: " + e.String() }

// Hint says what to do.
func (e *OffRecordError) Hint() string {
	return "the record is followed by the version of rein, and the configuration, that made it"
}

// Driving reports whether the record is still followed. A nil Past is at its
// end.
func (p *Past) Driving() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at < len(p.said)
}

// Binding reports whether nothing but the record may answer: while it is
// followed, and always in a replay.
func (p *Past) Binding() bool { return p != nil && (p.strict || p.Driving()) }

// clock is the time of the record while that is followed.
func (p *Past) clock() time.Time {
	if p == nil {
		return time.Now()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at < len(p.said) || p.strict {
		return p.now.Add(p.shift)
	}
	return time.Now()
}

// next is the entry that is to come; ok is false at the end.
func (p *Past) next() (s saying, ok bool) {
	if p == nil {
		return s, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == len(p.said) {
		return s, false
	}
	return p.said[p.at], true
}

// Reply is the answer on record to the request just made, as the worker said it
// (Said.Data). It is nil where the record is at its end.
func (p *Past) Reply() json.RawMessage {
	if s, ok := p.next(); ok && s.kind == audit.KindModelReply {
		return s.data
	}
	return nil
}

// Request is the request on record that is to come, as the worker said it
// (Said.Data). It is nil where none does.
func (p *Past) Request() json.RawMessage {
	if s, ok := p.next(); ok && s.kind == audit.KindModelRequest {
		return s.data
	}
	return nil
}

// Lost reports whether the request just made was on record without a reply: the
// process was ended while it waited for it. Nobody knows what it cost.
func (p *Past) Lost() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Held is what was set aside for the request just made, and that request as the
// worker said it (Said.Data). ok is false when it is not on record.
func (p *Past) Held() (held Held, request json.RawMessage, ok bool) {
	if p == nil {
		return held, nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent == nil || p.sent.held == (Held{}) {
		return held, nil, false
	}
	return p.sent.held, p.sent.data, true
}

// Asks reports whether the record goes on with a request of that model.
func (p *Past) Asks(model string) bool {
	s, ok := p.next()
	return ok && s.kind == audit.KindModelRequest && s.asks == model
}

// Result is the result on record of the call, which has begun. begun says that
// rein had begun the call and has no result of it; without a result and without
// begun, the call is a new one.
func (p *Past) Result(c tool.Call) (res *tool.Result, begun bool) {
	s, ok := p.next()
	switch {
	case p == nil:
		return nil, false
	case !ok && p.closing != nil:
		res := p.closing(c, c.ID == p.begun)
		return &res, false
	case !ok:
		return nil, c.ID == p.begun
	}
	if s.kind != audit.KindTool || s.id != c.ID {
		return nil, false
	}
	var told toldResult
	if json.Unmarshal(s.data, &told) != nil {
		return nil, false
	}
	told.Result.OutputBytes, told.Result.Kept = s.call.OutputBytes, told.Kept
	return &told.Result, false
}

// Begun reports whether the call is the one that rein had begun, and has no
// result of. Whatever would keep it from being made now did not then.
func (p *Past) Begun(c tool.Call) bool {
	if _, ok := p.next(); ok || p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun != "" && p.begun == c.ID
}

// Edited is the command that a person put in the place of that of the call that
// had begun; empty: none.
func (p *Past) Edited() string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.edited
}

// Opened is the session that the call that had begun is on record as having
// opened; empty: none.
func (p *Past) Opened() string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened
}

// callID is the id of the call that is about to be made: that of the record.
func (p *Past) callID() string {
	if p == nil {
		return ""
	}
	if s, ok := p.next(); ok {
		return s.id // empty where no call follows, and told of when it is made
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun
}

// follow takes one entry of a worker as that of the record, and reports whether
// it was: at the end of the record the entry is a new one.
func (p *Past) follow(kind audit.Kind, step int, what string) (bool, error) {
	s, ok := p.next()
	lost := p.noteSent(s, ok)
	if !ok {
		p.resolved()
		if lost && kind == audit.KindModelReply { // that it never came
			return false, nil
		}
		return false, p.over(kind, step, what)
	}
	if s.kind != kind || s.step != step {
		return true, p.differs(step, s.what(), what)
	}
	p.advance()
	return true, nil
}

// noteSent notes the request that is taken now, if ok, or that it is none, and
// returns whether the one before it has no reply.
func (p *Past) noteSent(s saying, ok bool) (lost bool) {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	lost = p.lost
	if p.lost, p.sent = ok && s.lost, nil; ok && s.kind == audit.KindModelRequest {
		sent := s // only here, so that a run without a record needs no memory for it
		p.sent = &sent
	}
	return lost
}

// resolved notes that the call that had begun has a result now: it is the first
// thing that is new.
func (p *Past) resolved() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = ""
}

// over is what comes of doing more than is on record: a replay ends there.
func (p *Past) over(kind audit.Kind, step int, what string) error {
	if p == nil || !p.strict || kind == audit.KindTool && p.closing != nil {
		return nil
	}
	return p.differs(step, "nothing more", what)
}

func (p *Past) differs(step int, recorded, replayed string) error {
	d := Difference{Step: step, Recorded: recorded, Replayed: replayed}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off == nil {
		p.off = &d
	}
	return &OffRecordError{*p.off}
}

// advance goes on to the next entry of the worker's.
func (p *Past) advance() {
	p.mu.Lock()
	if s := p.said[p.at]; !s.call.Closed {
		p.now = s.time
	}
	p.at++
	p.mu.Unlock()
	p.settle()
}

// settle passes what is no entry of the worker's, and tells of the end.
func (p *Past) settle() {
	for {
		s, ok := p.next()
		if !ok {
			break
		}
		if s.entry() {
			break
		}
		if p.between != nil {
			p.between(s)
		}
		p.mu.Lock()
		p.at++
		p.mu.Unlock()
	}
	p.halt()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at < len(p.said) {
		return
	}
	select {
	case <-p.live:
	default:
		close(p.live)
	}
	if p.strict { // nothing that could take its time follows
		return
	}
	for _, s := range p.shields { // before the worker goes on
		s.pass()
	}
}

// what names an entry.
func (s saying) what() string {
	switch s.kind {
	case audit.KindModelRequest:
		return "a request to the model"
	case audit.KindModelReply:
		return "a reply"
	case audit.KindVerdict:
		return "failed checks"
	}
	return s.call.what()
}

// what names a call and what became of it, as far as a loop decides it.
func (t toolRecord) what() string {
	return callName(t.Tool, t.Parameters, t.Executed, t.Error)
}

func callName(name, parameters string, executed bool, e *tool.Error) string {
	s := fmt.Sprintf("%s %s", name, parameters)
	if !executed {
		s += ", not executed"
	}
	if e != nil {
		s += " (" + string(e.Class) + " " + e.Code + ")"
	}
	return s
}

// toldResult is what the transcript has of a call.
type toldResult struct {
	CallID      string      `json:"call_id"`
	ModelCallID string      `json:"model_call_id,omitempty"`
	Tool        string      `json:"tool"`
	Result      tool.Result `json:"result"`
	// Kept is tool.Result.Kept, which the model is not told.
	Kept *tool.Spill `json:"kept,omitempty"`
}

// followCall takes a call that has ended as that of the record. What was
// executed, and what class of failure came of it, is the loop's doing.
func (r *runner) followCall(c tool.Call, step int, res tool.Result, executed bool) (bool, error) {
	if r.past == nil {
		return false, nil
	}
	what := callName(c.Name, Summarize(c, r.o.Masker), executed, res.Err)
	s, ok := r.past.next()
	if ok && s.kind == audit.KindTool && (s.id != c.ID || s.call.what() != what) {
		return true, r.past.differs(step, s.what(), what)
	}
	return r.past.follow(audit.KindTool, step, what)
}
