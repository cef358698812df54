package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// Resume goes on with a run that was begun by another process. The loop does
// again what is on record: the model's replies and the calls' results come from
// there, and everything that is kept in memory, from the conversation to the
// budgets, is made by the code that made it the first time. At the end of the
// record the model is asked, and calls are executed, as ever.
func (l *loop) Resume(ctx context.Context, s *run.Session, past *run.Past) (run.Outcome, error) {
	return l.work(ctx, s, past)
}

// errOffRecord is an answer where the record has none.
var errOffRecord = errors.New("the record has no answer here")

// errLost is the reply of a request during which rein was ended.
var errLost = errors.New("rein was ended before the reply came")

// generate has m answer, or the record.
func (c *conversation) generate(ctx context.Context, m model.Model, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	if reply, recorded, err := c.recorded(m); recorded {
		return reply, err
	}
	return c.chat(ctx, m, req, emit)
}

// recorded is the reply of m, or its failure, if the record has it or would have to.
func (c *conversation) recorded(m model.Model) (reply *model.Reply, recorded bool, err error) {
	data := c.past.Reply()
	switch {
	case c.past.Lost():
		return nil, true, errLost
	case data == nil && c.past.Binding():
		return nil, true, errOffRecord
	case data == nil:
		return nil, false, nil
	}
	var said struct {
		answered
		failure
	}
	if err := json.Unmarshal(data, &said); err != nil {
		return nil, true, err
	}
	if said.Stop != "" {
		return &model.Reply{Message: said.Message, Stop: said.Stop, Usage: said.Usage, Model: said.Model, ID: said.ID}, true, nil
	}
	switch err := errors.New(said.Error); {
	case said.Lost:
		return nil, true, errLost
	case said.Kind == "":
		return nil, true, err
	default:
		return nil, true, &model.Error{Kind: said.Kind, Model: m.Name(), Err: err, RetryAfter: time.Duration(said.RetryAfterMS) * time.Millisecond}
	}
}

// execute has the sandbox answer a call, or the record.
func (c *conversation) execute(ctx context.Context, call tool.Call) tool.Result {
	res, begun := c.past.Result(call)
	switch {
	case res != nil:
		return *res
	case c.past.Binding():
		return tool.Fail(tool.OpRun, tool.CodeInternal, errOffRecord.Error(), "")
	}
	if begun && ctx.Err() != nil { // the run will end what is under way, and asks nothing of it before
		res := tool.Fail(tool.OpRun, tool.CodeOutcomeUnknown,
			"rein was ended while this call was under way, and the run was over before it could be asked what became of it", "")
		res.CallID, res.SandboxID = call.ID, c.s.Sandbox().ID()
		return res
	}
	if call.Begun = begun; begun {
		call.Edited, call.Opened = c.past.Edited(), c.past.Opened()
	}
	return c.run(ctx, call)
}

// retold reports whether the request to be made is the first that is not on
// record. The transcript then gets all of it, so that it has what was sent, to
// the byte: the marks around results are new.
func (c *conversation) retold() bool {
	first := c.driven && !c.past.Driving()
	c.driven = c.driven && !first
	return first
}

// asSent makes results that are shortened while the record is followed what they
// were then: of one on record it is not known any more all that was printed.
func (c *conversation) asSent(results []history.Result, ids []string) {
	if !c.past.Driving() {
		return
	}
	for i := range results {
		r, shorten := &results[i], results[i].Shorten
		r.Shorten = func(bytes int) string {
			if content := sentResult(c.past.Request(), ids[i]); content != "" {
				return content
			}
			return shorten(bytes)
		}
	}
}

// sentResult is the result of the call in a request on record, or "".
func sentResult(request json.RawMessage, id string) string {
	var sent sentMessages
	if json.Unmarshal(request, &sent) != nil {
		return ""
	}
	named := fmt.Sprintf(`"call_id":%q`, id)
	for _, m := range sent.Messages {
		for _, r := range m.Results {
			if strings.Contains(r.Content, named) {
				return r.Content
			}
		}
	}
	return ""
}
