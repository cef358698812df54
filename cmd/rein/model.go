package main

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/internal/spelling"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
	"github.com/rein-sh/rein/secret"
)

// resolveModel finds the model that --model, or the configuration, names.
func resolveModel(c config.Config, named, baseURL string) (config.Model, error) {
	if named == "" {
		named = c.Model
	}
	if named == "" {
		return config.Model{}, usage("--model script:FILE needs no key; --model openai/NAME uses any Chat Completions server (--base-url)",
			"no model: neither --model nor the configuration names one")
	}
	m, ok := c.Models[named]
	if !ok {
		for _, v := range models {
			rest, found := strings.CutPrefix(named, v.vendor+v.sep)
			if found && rest == "" {
				return m, usage("add it, as in "+modelForm(v.vendor, v.sep), "%s names no model", named)
			}
			if found {
				m, ok = config.Model{Vendor: v.vendor, Model: rest}, true
			}
		}
	}
	if !ok {
		return m, usage(modelHint(c, named), "no model %q", named)
	}
	if baseURL != "" {
		if m.Vendor == "script" {
			return m, usage("leave --base-url out", "a script has no address")
		}
		if u, err := url.Parse(baseURL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return m, usage("such as --base-url https://api.openai.com/v1", "--base-url takes an http or https address")
		}
		m.BaseURL = baseURL
	}
	if m.Key.IsZero() && m.BaseURL == "" {
		for _, v := range models {
			if v.vendor == m.Vendor && v.keyEnv != "" {
				m.Key = config.Key{Env: v.keyEnv}
			}
		}
	}
	return priced(c, m)
}

// modelHint names the configured model, or the vendor, that was meant.
func modelHint(c config.Config, named string) string {
	if n := spelling.Nearest(named, slices.Sorted(maps.Keys(c.Models))); n != "" {
		return "did you mean " + n + "?"
	}
	var forms, vendors []string
	for _, v := range models {
		forms = append(forms, modelForm(v.vendor, v.sep))
		vendors = append(vendors, v.vendor)
	}
	if vendor, rest, ok := strings.Cut(named, "/"); ok {
		if n := spelling.Nearest(vendor, vendors); n != "" {
			return "did you mean " + n + "/" + rest + "?"
		}
	}
	return strings.Join(forms, ", ") + ", or a name under models: in the configuration"
}

// modelForm is how --model names a vendor's model.
func modelForm(vendor, sep string) string {
	if vendor == "script" {
		return vendor + sep + "FILE"
	}
	return vendor + sep + "NAME"
}

// openModel makes the model; its key, if any, has been read already. watch,
// when not nil, sees its requests.
func openModel(m config.Model, key secret.Value, watch func(http.RoundTripper) http.RoundTripper) (model.Model, error) {
	s := modelSettings{Model: m, key: key}
	if m.Proxy != "" || watch != nil {
		var proxy *url.URL
		if m.Proxy != "" {
			var err error
			if proxy, err = url.Parse(m.Proxy); err != nil {
				return nil, usage("such as proxy: http://proxy.example:3128", "the proxy of %s is no address", modelName(m))
			}
		}
		s.transport = wire.NewTransport(proxy)
		if watch != nil {
			s.transport = watch(s.transport)
		}
	}
	for _, v := range models {
		if v.vendor != m.Vendor {
			continue
		}
		opened, err := v.open(s)
		if err != nil && !isUsage(err) {
			return nil, usage("rein config show prints what is set", "the model %s cannot be used: %s", modelName(m), err)
		}
		return opened, err
	}
	return nil, usage("known: "+strings.Join(known().Vendors, ", "), "no vendor %q", m.Vendor)
}

// addressOf is where a model's requests go.
func addressOf(m config.Model) string {
	for _, v := range models {
		if v.vendor == m.Vendor {
			return cmp.Or(m.BaseURL, v.address)
		}
	}
	return m.BaseURL
}
