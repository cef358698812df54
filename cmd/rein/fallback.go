package main

import (
	"context"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/secret"
)

// fallback is the model that is asked when the first one cannot be had. The zero
// value is none.
type fallback struct {
	config config.Model
	key    secret.Value
	model  model.Model
}

// resolveFallback finds and opens the model that --fallback names, or else the
// configuration of the first one.
func (a *app) resolveFallback(ctx context.Context, c config.Config, first config.Model, named string, l budget.Limits) (f fallback, err error) {
	if named == "" {
		named = first.Fallback
	}
	if named == "" {
		return f, nil
	}
	if f.config, err = resolveModel(c, named, ""); err != nil {
		return f, withHint(err, "--fallback, and fallback: of a model, take what --model takes; "+hintOf(err))
	}
	if modelName(f.config) == modelName(first) && f.config.BaseURL == first.BaseURL {
		return f, usage("name another one, or leave it out", "the model %s cannot be its own fallback", modelName(first))
	}
	if err := checkPrice(f.config, l); err != nil {
		return f, withHint(err, "write price: INPUT,OUTPUT in dollars per million tokens of the fallback model in the configuration")
	}
	if f.key, err = a.readKey(ctx, modelName(f.config), f.config.Key); err != nil {
		return f, err
	}
	f.model, err = openModel(f.config, f.key, nil)
	return f, err
}

// apply adds the fallback to what the loop takes.
func (f fallback) apply(o *agent.Options) {
	if f.model == nil {
		return
	}
	o.Fallback = f.model
	o.Context.FallbackWindow = f.config.ContextWindow
	if p := f.config.Price; p.Known {
		o.FallbackPrice = &p.Price
	}
}
