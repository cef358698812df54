package agent

import (
	"errors"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
)

// sentMessages is what the transcript has of a request: the messages that are new
// since the one before it.
type sentMessages struct {
	Purpose         string          `json:"purpose,omitempty"` // purposeSummary; empty: the conversation
	System          string          `json:"system,omitempty"`
	Tools           []model.ToolDef `json:"tools,omitempty"`
	NoTools         bool            `json:"no_tools,omitempty"` // none were offered
	From            int             `json:"from"`               // messages before this one are as sent before
	Messages        []model.Message `json:"messages"`
	MaxOutputTokens int             `json:"max_output_tokens"`
}

// purposeSummary marks the request for a summary of earlier results, and its
// reply. They are not part of the conversation.
const purposeSummary = "summary"

// answered is what the transcript has of a reply.
type answered struct {
	Message model.Message    `json:"message"`
	Stop    model.StopReason `json:"stop"`
	Usage   model.Usage      `json:"usage"`
	Model   string           `json:"model,omitempty"`
	ID      string           `json:"id,omitempty"`
}

// failure is what the transcript has of a request that came to nothing.
type failure struct {
	Error string     `json:"error"`
	Kind  model.Kind `json:"kind"`
	// RetryAfterMS is what the vendor asked for.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// Lost: it is not known, since rein was ended before the reply came.
	Lost bool `json:"lost,omitempty"`
}

func failed(err error) failure {
	f := failure{Error: err.Error(), Kind: model.KindOf(err), Lost: errors.Is(err, errLost)}
	if e, ok := errors.AsType[*model.Error](err); ok {
		f.RetryAfterMS = e.RetryAfter.Milliseconds()
	}
	return f
}

// failureName is the kind of a failure, for the note of it.
func failureName(err error) string {
	if errors.Is(err, errLost) {
		return "lost"
	}
	return string(model.KindOf(err))
}

// requestNote is what the audit log has of a request.
type requestNote struct {
	Model    string `json:"model"`
	Attempt  int    `json:"attempt"`
	Messages int    `json:"messages"`
	Purpose  string `json:"purpose,omitempty"`
	run.Held
}

// replyNote is what the audit log has of a reply, or of a failure.
type replyNote struct {
	Purpose    string           `json:"purpose,omitempty"`
	Model      string           `json:"model,omitempty"`
	ID         string           `json:"id,omitempty"`
	Stop       model.StopReason `json:"stop,omitempty"`
	Calls      int              `json:"calls"`
	Usage      model.Usage      `json:"usage"`
	DurationMS int64            `json:"duration_ms"`
	Error      string           `json:"error,omitempty"`
}

// sayRequest records a request that is about to be made, with what is set aside
// for it. One that could not be recorded is not made, and costs nothing.
func (c *conversation) sayRequest(sent sentMessages, attempt int) error {
	note := requestNote{Model: c.model.Name(), Attempt: attempt, Messages: sent.From + len(sent.Messages), Purpose: sent.Purpose, Held: run.HeldFor(c.hold)}
	err := c.s.Say(run.Said{Kind: audit.KindModelRequest, Step: c.step, Data: sent, Note: note})
	if err != nil {
		c.hold.Release()
	}
	return err
}

// sayReply records the reply to a request, after so many milliseconds; 0 where
// they are not told.
func (c *conversation) sayReply(purpose string, reply *model.Reply, took int64) error {
	return c.s.Say(run.Said{Kind: audit.KindModelReply, Step: c.step, Data: answered{reply.Message, reply.Stop, reply.Usage, reply.Model, reply.ID},
		Note: replyNote{Purpose: purpose, Model: reply.Model, ID: reply.ID, Stop: reply.Stop, Calls: len(reply.Message.Calls), Usage: reply.Usage, DurationMS: took}})
}

// sayFailure records in place of a reply why there is none.
func (c *conversation) sayFailure(purpose string, err error, took int64) error {
	return c.s.Say(run.Said{Kind: audit.KindModelReply, Step: c.step, Data: failed(err),
		Note: replyNote{Purpose: purpose, DurationMS: took, Error: failureName(err)}})
}
