// Package model says what a language model is to rein: something that, given
// a conversation and a list of tools, replies with text or tool calls and says
// what that cost. Implementations are its sub-packages; none of their vendors'
// types appear here.
package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Model is one configured model. Generate may be called concurrently. It makes
// exactly one request: retries, fallbacks and budgets belong to the caller.
type Model interface {
	// Name is "vendor/model", as it is shown and recorded.
	Name() string

	// Generate sends req and returns the finished reply. emit, when not nil,
	// is called in order, from one goroutine, with each piece as it arrives;
	// it must not block for long. A stream that ends without its proper end is
	// a *Error of KindCut, never a reply. Errors are *Error.
	Generate(ctx context.Context, req *Request, emit func(Delta)) (*Reply, error)
}

// Request is one request to a model.
type Request struct {
	System   string
	Messages []Message
	Tools    []ToolDef
	// MaxOutputTokens caps the reply, reasoning included. It is always set.
	MaxOutputTokens int
}

// Role of a message.
type Role string

// The roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool" // results of calls
)

// Message is one turn. An assistant message has Text and Calls; a tool message
// has Results, one for each call of the assistant message before it, in order.
type Message struct {
	Role    Role         `json:"role"`
	Text    string       `json:"text,omitempty"`
	Calls   []ToolCall   `json:"calls,omitempty"`
	Results []ToolResult `json:"results,omitempty"`
	// Opaque is what a vendor needs returned unchanged with this message, such
	// as signed reasoning blocks. Only the implementation that made it reads it.
	Opaque json.RawMessage `json:"opaque,omitempty"`
}

// ToolCall is a call as the model wrote it. Nothing in it has been checked.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // supposed to be a JSON object
}

// ToolResult answers the call with the same ID.
type ToolResult struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Content string `json:"content"`
	IsError bool   `json:"is_error,omitempty"`
}

// ToolDef describes a tool to the model.
type ToolDef struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"` // JSON Schema of the arguments
}

// Delta is a piece of a reply as it arrives. Exactly one field is set.
type Delta struct {
	Text      string // text of the answer
	Reasoning string // thinking, where the vendor shows it
	CallName  string // a tool call has begun
}

// StopReason says why a reply ended.
type StopReason string

// The reasons. The zero value is "unknown" and is treated as a cut reply.
const (
	StopEnd       StopReason = "end"
	StopToolCalls StopReason = "tool_calls"
	StopLength    StopReason = "length" // cut by the output cap: its calls are not executed
	StopRefusal   StopReason = "refusal"
)

// Reply is a finished reply.
type Reply struct {
	Message Message
	Stop    StopReason
	Usage   Usage
	Model   string // the model that answered, as the vendor names it
	ID      string // the vendor's id of the response
}

// Usage is what a reply cost, in tokens, as the vendor counts. Input includes
// CachedInput, read from the vendor's cache, and CacheWrite, written to it, where
// the vendor says so; Output includes Reasoning. Known is false when the vendor said
// nothing.
type Usage struct {
	Known       bool  `json:"known"`
	Input       int64 `json:"input"`
	CachedInput int64 `json:"cached_input,omitempty"`
	CacheWrite  int64 `json:"cache_write_input,omitempty"`
	Output      int64 `json:"output"`
	Reasoning   int64 `json:"reasoning,omitempty"`
}

// Kind classifies an Error; append-only.
type Kind string

// The kinds of model errors.
const (
	KindRateLimit   Kind = "rate_limit"  // 429
	KindOverloaded  Kind = "overloaded"  // 503, 529
	KindUnavailable Kind = "unavailable" // connection refused, reset before a reply, other 5xx
	KindTimeout     Kind = "timeout"     // nothing came for too long
	KindCut         Kind = "cut"         // the stream ended in the middle
	KindAuth        Kind = "auth"        // 401: the key is missing or wrong
	KindForbidden   Kind = "forbidden"   // 403
	KindQuota       Kind = "quota"       // the account is spent
	KindNotFound    Kind = "not_found"   // no such model or path
	KindContext     Kind = "context"     // the conversation is too long for the model
	KindInvalid     Kind = "invalid"     // the request was refused as malformed
	KindUnknown     Kind = "unknown"
)

// Error is what went wrong with a request.
type Error struct {
	Kind       Kind
	Model      string
	Status     int           // HTTP status, 0 when there was none
	Code       string        // the vendor's code
	Message    string        // the vendor's message, without secrets
	RetryAfter time.Duration // what the vendor asked for; 0 when it did not
	// Reset is when what is used up is there again, of KindQuota and
	// KindRateLimit; zero when the vendor does not say.
	Reset time.Time
	Hint  string
	Err   error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("model %s: %s", e.Model, e.Kind)
	if e.Status != 0 {
		s += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Message != "" {
		s += ": " + e.Message
	} else if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if !e.Reset.IsZero() {
		s += "; it is there again at " + e.Reset.UTC().Format(time.RFC3339)
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the first *Error in err's chain, or "".
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}
