package agent

import "github.com/rein-sh/rein/model"

// rate is what the model that is asked now costs; nil when that is not known.
func (c *conversation) rate() *Price {
	if c.fell {
		return c.FallbackPrice
	}
	return c.Price
}

// fallBack hands the conversation to the fallback model, for the rest of the
// run, and reports whether there was one to hand it to. cause is why the first
// one could not be had.
func (c *conversation) fallBack(cause error) bool {
	if c.Fallback == nil || c.fell {
		return false
	}
	from := c.model.Name()
	c.model, c.fell = c.Fallback, true
	c.history.Adapt(c.window(c.Context.FallbackWindow))
	c.s.Warn("%s answers from step %d on, since %s could not be had: %s", c.model.Name(), c.step, from, model.KindOf(cause))
	if c.rate() == nil {
		c.s.Warn("the cost limit is not enforced from here: what %s costs is not known", c.model.Name())
	}
	return true
}
