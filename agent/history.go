package agent

import (
	"fmt"

	"github.com/rein-sh/rein/model"
)

// keepWhole is how many of the newest messages are never shortened, and
// keepBytes how long a result may be to stay as it is.
const (
	keepWhole = 4
	keepBytes = 600
)

// reduce shortens the older half of the long tool results, and reports whether
// there was anything to shorten. What a call did stays; its output goes.
func (c *conversation) reduce() bool {
	var long []*model.ToolResult
	for i := range c.req.Messages[:max(0, len(c.req.Messages)-keepWhole)] {
		results := c.req.Messages[i].Results
		for j := range results {
			if len(results[j].Content) > keepBytes {
				long = append(long, &results[j])
			}
		}
	}
	for _, r := range long[:(len(long)+1)/2] {
		r.Content = fmt.Sprintf("(%d bytes of this result were left out to save space; call the tool again if you need them)", len(r.Content))
	}
	if len(long) > 0 {
		c.told = 0 // what was sent before is no longer what is sent
	}
	return len(long) > 0
}
