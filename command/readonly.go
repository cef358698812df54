package command

// effects judges one command. What it stands behind is judged by itself.
func (c *Simple) effects() Effect { return Effect{Unknown, "nothing is known of " + c.String()} }

func obeyed(name string, before bool) bool { return true }
