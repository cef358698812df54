package script

import (
	"context"
	"errors"
	"time"

	"github.com/rein-sh/rein/model"
)

// patience is when the model gives up on a stall, as a client of a remote
// model would.
const patience = 60 * time.Second

type inProcess struct {
	player *Player
	name   string
}

var _ model.Model = (*inProcess)(nil)

// Model returns the script as a model in this process, with a player of its
// own. Faults come out as the errors a client of a remote model returns; a
// stall that does not end by itself ends after 60 seconds.
func (s *Script) Model() model.Model {
	return &inProcess{player: s.Play(), name: s.modelName()}
}

func (m *inProcess) Name() string { return m.name }

func (m *inProcess) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, m.ended(err)
	}
	turn, err := m.player.Next(req)
	if err != nil {
		return nil, err
	}
	if emit == nil {
		emit = func(model.Delta) {}
	}
	deltas := deltasOf(turn.Reply)
	sent := 0
	send := func(to int) {
		for ; sent < to; sent++ {
			emit(deltas[sent])
		}
	}
	if f := turn.Fault; f != nil {
		if !f.AtStart {
			if _, refusal := f.Refusal(); !refusal {
				send((len(deltas) + 1) / 2)
			}
		}
		if err := m.fault(ctx, *f); err != nil {
			return nil, err
		}
	}
	send(len(deltas))
	return turn.Reply, nil
}

func deltasOf(r *model.Reply) []model.Delta {
	var out []model.Delta
	for _, piece := range Pieces(r.Message.Text) {
		out = append(out, model.Delta{Text: piece})
	}
	for _, c := range r.Message.Calls {
		out = append(out, model.Delta{CallName: c.Name})
	}
	return out
}

// fault returns the error a fault causes; nil after a stall that ended.
func (m *inProcess) fault(ctx context.Context, f Fault) error {
	e := &model.Error{Model: m.name, Message: "scripted " + string(f.Kind), RetryAfter: f.RetryAfter}
	if kind, ok := f.Refusal(); ok {
		e.Kind = kind
		return e
	}
	switch f.Kind {
	case FaultStall:
		silence := patience
		if f.For > 0 && f.For < patience {
			silence = f.For
		}
		timer := time.NewTimer(silence)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return m.ended(ctx.Err())
		case <-timer.C:
		}
		if silence < patience {
			return nil
		}
		e.Kind = model.KindTimeout
	case FaultCut:
		e.Kind = model.KindCut
		if f.AtStart {
			e.Kind = model.KindUnavailable
		}
	default:
		e.Kind = model.KindUnknown
	}
	return e
}

func (m *inProcess) ended(err error) error {
	kind := model.KindUnknown
	if errors.Is(err, context.DeadlineExceeded) {
		kind = model.KindTimeout
	}
	return &model.Error{Kind: kind, Model: m.name, Err: err}
}
