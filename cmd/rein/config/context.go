package config

import (
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

func (v *validator) context(c Context) {
	v.oneOf("context.strategy", c.Strategy, Strategies())
	if c.Share < 0 || c.Share > 100 || v.set("context.share") && c.Share == 0 {
		v.fault("context.share", "write a number of percent, 1 to 100", "%d is no share", c.Share)
		return
	}
	o := c.Options()
	o.Strategy = ""
	if _, err := history.New(o); err != nil {
		v.fault("context", "low is less than high; without them they are "+Size(history.DefaultLow).String()+" and "+Size(history.DefaultHigh).String(), "%v", err)
	}
}
