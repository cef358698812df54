package history

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/rein-sh/rein/model"
)

// plainID is an id of a call that every vendor takes.
var plainID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,40}$`)

// Adapt makes a conversation that was had with one model one that any other
// takes: without what only its vendor can read, and with ids of calls that are
// plain and occur once. window is how many tokens the other takes, as
// Options.Window has it; what was learnt of the first one is forgotten.
func (h *History) Adapt(window int64) {
	used, ids := map[string]bool{}, map[string]string{}
	for i, e := range h.entries {
		h.changed(i)
		e.m.Opaque = nil
		if len(e.m.Calls) > 0 {
			clear(ids) // results answer the calls of the message before them
			e.m.Calls = adaptCalls(e.m.Calls, i, used, ids)
		}
		for _, it := range e.items {
			if id := ids[it.ID]; id != "" {
				it.ID = id
			}
		}
	}
	h.o.Window, h.limit = max(0, window), 0
}

// adaptCalls renames the calls of message i whose ids are not plain, or used.
func adaptCalls(calls []model.ToolCall, i int, used map[string]bool, ids map[string]string) []model.ToolCall {
	calls = slices.Clone(calls) // they have been returned, and may be read elsewhere
	for j := range calls {
		id := calls[j].ID
		for n := 1; !plainID.MatchString(id) || used[id]; n++ {
			id = fmt.Sprintf("call_%d_%d_%d", i, j, n)
		}
		used[id], ids[calls[j].ID] = true, id
		calls[j].ID = id
	}
	return calls
}
