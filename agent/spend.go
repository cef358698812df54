package agent

import (
	"encoding/json"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
)

// spend counts what a reply cost. Where the vendor counted nothing it is
// estimated, at four bytes a token.
func (c *conversation) spend(reply *model.Reply) error {
	t := run.Tokens{Input: reply.Usage.Input, Cached: reply.Usage.CachedInput, Output: reply.Usage.Output}
	if !reply.Usage.Known {
		in, _ := json.Marshal(c.req) // plain data always encodes
		out, _ := json.Marshal(reply.Message)
		t = run.Tokens{Input: int64(len(in)+3) / 4, Output: int64(len(out)+3) / 4, Estimated: true}
	}
	if c.rate() != nil {
		t.CostUSD = (float64(t.Input)*c.rate().Input + float64(t.Output)*c.rate().Output) / 1e6
	}
	return c.s.Spent(t)
}
