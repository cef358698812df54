package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/image"
	"github.com/rein-sh/rein/internal/spelling"
	"github.com/rein-sh/rein/sandbox"
)

// Known is what the values of a configuration may name.
type Known struct {
	Providers []string
	Vendors   []string
	Presets   []string
	Runtimes  []string // of the provider local, besides paths
	// Target judges what --allow would take. Nil judges nothing.
	Target func(text string) (hint string, err error)
}

// DefaultTarget and DefaultVendor fill what a target or the command line leaves out.
const (
	DefaultTargetName = "default"
	DefaultProvider   = "local"
	DefaultRuntime    = "gvisor"
	RemoteProvider    = "opensandbox"
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Validate judges the values of f. Errors are *Error with every fault and its
// place, those of reading it included.
func Validate(f *File, known Known) error {
	v := validator{file: f}
	c := f.Config
	for _, name := range slices.Sorted(maps.Keys(c.Targets)) {
		v.target("targets."+name, c.Targets[name], known)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Models)) {
		v.model("models."+name, c.Models[name], known)
	}
	v.fallbacks(c.Models, known)
	v.prices(c.Prices, known)
	targets := slices.Sorted(maps.Keys(c.Targets))
	if !slices.Contains(targets, DefaultTargetName) {
		targets = append(targets, DefaultTargetName)
	}
	if c.Target != "" && !slices.Contains(targets, c.Target) {
		v.fault("target", DidYouMean(c.Target, targets), "no target %q", c.Target)
	}
	if models := slices.Sorted(maps.Keys(c.Models)); c.Model != "" && !slices.Contains(models, c.Model) {
		hint := "name it under models:"
		if len(models) > 0 {
			hint = DidYouMean(c.Model, models)
		}
		v.fault("model", hint, "no model %q", c.Model)
	}
	v.oneOf("limits.preset", c.Limits.Preset, known.Presets)
	v.zeroes("limits", reflect.ValueOf(c.Limits))
	v.context(c.Context)
	v.sessions(c.Sessions)
	v.redaction(c.Redaction)
	v.secrets(c)
	v.approval(c.Approval)
	v.hosts(c)
	v.egress(c.Egress)
	v.tools(c.Tools, c.Search)
	v.images(c.Images)
	v.agents(c.Agents, known)
	v.telemetry(c.Telemetry)
	v.absolute("programs.execd", c.Programs.Execd)
	v.absolute("programs.gvisor", c.Programs.GVisor)
	return v.together()
}

type validator struct {
	file     *File
	problems []Problem
	at       []string // the path of each
}

func (v *validator) fault(path, hint, format string, args ...any) {
	at, ok := v.file.Set[path]
	for p := path; !ok && p != ""; at, ok = v.file.Set[p] {
		p = parent(p)
		if p == "" {
			break
		}
	}
	if !ok {
		at = Position{File: v.file.Name}
	}
	v.at = append(v.at, path)
	v.problems = append(v.problems, Problem{Position: at, Hint: hint, Message: path + ": " + fmt.Sprintf(format, args...)})
}

// set reports whether the file has the key, whatever its value.
func (v *validator) set(path string) bool {
	_, ok := v.file.Set[path]
	return ok
}

// Fault is an *Error about the value at a dotted path, with its place or that
// of the nearest key above it.
func (f *File) Fault(path, hint, format string, args ...any) error {
	v := validator{file: f}
	v.fault(path, hint, format, args...)
	return asError(v.problems)
}

// zeroes refuses a number that is set to zero, which must not quietly mean the
// preset's.
func (v *validator) zeroes(at string, s reflect.Value) {
	for i, name := range fieldsOf(s.Type()).names {
		p := join(at, name)
		if v.set(p) && s.Field(i).IsZero() && s.Field(i).Kind() != reflect.String {
			v.fault(p, "write a number above zero, or leave it out for the preset's", "there is no run without a limit")
		}
	}
}

// parent is the path one level up.
func parent(p string) string {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] == '.' || p[i] == '[' {
			return p[:i]
		}
	}
	return ""
}

func (v *validator) oneOf(path, value string, names []string) {
	if value != "" && !slices.Contains(names, value) {
		v.fault(path, DidYouMean(value, names), "%q is not known", value)
	}
}

func (v *validator) absolute(at, value string) {
	if value != "" && (!path.IsAbs(value) || path.Clean(value) != value) {
		v.fault(at, "write an absolute path without .. or a trailing slash", "%q is not a clean absolute path", value)
	}
}

func (v *validator) target(at string, t Target, known Known) {
	v.oneOf(at+".provider", t.Provider, known.Providers)
	v.absolute(at+".cwd", t.Cwd)
	if t.Provider == "" || t.Provider == DefaultProvider {
		v.image(at+".image", t.Image)
		v.runtime(at+".runtime", t.Runtime, known.Runtimes)
	}
	v.remote(at, t)
	v.acceptance(at+".acceptance", t.Acceptance)
	v.network(at+".network", t)
	for name := range t.Env {
		if !envName.MatchString(name) {
			v.fault(at+".env."+name, "letters, digits and underscore", "%q is no name of a variable", name)
		}
	}
	for i, m := range t.Mounts {
		p := fmt.Sprintf("%s.mounts[%d]", at, i)
		if m.Source == "" || m.Target == "" {
			v.fault(p, "write source: and target:", "a mount needs a source and a target")
		}
		v.absolute(p+".source", m.Source)
		v.absolute(p+".target", m.Target)
	}
	for i, name := range t.Require {
		if !slices.Contains(sandbox.Capabilities, name) {
			v.fault(fmt.Sprintf("%s.require[%d]", at, i), DidYouMean(string(name), capabilityNames()), "no capability %q", name)
		}
	}
	r := t.Resources
	for _, one := range []sandbox.Resources{{CPU: r.CPU}, {Memory: int64(r.Memory)}, {PIDs: r.PIDs}, {Disk: int64(r.Disk)}} {
		if e, ok := errors.AsType[*sandbox.Error](one.Check()); ok {
			v.fault(at+"."+e.Subject, e.Hint, "%s", e.Err)
		}
	}
}

// runtime checks the name of an OCI runtime, or its path.
func (v *validator) runtime(at, name string, names []string) {
	if name == "" {
		return
	}
	if hint := RuntimeHint(name, names); hint != "" {
		v.fault(at, hint, "%q is not known", name)
	} else if !slices.Contains(names, name) { // a relative path would be looked for wherever rein is started
		v.absolute(at, name)
	}
}

// RuntimeHint says what to write instead of a runtime that is neither one of
// names nor a path; empty: it is.
func RuntimeHint(name string, names []string) string {
	if strings.Contains(name, "/") || slices.Contains(names, name) {
		return ""
	}
	if n := spelling.Nearest(name, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return "known: " + strings.Join(names, ", ") + ", or the path of another OCI runtime"
}

// remote judges what only a remote provider takes.
func (v *validator) remote(at string, t Target) {
	if t.Provider != RemoteProvider {
		for key, set := range map[string]bool{"url": t.URL != "", "key": v.set(at + ".key"), "use_server_proxy": t.UseServerProxy,
			"endpoint_scheme": t.EndpointScheme != "", "accept_weak_egress": t.AcceptWeakEgress, "accept_weak_vault": t.AcceptWeakVault,
			"server_execd_only": t.ServerExecdOnly, "entrypoint": len(t.Entrypoint) > 0} {
			if set {
				v.fault(at+"."+key, "write provider: "+RemoteProvider+", or leave it out", "it is of the provider %s only", RemoteProvider)
			}
		}
		return
	}
	if t.Runtime != "" {
		v.fault(at+".runtime", "leave it out: the server has its own", "provider %s takes no runtime", RemoteProvider)
	}
	if t.Image == "" || t.Image == "host" {
		v.fault(at+".image", "such as image: debian:12", "provider %s needs an image that the server can pull", RemoteProvider)
	}
	if u, err := url.Parse(t.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		v.fault(at+".url", "such as url: https://sandboxes.example.com", "no http or https address")
	} else if u.User != nil {
		v.fault(at+".url", "put the key under key:", "an address must not contain a user or a password")
	}
	v.oneOf(at+".endpoint_scheme", t.EndpointScheme, []string{"http", "https"})
	v.key(at+".key", t.Key, v.set(at+".key"))
}

func capabilityNames() []string {
	out := make([]string, len(sandbox.Capabilities))
	for i, c := range sandbox.Capabilities {
		out[i] = string(c)
	}
	return out
}

func (v *validator) model(at string, m Model, known Known) {
	if m.Vendor == "" {
		v.fault(at, "known: "+strings.Join(known.Vendors, ", "), "no vendor")
	}
	v.oneOf(at+".vendor", m.Vendor, known.Vendors)
	if m.Model == "" {
		v.fault(at, "write model: NAME", "no model")
	}
	v.window(at+".context_window", m.ContextWindow)
	if m.Vendor == "script" { // a relative path would be looked for wherever rein is started
		v.absolute(at+".model", m.Model)
	}
	if m.BaseURL != "" {
		u, err := url.Parse(m.BaseURL)
		switch {
		case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
			v.fault(at+".base_url", "such as https://api.openai.com/v1", "no http or https address")
		case u.User != nil:
			v.fault(at+".base_url", "put the key under key:", "an address must not contain a user or a password")
		}
	}
	if m.Proxy != "" {
		u, err := url.Parse(m.Proxy)
		switch {
		case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
			v.fault(at+".proxy", "such as http://proxy.example:3128", "no http or https address")
		case u.User != nil:
			v.fault(at+".proxy", "a proxy that asks for a password cannot be used", "an address must not contain a user or a password")
		}
	}
	if m.LegacyMaxTokens && m.Vendor != "openai" {
		v.fault(at+".legacy_max_tokens", "leave it out", "only openai, which is Chat Completions, has another name for the cap")
	}
	if strings.ContainsFunc(m.Effort, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' }) {
		v.fault(at+".effort", "a word such as low, medium or high", "%q is no effort", m.Effort)
	}
	v.key(at+".key", m.Key, v.set(at+".key"))
}

// image checks what a target of the local provider is made from.
func (v *validator) image(at, ref string) {
	if ref == "" || ref == "host" {
		return
	}
	if _, err := image.ParseReference(ref); err != nil {
		e, _ := errors.AsType[*image.Error](err)
		v.fault(at, cmp.Or(e.Hint, "host, or an OCI reference"), "%s", err)
	}
}

func (v *validator) images(c Images) {
	judge := func(list string, i int, err error) {
		if e, ok := errors.AsType[*image.Error](err); ok {
			v.fault(fmt.Sprintf("images.%s[%d]", list, i), e.Hint, "%s", e)
		}
	}
	for i, text := range c.Allow {
		_, err := image.ParsePattern(text)
		judge("allow", i, err)
	}
	for i, host := range c.Insecure {
		judge("insecure", i, image.CheckRegistry(host))
	}
	v.absolute("images.dir", c.Dir)
}

// sessions checks their bounds; execd has its own, which nothing here may pass.
func (v *validator) sessions(s Sessions) {
	if s.Max < 0 || s.Max > execd.MaxSessions || s.Max == 0 && v.set("sessions.max") {
		v.fault("sessions.max", fmt.Sprintf("write a number from 1 to %d, or leave sessions out", execd.MaxSessions), "%d is no number of open sessions", s.Max)
	}
	if s.Calls < 0 || s.Calls == 0 && v.set("sessions.calls") {
		v.fault("sessions.calls", "write a number above zero, or leave it out", "%d is no number of commands", s.Calls)
	}
	if s.Age < 0 || time.Duration(s.Age) > execd.SessionIdle || s.Age == 0 && v.set("sessions.age") {
		v.fault("sessions.age", "write a duration up to "+Duration(execd.SessionIdle).String(), "a session cannot live for %s", s.Age)
	}
	if s.Max == 0 && !v.set("sessions.max") && (s.Calls != 0 || s.Age != 0) {
		v.fault("sessions", "write max:, or leave sessions out", "without max there are no sessions to bound")
	}
}

func (v *validator) redaction(r Redaction) {
	for i, s := range r.Secrets {
		at := fmt.Sprintf("redaction.secrets[%d]", i)
		if s.Name == "" {
			v.fault(at, "write name: what the mark should say", "a secret needs a name")
		}
		v.key(at, s.Key(), true)
	}
}

// key checks that a secret has one place.
func (v *validator) key(at string, k Key, required bool) {
	n := 0
	for _, set := range []bool{k.Env != "", k.File != "", len(k.Command) > 0} {
		if set {
			n++
		}
	}
	if n > 1 || n == 0 && required {
		v.fault(at, "write one of env:, file:, command:", "exactly one place of the secret is needed, not %d", n)
	}
	if k.Env != "" && !envName.MatchString(k.Env) {
		v.fault(at+".env", "the name of the variable belongs here, never the secret", "no name of a variable")
	}
	v.absolute(at+".file", k.File)
	if len(k.Command) > 0 {
		v.absolute(at+".command", k.Command[0])
	}
}
