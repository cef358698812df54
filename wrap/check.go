package wrap

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/wrap/layer"
)

var (
	recipeName   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	methodName   = regexp.MustCompile(`^[A-Z]{3,16}$`)
)

// Check reports everything of a recipe that makes no sense or must not be, as
// *Error without places; Decode has them.
func (r Recipe) Check() error {
	e := &Error{}
	for _, f := range r.faults() {
		e.add(Problem{File: "recipe " + r.Name, Message: f.path + ": " + f.message, Hint: f.hint})
	}
	return e.orNil()
}

// fault is one, at a path such as vendors[0].host.
type fault struct{ path, message, hint string }

type checker struct{ all []fault }

func (c *checker) fault(path, hint, format string, args ...any) {
	c.all = append(c.all, fault{path, fmt.Sprintf(format, args...), hint})
}

func (r Recipe) faults() []fault {
	c := &checker{}
	if !recipeName.MatchString(r.Name) {
		c.fault("name", "lower-case letters, digits and -, at most 32", "%q is no name of a recipe", r.Name)
	}
	if r.Title == "" {
		c.fault("title", "what people call it", "it has none")
	}
	if len(r.Command) == 0 || r.Command[0] == "" {
		c.fault("command", "such as command: [codex]", "no program is named")
	}
	c.texts("command", r.Command)
	c.install(r.Install)
	c.texts("headless.args", r.Headless.Args)
	if r.Interactive != nil {
		c.texts("interactive.args", r.Interactive.Args)
	}
	c.environment(r)
	c.files("files", r.Files, nil)
	seen := map[string]bool{}
	for i, v := range r.Vendors {
		at := fmt.Sprintf("vendors[%d]", i)
		if !recipeName.MatchString(v.Name) || seen[v.Name] {
			c.fault(at+".name", "such as openai, anthropic, gemini", "%q is no name of a vendor, or that of another", v.Name)
		}
		seen[v.Name] = true
		c.vendor(at, v)
		c.files(at+".files", v.Files, r.Files)
	}
	return c.all
}

func (c *checker) install(i *Install) {
	if i == nil {
		return
	}
	if !layer.IsName(i.Package) {
		c.fault("install.package", "such as @openai/codex", "%q is no package of npm", i.Package)
	}
	if i.Version != "" && !layer.IsVersion(i.Version) {
		c.fault("install.version", "write one such as 1.2.3, or leave it out for the newest", "%q is no version, or more than one", i.Version)
	}
	if i.Node != "" && !layer.IsLeast(i.Node) {
		c.fault("install.node", "such as 20 or 20.11.0", "%q is no version of Node.js", i.Node)
	}
	for n, name := range i.Scripts {
		if !layer.IsName(name) {
			c.fault(fmt.Sprintf("install.scripts[%d]", n), "name the package whose script it is", "%q is no package of npm", name)
		}
	}
}

// texts checks templates.
func (c *checker) texts(at string, texts []string) {
	for i, text := range texts {
		c.text(fmt.Sprintf("%s[%d]", at, i), text)
	}
}

func (c *checker) text(at, text string) {
	if strings.ContainsRune(text, 0) {
		c.fault(at, "", "a NUL byte is in it")
	}
	if message, hint := judgeTemplate(text); message != "" {
		c.fault(at, hint, "%s", message)
	}
}

// environment checks variables, each of which one thing alone may set.
func (c *checker) environment(r Recipe) {
	type source struct {
		at  string
		env map[string]string
	}
	base := []source{{"env", r.Env}}
	modes := []source{{"headless.env", r.Headless.Env}}
	if r.Interactive != nil {
		modes = append(modes, source{"interactive.env", r.Interactive.Env})
	}
	set := map[string][]string{} // by variable, who sets it
	add := func(s source, beside ...string) {
		for _, name := range slices.Sorted(maps.Keys(s.env)) {
			at := s.at + "." + name
			c.text(at, s.env[name])
			if !variableName.MatchString(name) {
				c.fault(at, "letters, digits and underscore", "%q is no name of a variable", name)
			}
			c.once(set, name, s.at, at, beside)
		}
	}
	for _, s := range base {
		add(s)
	}
	for _, s := range modes { // only one of them is in force
		add(s, "env")
	}
	for i, v := range r.Vendors { // and one of these
		at := fmt.Sprintf("vendors[%d]", i)
		beside := []string{"env", "headless.env", "interactive.env"}
		add(source{at + ".env", v.Env}, beside...)
		for n, name := range v.Variables {
			p := fmt.Sprintf("%s.variables[%d]", at, n)
			c.holds(p, name)
			c.once(set, name, at+".variables", p, append(slices.Clone(beside), at+".env", at+".variables"))
		}
		for n, l := range v.Logins {
			if l.Variable != "" {
				p := fmt.Sprintf("%s.logins[%d].variable", at, n)
				c.holds(p, l.Variable)
				c.once(set, l.Variable, p, p, append(slices.Clone(beside), at+".env"))
			}
		}
	}
}

// once refuses a variable that is also set by one of beside.
func (c *checker) once(set map[string][]string, name, by, at string, beside []string) {
	for _, other := range set[name] {
		if slices.Contains(beside, other) {
			c.fault(at, "leave one out", "%s is also set by %s", name, other)
			break
		}
	}
	set[name] = append(set[name], by)
}

// needed are variables by which programs are found and run: no placeholder.
var needed = []string{"PATH", "HOME", "PWD", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "TZ", "TMPDIR", "IFS", "ENV", "BASH_ENV", "NODE_OPTIONS"}

// holds checks a variable that holds a placeholder.
func (c *checker) holds(at, name string) {
	switch {
	case !variableName.MatchString(name):
		c.fault(at, "letters, digits and underscore", "%q is no name of a variable", name)
	case slices.Contains(needed, name) || strings.HasPrefix(name, "LD_"):
		c.fault(at, "name the variable that the agent reads its key from", "programs run by %s, which cannot be a placeholder", name)
	}
}

func (c *checker) vendor(at string, v Vendor) {
	if name, err := policy.Canonical(v.Host); err != nil {
		c.fault(at+".host", "such as api.example.com", "%s", err)
	} else if name != v.Host {
		c.fault(at+".host", "write "+name, "%q is not how the host is written", v.Host)
	}
	if v.Base != "" && (!policy.IsPathPattern(v.Base) || strings.HasSuffix(v.Base, "*") || strings.HasSuffix(v.Base, "/")) {
		c.fault(at+".base", "such as /v1", "%q is no beginning of paths", v.Base)
	}
	if v.Route != Door && v.Route != TLS {
		c.fault(at+".route", "door: plain HTTP to the gateway; tls: https to the host's own name", "%q is no route", v.Route)
	}
	if len(v.Calls) == 0 {
		c.fault(at+".calls", "such as calls: [{methods: [POST], path: /v1/responses, api: openai-responses}]", "no request may pass")
	}
	for i, call := range v.Calls {
		c.call(fmt.Sprintf("%s.calls[%d]", at, i), v, call)
	}
	if len(v.KeyEnv) == 0 {
		c.fault(at+".key_env", "such as key_env: [OPENAI_API_KEY]", "nothing says where the host's key usually is")
	}
	for i, name := range v.KeyEnv {
		if !variableName.MatchString(name) {
			c.fault(fmt.Sprintf("%s.key_env[%d]", at, i), "letters, digits and underscore", "%q is no name of a variable", name)
		}
	}
	c.carried(at, v, v.As)
	c.texts(at+".args", v.Args)
	names := map[string]bool{}
	for i, l := range v.Logins {
		p := fmt.Sprintf("%s.logins[%d]", at, i)
		if l.Name == "" || names[l.Name] {
			c.fault(p+".name", "", "a login has no name, or that of another")
		}
		names[l.Name] = true
		switch usable := len(l.KeyEnv) > 0 || l.Variable != "" || l.As != ""; {
		case l.Refused != "" && usable:
			c.fault(p, "leave out refused:, or all else", "it is refused, and yet said how it is used")
		case l.Refused == "" && (len(l.KeyEnv) == 0 || l.Variable == "" || l.As == ""):
			c.fault(p, "key_env:, variable: and as:, or refused: with the reason", "it is not said how it is used")
		case l.Refused == "":
			c.carried(p, v, l.As)
		}
	}
}

// apis are the protocols a call can be of.
var apis = []inference.API{inference.Chat, inference.Responses, inference.Messages, inference.Gemini}

func (c *checker) call(at string, v Vendor, call inference.Call) {
	if len(call.Methods) == 0 {
		c.fault(at+".methods", "such as methods: [POST]", "no method is named")
	}
	for i, m := range call.Methods {
		if !methodName.MatchString(m) || m == "CONNECT" || m == "TRACE" {
			c.fault(fmt.Sprintf("%s.methods[%d]", at, i), "such as POST", "%q is no method that can pass", m)
		}
	}
	switch {
	case !policy.IsPathPattern(call.Path):
		c.fault(at+".path", "such as /v1/responses, exact or ending in *", "%q is no path", call.Path)
	case call.Path == "/*" || call.Path == v.Base+"/*" || call.Path == v.Base+"*":
		c.fault(at+".path", "name the paths that the agent cannot do without", "%q is every path: files, batches and all that an account has", call.Path)
	}
	switch {
	case call.API == "" && call.Free:
		c.fault(at+".free", "name its api:", "only a call of an API can be free")
	case call.API != "" && !slices.Contains(apis, call.API):
		c.fault(at+".api", fmt.Sprintf("known: %s, %s, %s, %s", apis[0], apis[1], apis[2], apis[3]), "%q is no API", call.API)
	}
}

// carried checks how requests carry the credential.
func (c *checker) carried(at string, v Vendor, as vault.Form) {
	b := vault.Binding{Host: v.Host, As: as}
	switch as {
	case vault.Bearer:
	case vault.Header, vault.Query:
		if b.Name = v.Field; b.Name == "" {
			c.fault(at+".field", "such as field: x-api-key", "it is not said in which field or parameter")
			return
		}
	default:
		c.fault(at+".as", "bearer, header or query", "a model's key is not carried as %q", as)
		return
	}
	for _, f := range vault.Check([]vault.Secret{{Name: "key", Use: []vault.Binding{b}}}) {
		if key := f.Path[strings.LastIndex(f.Path, ".")+1:]; key != "host" { // said above
			c.fault(at+"."+map[string]string{"name": "field"}[key], f.Hint, "%s", f.Message)
		}
	}
}

// files checks what is placed, beside others that also are.
func (c *checker) files(at string, files, others []File) {
	seen := map[string]bool{}
	for _, f := range others {
		seen[path.Clean(f.Path)] = true
	}
	for i, f := range files {
		p := fmt.Sprintf("%s[%d]", at, i)
		if why := placeable(f.Path); why != "" {
			c.fault(p+".path", "such as .config/agent/settings.json, beneath the home directory", "%s", why)
		} else if seen[path.Clean(f.Path)] {
			c.fault(p+".path", "leave one out", "%s is placed twice", f.Path)
		}
		seen[path.Clean(f.Path)] = true
		c.text(p+".content", f.Content)
	}
}

// kept are directories inside in which nothing is placed: the workspace, what is
// rein's, and what is no file.
var kept = []string{DefaultWork, "/proc", "/sys", "/dev", "/run/rein", "/.rein", LayerDir}

// DefaultWork is the workspace unless the target says another.
const DefaultWork = "/workspace"

// LayerDir is where a layer is inside.
const LayerDir = layer.At

// placeable is why no file can be placed at p; empty when one can.
func placeable(p string) string {
	switch {
	case p == "" || strings.ContainsRune(p, 0) || strings.Contains(p, "{{"):
		return fmt.Sprintf("%q is no path: it is no template either", p)
	case path.Clean(p) != p || p == "." || p == "/" || p == ".." || strings.HasPrefix(p, "../"):
		return fmt.Sprintf("%q is not a clean path to a file", p)
	}
	for _, dir := range kept {
		if beneath(p, dir) {
			return fmt.Sprintf("%s is in %s, where a recipe writes nothing", p, dir)
		}
	}
	return ""
}

func beneath(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// Place is where a file goes in a sandbox with that home directory and workspace:
// an error where that is in the workspace, though the recipe alone did not tell.
func (f File) Place(home, work string) (string, error) {
	p := f.Path
	if !path.IsAbs(p) {
		p = path.Join(home, p)
	}
	why := placeable(p)
	if why == "" && beneath(p, work) {
		why = fmt.Sprintf("%s is in the workspace %s, where a recipe writes nothing", p, work)
	}
	if why != "" {
		return "", one(Problem{File: "recipe", Message: "files: " + why})
	}
	return p, nil
}
