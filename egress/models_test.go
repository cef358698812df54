package egress_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/internal/modelserver"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/anthropic"
	"github.com/rein-sh/rein/model/gemini"
	"github.com/rein-sh/rein/model/openai"
	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/secret"
)

const (
	modelName = "models.example.com"
	modelKey  = "sk-proj-abcdEFGHijklMNOPqrstUVWXyz0123456789abcd"
)

// budgets is a Meter that notes what it is told.
type budgets struct {
	grant func(context.Context, inference.Ask) (inference.Grant, error) // nil: grants all

	mu    sync.Mutex
	asks  []inference.Ask
	open  int
	ended []inference.Ended
	more  chan struct{} // holds one when something has ended
}

func newBudgets() *budgets { return &budgets{more: make(chan struct{}, 1)} }

func (b *budgets) Begin(ctx context.Context, a inference.Ask) (inference.Grant, func(inference.Ended), error) {
	g := inference.Grant{Output: 1000}
	if b.grant != nil {
		var err error
		if g, err = b.grant(ctx, a); err != nil {
			return g, nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asks = append(b.asks, a)
	if g.Stop != nil {
		return g, nil, nil
	}
	b.open++
	return g, b.end, nil
}

func (b *budgets) end(e inference.Ended) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	b.ended = append(b.ended, e)
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// wait returns what has ended, when that is n requests and none is open.
func (b *budgets) wait(t testing.TB, n int) []inference.Ended {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		b.mu.Lock()
		ended, open := slices.Clone(b.ended), b.open
		b.mu.Unlock()
		if len(ended) >= n && open == 0 {
			if len(ended) > n {
				t.Fatalf("%d requests ended, not %d: %+v", len(ended), n, ended)
			}
			return ended
		}
		select {
		case <-b.more:
		case <-timeout:
			t.Fatalf("%d requests ended and %d are open, not %d: %+v", len(ended), open, n, ended)
		}
	}
}

// modelHostOf is a host that knows every API.
func modelHostOf(upstream string) inference.Host {
	post := []string{"POST"}
	return inference.Host{Name: modelName, Upstream: upstream, Rules: inference.Rules{Models: []string{"demo"}}, Calls: []inference.Call{
		{Methods: post, Path: "/v1/chat/completions", API: inference.Chat},
		{Methods: post, Path: "/v1/responses", API: inference.Responses},
		{Methods: post, Path: "/v1/messages", API: inference.Messages},
		{Methods: post, Path: "/v1/messages/count_tokens", API: inference.Messages, Free: true},
		{Methods: post, Path: "/v1beta/models/*", API: inference.Gemini},
		{Methods: []string{"GET"}, Path: "/v1/models"},
	}}
}

// metered is a sandbox that may ask models.
type metered struct {
	*away
	ns          *netns
	gateway     *egress.Gateway
	rec         *records
	meter       *budgets
	placeholder string
	elsewhere   string       // that of a key which is for another host
	client      *http.Client // that trusts the gateway
	trust       *x509.CertPool
}

const (
	throughDoor = "http://10.88.0.1:3129/" + modelName
	throughTLS  = "https://" + modelName
)

// meteredTo serves the models as the host, or as its upstream where one is given.
func meteredTo(t testing.TB, h http.Handler, upstream string, change func(*egress.Options)) *metered {
	t.Helper()
	m := &metered{away: newAway(), meter: newBudgets()}
	roots := m.secure(t, modelName, "93.184.215.14:443", h.ServeHTTP, nil)
	authority, err := egress.NewAuthority("rein test")
	if err != nil {
		t.Fatal(err)
	}
	use := vault.Binding{Host: modelName, As: vault.Bearer}
	apiKey := vault.Binding{Host: modelName, As: vault.Header, Name: "X-Api-Key"}
	google := vault.Binding{Host: modelName, As: vault.Header, Name: "X-Goog-Api-Key"}
	v, faults := vault.New(vault.Key{1}, []vault.Secret{{Name: "key", Value: secret.New("key", modelKey), Variable: "KEY", Use: []vault.Binding{use, apiKey, google}},
		{Name: "elsewhere", Value: secret.New("elsewhere", "sk-proj-elsewhereABCDEFGHIJKLMNOPQRSTUVWX0123456789"), Variable: "ELSEWHERE", Use: []vault.Binding{{Host: "elsewhere.example.com", As: vault.Bearer}}}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	o := egress.Options{Host: m.away, Policy: compile(t, policy.Document{}), Authority: authority, Roots: roots, Vault: v,
		Models: []inference.Host{modelHostOf(upstream)}, Meter: m.meter, Limits: egress.Limits{PerSecond: 1000}}
	if change != nil {
		change(&o)
	}
	m.placeholder, m.elsewhere = v.Environment()["KEY"], v.Environment()["ELSEWHERE"]
	m.ns, m.gateway, m.rec = owned(t, o)
	m.trust = x509.NewCertPool()
	m.trust.AppendCertsFromPEM(authority.PEM())
	m.client = inside(t, m.ns, &tls.Config{RootCAs: m.trust})
	return m
}

// wires are the vendors' clients in the sandbox.
var wires = map[string]func(url string, key secret.Value, by http.RoundTripper) (model.Model, error){
	"chat": func(url string, key secret.Value, by http.RoundTripper) (model.Model, error) {
		return openai.New(openai.Options{BaseURL: url + "/v1", Model: "demo", Key: key, Transport: by})
	},
	"responses": func(url string, key secret.Value, by http.RoundTripper) (model.Model, error) {
		return openai.New(openai.Options{BaseURL: url + "/v1", Model: "demo", API: openai.Responses, Key: key, Transport: by})
	},
	"messages": func(url string, key secret.Value, by http.RoundTripper) (model.Model, error) {
		return anthropic.New(anthropic.Options{BaseURL: url, Model: "demo", Key: key, Transport: by})
	},
	"gemini": func(url string, key secret.Value, by http.RoundTripper) (model.Model, error) {
		return gemini.New(gemini.Options{BaseURL: url, Model: "demo", Key: key, Transport: by})
	},
}

const saying = `
name: demo
steps:
  - name: say
    text: "It is done."
    usage: {input: 100, cached_input: 40, output: 20}
`

func scripted(t testing.TB, src string, o modelserver.Options) *modelserver.Server {
	t.Helper()
	s, err := script.Load([]byte(src), "script.yaml")
	if err != nil {
		t.Fatal(err)
	}
	srv := modelserver.New(s, o)
	t.Cleanup(srv.Close)
	return srv
}

// Every vendor's client asks its model by both ways, with a placeholder for a key,
// and the meter is told what the vendor has counted.
func TestModelsOfEveryAPI(t *testing.T) {
	t.Parallel()
	for name, open := range wires {
		for _, route := range []string{throughDoor, throughTLS} {
			t.Run(name+" "+route[:5], func(t *testing.T) {
				t.Parallel()
				m := meteredTo(t, scripted(t, saying, modelserver.Options{Key: secret.New("key", modelKey)}), "", nil)
				client, err := open(route, secret.New("placeholder", m.placeholder), m.client.Transport)
				if err != nil {
					t.Fatal(err)
				}
				if c, ok := client.(interface{ Close() }); ok {
					t.Cleanup(c.Close)
				}
				reply, err := client.Generate(t.Context(), &model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "Do it."}}, MaxOutputTokens: 500}, nil)
				if err != nil {
					t.Fatalf("%v; recorded %+v", err, m.rec.all())
				}
				e := m.meter.wait(t, 1)[0]
				if e.Status != 200 || !e.Sent || e.Cut || !e.Usage.Known || e.Usage.Input != 100 || e.Usage.Cached != 40 || e.Usage.Output != 20 {
					t.Errorf("the meter was told %+v of %+v", e, reply)
				}
			})
		}
	}
}
