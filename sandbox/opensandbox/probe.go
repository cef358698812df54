package opensandbox

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// What sandboxes have through the server and its own execd, through its network
// policy, and only where rein's execd is put into them.
var (
	byServer = []sandbox.Capability{sandbox.CapLabels, sandbox.CapRenew, sandbox.CapPause, sandbox.CapLimitCPU, sandbox.CapLimitMemory}
	byExecd  = []sandbox.Capability{sandbox.CapExec, sandbox.CapProcesses, sandbox.CapFiles, sandbox.CapBackground}
	byOwn    = []sandbox.Capability{sandbox.CapCallIDs, sandbox.CapCaps, sandbox.CapSpill, sandbox.CapPipeStatus, sandbox.CapConfine,
		sandbox.CapStderrInSessions, sandbox.CapSessions, sandbox.CapPTY, sandbox.CapTreeEnd, sandbox.CapUnprivileged}
)

// absent says why nobody has the rest.
var absent = map[sandbox.Capability]string{
	sandbox.CapOOMFlag:       "the memory counter of a sandbox is the server's",
	sandbox.CapMounts:        "paths of this host are not the server's",
	sandbox.CapNetworkRecord: "network targets: not observable (OpenSandbox's sidecar keeps no record that can be read)",
	sandbox.CapSeparation:    "reduced: user code runs under the same user as the server's execd, which asks for no token",
	sandbox.CapKernel:        "the server does not say which runtime it uses",
	sandbox.CapLimitPIDs:     "OpenSandbox takes no limit of processes; the server's own setting holds",
	sandbox.CapLimitDisk:     "OpenSandbox takes no limit of disk",
	sandbox.CapNetworkRefuse: "OpenSandbox's sidecar drops what is denied: programs wait until they give up",
	sandbox.CapNetworkAsk:    "OpenSandbox's sidecar asks nobody, and lets out what is allowed whether or not anybody uses the sandbox",
	sandbox.CapNetworkLive:   "a policy can be made wider; of a narrower one, OpenSandbox's sidecar lets open connections go on",
	sandbox.CapModels:        "its sidecar does not meter: requests to models would cost what they like",
	sandbox.CapExecdGuard:    "the server's execd runs commands for whoever asks inside, as the same user",
}

// Probe asks the server whether it is there and takes the key. What is known
// of a single sandbox only, when it has been made, is said as such.
func (p *Provider) Probe(ctx context.Context) (sandbox.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	r := sandbox.Report{Provider: name, Runtime: p.server.base.Host}
	for _, c := range sandbox.Capabilities {
		r.Abilities = append(r.Abilities, p.ability(c))
	}
	var got page
	q := url.Values{"metadata": {url.Values{labelMadeBy: {madeBy}}.Encode()}, "pageSize": {"1"}}
	if err := p.server.do(ctx, http.MethodGet, "/sandboxes", q, nil, &got); err != nil {
		if ctx.Err() != nil {
			return r, p.fault(ctx, "probe", name, err)
		}
		err = p.fault(ctx, "probe", p.server.base.String(), err)
		r.Problems = append(r.Problems, sandbox.Problem{What: err.Error(), Remedy: sandbox.HintOf(err), Fatal: true})
		return r, nil
	}
	r.Usable = true
	if p.missing == nil {
		r.Problems = append(r.Problems, sandbox.Problem{What: "rein-execd is put into each sandbox; one that does not let it run is used with the server's execd alone",
			Remedy: "require: [call_ids]   # under the target: refuse such a sandbox"})
	} else {
		r.Problems = append(r.Problems, sandbox.Problem{What: "sandboxes get the server's execd alone: " + p.missing.Error(), Remedy: reinExecdRemedy})
	}
	if d := p.server.clock.skew(); d != 0 {
		r.Problems = append(r.Problems, sandbox.Problem{What: "the server's clock is " + d.String() + " ahead of this host's; times are corrected", Remedy: "set both clocks by NTP"})
	}
	return r, nil
}

const reinExecdRemedy = "CGO_ENABLED=0 go install github.com/rein-sh/rein/cmd/rein-execd@latest"

// ability says who does what in a sandbox that this provider makes.
func (p *Provider) ability(c sandbox.Capability) sandbox.Ability {
	a := sandbox.Ability{Capability: c, Available: true}
	switch {
	case slices.Contains(byServer, c):
		a.EnforcedBy = "server"
	case slices.Contains(byExecd, c):
		a.EnforcedBy = "server's execd"
		if p.missing == nil {
			a.EnforcedBy = "rein-execd"
		}
	case bringsOwn(c) && p.missing == nil:
		a.EnforcedBy = "rein-execd"
	case bringsOwn(c):
		a.Available, a.EnforcedBy, a.Reason, a.Remedy = false, "", "only rein's own execd has it", ""
	case c == sandbox.CapNetworkAllow && !p.opts.AcceptWeakEgress:
		a.EnforcedBy, a.Reason = "egress "+enforcedNFT, noteRules
	case (c == sandbox.CapNetworkDeny || c == sandbox.CapNetworkAllow) && p.opts.AcceptWeakEgress:
		a.Available, a.Reason = false, "accept_weak_egress is set: a policy that stops names only is accepted"
		a.Remedy = "take accept_weak_egress out of the target"
	case c == sandbox.CapNetworkDeny:
		a.EnforcedBy = "egress " + enforcedNFT
	default:
		a.Available, a.EnforcedBy, a.Reason = false, "", absent[c]
		if a.Reason == "" {
			a.Reason = "OpenSandbox has no such thing"
		}
	}
	return a
}

// bringsOwn reports whether a capability comes with rein's execd.
func bringsOwn(c sandbox.Capability) bool { return slices.Contains(byOwn, c) }
