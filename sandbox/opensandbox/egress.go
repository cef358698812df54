package opensandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// denied makes sure that the sandbox reaches nothing, and returns how that is
// enforced. It asks the sidecar, since a server can drop a policy silently, as
// those do that make sandboxes from pools.
func (p *Provider) denied(ctx context.Context, op, id string) (string, error) {
	refuse := func(hint, format string, args ...any) (string, error) {
		return "", &sandbox.Error{Kind: sandbox.KindUnsupported, Op: op, Subject: id, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	got, err := p.policy(ctx, id)
	switch {
	case err != nil && ctx.Err() != nil:
		return "", p.fault(ctx, op, id, err)
	case err != nil:
		return refuse("no sandbox is used whose policy is not known to be in force; see the server's settings under [egress]",
			"its network rule \"default: deny\" cannot be verified: %w", unverified{err})
	case got.Policy == nil || got.Policy.DefaultAction != "deny" || len(got.Policy.Egress) > 0:
		return refuse("no sandbox is used whose policy is not known to be in force", "its network rule is not the one that was asked for, \"default: deny\": mode %q", shorten(got.Mode))
	case got.EnforcementMode == enforcedNFT:
		return enforcedNFT, nil
	case got.EnforcementMode == enforcedDNS && p.opts.AcceptWeakEgress:
		return enforcedDNS, nil
	case got.EnforcementMode == enforcedDNS:
		return refuse(`set mode = "dns+nft" under [egress] of the server; or accept_weak_egress: true for the target, and programs may connect to any address`,
			"its network rule \"default: deny\" stops names only, not connections to addresses (enforcement %q)", enforcedDNS)
	}
	return refuse("", "how its network rule \"default: deny\" is enforced is not known: %q", shorten(got.EnforcementMode))
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
			got, err = askPolicy(short, ep)
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

func askPolicy(ctx context.Context, ep sandbox.Endpoint) (policyStatus, error) {
	var got policyStatus
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ep.BaseURL+"/policy", nil)
	if err != nil {
		return got, err
	}
	req.Header = ep.Header.Clone()
	t := &http.Transport{DialContext: ep.DialContext, DisableKeepAlives: true}
	defer t.CloseIdleConnections()
	// The header of the endpoint lets its bearer change the policy: it goes
	// nowhere else.
	c := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case resp.StatusCode != http.StatusOK:
		return got, &answer{Status: resp.StatusCode, Message: "the sidecar says: " + shorten(string(b))} // plain text
	case err != nil:
		return got, err
	}
	if err := json.Unmarshal(b, &got); err != nil {
		return got, &answer{Status: resp.StatusCode, Message: "what answers there is no sidecar"}
	}
	return got, nil
}
