package agent

import (
	"context"

	"github.com/rein-sh/rein/model"
)

// chat has m answer, and takes of what it says about the cost only what can be.
func chat(ctx context.Context, m model.Model, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	reply, err := m.Generate(ctx, req, emit)
	if reply != nil {
		reply.Usage = plausible(reply.Usage)
	}
	return reply, err
}

// maxCount is more tokens than any reply has, and few enough to be added up.
const maxCount = 1 << 53

// plausible is what a vendor counted, if it can be counted with: amounts below
// zero would give back what has been used.
func plausible(u model.Usage) model.Usage {
	if !u.Known || u.Input < 0 || u.Output < 0 {
		return model.Usage{}
	}
	u.Input, u.Output = min(u.Input, maxCount), min(u.Output, maxCount)
	u.CachedInput = max(0, min(u.CachedInput, u.Input))
	u.CacheWrite = max(0, min(u.CacheWrite, u.Input))
	u.Reasoning = max(0, min(u.Reasoning, u.Output))
	return u
}
