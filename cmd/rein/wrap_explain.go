package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/wrap"
)

// explained is what "rein wrap AGENT --explain" says.
type explained struct {
	Agent string `json:"agent"`
	Title string `json:"title,omitempty"`
	// Recipe is the file that it is read from, and what that replaces; empty: built in.
	Recipe  string `json:"recipe,omitempty"`
	Install string `json:"install"`
	Command string `json:"command"`

	Vendor string `json:"vendor,omitempty"`
	Model  string `json:"model,omitempty"`
	Route  string `json:"route,omitempty"`
	// Key says where the key is from, and how a request is given it.
	Key    string          `json:"key,omitempty"`
	Host   *inference.Host `json:"host,omitempty"`
	Logins []string        `json:"logins,omitempty"`

	Variables []string `json:"variables,omitempty"` // of the environment inside, by name
	Files     []string `json:"files,omitempty"`     // placed inside
	Network   []string `json:"network,omitempty"`   // what else may be reached, a line a rule
	Receives  []string `json:"receives"`            // who can receive data
	Limits    []string `json:"limits"`

	OwnSandbox string   `json:"own_sandbox,omitempty"`
	Notes      []string `json:"notes,omitempty"`
}

// explainAgent prints what would be allowed. It reads no key and makes nothing.
func (a *app) explainAgent(c *caged, f *wrapFlags) error {
	e, err := explain(c, f)
	if err != nil {
		return err
	}
	if f.asJSON {
		return a.printJSON(e)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	e.write(w)
	return w.Flush()
}

func explain(c *caged, f *wrapFlags) (*explained, error) {
	r := c.recipe
	compiled, err := policy.Compile(c.target.NetworkOf())
	if err != nil {
		return nil, err
	}
	e := &explained{Agent: r.Name, Title: r.Title, Recipe: origin(r), Install: "none: the sandbox has it", Host: c.host, Model: c.model,
		Network: compiled.Summary(), OwnSandbox: r.OwnSandbox, Notes: r.Notes}
	if r.Install != nil && !f.noInstall {
		e.Install = installation(*r.Install, c.config.Agents)
	}
	mode := r.Headless
	if c.screen {
		mode = *r.Interactive
	}
	e.Command = r.CommandLine(mode, vendorOf(c), c.model, c.args)
	variables := map[string]bool{}
	for _, list := range []map[string]string{r.Env, mode.Env, vendorOf(c).Env} {
		for name := range list {
			variables[name] = true
		}
	}
	for _, name := range vendorOf(c).Variables {
		variables[name+" (placeholder)"] = true
	}
	e.Variables = slices.Sorted(maps.Keys(variables))
	for _, file := range slices.Concat(r.Files, vendorOf(c).Files) {
		e.Files = append(e.Files, file.Path)
	}
	if c.vendor != nil {
		e.vendor(c, f)
	}
	e.Receives = append(e.Receives, e.Network...)
	if len(e.Receives) == 0 {
		e.Receives = []string{"nobody"}
	}
	for _, s := range c.limits.List() {
		if l := s.Limit.Layer(); l == "run" || s.Limit == budget.LimitSteps {
			e.Limits = append(e.Limits, string(s.Limit)+" "+s.Value)
		}
	}
	return e, nil
}

// origin is where a recipe is from; empty: it is built in, or none is needed.
func origin(r wrap.Recipe) string {
	if r.From == "" || r.Replaces == "" {
		return r.From
	}
	return r.From + ", which replaces " + r.Replaces
}

// installation says where an agent's package is from, and what is reached for it.
func installation(i wrap.Install, of config.Agents) string {
	reached := "the registry"
	for _, more := range of.Allow {
		reached += ", " + more
	}
	return fmt.Sprintf("%s %s from %s, in a sandbox of its own that reaches %s and nothing else",
		i.Package, cmp.Or(i.Version, "(newest)"), cmp.Or(of.Registry, "npm"), reached)
}

// tooWide adds to the hint about a workspace that has the configuration in it, which
// the current directory is when none is named.
func tooWide(err error) error {
	if e, ok := errors.AsType[*config.PlaceError](err); ok && e.Hint == config.TooWide {
		return withHint(err, config.TooWide+", and --no-workspace copies none")
	}
	return err
}

func vendorOf(c *caged) wrap.Vendor {
	if c.vendor == nil {
		return wrap.Vendor{}
	}
	return *c.vendor
}

// vendor says what is about the model's vendor.
func (e *explained) vendor(c *caged, f *wrapFlags) {
	v := c.vendor
	e.Vendor, e.Route = v.Name, "plain HTTP to the gateway, which speaks TLS with "+v.Host
	if v.Route == wrap.TLS {
		e.Route = "https to " + v.Host + ", which ends in the gateway"
	}
	to := v.Host
	if f.baseURL != "" {
		to = f.baseURL
		e.Route += "; requests are sent to " + f.baseURL
	}
	s := c.config.Secrets[c.key]
	from := "from none that is named"
	switch {
	case f.keyEnv+f.keyFile+f.secret == "" && c.elsewhere(f):
		from = "made up: the vendor's is not sent to another address unless it is named with --key-env or --key-file"
	case s.Env != "":
		from = "from the variable " + strings.Join(strings.Fields(s.Env), " or ") + " of this host"
	case s.File != "":
		from = "from the file " + s.File
	case len(s.Command) > 0:
		from = "from the command " + s.Command[0]
	}
	e.Key = fmt.Sprintf("%s; put into requests as %s, and nowhere inside", from, formOf(s))
	for _, l := range v.Logins {
		text := l.Name
		if l.Refused != "" {
			text += ": refused: " + l.Refused
		} else if l.Note != "" {
			text += ": " + l.Note
		}
		e.Logins = append(e.Logins, text)
	}
	e.Receives = append(e.Receives, fmt.Sprintf("%s: whatever the agent reads, in requests to its model", to))
}

func formOf(s config.Secret) string {
	if len(s.Use) == 0 {
		return "nothing"
	}
	return strings.TrimSpace(string(s.Use[0].As) + " " + s.Use[0].Name)
}

func (e *explained) write(w io.Writer) {
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, cleanLine(value))
		}
	}
	rows := func(name string, values []string) {
		for _, v := range values {
			row(name, v)
			name = " "
		}
	}
	row("agent", strings.TrimSuffix(e.Agent+", "+e.Title, ", "))
	row("recipe", e.Recipe)
	row("installed", e.Install)
	row("command", e.Command)
	row("vendor", e.Vendor)
	row("model", e.Model)
	row("route", e.Route)
	row("key", e.Key)
	rows("logins", e.Logins)
	if e.Host != nil {
		var calls []string
		for _, call := range e.Host.Calls {
			calls = append(calls, strings.Join(call.Methods, ",")+" "+e.Host.Name+call.Path)
		}
		rows("requests", calls)
		row("models", strings.Join(e.Host.Models, ", "))
		row("vendor's tools", cmp.Or(strings.Join(e.Host.Hosted, ", "), "none"))
		row("URLs in requests", map[bool]string{true: "fetched by the vendor", false: "refused"}[e.Host.URLs])
		row("dearer requests", map[bool]string{true: "pass, and --max-cost does not hold for them", false: "refused"}[e.Host.Dearer])
		row("further members", cmp.Or(strings.Join(e.Host.Members, ", "), "refused"))
	}
	row("variables", strings.Join(e.Variables, ", "))
	row("files", strings.Join(e.Files, ", "))
	rows("also reached", e.Network)
	rows("can receive data", e.Receives)
	row("limits", strings.Join(e.Limits, ", "))
	row("its own sandbox", e.OwnSandbox)
	rows("note", e.Notes)
}

// listAgents prints the recipes that are known, also where others are at fault.
func (a *app) listAgents(f *wrapFlags) error {
	all, err := wrap.Recipes(a.env.recipeDirs()...)
	faults, ok := errors.AsType[*wrap.Error](err)
	if err != nil && !ok {
		return err
	}
	print := a.printAgents
	if f.asJSON {
		print = func(all []wrap.Recipe) error { return a.printJSON(all) }
	}
	if err := print(all); err != nil && (faults == nil || !readerGone(err)) {
		return err
	}
	if faults != nil {
		return usage(faults.Hint(), "%s", faults)
	}
	return nil
}

func (a *app) printAgents(all []wrap.Recipe) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AGENT\tTITLE\tPACKAGE\tVENDORS\tTERMINAL")
	for _, r := range all {
		var vendors []string
		for _, v := range r.Vendors {
			vendors = append(vendors, v.Name)
		}
		pkg, terminal := "-", "no"
		if r.Install != nil {
			pkg = r.Install.Package
		}
		if r.Interactive != nil {
			terminal = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Name, r.Title, pkg, cmp.Or(strings.Join(vendors, ", "), "-"), terminal)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range all {
		if r.From != "" {
			fmt.Fprintf(a.out, "%s is from %s\n", r.Name, cleanLine(origin(r)))
		}
	}
	return nil
}
