package agent

import (
	"fmt"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// circling tells of a call that was executed, and stops the work when calls go
// round in circles although the model was told.
func (c *conversation) circling(call tool.Call, res tool.Result) (run.Outcome, bool) {
	if res.Background != nil && res.Background.Running {
		return run.Outcome{}, false // waiting is no circle; the sandbox is not renewed without progress
	}
	how := outcome(res)
	seen := make([]byte, 0, len(how)+len(res.Stdout)+len(res.Stderr)+3)
	for _, part := range []string{how, res.Stdout, res.Stderr} {
		seen = append(append(seen, part...), 0)
	}
	if res.File != nil {
		seen = fmt.Appendf(seen, "%s %d %s", res.File.Path, res.File.Bytes, res.File.SHA256)
	}
	found := c.stuck.Call(call.Name, call.Arguments, res.OK, seen)
	if found.Loop == "" {
		c.circle = budget.Finding{}
		return run.Outcome{}, false
	}
	if c.circle = found; !found.Halt {
		return run.Outcome{}, false
	}
	return run.Outcome{Reason: run.Stuck, Detail: circle(found)}, true
}

// nudge tells the model that it goes round in circles, if it does.
func (c *conversation) nudge() {
	if c.circle.Loop == "" || c.circle.Halt {
		return
	}
	c.s.Warn("the model was told that it goes round in circles: %s", circle(c.circle))
	c.say("You go round in circles: " + circle(c.circle) + ". Doing it again will not help, and the task is stopped if you go on like this. " +
		"Look at what the results say and do something else, or give your final answer and say what is in the way.")
	c.stuck.Told()
	c.circle = budget.Finding{}
}

// circle describes a loop in words.
func circle(f budget.Finding) string {
	switch f.Loop {
	case budget.LoopIdentical:
		return fmt.Sprintf("the same call had the same result %d times in a row", f.Times)
	case budget.LoopEquivalent:
		return fmt.Sprintf("much the same call had much the same result %d times in a row", f.Times)
	}
	return fmt.Sprintf("the same %d calls had the same results, in turn, %d times in a row", f.Period, f.Times)
}
