package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/internal/spelling"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/secret"
)

// Bounds of probing a model.
const (
	probeTimeout = 30 * time.Second
	probeTokens  = 32 // of output; 16 is the least some vendors take
	clockSlack   = 2 * time.Minute
)

// modelProbe is what one tiny request to a model showed.
type modelProbe struct {
	Model    string `json:"model"` // "vendor/name"
	Address  string `json:"address,omitempty"`
	KeyFrom  string `json:"key_from"`
	OK       bool   `json:"ok"`
	Answered string `json:"answered_by,omitempty"` // the model, as the vendor names it
	TookMS   int64  `json:"took_ms"`
	Usage    struct {
		Known  bool  `json:"known"`
		Input  int64 `json:"input"`
		Output int64 `json:"output"`
	} `json:"usage"`
	// Kind and Status classify what went wrong; Problem and Hint say it.
	Kind    model.Kind `json:"kind,omitempty"`
	Status  int        `json:"status,omitempty"`
	Problem string     `json:"problem,omitempty"`
	Hint    string     `json:"hint,omitempty"`
	// ClockSkew is how many seconds this host's clock is ahead of the server's,
	// as far as its reply told.
	ClockSkew *float64 `json:"clock_skew_seconds,omitempty"`
}

// sight is what a probe sees of the response itself.
type sight struct {
	base http.RoundTripper
	skew *float64
}

// RoundTrip compares the clocks.
func (s *sight) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	res, err := s.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if date, bad := http.ParseTime(res.Header.Get("Date")); bad == nil {
		ahead := skewOf(date, sent, time.Now()).Seconds()
		s.skew = &ahead
	}
	return res, nil
}

// skewOf is how far this host's clock is ahead of one that said date, which has
// whole seconds, at some time between sent and got. Where that may be not at all
// it is 0.
func skewOf(date, sent, got time.Time) time.Duration {
	least, most := sent.Sub(date)-time.Second, got.Sub(date)
	if least <= 0 && most >= 0 {
		return 0
	}
	return ((least + most) / 2).Round(time.Second)
}

// probeModel makes one tiny request to the model and says what came of it.
func (a *app) probeModel(ctx context.Context, named, baseURL, keyEnv string, asJSON bool) error {
	f, err := a.load()
	if err != nil {
		return err
	}
	m, err := resolveModel(f.Config, named, baseURL)
	if err != nil {
		return err
	}
	if keyEnv != "" {
		m.Key = config.Key{Env: keyEnv}
	}
	key, err := a.readKey(ctx, modelName(m), m.Key)
	if err != nil {
		return err
	}
	seen := &sight{}
	opened, err := openModel(m, key, func(base http.RoundTripper) http.RoundTripper {
		seen.base = base
		return seen
	})
	if err != nil {
		return err
	}
	p := modelProbe{Model: modelName(m), Address: addressOf(m), KeyFrom: m.Key.String()}
	begin := time.Now()
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	reply, err := opened.Generate(limited, &model.Request{
		Messages:        []model.Message{{Role: model.RoleUser, Text: "Answer with the word yes."}},
		MaxOutputTokens: probeTokens,
	}, nil)
	p.TookMS = time.Since(begin).Milliseconds()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.ClockSkew = seen.skew
	if err == nil {
		p.OK, p.Answered = true, reply.Model
		p.Usage.Known, p.Usage.Input, p.Usage.Output = reply.Usage.Known, reply.Usage.Input, reply.Usage.Output
		if p.skewed() {
			p.Hint = "set this host's clock, as with timedatectl set-ntp true"
		}
	} else {
		a.explain(&p, err, m, f.Config)
	}
	mask := secret.NewMasker(key)
	p.Problem, p.Hint = mask.String(p.Problem), mask.String(p.Hint)
	if asJSON {
		err = a.printJSON(p)
	} else {
		err = a.printModelProbe(p)
	}
	if err == nil && !p.OK {
		return exitStatus(exitModel)
	}
	return err
}

func (p modelProbe) skewed() bool {
	return p.ClockSkew != nil && (*p.ClockSkew > clockSlack.Seconds() || *p.ClockSkew < -clockSlack.Seconds())
}

// explain says in words what is wrong, and what to do.
func (a *app) explain(p *modelProbe, err error, m config.Model, c config.Config) {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		p.Problem = err.Error()
		return
	}
	p.Kind, p.Status, p.Hint = e.Kind, e.Status, e.Hint
	said := ""
	if e.Message != "" {
		said = ": " + e.Message
	}
	switch e.Kind {
	case model.KindAuth:
		p.Problem = "the server wants a key, and none is configured"
		p.Hint = "--key-env VARIABLE, or key: in the configuration"
		if !m.Key.IsZero() {
			p.Problem = "the key was refused" + said
			p.Hint = "check the " + m.Key.String() + " and that its key belongs to " + p.Address
		}
	case model.KindForbidden:
		p.Problem = "the key may not do this" + said
	case model.KindQuota:
		p.Problem = "the account's quota is used up" + said
	case model.KindRateLimit:
		p.Problem = "too many requests at the moment, though the key was taken" + said
		p.Hint = "wait and probe again"
		if e.RetryAfter > 0 {
			p.Hint = fmt.Sprintf("the server asks to wait %s", e.RetryAfter.Round(time.Second))
		}
	case model.KindOverloaded:
		p.Problem, p.Hint = "the server is overloaded"+said, "try again later; nothing is wrong here"
	case model.KindNotFound:
		a.explainNotFound(p, e, m, c)
	case model.KindTimeout:
		p.Problem, p.Hint = fmt.Sprintf("no answer within %s", probeTimeout), "is the base URL "+p.Address+" right?"
	case model.KindCut:
		p.Problem = "the reply broke off" + said
	case model.KindInvalid:
		p.Problem = "the server does not take the request" + said
	case model.KindUnavailable, model.KindUnknown:
		p.Problem = "the server failed" + said
		switch {
		case e.Status == 0 && e.Err != nil:
			a.explainUnreachable(p, e)
		case e.Status == 0 || e.Status == http.StatusOK:
			p.Problem = "the server does not speak this vendor's protocol" + said
			if p.Hint == "" {
				p.Hint = "do the vendor and the base URL belong together?"
			}
		}
	default:
		p.Problem = string(e.Kind) + said
	}
}

// explainNotFound tells an unknown model from an address without an API: a
// vendor says in its own form which model it does not know.
func (a *app) explainNotFound(p *modelProbe, e *model.Error, m config.Model, c config.Config) {
	words := strings.ToLower(e.Code + " " + e.Message)
	if !strings.Contains(words, "model") || strings.Contains(words, "invalid url") {
		p.Problem = "this is not the API: " + p.Address + " has no such path"
		p.Hint = "check the base URL; " + m.Vendor + "'s own is " + addressOf(config.Model{Vendor: m.Vendor})
		return
	}
	p.Problem = fmt.Sprintf("the server knows no model %q: %s", m.Model, e.Message)
	p.Hint = "the vendor lists the names of its models"
	var names []string
	for _, other := range c.Models {
		if other.Vendor == m.Vendor && other.Model != m.Model {
			names = append(names, other.Model)
		}
	}
	slices.Sort(names)
	if n := spelling.Nearest(m.Model, names); n != "" {
		p.Hint = "did you mean " + n + "?"
	}
}

// explainUnreachable reads why there was no response at all.
func (a *app) explainUnreachable(p *modelProbe, e *model.Error) {
	proxied := a.env.get("HTTPS_PROXY") + a.env.get("https_proxy")
	if certificate(p, e.Err) {
		return
	}
	dns, isDNS := errors.AsType[*net.DNSError](e.Err)
	_, isDial := errors.AsType[*net.OpError](e.Err)
	switch {
	case isDNS && dns.IsNotFound:
		p.Problem, p.Hint = "there is no host "+dns.Name, "check the base URL "+p.Address
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		p.Problem, p.Hint = "nobody listens at "+p.Address+": "+e.Message, "check the base URL, or start the server"
	case isDial || isDNS:
		p.Problem, p.Hint = p.Address+" cannot be reached: "+e.Message, "is this host online?"
	default:
		p.Problem = p.Address + " gave no response: " + e.Message
		if e.Hint != "" {
			p.Hint = e.Hint
		}
	}
	if proxied != "" {
		p.Hint = "the environment names a proxy, which rein does not take from there; name it with proxy: in the configuration"
	}
}

// certificate explains a server's certificate that was refused. A clock that
// is wrong looks like a certificate that is not valid yet, or not any more.
func certificate(p *modelProbe, err error) bool {
	refused, ok := errors.AsType[*tls.CertificateVerificationError](err)
	if !ok {
		return false
	}
	p.Problem = "the server's certificate is refused: " + refused.Err.Error()
	p.Hint = "a proxy that opens TLS needs its authority in this host's list of trusted ones"
	if bad, ok := errors.AsType[x509.CertificateInvalidError](err); ok && bad.Reason == x509.Expired {
		now := time.Now()
		p.Problem = fmt.Sprintf("the server's certificate was valid until %s, and this host's clock says %s",
			bad.Cert.NotAfter.UTC().Format(time.DateTime), now.UTC().Format(time.DateTime))
		p.Hint = "is this host's clock ahead? If not, the server's certificate has expired"
		if now.Before(bad.Cert.NotBefore) {
			p.Problem = fmt.Sprintf("the server's certificate is valid from %s only, and this host's clock says %s",
				bad.Cert.NotBefore.UTC().Format(time.DateTime), now.UTC().Format(time.DateTime))
			p.Hint = "this host's clock is behind: set it, as with timedatectl set-ntp true"
		}
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		p.Hint = "check the host's name in the base URL " + p.Address
	}
	return true
}

func (a *app) printModelProbe(p modelProbe) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, cleanLine(fmt.Sprintf(format, args...)))
	}
	line("model", "%s", p.Model)
	if p.Address != "" {
		line("address", "%s", p.Address)
	}
	line("key", "%s", p.KeyFrom)
	if p.OK {
		line("answers", "yes, as %s, in %d ms", p.Answered, p.TookMS)
		if p.Usage.Known {
			line("tokens", "%d in, %d out", p.Usage.Input, p.Usage.Output)
		} else {
			line("tokens", "not told")
		}
	} else {
		line("answers", "no: %s", p.Problem)
	}
	if p.skewed() {
		ahead, side := *p.ClockSkew, "ahead of"
		if ahead < 0 {
			ahead, side = -ahead, "behind"
		}
		line("clock", "%s %s the server's", time.Duration(ahead)*time.Second, side)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if p.Hint != "" {
		fmt.Fprintf(a.out, "\n    %s\n", cleanLine(p.Hint))
	}
	return nil
}
