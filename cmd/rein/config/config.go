// Package config is rein's configuration file: its types, where it may come
// from, and its strict reading. Nothing here is taken from a workspace, and
// nothing in a file is a secret: a key is named by where the host finds it.
//
// Only cmd/rein imports this package; the others receive their settings as
// structs.
package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
)

// Config is one configuration file. Every key is optional.
type Config struct {
	Target    string            `json:"target,omitempty" jsonschema:"name of the target used when --target is not given"`
	Model     string            `json:"model,omitempty" jsonschema:"name of the model used when --model is not given"`
	Targets   map[string]Target `json:"targets,omitempty" jsonschema:"where runs execute, by name"`
	Models    map[string]Model  `json:"models,omitempty" jsonschema:"models, by name"`
	Secrets   map[string]Secret `json:"secrets,omitempty" jsonschema:"credentials that requests of sandboxes are given, and sandboxes never hold, by name"`
	Prices    map[string]Price  `json:"prices,omitempty" jsonschema:"what models cost, by VENDOR/MODEL, before the published prices"`
	Egress    Egress            `json:"egress,omitzero" jsonschema:"this host's way to the network"`
	Images    Images            `json:"images,omitzero" jsonschema:"OCI images that targets may name, and where they are kept"`
	Agents    Agents            `json:"agents,omitzero" jsonschema:"how command-line agents are installed for rein wrap"`
	Limits    Limits            `json:"limits,omitzero" jsonschema:"the brakes of every run; a flag wins over them"`
	Context   Context           `json:"context,omitzero" jsonschema:"what of the conversation a model is sent"`
	Search    bool              `json:"search,omitempty" jsonschema:"give the model the search tool: matching lines of one file with their numbers, also of long output that was spilled"`
	Sessions  Sessions          `json:"sessions,omitzero" jsonschema:"shell sessions for the model; none unless max is set"`
	Approval  Approval          `json:"approval,omitzero" jsonschema:"what the agent may do without asking, and who is asked"`
	Tools     Tools             `json:"tools,omitzero" jsonschema:"narrow tools, and whether there is a general shell"`
	Redaction Redaction         `json:"redaction,omitzero" jsonschema:"values masked in results, records and reports"`
	Telemetry Telemetry         `json:"telemetry,omitzero" jsonschema:"the collector of OpenTelemetry that is told of runs; none unless named"`
	Programs  Programs          `json:"programs,omitzero" jsonschema:"where the host finds rein's companions"`
}

// Target is where a run executes.
type Target struct {
	Provider  string               `json:"provider,omitempty" jsonschema:"what creates the sandbox: local or opensandbox"`
	Runtime   string               `json:"runtime,omitempty" jsonschema:"OCI runtime: gvisor, runc, or the path of another"`
	Image     string               `json:"image,omitempty" jsonschema:"root file system: host, or an OCI image that images.allow names"`
	Cwd       string               `json:"cwd,omitempty" jsonschema:"working directory and workspace inside the sandbox"`
	Resources Resources            `json:"resources,omitzero" jsonschema:"what the sandbox may use"`
	Env       map[string]string    `json:"env,omitempty" jsonschema:"environment of commands; no secrets belong here"`
	Mounts    []Mount              `json:"mounts,omitempty" jsonschema:"host paths shown inside, none by default"`
	Require   []sandbox.Capability `json:"require,omitempty" jsonschema:"capabilities without which no sandbox is made"`
	Network   policy.Document      `json:"network,omitzero" jsonschema:"what may leave the sandbox; nothing unless set"`
	Secrets   []string             `json:"secrets,omitempty" jsonschema:"names under secrets: whose credentials its requests are given"`

	Acceptance Acceptance `json:"acceptance,omitzero" jsonschema:"checks of every run there, before those of flags"`

	// Of the provider opensandbox only.
	URL              string   `json:"url,omitempty" jsonschema:"address of the OpenSandbox server"`
	Key              Key      `json:"key,omitzero" jsonschema:"where the host finds the server's API key; one of env, file, command"`
	UseServerProxy   bool     `json:"use_server_proxy,omitempty" jsonschema:"reach sandboxes through the server"`
	EndpointScheme   string   `json:"endpoint_scheme,omitempty" jsonschema:"scheme of sandboxes' endpoints: http or https; empty is that of url"`
	AcceptWeakEgress bool     `json:"accept_weak_egress,omitempty" jsonschema:"accept a network policy that stops names only"`
	AcceptWeakVault  bool     `json:"accept_weak_vault,omitempty" jsonschema:"accept secrets that the server's vault cannot keep to their hosts and paths"`
	ServerExecdOnly  bool     `json:"server_execd_only,omitempty" jsonschema:"put no execd of rein's into the sandboxes"`
	Entrypoint       []string `json:"entrypoint,omitempty" jsonschema:"what the image starts; empty is something that waits"`
}

// Resources bound a sandbox. A zero takes the provider's default.
type Resources struct {
	CPU    float64 `json:"cpu,omitempty" jsonschema:"cores"`
	Memory Size    `json:"memory,omitempty" jsonschema:"bytes, such as 2GiB"`
	PIDs   int     `json:"pids,omitempty" jsonschema:"processes and threads"`
	Disk   Size    `json:"disk,omitempty" jsonschema:"bytes of everything writable, such as 2GiB"`
}

// Mount shows a host directory or file inside the sandbox.
type Mount struct {
	Source   string `json:"source" jsonschema:"absolute path on the host"`
	Target   string `json:"target" jsonschema:"absolute path inside"`
	Writable bool   `json:"writable,omitempty" jsonschema:"whether the sandbox may write to it"`
}

// Images says which OCI images may be used. An empty list allows none.
type Images struct {
	Allow    []string `json:"allow,omitempty" jsonschema:"references and digests, such as debian:12, ghcr.io/org/* or sha256:…"`
	Insecure []string `json:"insecure,omitempty" jsonschema:"registries spoken to without TLS, HOST or HOST:PORT; loopback needs no mention"`
	Dir      string   `json:"dir,omitempty" jsonschema:"absolute path of the cache; empty is $XDG_CACHE_HOME/rein/images"`
}

// Model is one configured model.
type Model struct {
	Vendor   string `json:"vendor" jsonschema:"whose protocol: openai (Chat Completions), openai-responses, anthropic, gemini or script"`
	Model    string `json:"model,omitempty" jsonschema:"the vendor's name of the model, or the path of a script"`
	BaseURL  string `json:"base_url,omitempty" jsonschema:"address of the API; empty is the vendor's own"`
	Key      Key    `json:"key,omitzero" jsonschema:"where the host finds the key; one of env, file, command"`
	Effort   string `json:"effort,omitempty" jsonschema:"how much it is to reason, in the vendor's words, such as low, medium, high; off asks for nothing; empty is the vendor's own"`
	Proxy    string `json:"proxy,omitempty" jsonschema:"http or https address of the proxy to the API; the environment names none"`
	Fallback string `json:"fallback,omitempty" jsonschema:"model, as --model names it, that is asked when this one cannot be had"`
	Price    Price  `json:"price,omitempty" jsonschema:"dollars per million tokens: INPUT,OUTPUT[,CACHED[,CACHE_WRITE]]; empty is that of prices, or the published"`

	ContextWindow int64 `json:"context_window,omitempty" jsonschema:"tokens it takes, its reply included; empty is found out when a request is too long"`

	LegacyMaxTokens bool `json:"legacy_max_tokens,omitempty" jsonschema:"of openai: send the cap of a reply as max_tokens, for servers that do not know max_completion_tokens"`
}

// Key says where the host finds a secret. Exactly one field is set, or none.
type Key struct {
	Env     string   `json:"env,omitempty" jsonschema:"name of an environment variable"`
	File    string   `json:"file,omitempty" jsonschema:"absolute path of a file"`
	Command []string `json:"command,omitempty" jsonschema:"program and arguments that print it, run without a shell"`
}

// IsZero reports whether no place is named.
func (k Key) IsZero() bool { return k.Env == "" && k.File == "" && len(k.Command) == 0 }

// String says where the secret is found, for people.
func (k Key) String() string {
	switch {
	case k.Env != "":
		return "environment variable " + k.Env
	case k.File != "":
		return "file " + k.File
	case len(k.Command) > 0:
		return "output of " + k.Command[0]
	}
	return "none"
}

// Sessions let a model run commands that share a directory and variables.
type Sessions struct {
	Max   int      `json:"max,omitempty" jsonschema:"how many may be open at once, 1 to 64; without it the model has no session tools"`
	Calls int      `json:"calls,omitempty" jsonschema:"commands in each, 50 unless set"`
	Age   Duration `json:"age,omitempty" jsonschema:"how long each lives, at most 1h, 30m unless set"`
}

// Redaction lists values that are masked besides the keys of models.
type Redaction struct {
	Secrets []NamedKey `json:"secrets,omitempty" jsonschema:"further secrets of this host"`
}

// NamedKey is a secret with the name its mark shows.
type NamedKey struct {
	Name    string   `json:"name" jsonschema:"what the mark says instead of the value"`
	Env     string   `json:"env,omitempty" jsonschema:"name of an environment variable"`
	File    string   `json:"file,omitempty" jsonschema:"absolute path of a file"`
	Command []string `json:"command,omitempty" jsonschema:"program and arguments that print it, run without a shell"`
}

// Key is the place of the secret.
func (n NamedKey) Key() Key { return Key{Env: n.Env, File: n.File, Command: n.Command} }

// Programs are absolute paths; empty means beside rein, then on PATH.
type Programs struct {
	Execd  string `json:"execd,omitempty" jsonschema:"absolute path of rein-execd, which runs inside every sandbox"`
	GVisor string `json:"gvisor,omitempty" jsonschema:"absolute path of rein-runsc, the runtime gvisor"`
}

// Size is a number of bytes, written with a unit: 512MiB, 2GiB, 100MB.
type Size int64

var units = []struct {
	suffix string
	factor float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error {
	t := strings.TrimSpace(string(text))
	factor := 1.0
	for _, u := range units {
		if n, ok := strings.CutSuffix(t, u.suffix); ok {
			t, factor = strings.TrimSpace(n), u.factor
			break
		}
	}
	n, err := strconv.ParseFloat(t, 64)
	if err != nil || !(n >= 0 && n*factor < 1<<62) {
		return fmt.Errorf("%q is no size; write a number and a unit, such as 16KiB or 2GiB", text)
	}
	*s = Size(n * factor)
	return nil
}

// MarshalText writes the size with the largest binary unit that is exact.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Size) String() string {
	for _, u := range []int{3, 2, 1, 0} {
		if f := Size(units[u].factor); s != 0 && s%f == 0 {
			return strconv.FormatInt(int64(s/f), 10) + units[u].suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Duration is a time span, written 90s, 15m or 2h.
type Duration time.Duration

// UnmarshalText reads a duration; a bare number is refused, since its unit
// would be a guess.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil || v < 0 {
		return fmt.Errorf("%q is no duration; write a number and a unit, such as 90s, 15m or 2h", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
