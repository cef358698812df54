// Package sandbox is the contract between rein and whatever creates isolated
// machines, and the one concrete Sandbox through which everything is done to
// such a machine.
//
// A Provider does lifecycle, probing and endpoints, nothing else. Everything
// inside a sandbox goes through execd's protocol (package execd), so that a
// new provider has eight methods to write and gets commands, files and limits
// from the daemon. Package sandboxtest is the suite every provider passes.
package sandbox

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/secret"
)

// Provider creates and ends sandboxes. All methods may be called concurrently.
// Errors are *Error. A provider that cannot honour a part of a Spec refuses it
// with KindUnsupported and the reason; it never weakens it.
type Provider interface {
	// Name is the provider's name in configuration, such as "local".
	Name() string

	// Probe says what this provider can do on this host, by whom each limit is
	// enforced, and the remedy for what it cannot. It changes nothing.
	Probe(ctx context.Context) (Report, error)

	// Create returns a sandbox whose execd answers. The sandbox has its end
	// from birth (Spec.TTL). A create that fails, or whose context ends, leaves
	// nothing behind.
	Create(ctx context.Context, spec Spec) (Info, error)

	// Get returns one sandbox; KindNotFound when it is gone. A sandbox that
	// ended by itself may be returned with StateLost and the reason until it
	// is killed or its deadline passes.
	Get(ctx context.Context, id string) (Info, error)

	// List returns the sandboxes whose labels contain all of labels, newest
	// first. A nil map lists all.
	List(ctx context.Context, labels map[string]string) ([]Info, error)

	// Renew moves the end of a sandbox to until, earlier or later, and returns
	// the end now in force. An until that has passed is KindInvalid and changes
	// nothing. A sandbox that has ended is KindNotFound: an expiry that raced the
	// renewal is never undone.
	Renew(ctx context.Context, id string, until time.Time) (time.Time, error)

	// Kill ends a sandbox and returns when nothing of it is left: processes,
	// mounts, files, addresses. Killing one that is gone is success.
	Kill(ctx context.Context, id string) error

	// Endpoint says how to reach a TCP port inside the sandbox.
	Endpoint(ctx context.Context, id string, port int) (Endpoint, error)
}

// Pauser is implemented by providers with CapPause. Use Pause and Resume of
// this package, which check for it in one place.
type Pauser interface {
	// Pause stops everything in a running sandbox and returns when nothing in
	// it runs any more. Its connections stay open and still; new ones are
	// refused (KindConflict) until Resume. KindConflict when it does not run.
	Pause(ctx context.Context, id string, o PauseOptions) error
	// Resume lets a paused sandbox go on. KindConflict when it is not paused.
	Resume(ctx context.Context, id string) error
}

// PauseOptions say how to pause. The zero value lets the deadline go on.
type PauseOptions struct {
	// Hold has the deadline stand still while the sandbox is paused, for at
	// most this long: its end is at most this much later. A provider that
	// cannot refuses it (KindUnsupported). The timeouts of commands go on.
	Hold time.Duration
}

// NetworkRecorder is implemented by providers with CapNetworkRecord. Use
// NetworkRecords of this package, which checks for it in one place.
type NetworkRecorder interface {
	// NetworkRecords returns what the sandbox tried on the network with
	// sequence numbers above after, oldest first, and the head of the record's
	// hash chain. A provider may forget the oldest: then the first record's
	// number says how many are missing, since they are numbered from 1.
	NetworkRecords(ctx context.Context, id string, after uint64) (NetworkLog, error)
}

// SecretRotator is implemented by providers whose sandboxes have secrets
// (Spec.Secrets). Use RotateSecret of this package, which checks for it in one place.
type SecretRotator interface {
	// RotateSecret puts another value behind the placeholder of a secret of a live
	// sandbox, also a paused one. Requests under way keep the value they have; those
	// that begin when it has returned have the new one. A value that the placeholder
	// does not look like, and a secret that the sandbox was not made with, are
	// KindInvalid and change nothing.
	RotateSecret(ctx context.Context, id, name string, value secret.Value) error
}

// Networker is implemented by providers with CapNetworkLive. Use SetNetwork of
// this package, which checks for it in one place.
type Networker interface {
	// SetNetwork puts d in force in a live sandbox, and returns its generation,
	// which counts from 1, the policy of the creation. Open connections that d
	// does not allow are closed before it returns. A d that is invalid, or that
	// the provider cannot honour, changes nothing; nor does what fails with
	// ErrUnsent.
	SetNetwork(ctx context.Context, id string, d policy.Document) (generation uint64, err error)
}

// Attacher is implemented by providers with CapNetworkAsk: what a sandbox's
// policy allows leaves only while an owner is attached. Every *Sandbox attaches,
// from Create or Attach to Close.
type Attacher interface {
	// Attach holds an owner's connection until the Closer is closed. When the last
	// owner has gone, nothing leaves any more and open connections are closed; execd
	// stays reachable, and the next owner finds the policy that was in force.
	Attach(ctx context.Context, id string, o Owner) (io.Closer, error)
}

// Owner is who a sandbox's network asks. Its functions' contexts end with the
// owner's connection. The zero Owner answers nothing.
type Owner struct {
	// Ask is asked what the policy leaves open, concurrently, one question for all
	// connections to one target: what it grants is granted for the sandbox's
	// life, though the first connection may have been given up meanwhile; any
	// other answer is the reason in the network record. Nil is nobody to ask.
	Ask func(context.Context, Question) policy.Answer
	// Meter keeps the budget of requests to Spec.Models. Nil: none passes.
	Meter inference.Meter
}

// Question is what a policy with rules or a default of "ask" leaves to a person:
// whether a sandbox may connect to one target, now and again.
type Question struct {
	Name    string `json:"name,omitempty"` // empty for an address
	Address string `json:"address,omitempty"`
	Port    int    `json:"port"`
	Proto   string `json:"proto"` // tls, http, tcp
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// CallID is the command that asks, where that is known.
	CallID string `json:"call_id,omitempty"`
}

// Endpoint is how to reach one port of a sandbox.
type Endpoint struct {
	BaseURL string      // scheme, host and path prefix, without a trailing slash
	Header  http.Header // to be sent with every request
	// DialContext, when set, must be used instead of the network to connect.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// State of a sandbox.
type State string

// The states a caller meets. Others of a remote server are passed through.
const (
	StatePending State = "Pending"
	StateRunning State = "Running"
	StatePaused  State = "Paused"
	StateLost    State = "Failed" // ended by itself; Info.Reason says why
)

// Info describes a sandbox.
type Info struct {
	ID       string `json:"id"`
	Provider string `json:"provider"`
	State    State  `json:"state"`
	Reason   string `json:"reason,omitempty"` // why it is lost: "oom", "runtime_exited", "keeper_gone"
	Image    string `json:"image"`
	// ImageDigest names the image's content; empty for the host's.
	ImageDigest string `json:"image_digest,omitempty"`
	// Entrypoint is what the image starts, nil when it starts nothing. It is
	// started by Create of this package, recorded as any command.
	Entrypoint []string          `json:"entrypoint,omitempty"`
	Runtime    string            `json:"runtime,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	CreatedAt  time.Time         `json:"created_at"`
	ExpiresAt  time.Time         `json:"expires_at"`
	// Cwd is the working directory of commands, and the workspace.
	Cwd string `json:"cwd"`
	// Separation is "full" or "reduced" (see CapSeparation).
	Separation string `json:"separation,omitempty"`
	// Notes are what a person should know of the sandbox, such as that the image's
	// user could not be used.
	Notes []string `json:"notes,omitempty"`
	// Network says what a remote server enforces its network policy with, as it
	// was when the sandbox was made: "dns+nft", or "dns" for names only.
	Network string `json:"network,omitempty"`
	// Limits lists the resource limits of this sandbox and who enforces each;
	// a limit nobody enforces is listed with EnforcedBy "nobody".
	Limits []Limit `json:"limits,omitempty"`
}

// Limit is one resource limit of a running sandbox.
type Limit struct {
	Resource   string `json:"resource"` // cpu, memory, pids, disk; host_* of all sandboxes of the host together
	Value      string `json:"value"`
	EnforcedBy string `json:"enforced_by"`
}

// Spec is what a sandbox is made from. It comes from host configuration; no
// part of it can be set by a model but a shorter TTL.
type Spec struct {
	// Image is "host" or an OCI reference. Empty means "host".
	Image string `json:"image,omitempty"`
	// NoEntrypoint leaves out what the image would start.
	NoEntrypoint bool `json:"no_entrypoint,omitempty"`
	// Cwd is the working directory and workspace. Empty means the image's own,
	// and /workspace where that is none or "/".
	Cwd string `json:"cwd,omitempty"`
	// Env is added to the clean environment of commands. Never the host's.
	Env map[string]string `json:"env,omitempty"`
	// Labels find the sandbox again. Kubernetes label rules.
	Labels map[string]string `json:"labels,omitempty"`
	// TTL is the time to live from creation. Required, positive.
	TTL time.Duration `json:"ttl"`
	// Resources with zero fields take the provider's defaults.
	Resources Resources `json:"resources,omitzero"`
	// Mounts are the host paths the sandbox sees, none by default.
	Mounts []Mount `json:"mounts,omitempty"`
	// Network says what may leave. The zero Document: nothing.
	Network policy.Document `json:"network,omitzero"`
	// Secrets are given to requests that the sandbox sends, which has placeholders
	// of them. Their values are not encoded.
	Secrets []vault.Secret `json:"secrets,omitempty"`
	// Models are hosts of models' vendors: requests to them are metered by
	// Options.Meter. The network's policy need not speak of them.
	Models []inference.Host `json:"models,omitempty"`
	// Require lists capabilities without which the sandbox must not be made.
	Require []Capability `json:"require,omitempty"`
}

// Resources bound what a sandbox may use.
type Resources struct {
	CPU    float64 `json:"cpu,omitempty"`    // cores
	Memory int64   `json:"memory,omitempty"` // bytes
	PIDs   int     `json:"pids,omitempty"`   // processes and threads
	Disk   int64   `json:"disk,omitempty"`   // bytes of everything writable
}

// Mount shows a host directory or file inside the sandbox.
type Mount struct {
	Source   string `json:"source"` // absolute host path
	Target   string `json:"target"` // absolute path inside
	Writable bool   `json:"writable,omitempty"`
}

// NetworkLog is a slice of a sandbox's network record.
type NetworkLog struct {
	Records []NetworkRecord `json:"records"`
	Head    string          `json:"head"` // hash of the chain's newest record
	Last    uint64          `json:"last"` // sequence number of the newest record
}

// NetworkRecord is one target a sandbox tried to reach, or one connection to it,
// when that has ended. Identical refusals beyond a rate are folded: Count
// attempts between Time and Until.
type NetworkRecord struct {
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	Until   time.Time `json:"until,omitzero"`
	Count   int       `json:"count"`
	Proto   string    `json:"proto"` // tcp, udp, icmp, dns, other
	Name    string    `json:"name,omitempty"`
	Address string    `json:"address,omitempty"`
	Port    int       `json:"port,omitempty"`
	Verdict string    `json:"verdict"` // deny, allow, or report: allowed by a policy that only reports
	Rule    string    `json:"rule,omitempty"`
	Reason  string    `json:"reason"`
	// BytesOut left the sandbox, BytesIn came back, within DurationMS.
	BytesIn    int64 `json:"bytes_in,omitempty"`
	BytesOut   int64 `json:"bytes_out,omitempty"`
	DurationMS int64 `json:"duration_ms,omitempty"`
	// Generation is the policy that it was judged by (Networker).
	Generation uint64 `json:"generation,omitempty"`
	Attribution
}
