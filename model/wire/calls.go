package wire

import (
	"fmt"

	"github.com/rein-sh/rein/model"
)

// MaxCalls bounds the tool calls of one reply; OpenAI allows 128 tools.
const MaxCalls = 128

// Identify gives calls without an id, or with that of another, one of ours:
// results find their calls by it. turn, the length of the conversation before
// the reply, keeps such ids apart. It refuses calls without a name, and more
// than MaxCalls.
func (l *Link) Identify(turn int, calls []model.ToolCall) error {
	if len(calls) > MaxCalls {
		return l.Errorf("it has more than %d tool calls", MaxCalls)
	}
	given, used := map[string]bool{}, map[string]bool{}
	for _, c := range calls {
		given[c.ID] = true
	}
	n := 0
	for i := range calls {
		c := &calls[i]
		if c.Name == "" {
			return l.Errorf("tool call %d has no name", i+1)
		}
		for c.ID == "" || used[c.ID] {
			n++
			if id := fmt.Sprintf("call_%d_%d", turn, n); !given[id] {
				c.ID = id
			}
		}
		used[c.ID] = true
	}
	return nil
}

// maxTokens is more than any reply has; so much can be added up without overflow.
const maxTokens = 1 << 40

// Usage puts a vendor's numbers in the contract's order, as far as they can be
// true: parts are not more than their whole, a negative whole is unknown, and no
// number is so large that a sum of some would be negative.
func Usage(input, cached, output, reasoning int64) model.Usage {
	if input < 0 || output < 0 {
		return model.Usage{}
	}
	input, output = min(input, maxTokens), min(output, maxTokens)
	return model.Usage{
		Known: true, Input: input, CachedInput: min(max(cached, 0), input),
		Output: output, Reasoning: min(max(reasoning, 0), output),
	}
}
