package agent

import (
	"errors"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
)

// What stands in the transcript: a request without the messages of the one
// before it, and a reply.
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

type answered struct {
	Message model.Message    `json:"message"`
	Stop    model.StopReason `json:"stop"`
	Usage   model.Usage      `json:"usage"`
	Model   string           `json:"model,omitempty"`
	ID      string           `json:"id,omitempty"`
}

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

type requestNote struct {
	Model    string `json:"model"`
	Attempt  int    `json:"attempt"`
	Messages int    `json:"messages"`
	Purpose  string `json:"purpose,omitempty"`
	run.Held
}

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
