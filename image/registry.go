package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// documentTimeout bounds one request for a manifest or a configuration, with its
// authentication.
const documentTimeout = time.Minute

// NewTransport returns what registries are spoken to with when the options give
// nothing: one without a proxy. Its caller may change it before it is used.
func NewTransport() *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConnsPerHost:   parallel,
		DisableCompression:    true, // layers are compressed, and sizes count bytes as they are stored
	}
}

// registry is an image in a registry.
type registry struct {
	s      *Store
	ref    name.Reference
	puller *remote.Puller
	keys   *noted
}

// noted is a keychain that notes whether it had credentials.
type noted struct {
	authn.Keychain
	had atomic.Bool
}

func (n *noted) Resolve(r authn.Resource) (authn.Authenticator, error) {
	return n.ResolveContext(context.Background(), r)
}

func (n *noted) ResolveContext(ctx context.Context, r authn.Resource) (authn.Authenticator, error) {
	a, err := authn.Resolve(ctx, n.Keychain, r)
	if err != nil {
		return nil, &fault{kind: KindUnavailable, err: fmt.Errorf("the credentials that docker login has kept cannot be had: %w", err),
			hint: "check $DOCKER_CONFIG/config.json or ~/.docker/config.json, and that the credential helper it names is there and works"}
	}
	if a != authn.Anonymous {
		n.had.Store(true)
	}
	return a, nil
}

func (s *Store) openRegistry(r Reference) (source, error) {
	ref, err := r.remote(s.o.Insecure)
	if err != nil {
		return nil, bad("", "%w", err)
	}
	keychain := s.o.Keychain
	if keychain == nil {
		keychain = authn.NewMultiKeychain() // of none: anonymous
	}
	keys := &noted{Keychain: keychain}
	p, err := remote.NewPuller(
		remote.WithTransport(&guard{inner: s.o.Transport, insecure: s.o.Insecure, loopback: isLoopback(ref.Context().RegistryStr()), limit: s.o.Limits.Manifest}),
		remote.WithAuthFromKeychain(keys),
		remote.WithUserAgent("rein"),
		remote.WithRetryBackoff(remote.Backoff{Duration: 300 * time.Millisecond, Factor: 3, Jitter: 0.2, Steps: 3}),
	)
	if err != nil {
		return nil, err
	}
	return &registry{s, ref, p, keys}, nil
}

func (r *registry) close() {}

func (r *registry) remote() bool { return true }

func (r *registry) plan(ctx context.Context) (*plan, error) { return r.s.find(ctx, r) }

func (r *registry) head(ctx context.Context) (string, error) {
	ctx, cancel := r.s.within(ctx)
	defer cancel()
	d, err := r.puller.Head(ctx, r.ref)
	if err == nil {
		return d.Digest.String(), nil
	}
	if _, answered := errors.AsType[*transport.Error](err); answered || ctx.Err() != nil {
		return "", r.explain(ctx, err)
	}
	// Some registries answer HEAD without a digest.
	m, getErr := r.get(ctx, r.ref)
	if getErr != nil {
		return "", getErr
	}
	return m.digest, nil
}

func (r *registry) root(ctx context.Context) (document, error) {
	ctx, cancel := r.s.within(ctx)
	defer cancel()
	return r.get(ctx, r.ref)
}

func (r *registry) document(ctx context.Context, d descriptor) (document, error) {
	ctx, cancel := r.s.within(ctx)
	defer cancel()
	out, err := r.get(ctx, r.ref.Context().Digest(d.Digest))
	if err == nil && int64(len(out.raw)) != d.Size {
		err = corrupt("manifest %s has %d bytes, not %d", d.Digest, len(out.raw), d.Size)
	}
	return out, err
}

// within bounds one exchange.
func (s *Store) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.answer,
		&fault{kind: KindUnavailable, err: fmt.Errorf("the registry did not answer within %s", s.answer)})
}

// get reads a manifest; the library checks its digest when it was asked for by
// one.
func (r *registry) get(ctx context.Context, ref name.Reference) (document, error) {
	d, err := r.puller.Get(ctx, ref)
	if err != nil {
		return document{}, r.explain(ctx, err)
	}
	if int64(len(d.Manifest)) > r.s.o.Limits.Manifest {
		return document{}, tooLarge("a manifest of more than %d bytes", r.s.o.Limits.Manifest)
	}
	return document{mediaType: string(cleanType(d.MediaType)), digest: digestOf(d.Manifest), raw: d.Manifest}, nil
}

// cleanType is a media type without parameters, which some registries add.
func cleanType(t types.MediaType) types.MediaType {
	s, _, _ := strings.Cut(string(t), ";")
	s = strings.TrimSpace(s)
	if s == "application/json" || s == "application/octet-stream" || s == "text/plain" { // said of anything
		s = ""
	}
	return types.MediaType(s)
}

// isBlob marks the requests whose answers may be large.
type isBlob struct{}

func (r *registry) blob(ctx context.Context, d descriptor) (io.ReadCloser, error) {
	ctx = context.WithValue(ctx, isBlob{}, true)
	l, err := r.puller.Layer(ctx, r.ref.Context().Digest(d.Digest))
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	rc, err := l.Compressed()
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	return &explained{rc, r, ctx}, nil
}

// explained gives the errors of a stream their kind.
type explained struct {
	io.ReadCloser
	r   *registry
	ctx context.Context
}

func (e *explained) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = e.r.explain(e.ctx, err)
	}
	return n, err
}

// explain gives an error of the exchange with a registry its kind.
func (r *registry) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	host := r.ref.Context().RegistryStr()
	if host == name.DefaultRegistry {
		host = "docker.io"
	}
	f := &fault{kind: KindUnavailable, err: err}
	if e, ok := errors.AsType[*transport.Error](err); ok {
		f.err = answered(e)
		switch {
		case e.StatusCode == http.StatusUnauthorized || e.StatusCode == http.StatusForbidden:
			f.kind, f.hint = KindUnauthorized, "check the name; if the image is private, log in with: docker login "+host
			if r.keys.had.Load() {
				f.err = fmt.Errorf("%w; it was sent the credentials that docker login has kept", f.err)
				f.hint = "check the name, and whether these credentials are still good; others are taken by: docker login " + host
			}
		case e.StatusCode == http.StatusNotFound:
			f.kind, f.hint = KindNotFound, "check the name and the tag; a registry may hide what one may not see (docker login "+host+")"
		case e.StatusCode == http.StatusTooManyRequests || e.StatusCode == http.StatusRequestTimeout || e.StatusCode >= 500:
		default:
			f.kind = KindNotFound
		}
		return f
	}
	switch text := err.Error(); {
	case errors.Is(err, http.ErrSchemeMismatch) || strings.Contains(text, "HTTP response to HTTPS client"):
		f.hint = insecureHint(host)
	case strings.Contains(text, "SSRF protection"), strings.Contains(text, "invalid realm"):
		f.kind = KindRefused
	case strings.Contains(text, "does not match requested digest"), strings.Contains(text, "error verifying"):
		f.kind = KindCorrupt
	case strings.Contains(text, "content limit"):
		f.kind = KindTooLarge
	}
	return f
}

func insecureHint(host string) string {
	return "a registry without TLS must be named in the configuration:\n" + fmt.Sprintf("images: {insecure: [%q]}", host)
}

// answered is a registry's refusal on one line, without its whole page.
func answered(e *transport.Error) error {
	text := fmt.Sprintf("the registry answered %d %s", e.StatusCode, http.StatusText(e.StatusCode))
	for _, d := range e.Errors {
		if d.Message != "" {
			return fmt.Errorf("%s: %.200s", text, strings.Join(strings.Fields(d.Message), " "))
		}
	}
	return errors.New(text)
}

// guard is under everything that is sent for an image. It lets nothing out
// without TLS but to what is listed and, for a registry on loopback, to loopback,
// also after a redirect or as the address of a token server: a registry elsewhere
// sends no request without TLS to this host's own servers. Nothing that a request
// carries follows a redirect to another host: it is the token that a token server
// was asked with. It bounds every answer that is no blob.
type guard struct {
	inner    http.RoundTripper
	insecure []string
	loopback bool // the registry is there
	limit    int64
}

func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	host := strings.ToLower(req.URL.Host)
	if req.URL.Scheme != "https" && !listed(host, g.insecure) && !(g.loopback && isLoopback(host)) {
		return nil, &fault{kind: KindRefused, err: fmt.Errorf("%s would be spoken to without TLS", req.URL.Host), hint: insecureHint(req.URL.Host)}
	}
	if from := req.Response; from != nil && from.Request != nil && req.Method != http.MethodGet && req.Method != http.MethodHead &&
		(from.Request.URL.Host != req.URL.Host || from.Request.URL.Scheme != req.URL.Scheme) {
		return nil, &fault{kind: KindRefused, err: fmt.Errorf("%s redirects a %s to %s, which would get what it carries", from.Request.URL.Host, req.Method, req.URL.Host)}
	}
	resp, err := g.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if large, _ := req.Context().Value(isBlob{}).(bool); !large || resp.StatusCode != http.StatusOK {
		resp.Body = &bounded{r: io.LimitReader(resp.Body, g.limit+1), Closer: resp.Body, left: g.limit}
	}
	return resp, nil
}

// bounded is a body that is an error when it is too long.
type bounded struct {
	io.Closer
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, tooLarge("the registry's answer has no end")
	}
	return n, err
}
