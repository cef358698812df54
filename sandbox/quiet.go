package sandbox

import (
	"maps"

	"github.com/rein-sh/rein/execd"
)

// environment is the variables that a command is sent with. Rein's execd starts
// commands quietly by itself; another's is told to, without what the sandbox was
// made with, which would be overridden. What its image sets is, as nobody
// says. A sandbox of which nobody knows what it was made with is left as it is,
// and a session of another's takes no variables.
func (c *call) environment() map[string]string {
	s := c.sandbox
	if s.ours() || c.command.Session != "" || s.opt.Env == nil {
		return c.command.Env
	}
	env := execd.QuietEnv()
	env["TERM"] = "dumb"
	maps.DeleteFunc(env, func(name, _ string) bool { _, set := s.opt.Env[name]; return set })
	maps.Copy(env, c.command.Env)
	return env
}
