package agent

import (
	"fmt"
	"regexp"

	"github.com/rein-sh/rein/model"
)

// rate is what the model that is asked now costs; nil when that is not known.
func (c *conversation) rate() *Price {
	if c.model == c.Fallback && c.Fallback != nil {
		return c.FallbackPrice
	}
	return c.Price
}

// fallBack hands the conversation to the fallback model, for the rest of the
// run, and reports whether there was one to hand it to. cause is why the first
// one could not be had.
func (c *conversation) fallBack(cause error) bool {
	if c.Fallback == nil || c.model == c.Fallback {
		return false
	}
	from := c.model.Name()
	c.model = c.Fallback
	c.req.Messages = adapted(c.req.Messages)
	c.told = 0 // what was sent before is no longer what is sent
	c.s.Warn("%s answers from step %d on, since %s could not be had: %s", c.model.Name(), c.step, from, model.KindOf(cause))
	if c.rate() == nil {
		c.s.Warn("the cost limit is not enforced from here: what %s costs is not known", c.model.Name())
	}
	return true
}

// plainID is an id of a call that every vendor takes.
var plainID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,40}$`)

// adapted is a conversation that was had with one model as any other takes it:
// without what only its vendor can read, and with ids of calls that are plain
// and occur once.
func adapted(in []model.Message) []model.Message {
	out := make([]model.Message, len(in))
	used, ids := map[string]bool{}, map[string]string{}
	for i, m := range in {
		m.Opaque = nil
		if len(m.Calls) > 0 {
			m.Calls = append([]model.ToolCall(nil), m.Calls...)
			clear(ids) // results answer the calls of the message before them
		}
		for j := range m.Calls {
			call := &m.Calls[j]
			id := call.ID
			for n := 1; !plainID.MatchString(id) || used[id]; n++ {
				id = fmt.Sprintf("call_%d_%d_%d", i, j, n)
			}
			used[id], ids[call.ID] = true, id
			call.ID = id
		}
		m.Results = append([]model.ToolResult(nil), m.Results...)
		for j := range m.Results {
			if id := ids[m.Results[j].ID]; id != "" {
				m.Results[j].ID = id
			}
		}
		out[i] = m
	}
	return out
}
