// Package control lets another process of the same user look at a run while it
// works, change its limits, answer what it asks, and stop it. The run serves a
// Unix socket in its directory; nobody else reaches it.
//
// Protocol: one JSON object a line each way, in turn. A request names the
// version of the protocol, a method and that method's members; an answer has
// either a result or an error. Members that the version does not have are
// refused, because an option that is ignored would be taken for granted.
//
//	{"v":1,"method":"status"}                                          Status
//	{"v":1,"method":"limit","limit":"max_tokens","amount":2000000}     Change
//	{"v":1,"method":"pending"}                                         []Pending
//	{"v":1,"method":"approve","id":"…","hash":"…","decision":"approve","scope":"once"}
//	{"v":1,"method":"stop","reason":"…"}
//	{"v":1,"method":"allow","host":"example.com","port":443}           NetworkChange
//	{"v":1,"method":"deny","host":"example.com"}                       NetworkChange
//	{"v":1,"method":"rotate","secret":"github"}
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/secret"
)

// File is the socket's name in a run's directory.
const File = "control.sock"

// Version of the protocol.
const Version = 1

// Bounds of the protocol.
const (
	MaxRequest  = 64 << 10 // bytes of a line, newline included
	MaxResponse = 1 << 20
	maxID       = 128
	maxReason   = 1 << 10
	maxHost     = 256
	maxValue    = 16 << 10
)

// Method is what is asked for.
type Method string

// The methods.
const (
	MethodStatus  Method = "status"
	MethodLimit   Method = "limit"
	MethodPending Method = "pending"
	MethodApprove Method = "approve"
	MethodStop    Method = "stop"
	MethodAllow   Method = "allow"
	MethodDeny    Method = "deny"
	MethodRotate  Method = "rotate"
)

// Request is one line of a client.
type Request struct {
	V      int    `json:"v"`
	Method Method `json:"method"`

	// Of MethodLimit: Amount is in the unit of the limit (budget.Limit.Format).
	Limit  budget.Limit `json:"limit,omitempty"`
	Amount int64        `json:"amount,omitempty"`

	// Of MethodApprove. Hash is the question's.
	ID       string   `json:"id,omitempty"`
	Hash     string   `json:"hash,omitempty"`
	Decision Decision `json:"decision,omitempty"`
	Scope    Scope    `json:"scope,omitempty"`

	// Reason is why, of MethodApprove and MethodStop; it may be empty.
	Reason string `json:"reason,omitempty"`

	// Of MethodAllow and MethodDeny, see Host.
	Host  string `json:"host,omitempty"`
	Port  int    `json:"port,omitempty"`
	Proto string `json:"proto,omitempty"`

	// Of MethodRotate. Without a value the run reads the secret from where it is
	// from.
	Secret string `json:"secret,omitempty"`
	Value  string `json:"value,omitempty"`
}

// Host is what may be reached on the network, or may not any more.
type Host struct {
	Host  string // a name, "*." and a name, an address or a range of them
	Port  int    // 0: the usual ones of what is allowed, every one of what is denied
	Proto string // tls, http or tcp; empty where the port says it
}

// NetworkChange is a change of what may be reached.
type NetworkChange struct {
	Action string `json:"action"` // allow, deny
	Host   string `json:"host"`
	Port   int    `json:"port,omitempty"`
	Proto  string `json:"proto,omitempty"`
	// Generation counts the policies of the sandbox, from 1.
	Generation uint64 `json:"generation"`
	// Says are the rules in force, a line each; empty: nothing may be reached.
	Says []string `json:"says,omitempty"`
}

// Decision answers what is pending.
type Decision string

// The decisions.
const (
	Approve Decision = "approve"
	Deny    Decision = "deny"
)

// Scope is for how long a decision holds.
type Scope string

// The scopes.
const (
	Once   Scope = "once"
	ForRun Scope = "run" // the same question is answered the same way to the end of the run
)

// Answer is a person's answer to what is pending.
type Answer struct {
	// ID and Hash are the question's. A question of that id with another hash is
	// not answered.
	ID, Hash string
	Decision Decision
	Scope    Scope // empty means Once
	Reason   string
}

// Response is one line of a server: OK with the method's Result, or an Error.
type Response struct {
	V      int             `json:"v"`
	OK     bool            `json:"ok"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

// Error is why a request was not done.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Advice  string `json:"hint,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Hint says what to do; it may be empty.
func (e *Error) Hint() string { return e.Advice }

// Codes of errors.
const (
	CodeMalformed   = "malformed"   // the request is none of this protocol
	CodeInvalid     = "invalid"     // what it asks for makes no sense
	CodeNotFound    = "not_found"   // nothing of that id is pending
	CodeChanged     = "changed"     // what is pending is not what was answered
	CodeUnsupported = "unsupported" // this run cannot do it
	CodeEnding      = "ending"      // the run is about to end
	CodeFailed      = "failed"
	CodeBusy        = "busy" // too many clients at once
)

// Status is a run at one moment. Texts are masked, not stripped of control
// characters.
type Status struct {
	RunID     string    `json:"run_id"`
	PID       int       `json:"pid"`
	Task      string    `json:"task"`
	StartedAt time.Time `json:"started_at"`
	Deadline  time.Time `json:"deadline"`
	// Doing is a few words; Waiting says for what the run waits, if it does.
	Doing   string `json:"doing"`
	Waiting string `json:"waiting,omitempty"`

	SandboxID string  `json:"sandbox_id,omitempty"`
	Steps     int     `json:"steps"`
	Calls     int     `json:"calls"`
	Tokens    int64   `json:"tokens"`
	CostUSD   float64 `json:"cost_usd,omitempty"`

	Limits []Limit `json:"limits"`
	// Pending counts the questions that wait for a person.
	Pending int `json:"pending"`
}

// Limit is one limit in force.
type Limit struct {
	Name   budget.Limit `json:"name"`
	Amount int64        `json:"amount"`
	Value  string       `json:"value"` // Amount with its unit
}

// Change is a limit that was changed.
type Change struct {
	Limit budget.Limit `json:"limit"`
	Old   string       `json:"old"`
	New   string       `json:"new"`
}

// Pending is a question that waits for a person.
type Pending struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"` // command, tool, host
	CallID string `json:"call_id,omitempty"`
	Tool   string `json:"tool,omitempty"`
	Text   string `json:"text"` // what is to be allowed
	Cwd    string `json:"cwd,omitempty"`
	// Env names the variables of its own that it runs with; Files are those that
	// it reads as programs, with the SHA-256 that an answer is bound to.
	Env   []string          `json:"env,omitempty"`
	Files map[string]string `json:"files,omitempty"`
	Why   string            `json:"why,omitempty"`
	// Hash is that of what an answer is bound to, and has to be in the answer.
	Hash string `json:"hash"`
	// Hidden says that characters that cannot be seen were left out of Text, Cut
	// that Text is not all of it.
	Hidden  bool      `json:"hidden_characters,omitempty"`
	Cut     bool      `json:"cut,omitempty"`
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires"`
}

// Peer is who asks, as the kernel says.
type Peer struct {
	UID uint32 `json:"uid"`
	PID int32  `json:"pid"`
}

// Handler is the run. Its methods may be called concurrently; ctx ends with the
// server. An *Error is sent as it is, another error as CodeFailed.
type Handler interface {
	Status(ctx context.Context) (Status, error)
	Limit(ctx context.Context, by Peer, limit budget.Limit, amount int64) (Change, error)
	Pending(ctx context.Context) ([]Pending, error)
	Approve(ctx context.Context, by Peer, a Answer) error
	Stop(ctx context.Context, by Peer, reason string) error
	// Network allows a host, or denies it.
	Network(ctx context.Context, by Peer, action Method, h Host) (NetworkChange, error)
	// Rotate changes a secret to a value; the zero Value: to what it is now where it
	// is from.
	Rotate(ctx context.Context, by Peer, name string, value secret.Value) error
}

// ParseRequest reads one line. A fault is an *Error.
func ParseRequest(line []byte) (Request, error) {
	var r Request
	if len(line) > MaxRequest {
		return r, malformed("the request is longer than %d bytes", MaxRequest)
	}
	if !utf8.Valid(line) {
		return r, malformed("the request is no UTF-8")
	}
	var any struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(line, &any); err != nil {
		return r, malformed("the request is no JSON object: %v", err)
	}
	if any.V != Version {
		return r, &Error{Code: CodeUnsupported, Message: fmt.Sprintf("version %d of the protocol is not spoken here, only %d", any.V, Version),
			Advice: "use the rein that started the run"}
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Request{}, malformed("%v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Request{}, malformed("more than one value on a line")
	}
	if err := r.check(); err != nil {
		return Request{}, err
	}
	return r, nil
}

func malformed(format string, args ...any) *Error {
	return &Error{Code: CodeMalformed, Message: fmt.Sprintf(format, args...)}
}

// check judges the members of a method: those it needs are there and make
// sense, those of others are not.
func (r *Request) check() error {
	invalid := func(format string, args ...any) error {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf(format, args...)}
	}
	of := *r
	of.V, of.Method = 0, ""
	switch r.Method {
	case MethodStatus, MethodPending:
	case MethodLimit:
		if r.Limit == "" || r.Amount <= 0 {
			return invalid("a limit needs a name and an amount above zero")
		}
		of.Limit, of.Amount = "", 0
	case MethodApprove:
		if r.Decision != Approve && r.Decision != Deny {
			return invalid("the decision is %s or %s", Approve, Deny)
		}
		if r.Scope == "" {
			r.Scope = Once
		}
		if r.Scope != Once && r.Scope != ForRun {
			return invalid("the scope is %s or %s", Once, ForRun)
		}
		if r.ID == "" || len(r.ID) > maxID || len(r.Reason) > maxReason {
			return invalid("an id of at most %d bytes is needed, and a reason has at most %d", maxID, maxReason)
		}
		if r.Hash == "" || len(r.Hash) > maxID {
			return invalid("the hash of the question is needed")
		}
		of.ID, of.Hash, of.Decision, of.Scope, of.Reason = "", "", "", "", ""
	case MethodStop:
		if len(r.Reason) > maxReason {
			return invalid("a reason has at most %d bytes", maxReason)
		}
		of.Reason = ""
	case MethodAllow, MethodDeny:
		if r.Host == "" || len(r.Host) > maxHost || r.Port < 0 || r.Port > 65535 || len(r.Proto) > maxID {
			return invalid("a host of at most %d bytes is needed, and a port is 1 to 65535", maxHost)
		}
		if r.Method == MethodDeny && r.Proto != "" {
			return invalid("what is denied is so whatever is spoken")
		}
		of.Host, of.Port, of.Proto = "", 0, ""
	case MethodRotate:
		if r.Secret == "" || len(r.Secret) > maxID || len(r.Value) > maxValue {
			return invalid("a secret's name of at most %d bytes is needed, and its value has at most %d", maxID, maxValue)
		}
		of.Secret, of.Value = "", ""
	default:
		return &Error{Code: CodeUnsupported, Message: fmt.Sprintf("there is no method %q", cut(string(r.Method)))}
	}
	if of != (Request{}) {
		return invalid("the method %s has members of another", r.Method)
	}
	return nil
}

// cut bounds a word that is said back.
func cut(s string) string {
	if len(s) > 32 {
		s = strings.ToValidUTF8(s[:32], "") + "…"
	}
	return s
}
