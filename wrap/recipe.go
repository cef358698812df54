// Package wrap is topology B: a command-line agent, made by others, runs inside a
// run's sandbox. What it is given, what it may reach and how its end is read is a
// Recipe, which is data; its requests to a model go through the gateway, which has
// the key and counts them.
package wrap

import (
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/vault"
)

// Recipe says how one agent is put into a sandbox. Texts in Command, Args, Env and
// File.Content are templates of Values (Values.Expand). The zero Recipe runs nothing.
type Recipe struct {
	Name  string `yaml:"name" json:"name"`   // as in "rein wrap NAME"
	Title string `yaml:"title" json:"title"` // for people

	// Install is where the program is from; nil: the target has it.
	Install *Install `yaml:"install,omitempty" json:"install,omitempty"`
	// Command is the program and what comes before any other argument.
	Command []string `yaml:"command" json:"command"`
	// Headless and Interactive are how it is started without and with a terminal:
	// Args come before the user's own.
	Headless    Mode  `yaml:"headless,omitempty" json:"headless,omitzero"`
	Interactive *Mode `yaml:"interactive,omitempty" json:"interactive,omitempty"` // nil: it has none

	// Model is asked unless the user names another. Env, Args and Files name it by the
	// template {{.Model}}.
	Model string `yaml:"model,omitempty" json:"model,omitempty"`
	// Vendors are the models' APIs that it can be used with, the usual one first.
	Vendors []Vendor `yaml:"vendors,omitempty" json:"vendors,omitempty"`

	Env   map[string]string `yaml:"env,omitempty" json:"env,omitempty"`
	Files []File            `yaml:"files,omitempty" json:"files,omitempty"`

	// Results names the reader of its output: see Readers. Empty reads nothing: the
	// exit code alone says how it ended.
	Results string `yaml:"results,omitempty" json:"results,omitempty"`
	// OwnSandbox says what becomes of the agent's own sandbox, and why.
	OwnSandbox string `yaml:"own_sandbox,omitempty" json:"own_sandbox,omitempty"`
	// Notes are what a user should know.
	Notes []string `yaml:"notes,omitempty" json:"notes,omitempty"`

	// From is the file that it was read from; empty: it is built in. Replaces is what
	// it takes the place of: another file, or BuiltIn.
	From     string `yaml:"-" json:"from,omitempty"`
	Replaces string `yaml:"-" json:"replaces,omitempty"`
}

// Install is a package of npm.
type Install struct {
	Package string `yaml:"package" json:"package"`
	Version string `yaml:"version,omitempty" json:"version,omitempty"` // empty: the newest
	// Scripts are the packages whose install scripts are run, inside; no other's are.
	Scripts []string `yaml:"scripts,omitempty" json:"scripts,omitempty"`
	// Node is the least version of Node.js that the target must have; empty: none is needed
	// to run it.
	Node string `yaml:"node,omitempty" json:"node,omitempty"`
}

// Mode is one way of starting an agent.
type Mode struct {
	Args []string          `yaml:"args,omitempty" json:"args,omitempty"`
	Env  map[string]string `yaml:"env,omitempty" json:"env,omitempty"`
}

// Vendor is one API of models that an agent can be used with.
type Vendor struct {
	Name string `yaml:"name" json:"name"` // openai, anthropic, gemini
	// Host is that of the API; Base the beginning of its paths that --base-url takes
	// the place of.
	Host  string           `yaml:"host" json:"host"`
	Base  string           `yaml:"base,omitempty" json:"base,omitempty"`
	Calls []inference.Call `yaml:"calls" json:"calls"`
	// Model is asked instead of the recipe's, which is one of the first vendor's.
	Model string `yaml:"model,omitempty" json:"model,omitempty"`
	// Route is how the agent reaches it: "door" or "tls".
	Route Route `yaml:"route" json:"route"`
	// KeyEnv are the variables of the host that usually have the key, the first that
	// is set. Variables get the placeholder inside.
	KeyEnv    []string `yaml:"key_env" json:"key_env"`
	Variables []string `yaml:"variables" json:"variables"`
	// As and Field say how a request carries the key (vault.Binding).
	As    vault.Form `yaml:"as" json:"as"`
	Field string     `yaml:"field,omitempty" json:"field,omitempty"`
	// Logins are other ways of the agent to sign in.
	Logins []Login `yaml:"logins,omitempty" json:"logins,omitempty"`

	// What it is for this vendor alone, besides Recipe's.
	Env   map[string]string `yaml:"env,omitempty" json:"env,omitempty"`
	Args  []string          `yaml:"args,omitempty" json:"args,omitempty"`
	Files []File            `yaml:"files,omitempty" json:"files,omitempty"`
}

// Route is the way of an agent to its model.
type Route string

// The routes.
const (
	// Door is plain HTTP to the gateway itself: no certificate is needed.
	Door Route = "door"
	// TLS is https to the vendor's name, which ends in the gateway.
	TLS Route = "tls"
)

// Login is a way to sign in besides a key.
type Login struct {
	Name string `yaml:"name" json:"name"`
	// Refused says why it cannot be used; empty: it can, as follows.
	Refused  string     `yaml:"refused,omitempty" json:"refused,omitempty"`
	KeyEnv   []string   `yaml:"key_env,omitempty" json:"key_env,omitempty"`
	Variable string     `yaml:"variable,omitempty" json:"variable,omitempty"`
	As       vault.Form `yaml:"as,omitempty" json:"as,omitempty"`
	Note     string     `yaml:"note,omitempty" json:"note,omitempty"`
}

// File is placed before the agent starts, beneath its home directory or at an
// absolute path, with mode 0600.
type File struct {
	Path    string `yaml:"path" json:"path"`
	Content string `yaml:"content" json:"content"`
}

// Values are what templates name.
type Values struct {
	Model   string
	BaseURL string // of the vendor's API as the agent reaches it, with Base
	Origin  string // the same without Base
	Home    string // of the agent's user
	Work    string // the workspace
	Bin     string // where the layer's programs are; empty without one
	Key     string // the placeholder
}
