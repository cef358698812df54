package opensandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
)

var _ sandbox.Networker = (*Provider)(nil)

// What a person should know of rules that a sidecar keeps: it judges names and
// addresses and nothing else.
const noteRules = "what a rule of the network policy names is reached on every port and by every protocol, also where the name leads to a private address: OpenSandbox tells neither apart"

// translated is a document in the words of OpenSandbox, where the first rule
// that matches holds.
type translated struct {
	networkPolicy
	addresses bool // a rule speaks of addresses, which only nftables keeps
	ordered   bool // the order of the rules is the document's
}

// translate says d in OpenSandbox's words, or refuses it, naming the first rule
// that has none.
func translate(op string, d policy.Document) (translated, error) {
	t := translated{networkPolicy: denyAll(), ordered: d.Mode == policy.ModeOrdered}
	refuse := func(where, format string, args ...any) (translated, error) {
		return translated{}, &sandbox.Error{Kind: sandbox.KindUnsupported, Op: op, Subject: "network." + where, Err: fmt.Errorf(format, args...),
			Hint: "OpenSandbox knows rules that allow or deny a name, *.name, an address or a range, on every port; a target of provider local keeps the others"}
	}
	switch {
	case d.Default == policy.ActionAsk:
		return refuse("default", "OpenSandbox asks nobody")
	case d.Default != "" && d.Default != policy.ActionDeny:
		return refuse("default", "%q would also open private addresses and the metadata service, which OpenSandbox does not keep closed", d.Default)
	case d.ReportOnly:
		return refuse("report_only", "OpenSandbox keeps no record that can be read")
	case d.Limits != policy.Limits{}:
		return refuse("limits", "OpenSandbox has no limits of the network")
	case len(d.Bundles) > 0:
		return refuse("bundles[0]", "a bundle lets nothing but reading through, and OpenSandbox does not look into requests: what %s opens could be published through; write a rule for each host that may be", d.Bundles[0])
	}
	var denied, allowed []egressRule
	for i, r := range d.Rules {
		target, why := targetOf(r)
		if why != "" {
			return refuse(fmt.Sprintf("rules[%d]", i), "%s", why)
		}
		t.addresses = t.addresses || r.CIDR != ""
		switch {
		case t.ordered:
			t.Egress = append(t.Egress, egressRule{orAllow(r.Action), target})
		case r.Action == policy.ActionDeny:
			denied = append(denied, egressRule{policy.ActionDeny, target})
		default:
			allowed = append(allowed, egressRule{policy.ActionAllow, target})
		}
	}
	t.Egress = append(append(t.Egress, denied...), allowed...) // never nil
	return t, nil
}

func orAllow(action string) string {
	if action == "" {
		return policy.ActionAllow
	}
	return action
}

// targetOf is what a rule is about, or why it cannot be said.
func targetOf(r policy.Rule) (target, why string) {
	switch {
	case r.Action == policy.ActionAsk:
		return "", "OpenSandbox asks nobody"
	case len(r.Ports) > 0:
		return "", "OpenSandbox does not tell ports apart"
	case r.Proto != "":
		return "", "OpenSandbox does not tell protocols apart"
	case len(r.Methods) > 0 || len(r.Paths) > 0:
		return "", "OpenSandbox does not look into requests"
	case r.CIDR != "":
		return r.CIDR, ""
	}
	name, wildcard := strings.CutPrefix(r.Host, "*.")
	name, err := policy.Canonical(name)
	if err != nil {
		return "", err.Error()
	}
	if wildcard {
		name = "*." + name
	}
	return name, ""
}

// equal reports whether what a sidecar says is in force is n.
func (n networkPolicy) equal(got *networkPolicy) bool {
	return got != nil && got.DefaultAction == n.DefaultAction && slices.EqualFunc(n.Egress, got.Egress, func(a, b egressRule) bool {
		return a.Action == strings.ToLower(strings.TrimSpace(b.Action)) && strings.EqualFold(a.Target, b.Target)
	})
}

// narrows says by which rule t lets out less than old, or may; empty: everything
// that old lets out is let out by t, too.
func (t translated) narrows(old networkPolicy) string {
	if t.equal(&old) {
		return ""
	}
	denies := func(r egressRule) bool { return r.Action != policy.ActionAllow }
	for _, r := range t.Egress {
		if denies(r) && !slices.Contains(old.Egress, r) {
			return "a rule would deny " + r.Target
		}
	}
	for _, r := range old.Egress {
		if !denies(r) && !slices.Contains(t.Egress, r) {
			return "no rule would allow " + r.Target + " any more"
		}
	}
	if i := slices.IndexFunc(t.Egress, denies); t.ordered && i >= 0 { // by the order it may or may not be
		return "the rule that denies " + t.Egress[i].Target + " may come to hold for more, by the order of the rules"
	}
	return ""
}

// SetNetwork widens the policy of a live sandbox. A narrower one is refused
// before anything changes: a sidecar would take it, but lets open connections go
// on, which Networker does not, and has no way to end them.
func (p *Provider) SetNetwork(ctx context.Context, id string, d policy.Document) (uint64, error) {
	const op = "change the network"
	fail := func(kind sandbox.Kind, hint, format string, args ...any) (uint64, error) {
		return 0, &sandbox.Error{Kind: kind, Op: op, Subject: id, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	if _, err := policy.Compile(d); err != nil {
		return 0, sandbox.InvalidNetwork(op, err)
	}
	want, err := translate(op, d)
	if err != nil {
		return 0, err
	}
	if _, busy := p.changing.LoadOrStore(id, true); busy {
		return fail(sandbox.KindConflict, "", "it is being resumed, or its network changed")
	}
	defer p.changing.Delete(id)
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	r, err := p.get(ctx, op, id)
	if err != nil {
		return 0, fmt.Errorf("%w (%w)", err, sandbox.ErrUnsent)
	}
	if s := p.info(r).State; s != sandbox.StateRunning {
		return fail(sandbox.KindConflict, "", "it is %s", s)
	}
	rec, err := p.record(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail(sandbox.KindUnsupported, "change it on the host that made the sandbox", "what its policy was is known to the host that made it only")
	case err != nil:
		return fail(sandbox.KindHost, "", "%w (%w)", err, sandbox.ErrUnsent)
	case !p.settled(ctx, id, &rec):
		return fail(sandbox.KindUnavailable, "", "what became of the last change of its policy is not known (%w)", sandbox.ErrUnsent)
	}
	if why := want.narrows(rec.policy()); why != "" {
		return fail(sandbox.KindUnsupported, "rein sandbox kill "+id+", and create it with the narrower policy",
			"%s, and a sidecar of OpenSandbox lets open connections go on", why)
	}
	if want.addresses && rec.Network != enforcedNFT {
		return fail(sandbox.KindUnsupported, `set mode = "dns+nft" under [egress] of the server`, "rules about addresses are not kept with enforcement %q", rec.Network)
	}
	if len(rec.Secrets) > 0 && !p.opts.AcceptWeakVault && !want.equal(new(rec.policy())) {
		return fail(sandbox.KindUnsupported, "make a sandbox with the wider policy; or accept_weak_vault: true for the target",
			"it has secrets, which OpenSandbox's vault would send to every host that the network allows")
	}
	return p.widen(ctx, op, id, rec, want.networkPolicy)
}

// settled finds out what became of a change that was cut short.
func (p *Provider) settled(ctx context.Context, id string, rec *record) bool {
	if rec.Next == nil {
		return true
	}
	got, err := p.policy(ctx, id)
	switch {
	case err != nil:
		return false
	case rec.Next.equal(got.Policy):
		rec.Policy, rec.Generation = rec.Next, max(rec.Generation, 1)+1
	case !rec.policy().equal(got.Policy):
		return false
	}
	rec.Next = nil
	return true
}

// widen puts a policy in force and makes sure that it is. Both are on record
// meanwhile: whichever is in force after a crash is right.
func (p *Provider) widen(ctx context.Context, op, id string, rec record, want networkPolicy) (uint64, error) {
	was := rec
	rec.Next = &want
	if err := p.keep(id, rec); err != nil {
		return 0, &sandbox.Error{Kind: sandbox.KindHost, Op: op, Subject: p.opts.StateDir, Err: fmt.Errorf("%w (%w)", err, sandbox.ErrUnsent)}
	}
	putErr := p.putPolicy(ctx, id, want)
	if _, ok := errors.AsType[unsent](putErr); ok {
		return 0, errors.Join(fmt.Errorf("%w (%w)", p.fault(ctx, op, id, putErr), sandbox.ErrUnsent), p.keep(id, was))
	}
	// Where the answer is lost, what is in force says what became of it.
	_, err := p.enforced(ctx, op, id, want)
	if a, ok := errors.AsType[*answer](putErr); ok && a.Status < 500 { // nothing has changed
		return 0, errors.Join(p.fault(ctx, op, id, putErr), p.keep(id, was))
	}
	if err != nil {
		return 0, errors.Join(p.fault(ctx, op, id, err), putErr)
	}
	rec.Policy, rec.Next = &want, nil
	rec.Generation = max(rec.Generation, 1) + 1
	if err := p.keep(id, rec); err != nil {
		return 0, &sandbox.Error{Kind: sandbox.KindHost, Op: op, Subject: p.opts.StateDir, Err: err}
	}
	return rec.Generation, nil
}
