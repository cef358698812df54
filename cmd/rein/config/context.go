package config

import (
	"fmt"
	"strings"

	"github.com/rein-sh/rein/history"
)

// Context says what of the conversation a model is sent. A zero takes the
// default.
type Context struct {
	Strategy string `json:"strategy,omitempty" jsonschema:"what stands for older results: reference, summary or structured"`
	High     Size   `json:"high,omitempty" jsonschema:"bytes of whole results above which the older ones are replaced"`
	Low      Size   `json:"low,omitempty" jsonschema:"bytes of whole results that are left then"`
	Share    int    `json:"share,omitempty" jsonschema:"percent of a request that one result may hold, 1 to 100"`
}

// Options are the settings as package history takes them.
func (c Context) Options() history.Options {
	return history.Options{Strategy: history.Strategy(c.Strategy), High: int(c.High), Low: int(c.Low), Share: c.Share}
}

// Strategies are what may be named as one.
func Strategies() []string {
	var all []string
	for _, s := range history.Strategies() {
		all = append(all, string(s))
	}
	return all
}

// minWindow is the smallest context of a model that can be worked with, in
// tokens: the system prompt and the tools take some 2,000.
const minWindow = 4096

func (v *validator) window(at string, tokens int64) {
	if tokens < minWindow && (tokens != 0 || v.set(at)) {
		v.fault(at, fmt.Sprintf("write the tokens that the model takes, at least %d, or leave it out", minWindow), "no task can be done in %d tokens", tokens)
	}
}

func (v *validator) context(c Context) {
	v.oneOf("context.strategy", c.Strategy, Strategies())
	for key, zero := range map[string]bool{"context.high": c.High == 0, "context.low": c.Low == 0} {
		if v.set(key) && zero {
			v.fault(key, "write a size above zero, or leave it out for the default", "there is no room for a result")
		}
	}
	if c.Share < 0 || c.Share > 100 || v.set("context.share") && c.Share == 0 {
		v.fault("context.share", "write a number of percent, 1 to 100", "%d is no share", c.Share)
		return
	}
	o := c.Options()
	o.Strategy = ""
	if _, err := history.New(o); err != nil {
		v.fault("context", "low is less than high; without them they are "+Size(history.DefaultLow).String()+" and "+Size(history.DefaultHigh).String(), "%s", strings.TrimPrefix(err.Error(), "history: "))
	}
}
