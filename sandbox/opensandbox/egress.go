package opensandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// Names of enforcement in the sidecar's answer. With "dns" only names are
// refused: who connects to an address is not stopped.
const (
	enforcedNFT = "dns+nft"
	enforcedDNS = "dns"
)

// egressPatience is how long the sidecar may take to answer. It was up before
// the sandbox was made.
const egressPatience = 10 * time.Second

// egressTimeout is how long one question to the sidecar may take. One that comes
// while the sandbox changes its state can be lost: then there is a next one.
const egressTimeout = 2 * time.Second

// unverified is why a policy could not be asked for, as against one that is not
// right.
type unverified struct{ error }

func (u unverified) Unwrap() error { return u.error }

// enforced makes sure that one of these policies, and no other, is in force, and
// returns how. It asks the sidecar, since a server can drop a policy silently,
// as those do that make sandboxes from pools.
func (p *Provider) enforced(ctx context.Context, op, id string, want ...networkPolicy) (string, error) {
	refuse := func(hint, format string, args ...any) (string, error) {
		return "", &sandbox.Error{Kind: sandbox.KindUnsupported, Op: op, Subject: id, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	got, err := p.policy(ctx, id)
	is := func(n networkPolicy) bool { return n.equal(got.Policy) }
	switch {
	case err != nil && ctx.Err() != nil:
		return "", p.fault(ctx, op, id, err)
	case err != nil:
		return refuse("no sandbox is used whose policy is not known to be in force; see the server's settings under [egress]",
			"its network policy, %s, cannot be verified: %w", want[0], unverified{err})
	case !slices.ContainsFunc(want, is):
		return refuse("no sandbox is used whose policy is not known to be in force", "its network policy is not the one that was asked for, %s: mode %q", want[0], shorten(got.Mode))
	case got.EnforcementMode == enforcedNFT:
		return enforcedNFT, nil
	case got.EnforcementMode == enforcedDNS && p.opts.AcceptWeakEgress:
		return enforcedDNS, nil
	case got.EnforcementMode == enforcedDNS:
		return refuse(`set mode = "dns+nft" under [egress] of the server; or accept_weak_egress: true for the target, and programs may connect to any address`,
			"its network policy, %s, stops names only, not connections to addresses (enforcement %q)", want[0], enforcedDNS)
	}
	return refuse("", "how its network policy, %s, is enforced is not known: %q", want[0], shorten(got.EnforcementMode))
}

// policy asks the sidecar, for a while.
func (p *Provider) policy(ctx context.Context, id string) (policyStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, egressPatience)
	defer cancel()
	var last error
	for {
		ep, err := p.endpoint(ctx, id, egressPort)
		if err != nil && sandbox.KindOf(err) != sandbox.KindUnavailable {
			return policyStatus{}, last2(last, err)
		}
		if err == nil {
			var got policyStatus
			short, cancel := context.WithTimeout(ctx, egressTimeout)
			got, err = askPolicy(short, ep, nil)
			cancel()
			if err == nil {
				return got, nil
			}
			if a, ok := errors.AsType[*answer](err); ok && a.Status < 500 {
				return got, err
			}
		}
		last = last2(last, err)
		if sleep(ctx, readyPoll) != nil {
			return policyStatus{}, last
		}
	}
}

// last2 prefers the error that is not of a context that ended.
func last2(before, now error) error {
	if before != nil && errors.Is(now, context.DeadlineExceeded) {
		return before
	}
	return now
}

// putPolicy asks the sidecar to put a policy in force, once.
func (p *Provider) putPolicy(ctx context.Context, id string, n networkPolicy) error {
	ctx, cancel := context.WithTimeout(ctx, egressPatience)
	defer cancel()
	ep, err := p.endpoint(ctx, id, egressPort)
	if err != nil {
		return unsent{err}
	}
	_, err = askPolicy(ctx, ep, &n)
	return err
}

// askPolicy asks what is in force, or has put in force.
func askPolicy(ctx context.Context, ep sandbox.Endpoint, put *networkPolicy) (policyStatus, error) {
	var got policyStatus
	method, body := http.MethodGet, []byte(nil)
	if put != nil {
		var err error
		if body, err = json.Marshal(put); err != nil {
			return got, err
		}
		method = http.MethodPut
	}
	req, err := http.NewRequestWithContext(ctx, method, ep.BaseURL+"/policy", bytes.NewReader(body))
	if err != nil {
		return got, err
	}
	if put != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	b, err := askSidecar(ep, req, http.StatusOK)
	if err != nil {
		return got, err
	}
	if err := json.Unmarshal(b, &got); err != nil {
		return got, &answer{Status: http.StatusOK, Message: "what answers there is no sidecar"}
	}
	return got, nil
}
