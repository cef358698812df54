package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/run"
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
	return text + "." + moved(t.Began(), t.Limits()) + opened(c.s) + nearly(c.round.Near())
}

// maxOpened is how many changes of the network the model is told of at once.
const maxOpened = 10

// opened tells of what a person has changed of the network, which the system
// prompt has as it was at the beginning.
func opened(s *run.Session) string {
	all := s.NetworkChanges()
	if len(all) == 0 {
		return ""
	}
	text := " Changed by the host since you began: "
	if more := len(all) - maxOpened; more > 0 {
		text += fmt.Sprintf("%d targets of the network, of which the newest: ", len(all))
		all = all[more:]
	}
	parts := make([]string, len(all))
	for i, c := range all {
		parts[i] = c.String()
	}
	return s.Masker().String(text + strings.Join(parts, "; ") + ".")
}

// moved tells of limits of a call that are not those any more which the tools'
// descriptions name: these stay as they were, like all that was sent.
func moved(from, to budget.Limits) string {
	if from == to {
		return ""
	}
	var parts []string
	say := func(changed bool, format string, amount any) {
		if changed {
			parts = append(parts, fmt.Sprintf(format, amount))
		}
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.4g s", d.Seconds()) }
	say(from.CallTimeout != to.CallTimeout, "a command is killed after %s by default", seconds(to.CallTimeout))
	say(from.MaxCallTimeout != to.MaxCallTimeout, "timeout_seconds may ask for up to %s", seconds(to.MaxCallTimeout))
	say(from.OutputBytes != to.OutputBytes, "at most %s of output are shown", budget.LimitOutputBytes.Format(int64(to.OutputBytes)))
	say(from.OutputLines != to.OutputLines, "at most %d lines of output are shown", to.OutputLines)
	if len(parts) == 0 {
		return ""
	}
	return " Changed since the tools were described: " + strings.Join(parts, "; ") + "."
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
