package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// http judges the head of a request: that it is for the target of the
// connection, and that a rule allows its method and path.
func (p *Policy) http(r Request, v Verdict) Verdict {
	if v.Action == Deny {
		return v
	}
	if !r.Secure && (v.Proto == TLS || v.Proto == HTTPS) {
		return p.Plain(v, r.Port)
	}
	if !hostIs(r) {
		target := r.Name
		if target == "" {
			target = r.Addr.String()
		}
		return p.lift(Verdict{Proto: v.Proto, Rule: RuleHost,
			Reason: fmt.Sprintf("Host is %s, in a connection to %s port %d", quote(r.Host), target, r.Port)}, r.Port)
	}
	return p.visible(r, v)
}

// Plain is the verdict on HTTP without TLS, as only a proxy is asked for it, to
// where v is the verdict of AtConnect.
func (p *Policy) Plain(v Verdict, port uint16) Verdict {
	if v.Action == Deny || v.Proto != TLS && v.Proto != HTTPS {
		return v
	}
	return p.lift(Verdict{Proto: v.Proto, Rule: v.Rule, Reason: fmt.Sprintf("it allows TLS on port %d, and this is without", port)}, port)
}

// hostIs reports whether Host names what was connected to.
func hostIs(r Request) bool {
	host, port, found := strings.Cut(r.Host, ":")
	if strings.HasPrefix(r.Host, "[") {
		end := strings.IndexByte(r.Host, ']') + 1
		host, port = r.Host[:end], r.Host[end:]
		if port, found = strings.CutPrefix(port, ":"); !found && port != "" {
			return false
		}
	}
	if found {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || uint16(n) != r.Port {
			return false
		}
	}
	if r.Name != "" {
		name, err := Canonical(host)
		return err == nil && name == r.Name
	}
	addr, err := ParseAddr(host)
	return err == nil && addr == r.Addr.WithZone("").Unmap()
}

// visible judges method and path, once it is known that the name may be
// reached: one of the rules that allow it must allow them. What a rule with
// methods or paths does not allow is denied, whatever the default.
func (p *Policy) visible(r Request, v Verdict) Verdict {
	if r.Name == "" { // rules about addresses have neither
		return v
	}
	var f found
	p.named(r.Name, &f)
	limited, why := false, ""
	plain := false // a rule wants the path to be
	for _, rule := range f.sorted() {
		if _, ok := rule.on(r.Port); !ok {
			continue
		}
		if rule.action == Deny { // of an ordered policy
			break
		}
		if rule.reads != nil {
			refuses := rule.reads.refuses(r)
			if refuses == "" {
				v.Rule, v.Reason, v.Reads = rule.id, rule.reason, true
				return v
			}
			limited, why = true, cmp.Or(why, refuses)
			continue
		}
		if len(rule.methods)+len(rule.paths) == 0 {
			return v
		}
		limited, plain = true, true
		if rule.sees(r.Method, r.Path) {
			v.Rule, v.Reason = rule.id, rule.reason
			return v
		}
	}
	if !limited { // allowed by default
		return v
	}
	refused := Verdict{Rule: v.Rule, Reason: fmt.Sprintf("no rule allows %s %s; %s", quote(r.Method), quote(r.Path), cmp.Or(why, v.Reason))}
	if path, _, _ := strings.Cut(r.Path, "?"); plain && !plainPath(path) {
		refused.Rule, refused.Reason = rulePath, fmt.Sprintf("the path %s is not in its plain form", quote(r.Path))
	}
	return p.lift(refused, r.Port)
}

// sees reports whether the rule allows a method and a path.
func (r *rule) sees(method, path string) bool {
	if len(r.methods) > 0 && !slices.Contains(r.methods, method) {
		return false
	}
	if len(r.paths) == 0 {
		return true
	}
	return slices.ContainsFunc(r.paths, func(allowed string) bool { return PathMatches(allowed, path) })
}

// split reads what a connection is to: a name, or an address in text.
func split(target string) (string, netip.Addr) {
	last := strings.TrimSuffix(target, ".")
	if strings.Contains(target, ":") || isNumber(last[strings.LastIndexByte(last, '.')+1:]) { // otherwise it is no address
		if addr, err := ParseAddr(target); err == nil {
			return "", addr
		}
	}
	return target, netip.Addr{}
}
