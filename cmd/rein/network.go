package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/local"
	"github.com/spf13/cobra"
)

// opening is what the command line opens of the network, besides a target's own
// policy.
type opening struct{ allow, bundles []string }

func (o *opening) openFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.allow, "allow", nil, "`HOST[:PORT][/PROTO]` that may be reached: a name, *.NAME, an address or a range; PROTO is tls, https, http or tcp (repeatable)")
	cmd.Flags().StringArrayVar(&o.bundles, "bundle", nil, "`NAME` of a list of hosts that may be reached: "+strings.Join(policy.Bundles(), ", ")+" (repeatable)")
}

// onto adds to a policy what the command line opens.
func (o opening) onto(d policy.Document) (policy.Document, error) {
	if len(o.allow)+len(o.bundles) == 0 {
		return d, nil
	}
	d.Origin = policy.OriginHost
	alone := policy.Document{Origin: policy.OriginHost}
	for _, name := range o.bundles {
		if slices.Contains(d.Bundles, name) || slices.Contains(alone.Bundles, name) {
			continue // it is open already
		}
		if err := judged("--bundle "+name, policy.Document{Origin: policy.OriginHost, Bundles: []string{name}}); err != nil {
			return d, err
		}
		alone.Bundles = append(alone.Bundles, name)
	}
	for _, text := range o.allow {
		r, err := targetOf("--allow "+text, text)
		if err != nil {
			return d, err
		}
		alone.Rules = append(alone.Rules, r)
	}
	d.Bundles = slices.Concat(d.Bundles, alone.Bundles)
	if d.Mode == policy.ModeOrdered { // the first that speaks of a target counts
		d.Rules = slices.Concat(alone.Rules, d.Rules)
	} else {
		d.Rules = slices.Concat(d.Rules, alone.Rules)
	}
	return d, nil
}

// targetOf is the rule that a target comes to, said by that.
func targetOf(said, text string) (policy.Rule, error) {
	r, err := parseTarget(text)
	if err == nil {
		err = unspoken(r)
	}
	if err != nil {
		return r, usage(hintOf(err), "%s: %s", said, err)
	}
	return r, judged(said, policy.Document{Origin: policy.OriginHost, Rules: []policy.Rule{r}})
}

// judgeTarget is targetOf for who has a place of its own to say.
func judgeTarget(text string) (hint string, err error) {
	_, err = targetOf(text, text)
	return hintOf(err), err
}

// judged is why a policy, said by that, makes no sense.
func judged(said string, d policy.Document) error {
	_, err := policy.Compile(d)
	if e, ok := errors.AsType[*policy.Error](err); ok {
		f := e.Faults[0]
		return usage(cmp.Or(f.Hint, "docs/egress.md says what can be written"), "%s: %s", said, f.Message)
	}
	return err
}

// parseTarget reads HOST[:PORT][/PROTO]. HOST is a name, *.NAME, an address, in
// brackets where a port follows one of IPv6, or a range of them.
func parseTarget(text string) (r policy.Rule, err error) {
	const hint = "such as api.example.com, db.example.com:5432/tcp, 192.0.2.0/24:22/tcp or [2001:db8::1]:443"
	host := text
	if strings.Contains(text, "://") {
		return r, withHint(errors.New("it is a URL"), cmp.Or(ofURL(text, true), hint))
	}
	if before, proto, ok := cutLast(text, "/"); ok {
		if _, err := strconv.Atoi(proto); err != nil { // else it is the length of a range
			host, r.Proto = before, proto
		}
	}
	if _, err := netip.ParsePrefix(host); err == nil {
		r.CIDR = host
		return r, nil
	}
	if _, err := policy.ParseAddr(host); err == nil {
		r.CIDR = strings.Trim(host, "[]")
		return r, nil
	}
	if before, port, ok := cutLast(host, ":"); ok {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			return r, withHint(fmt.Errorf("%q is no port", port), hint)
		}
		host, r.Ports = before, []int{n}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if _, err := policy.ParseAddr(inner); !ok || err != nil {
			return r, withHint(fmt.Errorf("%q is no address", host), hint)
		}
		r.CIDR = inner
		return r, nil
	}
	if _, err := netip.ParsePrefix(host); err == nil {
		r.CIDR = host
	} else if _, err := policy.ParseAddr(host); err == nil {
		r.CIDR = host
	} else {
		r.Host = host
	}
	if host == "" {
		return r, withHint(errors.New("it names no host"), hint)
	}
	return r, nil
}

// ofURL is how the host of a URL is written, with its protocol if that is to be
// said where it is not the usual one of the port; empty when it has no host.
func ofURL(text string, proto bool) string {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	said := "write " + u.Host
	if spoken := map[string]string{"http": "http", "https": "tls"}[u.Scheme]; proto && spoken != "" && u.Port() != "" {
		said += "/" + spoken
	}
	return said
}

// unspoken is why what is spoken on a port has to be said.
func unspoken(r policy.Rule) error {
	if r.Proto != "" || len(r.Ports) != 1 || r.Ports[0] == 80 || r.Ports[0] == 443 {
		return nil
	}
	target := fmt.Sprintf("%s:%d", r.Host+r.CIDR, r.Ports[0]) // one of both
	if strings.Contains(r.CIDR, ":") {
		target = fmt.Sprintf("[%s]:%d", r.CIDR, r.Ports[0])
	}
	return withHint(fmt.Errorf("what is spoken on port %d must be said", r.Ports[0]),
		fmt.Sprintf("write %s/tls or /http, whose names are checked, or %s/tcp", target, target))
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// maxCA bounds the certificates of a company, in bytes.
const maxCA = 1 << 20

// egress makes of the configuration the host's way to the network.
func (a *app) egress(ctx context.Context, e config.Egress) (local.Egress, error) {
	out := local.Egress{ProxyUser: e.UpstreamProxy.User, Limits: egress.Limits{
		Connections: e.Limits.Connections, PerSecond: e.Limits.PerSecond, Bytes: int64(e.Limits.Bytes), MaxUploadBytes: int64(e.Limits.MaxUploadBytes),
		Dials: e.Limits.Dials, Questions: e.Limits.Questions, Names: e.Limits.Names, NamesPerMinute: e.Limits.NamesPerMinute,
		IdleSeconds: e.Limits.IdleSeconds},
		HostLimits: egress.HostLimits{Connections: e.HostLimits.Connections, PerSecond: e.HostLimits.PerSecond,
			Bytes: int64(e.HostLimits.Bytes), MaxUploadBytes: int64(e.HostLimits.MaxUploadBytes)}}
	for _, text := range e.Resolvers {
		r, err := config.ParseResolver(text)
		if err != nil {
			return out, err
		}
		out.Resolvers = append(out.Resolvers, r)
	}
	var err error
	if e.UpstreamProxy.URL != "" {
		if out.Proxy, err = url.Parse(e.UpstreamProxy.URL); err != nil {
			return out, err
		}
	}
	if !e.UpstreamProxy.Password.IsZero() {
		out.ProxyPassword, err = a.readSecret(ctx, "the upstream proxy", "egress: upstream_proxy: password:", e.UpstreamProxy.Password)
		if err != nil {
			return out, err
		}
		a.providerKeys = append(a.providerKeys, out.ProxyPassword)
	}
	out.CA, err = readCA(e.UpstreamCA)
	return out, err
}

// readCA reads the certificates of a company; none without a file.
func readCA(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	const hint = "check egress: upstream_ca: in the configuration"
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold us
	if err != nil {
		return nil, usage(hint, "the certificates of the upstream proxy cannot be read: %s", err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, usage(hint, "%s is not a regular file", file)
	}
	ca, err := io.ReadAll(io.LimitReader(f, maxCA+1))
	switch {
	case err != nil:
		return nil, usage(hint, "the certificates of the upstream proxy cannot be read: %s", err)
	case len(ca) > maxCA:
		return nil, usage(hint, "%s is larger than %d bytes", file, maxCA)
	case !x509.NewCertPool().AppendCertsFromPEM(ca):
		return nil, usage("upstream_ca: takes a file of certificates in PEM, which begin with -----BEGIN CERTIFICATE-----", "%s holds no certificate in PEM", file)
	}
	return ca, nil
}

// networkNotices is what is known before a run of what its policy asks about: that
// nobody can be asked, and that rules are not used.
func networkNotices(d policy.Document, asks *run.Approval, rules []config.ApprovalRule) []string {
	var out []string
	asking := config.Asks(d)
	if asking && len(asks.Channels) == 0 && !asks.Resolvable {
		out = append(out, "the network's policy asks a person, and nobody can be asked: what it would ask about is denied")
	}
	if !asking && slices.ContainsFunc(rules, func(r config.ApprovalRule) bool { return r.Host != "" }) {
		out = append(out, "the network's policy of this target asks nobody, so that the approval's rules of hosts are not used")
	}
	return out
}
