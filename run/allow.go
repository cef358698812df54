package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/run/control"
	"github.com/rein-sh/rein/sandbox"
)

// NetworkChange is a change of what may be reached, made while the run worked.
type NetworkChange struct {
	Time   time.Time `json:"time"`
	Action string    `json:"action"` // allow, deny
	Host   string    `json:"host"`   // a name, "*." and a name, an address or a range
	Port   int       `json:"port,omitempty"`
	Proto  string    `json:"proto,omitempty"`
	// Generation counts the policies of the sandbox, from 1.
	Generation uint64 `json:"generation"`
	UID        uint32 `json:"uid"` // who changed it
	PID        int32  `json:"pid"`
}

// rule is what the change adds to a policy.
func (c NetworkChange) rule() policy.Rule {
	r := policy.Rule{Action: c.Action, Proto: c.Proto}
	if c.Port != 0 {
		r.Ports = []int{c.Port}
	}
	if _, err := netip.ParsePrefix(c.Host); err == nil {
		r.CIDR = c.Host
	} else if _, err := policy.ParseAddr(c.Host); err == nil {
		r.CIDR = c.Host
	} else {
		r.Host = c.Host
	}
	return r
}

// target says what it is about.
func (c NetworkChange) target() string {
	s := c.Host
	if c.Port != 0 {
		s = fmt.Sprintf("%s port %d", s, c.Port)
	}
	if c.Proto != "" {
		s += " (" + c.Proto + ")"
	}
	return s
}

// String says what is so since.
func (c NetworkChange) String() string {
	if c.Action == policy.ActionAllow {
		return c.target() + " may be reached"
	}
	return c.target() + " may not be reached"
}

// takesBack reports whether nothing is left of an earlier change. What allows
// takes back what denied, and its own protocol of the same port; it never closes
// another port that was allowed.
func (c NetworkChange) takesBack(o NetworkChange) bool {
	switch {
	case o.Host != c.Host:
		return false
	case c.Port != 0:
		return o.Port == c.Port
	case c.Action == policy.ActionAllow && o.Action == policy.ActionAllow:
		return o.Port == 0 && (c.Proto == "" || c.Proto == o.Proto)
	}
	return true
}

// counting are the changes that count, in their order, without those that
// a later one takes back.
func counting(changes []NetworkChange) (in []NetworkChange) {
	for _, c := range changes {
		in = slices.DeleteFunc(in, c.takesBack)
		in = append(in, c)
	}
	return in
}

// networkWith is a policy with changes made to it.
func networkWith(d policy.Document, changes []NetworkChange) policy.Document {
	in := counting(changes)
	ordered := d.Mode == policy.ModeOrdered
	if ordered { // the first that speaks of a target counts
		slices.Reverse(in)
	}
	rules := make([]policy.Rule, len(in))
	for i, c := range in {
		rules[i] = c.rule()
	}
	if ordered {
		d.Rules = slices.Concat(rules, d.Rules)
	} else {
		d.Rules = slices.Concat(d.Rules, rules)
	}
	return d
}

// networkNow is the policy in force.
func (r *runner) networkNow() policy.Document {
	r.mu.Lock()
	defer r.mu.Unlock()
	return networkWith(r.o.Target.Spec.Network, r.report.NetworkChanges)
}

// NetworkChanges are those of what may be reached that the worker has come to and
// that count, in their order. In a run that is resumed or replayed they come
// where they are on record.
func (s *Session) NetworkChanges() []NetworkChange {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return counting(s.r.opened)
}

func (r *runner) networkChanged(c NetworkChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened = append(r.opened, c)
}

// Network implements control.Handler. It is only here that the network of a run
// that works is opened further: nothing in the sandbox, and no model, reaches the
// socket. A change that fails or cannot be recorded is undone, and where that fails,
// too, the run ends.
func (d *desk) Network(ctx context.Context, by control.Peer, action control.Method, h control.Host) (control.NetworkChange, error) {
	none := control.NetworkChange{}
	if err := d.open(); err != nil {
		return none, err
	}
	if p := d.r.past; p != nil {
		select {
		case <-p.live:
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	r := d.r
	c := NetworkChange{Time: time.Now(), Action: string(action), Host: h.Host, Port: h.Port, Proto: h.Proto, UID: by.UID, PID: by.PID}
	boxes := r.boxes()
	r.mu.Lock()
	before := slices.Clone(r.report.NetworkChanges)
	r.mu.Unlock()
	if len(boxes) == 0 {
		return none, &control.Error{Code: control.CodeUnsupported, Message: "the run has no sandbox yet", Advice: "rein run --allow says it from the beginning"}
	}
	old := networkWith(r.o.Target.Spec.Network, before)
	doc := networkWith(r.o.Target.Spec.Network, append(before, c))
	if err := c.judge(doc); err != nil {
		return none, err
	}
	var in []*sandbox.Sandbox
	var err error
	if c.Generation, in, err = enforce(ctx, boxes, doc); err == nil {
		err = d.record(audit.KindNetworkSet, c)
	}
	if err != nil {
		code := control.CodeFailed
		if sandbox.KindOf(err) == sandbox.KindUnsupported {
			code = control.CodeUnsupported
		}
		err = errors.Join(err, d.takeBack(ctx, in, c, old))
		return none, &control.Error{Code: code, Message: err.Error(), Advice: sandbox.HintOf(err)}
	}
	r.mu.Lock()
	r.report.NetworkChanges = append(r.report.NetworkChanges, c)
	r.mu.Unlock()
	r.networkChanged(c)
	r.emit(Event{Kind: EventWarning, Text: fmt.Sprintf("%s may now %s (changed by uid %d)", c.target(), map[string]string{
		policy.ActionAllow: "be reached", policy.ActionDeny: "not be reached"}[c.Action], by.UID)})
	return control.NetworkChange{Action: c.Action, Host: c.Host, Port: c.Port, Proto: c.Proto, Generation: c.Generation, Says: says(doc)}, nil
}

// judge refuses a change that makes no sense, or that would have no effect in the
// policy that it leads to.
func (c NetworkChange) judge(doc policy.Document) error {
	invalid := func(hint, format string, args ...any) error {
		return &control.Error{Code: control.CodeInvalid, Message: fmt.Sprintf(format, args...), Advice: hint}
	}
	_, err := policy.Compile(policy.Document{Origin: doc.Origin, Rules: []policy.Rule{c.rule()}})
	if e, ok := errors.AsType[*policy.Error](err); ok {
		return invalid(cmp.Or(e.Faults[0].Hint, "a name, *.NAME, an address or a range"), "%s: %s", c.target(), e.Faults[0].Message)
	}
	p, err := policy.Compile(doc)
	if err != nil {
		return invalid("", "%s", err)
	}
	host, port := c.Host, uint16(c.Port) // #nosec: control has checked it
	if beneath, ok := strings.CutPrefix(host, "*."); ok {
		host = "any." + beneath
	}
	if prefix, err := netip.ParsePrefix(host); err == nil {
		host = prefix.Addr().String()
	}
	e, err := p.Explain(host, port, nil)
	if n, ok := errors.AsType[*policy.NameError](err); ok {
		return invalid(cmp.Or(n.Hint, "a name, *.NAME, an address or a range"), "%s", n)
	} else if err != nil {
		return invalid("", "%s", err)
	}
	open := false
	for _, one := range e.Ports {
		v := one.Verdict
		open = open || v.Allowed()
		if c.Action == policy.ActionDeny && v.Action != policy.Deny {
			return invalid("its configuration has more to say", "%s would still be reached on port %d: %s", c.target(), one.Port, v.Reason)
		}
	}
	if c.Action == policy.ActionAllow && !open {
		return invalid(c.takeBack(doc), "%s would still not be reached: %s", c.target(), e.Ports[0].Verdict.Reason)
	}
	return nil
}

// takeBack says how a denial that stands in the way can be taken back.
func (c NetworkChange) takeBack(doc policy.Document) string {
	if c.Port != 0 && slices.ContainsFunc(doc.Rules, func(r policy.Rule) bool {
		return r.Action == policy.ActionDeny && len(r.Ports) == 0 && (r.Host == c.Host || r.CIDR == c.Host)
	}) {
		return "where it was denied while the run works, allow it without a port: that takes the denial back"
	}
	return "a rule that denies wins over one that allows; only the configuration can take it back, for another run"
}
