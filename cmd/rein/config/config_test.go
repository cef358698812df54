package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/price"
	"github.com/rein-sh/rein/sandbox"
)

var known = config.Known{Providers: []string{"local", "opensandbox"}, Vendors: []string{"openai", "script"}, Presets: []string{"quick", "standard", "long"},
	Runtimes: []string{"gvisor", "runc", "crun"}}

func TestDecode(t *testing.T) {
	f, err := config.Decode("c.yaml", []byte(`
target: build
targets:
  build:
    provider: local
    runtime: runc
    resources: {cpu: 1.5, memory: 512MiB, pids: 64, disk: 1GB}
    env: {PORT: 8080, DEBUG: true}
    mounts:
      - source: /srv/data
        target: /data
        writable: true
    require: [separation]
models:
  m:
    vendor: openai
    model: gpt-5
    key: {command: [/bin/echo, key]}
    price: 2.5,10
limits:
  max_wall_time: 90s
  max_tokens: 1_000_000
`))
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		Target: "build",
		Targets: map[string]config.Target{"build": {
			Provider: "local", Runtime: "runc",
			Resources: config.Resources{CPU: 1.5, Memory: 512 << 20, PIDs: 64, Disk: 1e9},
			Env:       map[string]string{"PORT": "8080", "DEBUG": "true"},
			Mounts:    []config.Mount{{Source: "/srv/data", Target: "/data", Writable: true}},
			Require:   []sandbox.Capability{sandbox.CapSeparation},
		}},
		Models: map[string]config.Model{"m": {Vendor: "openai", Model: "gpt-5", Key: config.Key{Command: []string{"/bin/echo", "key"}},
			Price: config.Price{Known: true, Price: price.Price{Input: 2.5, Output: 10}}}},
		Limits: config.Limits{MaxWallTime: config.Duration(90 * time.Second), MaxTokens: 1_000_000},
	}
	if diff := cmp.Diff(want, f.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if got := f.Set["targets.build.resources.memory"].String(); got != "c.yaml:7:27" {
		t.Errorf("place of the memory limit is %s", got)
	}
	if err := config.Validate(f, known); err != nil {
		t.Error(err)
	}
}

// Every fault is reported at its place and, where there is one, with the name
// that was meant.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ name, text, want, hint string }{
		{"unknown key", "targts:\n  a: {}\n", `c.yaml:1:1: unknown key "targts"`, `did you mean "targets"?`},
		{"nested key", "targets:\n  a:\n    runtme: runc\n", `c.yaml:3:5: unknown key "runtme" in targets.a`, `did you mean "runtime"?`},
		{"swapped letters", "limits:\n  max_stpes: 1\n", `c.yaml:2:3: unknown key "max_stpes" in limits`, `did you mean "max_steps"?`},
		{"nothing near", "zzzzzz: 1\n", `unknown key "zzzzzz"`, "known: target, model, targets"},
		{"two faults", "a: 1\nb: 2\n", "c.yaml:2:1: unknown key \"b\"", ""},
		{"repeated key", "target: a\ntarget: b\n", "2:1", ""},
		{"repeated name", "targets:\n  a: {}\n  a: {}\n", "3:3", ""},
		{"text for number", "limits:\n  max_steps: many\n", `c.yaml:2:14: limits.max_steps must be a whole number, not "many"`, ""},
		{"fraction for number", "limits:\n  max_steps: 1.5\n", "must be a whole number", ""},
		{"list for mapping", "limits: [a]\n", "c.yaml:1:9: limits must be a mapping", ""},
		{"text for list", "targets:\n  a:\n    require: separation\n", "targets.a.require must be a list", "[a, b]"},
		{"mapping for text", "target: {a: b}\n", "target must be text", ""},
		{"bare duration", "limits:\n  max_wall_time: 90\n", `"90" is no duration`, ""},
		{"size", "targets:\n  a:\n    resources: {memory: lots}\n", `"lots" is no size`, ""},
		{"too little memory", "targets:\n  a:\n    resources: {memory: 5}\n", "c.yaml:3:17: targets.a.resources.memory: no sandbox can start with 5 bytes", "at least 32 MiB"},
		{"too little of all", "targets:\n  a:\n    resources: {cpu: 0.001, pids: 2, disk: 1KiB}\n", "c.yaml:3:38: targets.a.resources.disk: no sandbox can start with 1 KiB", "at least 0.05 cores"},
		{"negative limit", "targets:\n  a:\n    resources: {pids: -1}\n", "c.yaml:3:17: targets.a.resources.pids: no sandbox can start with -1 processes", "at least 32 processes"},
		{"endless limit", "targets:\n  a:\n    resources: {cpu: .inf}\n", "targets.a.resources.cpu", ""},
		{"price", "models:\n  m: {vendor: openai, model: x, price: cheap}\n", `"cheap" is no price`, ""},
		{"alias", "target: &a x\nmodel: *a\n", "anchors, aliases and tags are not read", ""},
		{"tab", "limits:\n\tmax_steps: 1\n", "c.yaml:", "YAML"},
		{"two documents", "target: a\n---\ntarget: b\n", "a second document", ""},
		{"scalar file", "hello\n", "the file must be a mapping", ""},
		{"odd name", "targets:\n  \"a b\": {}\n", `"a b" is no name`, ""},
		{"remote without url", "targets:\n  a: {provider: opensandbox, image: x}\n", `c.yaml:2:3: targets.a.url: no http or https address`, "url: https://"},
		{"remote with password", "targets:\n  a: {provider: opensandbox, image: x, url: 'https://u:p@h'}\n", `targets.a.url: an address must not contain a user or a password`, "key:"},
		{"remote without image", "targets:\n  a: {provider: opensandbox, url: 'https://h'}\n", `targets.a.image: provider opensandbox needs an image`, "image: debian:12"},
		{"runtime misspelt", "targets:\n  a: {runtime: gvisr}\n", `targets.a.runtime: "gvisr" is not known`, `did you mean "gvisor"?`},
		{"runtime unknown", "targets:\n  a: {runtime: kata}\n", `targets.a.runtime: "kata" is not known`, "known: gvisor, runc, crun, or the path of another OCI runtime"},
		{"runtime relative", "targets:\n  a: {runtime: bin/runc}\n", `targets.a.runtime: "bin/runc" is not a clean absolute path`, "absolute"},
		{"action of a rule", "approval:\n  rules:\n    - {command: rm, action: forbid}\n", `c.yaml:3:21: approval.rules[0].action: "forbid" is not allow, ask or deny`, "docs/approval.md"},
		{"no action of a rule", "approval:\n  rules:\n    - {command: rm}\n", `c.yaml:3:8: approval.rules[0].action: "" is not allow, ask or deny`, "docs/approval.md"},
		{"tool without a program", "tools:\n  custom:\n    - {name: a, description: b, argv: []}\n", `tools.custom[0].argv: it has no program`, "docs/approval.md"},
		{"low above high", "context: {low: 2MiB, high: 1MiB}\n", `context: low must be less than high`, "low is less than high"},
		{"remote with runtime", "targets:\n  a: {provider: opensandbox, url: 'https://h', image: x, runtime: runc}\n", `targets.a.runtime: provider opensandbox takes no runtime`, "leave it out"},
		{"remote with two keys", "targets:\n  a: {provider: opensandbox, url: 'https://h', image: x, key: {env: A, file: /b}}\n", `targets.a.key: exactly one place`, "one of env"},
		{"remote's key in local", "targets:\n  a: {use_server_proxy: true}\n", `targets.a.use_server_proxy: it is of the provider opensandbox only`, "provider: opensandbox"},
		{"provider", "targets:\n  a: {provider: locl}\n", `c.yaml:2:7: targets.a.provider: "locl" is not known`, `did you mean "local"?`},
		{"capability", "targets:\n  a: {require: [seperation]}\n", `no capability "seperation"`, `did you mean "separation"?`},
		{"default target", "target: bild\ntargets:\n  build: {}\n", `c.yaml:1:1: target: no target "bild"`, `did you mean "build"?`},
		{"fallback", "models:\n  m: {vendor: openai, model: x, fallback: n}\n", `models.m.fallback: no model "n"`, "m"},
		{"its own fallback", "models:\n  m: {vendor: openai, model: x, fallback: m}\n", "its own fallback", "another"},
		{"default model", "model: gpt\n", `no model "gpt"`, "models:"},
		{"preset", "limits: {preset: fast}\n", `"fast" is not known`, "known: quick, standard, long"},
		{"zero limit", "limits:\n  max_steps: 0\n", "c.yaml:2:3: limits.max_steps: there is no run without a limit", "leave it out"},
		{"relative mount", "targets:\n  a:\n    mounts: [{source: data, target: /data}]\n", `"data" is not a clean absolute path`, ""},
		{"dotted mount", "targets:\n  a:\n    mounts: [{source: /srv/../etc, target: /data}]\n", "not a clean absolute path", ""},
		{"key in two places", "models:\n  m: {vendor: openai, model: x, key: {env: A, file: /b}}\n", "models.m.key: exactly one place", "one of env:, file:, command:"},
		{"key in clear", "models:\n  m: {vendor: openai, model: x, key: {env: sk-123}}\n", "no name of a variable", "never the secret"},
		{"key in address", "models:\n  m: {vendor: openai, model: x, base_url: https://user:pass@api.example}\n", "must not contain a user", "key:"},
		{"password in proxy", "models:\n  m: {vendor: openai, model: x, proxy: http://user:pass@proxy.example}\n", "models.m.proxy: an address must not contain a user", "cannot be used"},
		{"no address of a proxy", "models:\n  m: {vendor: openai, model: x, proxy: proxy.example}\n", "models.m.proxy: no http or https address", "3128"},
		{"another vendor's setting", "models:\n  m: {vendor: script, model: /x.yaml, legacy_max_tokens: true}\n", "models.m.legacy_max_tokens: only openai", "leave it out"},
		{"effort", "models:\n  m: {vendor: openai, model: x, effort: very high}\n", "models.m.effort: \"very high\" is no effort", "low, medium or high"},
		{"relative script", "models:\n  m: {vendor: script, model: demo.yaml}\n", `"demo.yaml" is not a clean absolute path`, ""},
		{"no vendor", "models:\n  m: {model: x}\n", "models.m: no vendor", "known: openai, script"},
		{"too many sessions", "sessions: {max: 65}\n", "c.yaml:1:12: sessions.max: 65 is no number of open sessions", "from 1 to 64"},
		{"bounds of no sessions", "sessions:\n  calls: 5\n", "without max there are no sessions to bound", "write max:"},
		{"age of sessions", "sessions: {max: 1, age: 2h}\n", "a session cannot live for 2h", "up to 1h"},
		{"zero sessions", "sessions: {max: 0}\n", "c.yaml:1:12: sessions.max: 0 is no number of open sessions", "leave sessions out"},
		{"zero sessions with bounds", "sessions: {max: 0, age: 5m}\n", "sessions.max: 0 is no number", "leave sessions out"},
		{"zero commands", "sessions: {max: 1, calls: 0}\n", "c.yaml:1:20: sessions.calls: 0 is no number of commands", "above zero"},
		{"zero age", "sessions: {max: 1, age: 0s}\n", "a session cannot live for 0s", "up to 1h"},
		{"empty key", "models:\n  m: {vendor: openai, model: x, key: {}}\n", "c.yaml:2:33: models.m.key: exactly one place of the secret is needed, not 0", "one of env:, file:, command:"},
		{"key without a value", "models:\n  m:\n    vendor: openai\n    model: x\n    key:\n      # env: A\n", "c.yaml:5:5: models.m.key: exactly one place", "one of env:"},
		{"empty command of a key", "models:\n  m: {vendor: openai, model: x, key: {command: []}}\n", "models.m.key: exactly one place", "one of env:"},
		{"remote's empty key", "targets:\n  a: {provider: opensandbox, url: 'https://h', image: x, key: {}}\n", "targets.a.key: exactly one place", "one of env:"},
		{"bare star", "images:\n  allow:\n    - *\n", "c.yaml:3:7: ", "needs quotes"},
		{"star at the beginning", "images:\n  allow:\n    - */x\n", "images.allow[0]: anchors, aliases and tags are not read", "needs quotes"},
		{"rule of a host", "approval:\n  rules:\n    - {action: deny, host: '*.example.com'}\n", "c.yaml:3:22: approval.rules[0].host: no target's network asks about a host", "default: ask"},
		{"pattern of a host", "approval:\n  rules:\n    - {action: deny, host: 'https://example.com'}\n", `c.yaml:3:22: approval.rules[0].host: "https://example.com" has ":"`, "docs/approval.md"},
		{"host beneath everybody", "targets:\n  a: {network: {rules: [{host: '*.co.uk'}]}}\n", "c.yaml:2:26: targets.a.network.rules[0].host: anybody can have a name beneath co.uk", "one owner"},
		{"port without its protocol", "targets:\n  a: {network: {rules: [{host: db.example.com, ports: [5432]}]}}\n", "targets.a.network.rules[0].ports[0]: what is spoken on port 5432 must be said", "proto: tcp"},
		{"open by default", "targets:\n  a: {network: {default: allow}}\n", "c.yaml:2:17: targets.a.network.default: what no rule speaks of is not allowed", "deny or ask"},
		{"bundle", "targets:\n  a: {network: {bundles: [pipy]}}\n", `targets.a.network.bundles[0]: "pipy" is no bundle`, "pypi"},
		{"origin", "targets:\n  a: {network: {origin: api}}\n", `unknown key "origin" in targets.a.network`, ""},
		{"no key", "targets:\n  a: {network: {'-': api}}\n", `unknown key "-" in targets.a.network`, ""},
		{"key twice", "limits:\n  max_steps: 1\n  max_steps: 2\n", `c.yaml:3:3: mapping key "max_steps" already defined`, "write the key once"},
		{"connections with a unit", "targets:\n  a: {network: {limits: {connections: 16KiB}}}\n", "targets.a.network.limits.connections must be a whole number", "write 16384"},
		{"bytes without a number", "targets:\n  a: {network: {limits: {bytes: much}}}\n", `targets.a.network.limits.bytes: "much" is no size`, ""},
		{"another word for true", "targets:\n  a: {network: {report_only: yes}}\n", "targets.a.network.report_only must be true or false", "write true"},
		{"dollars", "limits: {max_cost: $5}\n", "limits.max_cost must be a number", "write 5"},
		{"word for a network", "targets:\n  a: {network: deny}\n", "targets.a.network must be a mapping", "beneath it"},
		{"no bytes", "targets:\n  a: {network: {limits: {bytes: 0}}}\n", "targets.a.network.limits.bytes: 0 is no limit", "above zero"},
		{"egress without bytes", "egress: {limits: {max_upload_bytes: 0}}\n", "c.yaml:1:19: egress.limits.max_upload_bytes: 0 is no limit", "above zero"},
		{"host limits of none", "egress: {host_limits: {connections: 0}}\n", "c.yaml:1:24: egress.host_limits.connections: 0 is no limit", "above zero"},
		{"resolver", "egress: {resolvers: [ns.example.com]}\n", `c.yaml:1:22: egress.resolvers[0]: "ns.example.com" is neither an address`, "192.0.2.53"},
		{"proxy with a password", "egress: {upstream_proxy: {url: 'http://u:p@h:1'}}\n", "egress.upstream_proxy.url: an address must not contain a user or a password", "password:"},
		{"proxy with a path", "egress: {upstream_proxy: {url: 'http://h:1/x'}}\n", "egress.upstream_proxy.url: it is more than a host and a port", "3128"},
		{"https proxy", "egress: {upstream_proxy: {url: 'https://h'}}\n", "egress.upstream_proxy.url: the certificate of an https proxy", "upstream_ca"},
		{"password of nobody", "egress: {upstream_proxy: {url: 'http://h', password: {env: A}}}\n", "egress.upstream_proxy.password: a password without a user", "user:"},
		{"password itself", "egress: {upstream_proxy: {url: 'http://h', user: u, password: hunter2}}\n", "egress.upstream_proxy.password must be a mapping", ""},
		{"relative certificates", "egress: {upstream_ca: ca.pem}\n", "egress.upstream_ca: \"ca.pem\" is not a clean absolute path", "absolute"},
		{"tool named as the search tool", "search: true\ntools:\n  custom:\n    - {name: search, description: d, argv: [grep]}\n", `c.yaml:4:8: tools.custom[0].name: "search" is also the tool that search: true gives`, "another name"},
		{"webhook elsewhere without TLS", "approval:\n  ask: [webhook]\n  webhook: {url: http://example.com/x, key: {env: A}}\n", "c.yaml:3:13: approval.webhook.url: a webhook that is not on this host is https", "write https://"},
		{"key instead of its place", "models:\n  m: {vendor: openai, model: x, key: sk-123}\n", "c.yaml:2:38: models.m.key must be a mapping", "env:, file: or command:"},
		{"two kinds of a check", "targets:\n  a: {acceptance: {checks: [{run: [a], shell: b}]}}\n", "a check is one of run, shell and file, not 2 of them", "exactly one of"},
		{"schema of a check", "targets:\n  a: {acceptance: {checks: [{file: {path: x, schema: '{'}}]}}\n", "its schema: ", "docs/acceptance.md"},
		{"several faults", "limits: {preset: fast}\nmodel: gtp\n", `c.yaml:1:10: limits.preset: "fast" is not known (known: quick, standard, long)`, "rein config schema"},
		{"secret's name", "secrets:\n  a.b: {env: A, use: [{host: a.example.org, as: bearer}]}\n", "is no name of a secret", "letters"},
		{"secret in a variable of the shell's", "secrets:\n  my-api: {env: A, variable: PATH, use: [{host: a.example.org, as: bearer}]}\n", "programs inside run by PATH", "such as MY_API_TOKEN"},
		{"secret for nothing", "secrets:\n  a: {env: A}\n", "nothing says what it is for", "use:"},
		{"secret for a wildcard", "secrets:\n  a: {env: A, use: [{host: '*.example.org', as: bearer}]}\n", "bound to exact hosts", "each host"},
		{"secret for a port", "secrets:\n  a: {env: A, use: [{host: 'a.example.org:8443', as: bearer}]}\n", "may be in a name", "the port stands apart: host: a.example.org, ports: [8443]"},
		{"secret for an address", "secrets:\n  a: {env: A, use: [{host: 192.0.2.1, as: bearer}]}\n", "ends in a number", "certificate"},
		{"secret without its parameter", "secrets:\n  a: {env: A, use: [{host: a.example.org, as: query}]}\n", "query needs it", "such as name: key"},
		{"secret without its field", "secrets:\n  a: {env: A, use: [{host: a.example.org, as: header}]}\n", "header needs it", "such as name: X-Api-Key"},
		{"secret in no form", "secrets:\n  a: {env: A, use: [{host: a.example.org, as: cookie}]}\n", `"cookie" is not known`, "bearer"},
		{"secrets for the same field", "secrets:\n  a: {env: A, use: [{host: a.example.org, as: bearer}]}\n  b: {env: B, use: [{host: a.example.org, as: basic}]}\n" +
			"targets:\n  x:\n    secrets: [a, b]\n    network: {rules: [{host: a.example.org}]}\n", "Authorization of requests to a.example.org:443 is also set by a", "overlap"},
		{"nothing to withdraw", "secrets:\n  a: {file: /a, revoke: [/b], use: [{host: a.example.org, as: bearer}]}\n", "only a key that command: makes is withdrawn", "leave it out"},
		{"withdrawn by what is in the way", "secrets:\n  a: {command: [/a], revoke: [b], use: [{host: a.example.org, as: bearer}]}\n", `"b" is not a clean absolute path`, "absolute"},
		{"a key without rest", "secrets:\n  a: {command: [/a], refresh: 5s, use: [{host: a.example.org, as: bearer}]}\n", "5s is too often", "1m"},
		{"a key without time", "secrets:\n  a: {command: [/a], refresh: 0s, use: [{host: a.example.org, as: bearer}]}\n", "0s is too often", "1m"},
		{"another on a server", "secrets:\n  a: {command: [/a], refresh: 5m, use: [{host: a.example.org, as: bearer}]}\ntargets:\n  x: {provider: opensandbox, url: 'https://s.example.org', key: {env: K}, image: 'a:1', secrets: [a], network: {rules: [{host: a.example.org}]}}\n", "cannot be changed", "local"},
		{"the environment again", "secrets:\n  a: {env: A, refresh: 5m, use: [{host: a.example.org, as: bearer}]}\n", "the same for as long as rein runs", "command:"},
		{"no such secret", "targets:\n  x:\n    secrets: [a]\n", `no secret "a"`, "secrets:"},
		{"secret for what is denied", "secrets:\n  a: {env: A, use: [{host: a.example.org, as: bearer}]}\ntargets:\n  x:\n    secrets: [a]\n", "this target's network denies", "network: rules:"},
		{"secret without TLS", "secrets:\n  a: {env: A, use: [{host: a.example.org, ports: [80], as: bearer}]}\ntargets:\n  x:\n    secrets: [a]\n    network: {rules: [{host: a.example.org}]}\n", "within TLS alone", "https"},
		{"weak vault of a local target", "targets:\n  x:\n    accept_weak_vault: true\n", "of the provider opensandbox only", "opensandbox"},
		{"variable twice", "secrets:\n  a: {env: A, variable: V, use: [{host: a.example.org, as: bearer}]}\ntargets:\n  x:\n    env: {V: x}\n    secrets: [a]\n    network: {rules: [{host: a.example.org}]}\n", "also set by env", "another variable"},
		{"secret without place", "redaction:\n  secrets: [{name: x}]\n", "exactly one place", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := config.Decode("c.yaml", []byte(c.text))
			if err == nil {
				err = config.Validate(f, known)
			}
			e, ok := errors.AsType[*config.Error](err)
			if !ok {
				t.Fatalf("error is %v, want a *config.Error", err)
			}
			if !strings.Contains(e.Error(), c.want) {
				t.Errorf("error is\n%s\nwant it to contain\n%s", e, c.want)
			}
			if hint := e.Hint(); !strings.Contains(hint, c.hint) && (len(e.Problems) == 1 || !strings.Contains(e.Error(), c.hint)) {
				t.Errorf("hint is %q, want it to contain %q", e.Hint(), c.hint)
			}
			if strings.Contains(e.Error(), "sk-123") || strings.Contains(e.Error(), "user:pass") {
				t.Errorf("the error shows a secret: %s", e)
			}
		})
	}
}

// What cannot be read and what is wrong in value is said together, but nothing that
// may only follow from what cannot be read.
func TestFaultsTogether(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string // beginnings, in this order
	}{
		"both": {text: "limits:\n  max_steps: many\ntargets:\n  a: {runtime: gvisr}\nsessions: {max: 65}\n", want: []string{
			"2:14: limits.max_steps must be a whole number", `4:7: targets.a.runtime: "gvisr"`, "5:12: sessions.max: 65 is"}},
		"unknown key":        {text: "targets:\n  a: {provdier: opensandbox, url: 'https://h'}\nlimits: {preset: fast}\n", want: []string{"2:7: unknown key", "3:10: limits.preset"}},
		"misspelt section":   {text: "target: a\ntargts:\n  a: {}\nlimits: {preset: fast}\n", want: []string{"2:1: unknown key", "4:10: limits.preset"}},
		"section of a kind":  {text: "target: a\ntargets: [a]\nmodel: b\n", want: []string{"2:10: targets must be a mapping", "3:1: model: no model"}},
		"what goes together": {text: "approval:\n  ask: {a: b}\n  webhook: {url: 'https://h', key: {env: A}}\n", want: []string{"2:9: approval.ask must be a list"}},
		"a limit below zero": {text: "search: x\ntargets:\n  a: {network: {limits: {bytes: -1}}}\n", want: []string{"1:9: search must be", "3:26: targets.a.network.limits.bytes: -1 is no limit"}},
		"a key of a model":   {text: "models:\n  m: {vendor: [a], model: x, key: {env: {}}}\n  n: {model: x}\n", want: []string{"2:15: models.m.vendor", "2:41: models.m.key.env", "3:3: models.n: no vendor"}},
		"a host of a secret": {text: "search: x\nsecrets:\n  a: {env: A, use: [{host: 'https://a.example.org', as: bearer}]}\ntargets:\n  t: {secrets: [a]}\n", want: []string{"1:9: search must be", "3:22: secrets.a.use[0].host"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := config.Decode("c.yaml", []byte(c.text))
			if f == nil || err == nil {
				t.Fatalf("%v, %v", f, err)
			}
			var got []string
			if e, ok := errors.AsType[*config.Error](config.Validate(f, known)); ok {
				for _, p := range e.Problems {
					got = append(got, fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message))
				}
			}
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("faults\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// A file of checks is judged in the same way.
func TestChecksTogether(t *testing.T) {
	_, err := config.ParseAcceptance("checks.yaml", []byte("checks:\n  - {shell: make, timeout: soon}\n  - {shell: a, run: [b]}\nretry: 99\n"))
	for _, want := range []string{"checks.yaml:2:28: checks[0].timeout", "checks.yaml:3:6: checks[1]: a check is one of", "checks.yaml:4:1: retry: 99"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is\n%v\nwant it to contain\n%s", err, want)
		}
	}
	for _, text := range []string{"checks: make\nfresh: true\n", "chekcs: [{shell: make}]\nretry: 1\n"} {
		_, err := config.ParseAcceptance("checks.yaml", []byte(text))
		if e, ok := errors.AsType[*config.Error](err); !ok || len(e.Problems) != 1 {
			t.Errorf("%q: %v, want one fault", text, err)
		}
	}
}

// What "config init" writes is valid and changes nothing.
func TestExample(t *testing.T) {
	f, err := config.Decode("example", []byte(config.Example))
	if err != nil {
		t.Fatal(err)
	}
	if err := config.Validate(f, known); err != nil {
		t.Fatal(err)
	}
	// And it is valid with every commented setting switched on.
	var on []string
	for line := range strings.Lines(config.Example) {
		body := strings.TrimLeft(line, " ")
		indent := line[:len(line)-len(body)]
		if rest, ok := strings.CutPrefix(body, "# "); ok && looksLikeSetting(rest) {
			line = indent + rest
		}
		on = append(on, line)
	}
	text := strings.ReplaceAll(strings.Join(on, ""), "      # file:", "      ## file:")
	f, err = config.Decode("example, all on", []byte(text))
	if err == nil {
		err = config.Validate(f, known)
	}
	if err != nil {
		t.Fatalf("%s\nin\n%s", err, text)
	}
	for _, path := range []string{"targets.default.mounts[0].source", "models.gpt.key.env", "redaction.secrets[0].name", "limits.max_cost", "programs.execd", "programs.gvisor"} {
		if _, ok := f.Set[path]; !ok {
			t.Errorf("the example does not show %s", path)
		}
	}
}

func looksLikeSetting(s string) bool {
	s = strings.TrimLeft(strings.TrimPrefix(strings.TrimLeft(s, " "), "- "), " ")
	key, _, ok := strings.Cut(s, ":")
	return ok && key != "" && !strings.ContainsAny(key, " ,") || strings.HasPrefix(s, "- ")
}

func TestSchema(t *testing.T) {
	s, err := config.Schema(known)
	if err != nil {
		t.Fatal(err)
	}
	limits := reflect.TypeFor[policy.Limits]()
	for i := range limits.NumField() { // the decoder takes those of 64 bits for bytes
		key, _, _ := strings.Cut(limits.Field(i).Tag.Get("json"), ",")
		if bytes := strings.Contains(key, "bytes"); bytes != (limits.Field(i).Type.Kind() == reflect.Int64) {
			t.Errorf("limits.%s is a %s", key, limits.Field(i).Type)
		}
	}
	for _, want := range []string{`"max_wall_time"`, `"separation"`, `"additionalProperties": false`, `"quick"`, `"openai"`} {
		if !strings.Contains(string(s), want) {
			t.Errorf("the schema does not contain %s", want)
		}
	}
}

// Bytes of a target's network are written with a unit or as a number, as all sizes.
func TestBytesOfNetwork(t *testing.T) {
	for text, want := range map[string]int64{"1GiB": 1 << 30, "'512 MiB'": 512 << 20, "100MB": 100e6, "1000000000": 1e9, "1_000_000": 1e6, "1.5KiB": 1536} {
		c, err := config.Decode("c.yaml", []byte("targets:\n  a: {network: {limits: {bytes: "+text+", max_upload_bytes: "+text+"}}}\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if l := c.Config.Targets["a"].Network.Limits; l.Bytes != want || l.MaxUploadBytes != want {
			t.Errorf("%s: %+v", text, l)
		}
	}
}

func TestTextForms(t *testing.T) {
	for _, c := range []struct {
		in, out string
	}{{"2GiB", "2GiB"}, {"1024KiB", "1MiB"}, {"1.5GiB", "1536MiB"}, {"100", "100"}, {"100MB", "100000000"}, {"0", "0"}} {
		var s config.Size
		if err := s.UnmarshalText([]byte(c.in)); err != nil || s.String() != c.out {
			t.Errorf("size %q reads as %q, %v; want %q", c.in, s, err, c.out)
		}
	}
	for _, c := range []struct{ in, out string }{{"90s", "1m30s"}, {"15m", "15m"}, {"2h", "2h"}, {"1h1m", "1h1m"}, {"0s", "0s"}} {
		var d config.Duration
		if err := d.UnmarshalText([]byte(c.in)); err != nil || d.String() != c.out {
			t.Errorf("duration %q reads as %q, %v; want %q", c.in, d, err, c.out)
		}
	}
	for _, bad := range []string{"", "-1", "1e400", "nan", "MiB", "99999999999TiB"} {
		var s config.Size
		if err := s.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("size %q reads as %d", bad, s)
		}
	}
	for _, text := range []string{"0,0", "2.5,10", "2.5,10,0.25", "2.5,10,0.25,3.125", "1,2,0,1.25"} {
		var p config.Price
		if err := p.UnmarshalText([]byte(text)); err != nil || !p.Known || p.String() != text {
			t.Errorf("price %q reads as %q, %v", text, p, err)
		}
	}
	for _, bad := range []string{"", "1", "1,", "1,2,3,4,5", "-1,2", "1,NaN", "1,1e7"} {
		var p config.Price
		if err := p.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("price %q reads as %q", bad, p)
		}
	}
}

func TestSettings(t *testing.T) {
	f, err := config.Decode("c.yaml", []byte("targets:\n  a:\n    runtime: runc\n    env: {TOKEN: s3cret-value}\n"))
	if err != nil {
		t.Fatal(err)
	}
	effective := f.Config
	effective.Target = "default"
	got := config.Settings(f, effective)
	want := []config.Setting{
		{Path: "target", Value: "default", Source: "default"},
		{Path: "targets.a.runtime", Value: "runc", Source: "c.yaml:3:5"},
		{Path: "targets.a.env.TOKEN", Value: "(set)", Source: "c.yaml:4:11"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

// The user's file lies over the machine's: names replace names, keys win by
// themselves, and each value remembers its file.
func TestLayers(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "etc", "config.yaml"), "target: a\nlimits: {max_steps: 5, max_tool_calls: 6}\ntargets:\n  a: {runtime: runc, cwd: /a}\n  b: {runtime: crun}\n")
	write(t, filepath.Join(dir, "home", "rein", "config.yaml"), "limits: {max_steps: 9}\ntargets:\n  a: {runtime: gvisor}\n")
	p := config.Places{ConfigHome: filepath.Join(dir, "home"), System: filepath.Join(dir, "etc", "config.yaml")}
	f, err := config.Load(p)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{Target: "a", Limits: config.Limits{MaxSteps: 9, MaxToolCalls: 6},
		Targets: map[string]config.Target{"a": {Runtime: "gvisor"}, "b": {Runtime: "crun"}}}
	if diff := cmp.Diff(want, f.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if _, ok := f.Set["targets.a.cwd"]; ok {
		t.Error("a replaced target left a value behind")
	}
	for path, file := range map[string]string{"limits.max_steps": "home", "limits.max_tool_calls": "etc", "targets.a.runtime": "home", "targets.b.runtime": "etc"} {
		if got := f.Set[path].File; !strings.Contains(got, "/"+file+"/") {
			t.Errorf("%s comes from %q, want %s", path, got, file)
		}
	}
	p.Explicit = filepath.Join(dir, "only.yaml")
	write(t, p.Explicit, "target: default\n")
	if f, err = config.Load(p); err != nil || len(f.Config.Targets) != 0 {
		t.Errorf("--config reads %+v, %v; want that file alone", f, err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
