package sandbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/sandbox"
)

// What is wrong with a host of models is found before anything is made, and no
// error repeats a password.
func TestModelsAreChecked(t *testing.T) {
	t.Parallel()
	good := func() inference.Host {
		return inference.Host{Name: "api.example.com", Upstream: "http://127.0.0.1:8089/v1", Base: "/v1",
			Calls: []inference.Call{{Methods: []string{"POST"}, Path: "/v1/responses", API: inference.Responses}, {Methods: []string{"GET"}, Path: "/v1/models"}}}
	}
	for name, c := range map[string]struct {
		change func(*inference.Host)
		want   string // of the subject; empty: it is fine
	}{
		"as it is":        {func(*inference.Host) {}, ""},
		"no upstream":     {func(h *inference.Host) { h.Upstream, h.Base = "", "" }, ""},
		"a wildcard":      {func(h *inference.Host) { h.Name = "*.example.com" }, "models[0].name"},
		"upper case":      {func(h *inference.Host) { h.Name = "API.example.com" }, "models[0].name"},
		"an address":      {func(h *inference.Host) { h.Name = "127.0.0.1" }, "models[0].name"},
		"a password":      {func(h *inference.Host) { h.Upstream = "http://me:hidden@127.0.0.1/" }, "models[0].upstream"},
		"a bad password":  {func(h *inference.Host) { h.Upstream = "http://me:hid%den@127.0.0.1/" }, "models[0].upstream"},
		"another scheme":  {func(h *inference.Host) { h.Upstream = "unix:///tmp/socket" }, "models[0].upstream"},
		"a query":         {func(h *inference.Host) { h.Upstream += "?a=b" }, "models[0].upstream"},
		"a dotted path":   {func(h *inference.Host) { h.Upstream = "http://127.0.0.1/a/../b" }, "models[0].upstream"},
		"a relative base": {func(h *inference.Host) { h.Base = "v1" }, "models[0].base"},
		"an open base":    {func(h *inference.Host) { h.Base = "/v1/*" }, "models[0].base"},
		"no calls":        {func(h *inference.Host) { h.Calls = nil }, "models[0].calls"},
		"no method":       {func(h *inference.Host) { h.Calls[1].Methods = nil }, "models[0].calls[1]"},
		"a model by GET":  {func(h *inference.Host) { h.Calls[0].Methods = []string{"GET"} }, "models[0].calls[0]"},
		"an unknown API":  {func(h *inference.Host) { h.Calls[0].API = "soap" }, "models[0].calls[0]"},
		"nothing free":    {func(h *inference.Host) { h.Calls[1].Free = true }, "models[0].calls[1]"},
	} {
		h := good()
		c.change(&h)
		err := sandbox.Spec{TTL: time.Minute, Models: []inference.Host{h}}.Check()
		e, _ := err.(*sandbox.Error)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (e == nil || e.Kind != sandbox.KindInvalid || e.Subject != c.want):
			t.Errorf("%s: %v, want one about %s", name, err, c.want)
		case err != nil && strings.Contains(err.Error()+e.Hint, "hid"):
			t.Errorf("%s: the error repeats a password: %v", name, err)
		}
	}
	spec := sandbox.Spec{TTL: time.Minute, Models: []inference.Host{good(), good()}}
	if err := spec.Check(); sandbox.KindOf(err) != sandbox.KindInvalid {
		t.Errorf("one twice: %v", err)
	}
	spec.Models = spec.Models[:1]
	for _, ports := range [][]int{nil, {443}, {443, 8443}} {
		spec.Secrets = []vault.Secret{{Name: "key", Use: []vault.Binding{{Host: "api.example.com", Ports: ports, As: vault.Bearer}}}}
		if err := spec.Check(); (err != nil) != (len(ports) == 2) {
			t.Errorf("a secret on ports %v: %v", ports, err)
		}
	}
}
