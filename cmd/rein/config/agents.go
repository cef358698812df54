package config

import (
	"fmt"

	"github.com/rein-sh/rein/wrap/layer"
)

// Agents says how command-line agents are installed for "rein wrap".
type Agents struct {
	Registry string   `json:"registry,omitempty" jsonschema:"address of a registry of npm that agents are installed from; empty is npm's own"`
	Key      Key      `json:"key,omitzero" jsonschema:"where the host finds what the registry wants to know: a token, or with user a password; one of env, file, command"`
	User     string   `json:"user,omitempty" jsonschema:"whose password key is; empty: it is a token"`
	Allow    []string `json:"allow,omitempty" jsonschema:"what an installation may reach besides, as --allow says it, such as the address of a registry that is not public"`
	Dir      string   `json:"dir,omitempty" jsonschema:"absolute path where installed agents are kept; empty is $XDG_CACHE_HOME/rein/agents"`
}

func (v *validator) agents(a Agents, known Known) {
	if a.Registry != "" {
		if err := layer.CheckRegistry(a.Registry); err != nil {
			v.fault("agents.registry", "such as https://npm.example.com/", "%s", err)
		}
	}
	if v.set("agents.key") {
		v.key("agents.key", a.Key, true)
	}
	if hint, err := layer.CheckCredential(a.Registry, !a.Key.IsZero(), a.User); err != nil {
		v.fault("agents.registry", hint, "%s", err)
	}
	for i, text := range a.Allow {
		if known.Target == nil {
			break
		}
		if hint, err := known.Target(text); err != nil {
			v.fault(fmt.Sprintf("agents.allow[%d]", i), hint, "%s", err)
		}
	}
	v.absolute("agents.dir", a.Dir)
}
