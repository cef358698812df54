package sandbox

import (
	"errors"

	"github.com/rein-sh/rein/execd"
)

// OnRecord returns a Sandbox that was, as info says, for replaying what was done
// in it: everything that would reach one is KindLost. Nothing is asked of any
// provider, but by Kill, which nobody has a reason to call.
func OnRecord(p Provider, info Info, o Options) (*Sandbox, error) {
	s, err := newSandbox("replay", p, o)
	if err != nil {
		return nil, err
	}
	s.id, s.info = info.ID, info
	s.features = execd.Features{CallIDs: true}
	s.client = execd.NewClient(execd.Options{})
	s.end(&Error{Kind: KindLost, Op: "replay", Subject: s.id, Err: errors.New("it is on record only")})
	return s, nil
}
