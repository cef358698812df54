package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/history"
)

// withLeft adds to the newest result what is left of the limits: after its
// second mark, so that it is no part of what the tool returned, and at the end
// of the conversation, so that nothing the vendor may have cached changes.
func (c *conversation) withLeft(results []history.Result) {
	r := &results[len(results)-1]
	text, shorten := "\n"+c.left(), r.Shorten
	r.Content += text
	if shorten != nil {
		r.Shorten = func(bytes int) string { return shorten(bytes-len(text)) + text }
	}
}

// left says what is left of the limits.
func (c *conversation) left() string {
	t := c.s.Budget()
	steps, calls := c.round.Left()
	spent := t.Left()
	text := fmt.Sprintf("Left for this task: %d replies, %d tool calls, %s, %d tokens", steps, calls, t.WorkRemaining().Round(time.Second), spent.Tokens)
	if c.rate() != nil {
		text += fmt.Sprintf(", $%.2f", spent.Cost.Float())
	}
	return text + "." + nearly(c.round.Near())
}

// nearly tells of limits that are nearly used up.
func nearly(near []budget.Warning) string {
	var parts []string
	for _, w := range near {
		parts = append(parts, fmt.Sprintf("over %d %% of the %s", w.Percent, inWords(w.Limit)))
	}
	if len(parts) == 0 {
		return ""
	}
	return " Warning: " + strings.Join(parts, ", ") + " used; bring the work to an end."
}

// inWords is what left calls a limit.
func inWords(l budget.Limit) string {
	switch l {
	case budget.LimitSteps:
		return "replies"
	case budget.LimitToolCalls:
		return "tool calls"
	case budget.LimitWallTime:
		return "time"
	case budget.LimitCost:
		return "money"
	}
	return strings.TrimPrefix(string(l), "max_")
}
