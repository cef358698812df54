package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/tool"
)

// Tools are what a model may call besides the built-in tools, and whether the
// general one is among those.
type Tools struct {
	RunCommand *bool        `json:"run_command,omitempty" jsonschema:"whether the model has run_command, a general shell; true unless set"`
	Custom     []CustomTool `json:"custom,omitempty" jsonschema:"narrow tools: one program each, started without a shell"`
}

// CustomTool is a narrow tool.
type CustomTool struct {
	Name        string            `json:"name" jsonschema:"what the model calls"`
	Description string            `json:"description" jsonschema:"what the model is told of it"`
	Parameters  []Parameter       `json:"parameters,omitempty" jsonschema:"the arguments a call takes"`
	Argv        []string          `json:"argv" jsonschema:"program and arguments; {{name}} is replaced by that parameter's value and never split"`
	Cwd         string            `json:"cwd,omitempty" jsonschema:"where it starts, relative to the workspace"`
	Timeout     Duration          `json:"timeout,omitempty" jsonschema:"how long a call may take; the run's call_timeout unless set"`
	Env         map[string]string `json:"env,omitempty" jsonschema:"added to its environment; no secrets belong here"`
}

// Parameter is one argument of a narrow tool.
type Parameter struct {
	Name        string   `json:"name" jsonschema:"letters, digits and underscore"`
	Description string   `json:"description,omitempty" jsonschema:"what the model is told of it"`
	Type        string   `json:"type" jsonschema:"string, integer, number or boolean"`
	Required    bool     `json:"required,omitempty" jsonschema:"whether a call must give it; an argument of a parameter that is not given is left out"`
	Enum        []string `json:"enum,omitempty" jsonschema:"the values allowed"`
	Pattern     string   `json:"pattern,omitempty" jsonschema:"regular expression (RE2) of the whole value"`
	Min         *float64 `json:"min,omitempty" jsonschema:"the least number"`
	Max         *float64 `json:"max,omitempty" jsonschema:"the largest number"`
	MaxLength   int      `json:"max_length,omitempty" jsonschema:"characters of a string, 4096 unless set"`
	Path        bool     `json:"path,omitempty" jsonschema:"a file of the workspace; no way out of it, nor to where credentials are kept"`
	Dash        bool     `json:"dash,omitempty" jsonschema:"allow a value that begins with - where it is a whole argument"`
}

// Shell reports whether the model has the general shell.
func (t Tools) Shell() bool { return t.RunCommand == nil || *t.RunCommand }

// program is the narrow tool as package tool has it.
func (c CustomTool) program() tool.Program {
	p := tool.Program{Name: c.Name, Description: c.Description, Argv: c.Argv, Cwd: c.Cwd, Timeout: time.Duration(c.Timeout), Env: c.Env}
	for _, a := range c.Parameters {
		p.Parameters = append(p.Parameters, tool.Parameter{Name: a.Name, Description: a.Description, Type: a.Type, Required: a.Required,
			Enum: a.Enum, Pattern: a.Pattern, Min: a.Min, Max: a.Max, MaxLength: a.MaxLength, Path: a.Path, Dash: a.Dash})
	}
	return p
}

// Tools makes the narrow tools.
func (t Tools) Tools() ([]tool.Custom, error) {
	var out []tool.Custom
	for _, c := range t.Custom {
		made, err := c.program().Tool()
		if err != nil {
			return nil, err
		}
		out = append(out, made)
	}
	return out, nil
}

func (v *validator) tools(t Tools, search bool) {
	for i, c := range t.Custom {
		at := fmt.Sprintf("tools.custom[%d]", i)
		if err := c.program().Check(); err != nil {
			field, what, _ := strings.Cut(err.Error(), ": ")
			v.fault(at+"."+field, "docs/approval.md says what a narrow tool takes", "%s", what)
		}
		if slices.ContainsFunc(t.Custom[:i], func(o CustomTool) bool { return o.Name == c.Name }) {
			v.fault(at+".name", "give it another name", "two tools are named %q", c.Name)
		}
		if search && c.Name == tool.Search {
			v.fault(at+".name", "give it another name, or leave search: out", "%q is also the tool that search: true gives the model", c.Name)
		}
		if strings.HasPrefix(c.Cwd, "..") || strings.Contains(c.Cwd, "/../") {
			v.fault(at+".cwd", "write a directory beneath the workspace, or an absolute one", "%q leads out of the workspace", c.Cwd)
		}
		if v.set(at+".timeout") && c.Timeout == 0 {
			v.fault(at+".timeout", "such as 60s", "no call can take no time")
		}
		for name := range c.Env {
			if !envName.MatchString(name) {
				v.fault(at+".env."+name, "letters, digits and underscore", "%q is no name of a variable", name)
			}
		}
	}
}
