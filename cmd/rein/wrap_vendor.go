package main

import (
	"crypto/rand"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/egress/policy"
)

// checkBaseURL judges --base-url. It never repeats it: it may hold a password.
func checkBaseURL(text string) error {
	if text == "" {
		return nil
	}
	bad := func(why string) error {
		return usage("such as --base-url http://127.0.0.1:8080/v1", "--base-url: %s", why)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return bad("it is no http or https URL of a host")
	case u.User != nil:
		return usage("the key is named with "+keyFlags, "--base-url: a user and a password do not belong into it")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return bad("it has a query or a fragment, and is to be a host and a path")
	}
	if path := u.EscapedPath(); path != "" && (!policy.IsPathPattern(path) || strings.HasSuffix(path, "*")) {
		return bad("its path is not in its plain form")
	}
	return nil
}

// modelOf is the name of the model to ask, as its vendor calls it: the user's, or
// that of the recipe, which is one of its first vendor's.
func (c *caged) modelOf(f *wrapFlags) (string, error) {
	if f.model != "" {
		return c.bare(f, f.model), nil
	}
	if c.vendor.Model != "" {
		return c.vendor.Model, nil
	}
	if first := c.recipe.Vendors[0].Name; c.vendor.Name != first && c.recipe.Model != "" {
		return "", usage("--model NAME, as "+c.vendor.Name+" calls it", "--vendor %s needs --model NAME: %s is a model of %s", c.vendor.Name, c.recipe.Model, first)
	}
	if c.recipe.Model == "" {
		return "", usage("--model NAME", "which model?")
	}
	return c.recipe.Model, nil
}

// bare is a model's name without the vendor's before it, as "rein run" has it. What
// others serve at an address of the user's may well be called that.
func (c *caged) bare(f *wrapFlags, model string) string {
	if rest, ok := strings.CutPrefix(model, c.vendor.Name+"/"); ok && rest != "" && f.baseURL == "" {
		return rest
	}
	return model
}

// keyFlags are the flags that name a model's key.
const keyFlags = "--key-env, --key-file or --secret"

// modelKey names the key of a model, where nobody else does.
const modelKey = "model-key"

// source is where the key is from.
func (c *caged) source(f *wrapFlags) (config.Secret, error) {
	given := 0
	for _, s := range []string{f.keyEnv, f.keyFile, f.secret} {
		if s != "" {
			given++
		}
	}
	c.key = modelKey
	switch {
	case given > 1:
		return config.Secret{}, usage("name one of "+keyFlags, "there are %d keys", given)
	case f.keyFile != "":
		return config.Secret{File: f.keyFile}, nil
	case f.keyEnv != "":
		return config.Secret{Env: f.keyEnv}, nil
	case f.secret != "":
		s, ok := c.file.Config.Secrets[f.secret]
		if !ok {
			return s, usage(config.DidYouMean(f.secret, slices.Sorted(maps.Keys(c.file.Config.Secrets))), "no secret %q in the configuration", f.secret)
		}
		if slices.Contains(c.target.Secrets, f.secret) {
			return s, usage("take it out of secrets: of the target", "the secret %s is given to other requests, too", f.secret)
		}
		c.key = f.secret
		return s, nil
	}
	names := c.vendor.KeyEnv
	if c.login != nil {
		names = c.login.KeyEnv
	}
	return config.Secret{Env: strings.Join(names, " ")}, nil // of which the first that is set: see keyOf
}

// keyOf settles on the variable that has the key. Where there is none, and the model
// is at an address of the user's, a key is made up.
func (a *app) keyOf(c *caged, f *wrapFlags) error {
	s := c.config.Secrets[c.key]
	if f.keyEnv != "" || f.keyFile != "" {
		a.flagKey = c.key // which hints about it say
	}
	names := strings.Fields(s.Env)
	if len(names) == 0 || f.keyEnv != "" || f.secret != "" {
		return nil
	}
	for _, name := range names {
		switch {
		case a.env.get(name) == "":
		case c.elsewhere(f): // a key that was found is not for another address than its vendor's
			c.unsent = name
		default:
			s.Env = name
			c.config.Secrets[c.key] = s
			return nil
		}
	}
	if f.baseURL == "" {
		return usage("export "+names[0]+"=..., or name another with "+keyFlags, "no key for %s: %s is not set", c.recipe.Name, strings.Join(names, " or "))
	}
	const made = "REIN_NO_KEY" // of no environment but this one
	a.env[made] = "sk-none-" + rand.Text() + rand.Text()
	s.Env, c.made = made, true
	c.config.Secrets[c.key] = s
	return nil
}

// elsewhere reports whether requests are sent to another address than the vendor's.
func (c *caged) elsewhere(f *wrapFlags) bool {
	return f.baseURL != "" && !sameHost(f.baseURL, c.vendor.Host)
}

// sameHost reports whether a URL is of a host, by TLS.
func sameHost(text, host string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && strings.EqualFold(u.Hostname(), host) && (u.Port() == "" || u.Port() == "443")
}
