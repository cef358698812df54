package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
)

// Secret is a credential of this host, and what requests of sandboxes are given
// it for.
type Secret struct {
	Env      string          `json:"env,omitempty" jsonschema:"name of an environment variable of the host that holds it"`
	File     string          `json:"file,omitempty" jsonschema:"absolute path of a file that holds it"`
	Command  []string        `json:"command,omitempty" jsonschema:"program and arguments that print it, run on the host without a shell"`
	Revoke   []string        `json:"revoke,omitempty" jsonschema:"of command: program and arguments that withdraw a key, which they read from standard input; run when the sandbox is gone"`
	Refresh  Duration        `json:"refresh,omitempty" jsonschema:"of command and file: how often a run reads it again, behind the same placeholder"`
	Variable string          `json:"variable,omitempty" jsonschema:"environment variable inside that holds its placeholder"`
	Use      []vault.Binding `json:"use,omitempty" jsonschema:"which requests are given it, and how"`
}

// secretName is what a secret can be called: its name is a part of marks and paths.
var secretName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Key is the place of the secret.
func (s Secret) Key() Key { return Key{Env: s.Env, File: s.File, Command: s.Command} }

// SecretsOf are the secrets of a target, in its order, without their values.
func (c Config) SecretsOf(t Target) []vault.Secret {
	var out []vault.Secret
	for _, name := range t.Secrets {
		s := c.Secrets[name]
		out = append(out, vault.Secret{Name: name, Variable: s.Variable, Use: s.Use})
	}
	return out
}

// secrets judges what is said of secrets, and which targets use them.
// needed are variables by which programs are found and run.
var needed = []string{"PATH", "HOME", "PWD", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "TZ", "TMPDIR", "IFS", "ENV", "BASH_ENV"}

func (v *validator) secrets(c Config) {
	names := slices.Sorted(maps.Keys(c.Secrets))
	for _, name := range names {
		s, at := c.Secrets[name], "secrets."+name
		if !secretName.MatchString(name) {
			v.fault(at, "letters, digits, - and _", "%q is no name of a secret", name)
			continue
		}
		v.key(at, s.Key(), true)
		v.lives(at, s)
		if s.Variable != "" && !envName.MatchString(s.Variable) {
			v.fault(at+".variable", "letters, digits and underscore", "%q is no name of a variable", s.Variable)
		} else if slices.Contains(needed, s.Variable) || strings.HasPrefix(s.Variable, "LD_") {
			v.fault(at+".variable", "name the variable that programs read the key from, such as "+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"_TOKEN",
				"programs inside run by %s, which cannot be a placeholder", s.Variable)
		}
		for _, f := range vault.Check([]vault.Secret{{Name: name, Use: s.Use}}) {
			v.fault("secrets."+f.Path, f.Hint, "%s", f.Message)
		}
	}
	for _, target := range slices.Sorted(maps.Keys(c.Targets)) {
		v.secretsOf("targets."+target, c, c.Targets[target], names)
	}
}

// minRefresh is how often a secret is read at most.
const minRefresh = time.Minute

// lives judges what is said of how long a key is good.
func (v *validator) lives(at string, s Secret) {
	if len(s.Revoke) > 0 {
		v.absolute(at+".revoke", s.Revoke[0])
		if len(s.Command) == 0 {
			v.fault(at+".revoke", "leave it out", "only a key that command: makes is withdrawn")
		}
	}
	switch {
	case !v.set(at + ".refresh"):
	case time.Duration(s.Refresh) < minRefresh:
		v.fault(at+".refresh", "write "+Duration(minRefresh).String()+" or more", "%s is too often", s.Refresh)
	case s.Env != "":
		v.fault(at+".refresh", "name a file: or a command:", "a variable of the environment is the same for as long as rein runs")
	}
}

// secretsOf judges the secrets of one target together.
func (v *validator) secretsOf(at string, c Config, t Target, names []string) {
	sets := map[string]string{} // variables, by what sets them
	for name := range t.Env {
		sets[name] = "env"
	}
	for i, name := range t.Secrets {
		p := fmt.Sprintf("%s.secrets[%d]", at, i)
		if !slices.Contains(names, name) {
			v.fault(p, secretHint(name, names), "no secret %q", name)
			continue
		}
		if slices.Contains(t.Secrets[:i], name) {
			v.fault(p, "", "%q is given twice", name)
			continue
		}
		if t.Provider == RemoteProvider && c.Secrets[name].Refresh > 0 {
			v.fault(p, "use a target of the provider local", "%s has refresh:, and the secrets of a live sandbox of OpenSandbox cannot be changed", name)
		}
		if variable := c.Secrets[name].Variable; variable != "" {
			if other := sets[variable]; other != "" {
				v.fault(p, "name another variable", "the variable %s of %s is also set by %s", variable, name, other)
			}
			sets[variable] = name
		}
	}
	v.reachable(at, c.SecretsOf(t), t)
	alone := map[string]bool{} // faults of one secret were said
	for _, s := range c.SecretsOf(t) {
		for _, f := range vault.Check([]vault.Secret{s}) {
			alone[f.Path+f.Message] = true
		}
	}
	for _, f := range vault.Check(c.SecretsOf(t)) {
		if name, _, _ := strings.Cut(f.Path, "."); !alone[f.Path+f.Message] && slices.Contains(names, name) {
			v.fault(at+".secrets", f.Hint, "%s: %s", f.Path, f.Message)
		}
	}
}

// reachable refuses a secret for a host that the target's network does not reach:
// it would never be used.
func (v *validator) reachable(at string, secrets []vault.Secret, t Target) {
	p, err := policy.Compile(t.NetworkOf())
	if err != nil {
		return // said elsewhere
	}
	for _, s := range secrets {
		for i, b := range s.Use {
			if _, err := policy.Canonical(b.Host); err != nil {
				continue // said elsewhere
			}
			ports := b.Ports
			if len(ports) == 0 {
				ports = []int{443}
			}
			for _, port := range ports {
				d := p.Connect(b.Host, uint16(port))
				switch {
				case d.Action == policy.Deny:
					v.fault(at+".secrets", "allow it under network: rules:", "%s.use[%d] is for %s port %d, which this target's network denies: %s", s.Name, i, b.Host, port, d.Reason)
				case d.Proto != policy.TLS && d.Proto != policy.HTTPS:
					v.fault(at+".secrets", "write proto: https there", "%s.use[%d] is for %s port %d, where %s says %s: a secret is sent within TLS alone", s.Name, i, b.Host, port, d.Rule, d.Proto)
				}
			}
		}
	}
}

func secretHint(name string, names []string) string {
	if len(names) == 0 {
		return "name it under secrets:"
	}
	return DidYouMean(name, names)
}
