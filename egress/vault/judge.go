package vault

import (
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/secret"
)

// Grant is what a request that may pass is given. A nil one gives nothing.
type Grant struct {
	vault *Vault
	to    Target
	bound bool // secrets are bound to it

	header      http.Header // fields to set; nil values are taken out
	path, query *string     // in their raw forms, when they change
	replace     []exchange  // in the body
	looked      bool        // through the body, in which nothing is replaced

	// Found, when it is set, is told once of a placeholder in the body, which ends
	// the request. It is called by who reads the body.
	Found     func(*Refusal)
	sign      *signing
	signature *secret.Masker // of what was signed, once it is
}

// exchange is a placeholder and the secret to put in its place.
type exchange struct{ placeholder, value string }

// request is what of a request is still to be explained while it is judged.
type request struct {
	vault *Vault
	to    Target
	scope []*bound // the bindings for its method and path

	header http.Header // what remains; consumed fields are taken out
	path   string
	query  []string // its parts, raw; consumed ones are emptied
	put    []*bound // the bindings that put a secret into its path or query
	grant  *Grant
}

// Judge decides about the head of a request to a target. path is its raw path.
// The error is a *Refusal.
func (v *Vault) Judge(to Target, r *http.Request, path string) (*Grant, error) {
	if v == nil {
		return nil, nil
	}
	q := &request{vault: v, to: to, header: r.Header.Clone(), path: path, grant: &Grant{vault: v, to: to, header: http.Header{}}}
	if r.URL.RawQuery != "" {
		q.query = strings.Split(r.URL.RawQuery, "&")
	}
	for _, b := range v.hosts[to] {
		q.grant.bound = true
		if b.covers(r, path) {
			q.scope = append(q.scope, b)
		}
	}
	if q.grant.bound {
		if err := q.credentials(r); err != nil {
			return nil, err
		}
	}
	if err := q.leaks(r); err != nil {
		return nil, err
	}
	if err := q.addressed(r); err != nil {
		return nil, err
	}
	return q.grant, nil
}

// covers reports whether the binding is for a request to a path, by all that
// servers may take it for.
func (b *bound) covers(r *http.Request, path string) bool {
	methods, paths := policy.Overrides(r.Header)
	for _, method := range append(methods, r.Method) {
		if len(b.Methods) > 0 && !slices.Contains(b.Methods, method) {
			return false
		}
	}
	for _, path := range append(paths, path) {
		if len(b.Paths) > 0 && !slices.ContainsFunc(b.Paths, func(p string) bool { return policy.PathMatches(p, path) }) {
			return false
		}
	}
	return true
}

// credentials explains what stands where credentials do, and gives the request
// those that are bound.
func (q *request) credentials(r *http.Request) error {
	q.drop("Cookie") // whose it is cannot be told
	slots := q.slots()
	if err := q.spellings(slots); err != nil {
		return err
	}
	for _, name := range slots {
		if err := q.field(r, name); err != nil {
			return err
		}
	}
	if err := q.parameters(); err != nil {
		return err
	}
	for _, b := range q.scope {
		if b.As == Substitute {
			if err := q.substitute(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// drop takes a field out of the request.
func (q *request) drop(name string) {
	q.header.Del(name)
	q.grant.header[name] = nil
}

// in is the binding that sets a slot; nil when none does for this request.
func (q *request) in(slot string) *bound {
	for _, b := range q.scope {
		if b.slot() == slot {
			return b
		}
	}
	return nil
}

// field judges one field that holds credentials.
func (q *request) field(r *http.Request, name string) error {
	values, b := q.header[name], q.in(name)
	switch {
	case len(values) > 1:
		return refuse(RuleForeign, "%s stands there %d times", name, len(values))
	case b != nil && b.As == AWS4:
		return q.signature(r, b)
	case len(values) == 0 && b == nil:
		return nil
	case len(values) == 0:
		value, err := q.vault.value(b.of)
		if err != nil {
			return err
		}
		q.set(name, b.written(value))
		return nil
	case b == nil:
		if q.substituted(values[0], InHeader) {
			return nil
		}
		return refuse(RuleForeign, "%s holds a credential, and no secret is bound to it for %s", name, q.to)
	}
	return q.exchange(name, values[0], b)
}

// substituted reports whether a credential is a placeholder that a binding puts a
// secret in the place of, with nothing beside it but a scheme.
func (q *request) substituted(text string, where Place) bool {
	return slices.ContainsFunc(q.scope, func(b *bound) bool {
		rest, ok := strings.CutSuffix(text, b.of.placeholder)
		return ok && b.As == Substitute && slices.Contains(b.In, where) && isScheme(rest)
	})
}

// isScheme reports whether s is nothing, or a scheme (RFC 9110 11.1) and a space.
func isScheme(s string) bool {
	scheme, ok := strings.CutSuffix(s, " ")
	return s == "" || ok && len(scheme) <= 32 && strings.IndexFunc(scheme, func(r rune) bool {
		return r >= 0x80 || r != '-' && kindOf(byte(r)) == 0
	}) < 0
}

// set gives the request a field.
func (q *request) set(name, value string) {
	q.header.Del(name)
	q.grant.header[name] = []string{value}
}

// written is how the binding's field holds a secret where the client sent none.
func (b *bound) written(value string) string {
	switch b.As {
	case Bearer:
		return "Bearer " + value
	case Basic:
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(b.User+":"+value))
	}
	return value
}

// exchange puts the secret in the place of its placeholder in a field that holds
// it in the binding's form and nothing else.
func (q *request) exchange(name, field string, b *bound) error {
	value, err := q.vault.value(b.of)
	if err != nil {
		return err
	}
	foreign := refuse(RuleForeign, "%s does not hold this sandbox's placeholder of %s as %s", name, b.of.name, b.As)
	if b.As == Header {
		if field != b.of.placeholder {
			return foreign
		}
		q.set(name, value)
		return nil
	}
	scheme, rest, _ := strings.Cut(field, " ")
	switch rest = strings.TrimLeft(rest, " "); {
	case b.As == Bearer && rest == b.of.placeholder && (strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "token")):
		q.set(name, scheme+" "+value)
		return nil
	case b.As == Basic && strings.EqualFold(scheme, "basic"):
		text, err := base64.StdEncoding.DecodeString(rest)
		user, password, ok := strings.Cut(string(text), ":")
		switch {
		case err != nil || !ok:
			return foreign
		case password == b.of.placeholder && (b.User == "" || user == b.User):
			password = value
		case user == b.of.placeholder && (password == "" || password == "x-oauth-basic") && b.User == "":
			user = value
		default:
			return foreign
		}
		q.set(name, "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
		return nil
	}
	return foreign
}

// parameters judges the query, and gives it what is bound to it.
func (q *request) parameters() error {
	named := map[string]*bound{}
	plain := slices.Clone(usualParameters)
	for _, b := range q.vault.hosts[q.to] {
		if b.As == Query {
			named[b.Name] = nil
			plain = append(plain, plainParameter(b.Name))
		}
	}
	for _, b := range q.scope {
		if b.As == Query {
			named[b.Name] = b
		}
	}
	out, changed := slices.Clone(q.query), false
	seen := map[string]bool{}
	if slices.ContainsFunc(q.query, func(part string) bool { return strings.Contains(part, ";") }) {
		return refuse(RuleForeign, "the query has a semicolon, at which some servers cut it, so that nobody can tell what its parameters are")
	}
	for i, part := range q.query {
		rawName, rawValue, _ := strings.Cut(part, "=")
		name, err1 := url.QueryUnescape(rawName)
		value, err2 := url.QueryUnescape(rawValue)
		b, known := named[name]
		if err1 == nil && !known && !slices.Contains(plain, plainParameter(name)) {
			continue
		}
		switch {
		case err1 != nil || err2 != nil || seen[name]:
			return refuse(RuleForeign, "the parameter %q is malformed or stands there twice", clip(rawName))
		case b == nil && (q.substituted(value, InQuery) || q.signed(name)):
		case b == nil:
			return refuse(RuleForeign, "the parameter %q holds a credential, and no secret is bound to it for %s", clip(name), q.to)
		case value != b.of.placeholder:
			return refuse(RuleForeign, "the parameter %q does not hold this sandbox's placeholder of %s", clip(name), b.of.name)
		default:
			key, err := q.vault.value(b.of)
			if err != nil {
				return err
			}
			out[i], q.query[i], changed = rawName+"="+url.QueryEscape(key), rawName, true
		}
		seen[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		b := named[name]
		if b == nil || seen[name] {
			continue
		}
		key, err := q.vault.value(b.of)
		if err != nil {
			return err
		}
		out, changed = append(out, url.QueryEscape(name)+"="+url.QueryEscape(key)), true
	}
	if changed {
		query := strings.Join(out, "&")
		q.grant.query = &query
	}
	return nil
}

// substitute puts a secret in the place of its placeholder wherever a binding of
// that form says.
func (q *request) substitute(b *bound) error {
	value, err := q.vault.value(b.of)
	if err != nil {
		return err
	}
	placeholder := b.of.placeholder
	for _, place := range b.In {
		switch place {
		case InHeader:
			for name, values := range q.header {
				if len(values) == 1 && mayHold(name) && strings.Contains(values[0], placeholder) {
					now := values[0]
					if set := q.grant.header[name]; len(set) > 0 { // by another binding
						now = set[0]
					}
					q.grant.header[name] = []string{strings.ReplaceAll(now, placeholder, value)}
					q.header[name] = []string{strings.ReplaceAll(values[0], placeholder, "")}
				}
			}
		case InPath:
			if path := q.path; strings.Contains(path, placeholder) {
				if q.grant.path != nil {
					path = *q.grant.path
				}
				out := strings.ReplaceAll(path, placeholder, url.PathEscape(value))
				q.put = append(q.put, b)
				q.grant.path, q.path = &out, strings.ReplaceAll(q.path, placeholder, "")
			}
		case InQuery:
			if q.substituteQuery(placeholder, value) {
				q.put = append(q.put, b)
			}
		case InBody:
			q.grant.replace = append(q.grant.replace, exchange{placeholder, value})
		}
	}
	return nil
}

// substituteQuery reports whether the query had the placeholder.
func (q *request) substituteQuery(placeholder, value string) (had bool) {
	query := strings.Join(q.query, "&")
	if q.grant.query != nil {
		query = *q.grant.query
	}
	before := query
	for _, form := range []string{placeholder, url.QueryEscape(placeholder), url.PathEscape(placeholder)} {
		query = strings.ReplaceAll(query, form, url.QueryEscape(value))
		for i, part := range q.query {
			q.query[i] = strings.ReplaceAll(part, form, "")
		}
	}
	q.grant.query = &query
	return query != before
}

// leaks refuses a head in which a placeholder is left that nothing explained.
func (q *request) leaks(r *http.Request) error {
	var head strings.Builder
	add := func(s string) {
		head.WriteString(s)
		head.WriteByte('\n')
	}
	query := strings.Join(q.query, "&")
	for _, s := range []string{r.Method, r.Host, q.path, query} {
		add(s)
	}
	for _, s := range []string{q.path, query} {
		if plain := unescape(s); plain != s {
			add(plain)
		}
	}
	for name, values := range q.header {
		add(name)
		for _, value := range values {
			add(value)
			if scheme, rest, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "basic") {
				if plain, err := base64.StdEncoding.DecodeString(strings.TrimLeft(rest, " ")); err == nil {
					add(string(plain))
				}
			}
		}
	}
	return q.vault.leak(head.String())
}

// leak is the *Refusal of a text that has a placeholder; nil when it has none.
func (v *Vault) leak(text string) error {
	if v.placeholders.String(text) != text {
		return refuse(RuleLeak, "the placeholder of a secret stands where that secret may not go")
	}
	for _, h := range v.secrets {
		switch found, many := h.shape.within(v.key, text); {
		case found:
			return refuse(RuleLeak, "the placeholder of another sandbox's secret is in the request")
		case many:
			return refuse(RuleForm, "the head of the request has too much that could be a placeholder")
		}
	}
	return nil
}

// clip bounds what a reason shows of a request.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Apply gives the request that goes out what the grant has. path is its raw path.
func (g *Grant) Apply(out *http.Request, path string) error {
	if g == nil {
		return nil
	}
	for name, values := range g.header {
		if values == nil {
			out.Header.Del(name)
			continue
		}
		out.Header[name] = values
	}
	if g.path != nil {
		path = *g.path
		out.URL.Opaque = path
	}
	if g.query != nil {
		out.URL.RawQuery = *g.query
	}
	out.Header.Del("Sec-Websocket-Extensions") // what is packed cannot be looked through
	out.Trailer = nil                          // nobody looks through it
	g.vault.limitEncodings(out.Header)
	g.guard(out)
	made, err := g.sign.apply(out, path)
	if made != "" { // whoever has it can repeat the request from elsewhere
		g.signature = secret.NewMasker(secret.New("signature", made))
	}
	return err
}
