package leak

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// modelControls show that what is allowed works.
func (a Aim) modelControls() (list []way) {
	for _, c := range a.calls() {
		title := "allowed: " + titles[c.api]
		list = append(list, a.every(title, []Outcome{Welcome}, c.inquiry(""))...)
		list = append(list, a.every(title+", streamed", []Outcome{Welcome}, c.streamed())...)
		list = append(list, a.every(title+", with a tool that the client runs", []Outcome{Welcome}, c.inquiry(c.own()))...)
	}
	for _, h := range a.Cage.Hosts {
		if h.List {
			list = append(list, a.every("allowed: the list of models", []Outcome{Welcome}, inquiry{method: http.MethodGet, host: h, path: h.Base + "/models"})...)
		}
	}
	return list
}

// modelEchoes have the server send the key back, in a text and in a field.
func (a Aim) modelEchoes() (list []way) {
	for _, form := range []string{"plain", "base64", "hexadecimal", "percent", "field", "stream"} {
		r := a.first().inquiry("")
		if form == "stream" {
			r = a.first().streamed()
		}
		r.method, r.fields = http.MethodPost, []string{OrderField, "echo " + form}
		for _, route := range lanes {
			list = append(list, by("", "the key sent back, "+form+", by "+route.name, fmt.Sprintf("POST https://%s%s by %s", r.host.Name, r.path, route.name), []Outcome{Masked}, func(ctx context.Context, p *probe) seen {
				got, err := p.ask(ctx, route, r)
				if err != nil {
					return cut(err)
				}
				var all strings.Builder
				_ = got.Header.Write(&all) // never fails
				all.WriteString(got.body)
				_, found, _ := NewFinder(p.aim.Cage.Search.Traces...).Find(strings.NewReader(all.String()))
				maps.DeleteFunc(found, func(name, _ string) bool { return !isKey(name) })
				switch {
				case len(found) > 0:
					return seen{outcome: Leaked, words: fmt.Sprint(found)}
				case !strings.Contains(all.String(), "[secret:"):
					return open("there is no mark where the key was: %s", firstLine(all.String()))
				}
				return seen{outcome: Masked, words: firstLine(got.body)}
			}))
		}
	}
	return list
}

// modelForeign puts another's key into every slot.
func (a Aim) modelForeign() (list []way) {
	c, key := a.first(), a.Cage.Foreign
	refused := []Outcome{foreign}
	for _, f := range []struct {
		name   string
		bare   bool
		query  string
		fields []string
	}{
		{"in its place", true, "", c.host.carries(key)},
		{"beside the right one", false, "", c.host.carries(key)[:2]},
		{"behind the right one", true, "", c.host.carries(c.host.Placeholder + ", " + c.host.carries(key)[1])},
		{"as the bearer", true, "", []string{"Authorization", "Bearer " + key}},
		{"as a password", true, "", []string{"Authorization", basic("me", key)}},
		{"in X-Api-Key", false, "", []string{"X-Api-Key", key}},
		{"in Api-Key", false, "", []string{"Api-Key", key}},
		{"in X-Goog-Api-Key", false, "", []string{"X-Goog-Api-Key", key}},
		{"in Proxy-Authorization", false, "", []string{"Proxy-Authorization", "Bearer " + key}},
		{"in X-Auth-Token", false, "", []string{"X-Auth-Token", key}},
		{"in a name with an underscore", false, "", []string{"X_Api_Key", key}},
		{"in OpenAI-Api-Key", false, "", []string{"OpenAI-Api-Key", key}},
		{"in the query, key", false, "?key=" + key, nil},
		{"in the query, api_key", false, "?api_key=" + key, nil},
		{"in the query, access_token, escaped", false, "?access%5ftoken=" + key, nil},
		{"in OpenAI-Organization", false, "", []string{"OpenAI-Organization", "org-" + key[4:]}},
		{"in OpenAI-Project", false, "", []string{"OpenAI-Project", "proj_" + key[4:]}},
	} {
		q := c.inquiry("")
		q.path, q.bare, q.fields = q.path+f.query, f.bare, f.fields
		list = append(list, a.every("another's key "+f.name, refused, q)...)
	}
	to := func(name string, api API, bare bool, query string, fields ...string) {
		if c, ok := a.of(api); ok {
			q := c.inquiry("")
			q.path, q.bare, q.fields = q.path+query, bare, fields
			list = append(list, a.every(name, refused, q)...)
		}
	}
	to("another's key for Anthropic", Messages, true, "", "X-Api-Key", key)
	to("another's key for Anthropic, as the bearer", Messages, false, "", "Authorization", "Bearer "+key)
	to("another's project of Google", Gemini, false, "", "X-Goog-User-Project", key[4:])
	to("another's key for Google, in the query", Gemini, true, "?key="+key)
	// What cannot be told whose it is, is taken out: the server says that it came without.
	q := c.inquiry("")
	q.fields = []string{"Cookie", "session=" + key}
	return append(list, a.every("another's key in a cookie, which is taken out", []Outcome{Welcome}, q)...)
}

// modelPlaceholders put a placeholder where its key may not go.
func (a Aim) modelPlaceholders() (list []way) {
	c := a.first()
	key := c.host.Placeholder
	no := []Outcome{leaked}
	in := func(name, text string) {
		list = append(list, a.every("the placeholder in what its own vendor is told, "+name, []Outcome{Welcome}, c.inquiry(c.note(text)))...)
	}
	in("as it is", key)
	in("in base64", base64.StdEncoding.EncodeToString([]byte(key)))
	in("in base64 with what is before", base64.StdEncoding.EncodeToString([]byte("k="+key)))
	in("in hexadecimal", hex.EncodeToString([]byte(key)))
	in("percent-encoded", url.QueryEscape(key))
	in("escaped as PHP does in JSON", strings.ReplaceAll(key, "/", `\/`))
	refused := []Outcome{leaked, foreign}
	for _, f := range []struct {
		name, query string
		want        []Outcome
		fields      []string
	}{
		{"in another field", "", no, []string{"X-Note", key}},
		{"in User-Agent", "", no, []string{"User-Agent", "agent/" + key}},
		{"in another field, in base64", "", no, []string{"X-Note", base64.StdEncoding.EncodeToString([]byte(key))}},
		{"in another field, in hexadecimal", "", no, []string{"X-Note", hex.EncodeToString([]byte(key))}},
		{"in the query", "?note=" + url.QueryEscape(key), no, nil},
		{"in another field for keys", "", refused, []string{c.strange(), key}},
	} {
		q := c.inquiry("")
		q.path, q.fields = q.path+f.query, f.fields
		list = append(list, a.every("the placeholder "+f.name, f.want, q)...)
	}
	for _, other := range a.calls() {
		if other.host.Name == c.host.Name {
			continue
		}
		q := other.inquiry("")
		q.bare, q.fields = true, other.host.carries(key)
		list = append(list, a.every("the placeholder to another vendor, as its key", refused, q)...)
		q.bare, q.fields = false, []string{other.strange(), "Bearer " + key}
		list = append(list, a.every("the placeholder to another vendor, in another field for keys", refused, q)...)
		return append(list, a.every("the placeholder to another vendor, in a body", no, other.inquiry(other.note(key)))...)
	}
	// Nobody else may be asked.
	q := c.inquiry("")
	q.host.Name = a.another()
	return append(list, a.by(lanes[0], "the placeholder to another vendor", []Outcome{modelHost}, q), a.by(lanes[1], "the placeholder to another vendor", []Outcome{NoName}, q))
}

// strange is a field for keys that the call has none in.
func (c modelCall) strange() string {
	if c.host.Field == "" {
		return "X-Api-Key"
	}
	return "Authorization"
}

// another is the name of another vendor.
func (a Aim) another() string {
	hosts := a.Cage.Hosts
	switch {
	case len(hosts) > 1:
		return hosts[1].Name
	case hosts[0].Name == "api.openai.com":
		return "api.anthropic.com"
	}
	return "api.openai.com"
}

// needless is a request that no agent needs. Its path is behind ModelHost.Base.
type needless struct{ method, path string }

const get, post, del, put = http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodPut

// needlessCalls are those of OpenAI's protocols, of Anthropic's and of Google's.
var needlessCalls = map[API][]needless{
	Chat: {{get, "/files"}, {post, "/files"}, {get, "/files/file-1/content"}, {del, "/files/file-1"}, {post, "/uploads"},
		{post, "/batches"}, {get, "/batches"}, {post, "/fine_tuning/jobs"}, {post, "/assistants"}, {post, "/threads/runs"},
		{post, "/vector_stores"}, {post, "/images/generations"}, {post, "/audio/transcriptions"}, {post, "/embeddings"}, {post, "/evals"},
		{post, "/containers"}, {post, "/conversations"}, {post, "/realtime/sessions"}, {post, "/organization/admin_api_keys"}, {post, "/completions"},
		{get, "/responses/resp_1"}, {del, "/responses/resp_1"}, {del, "/models"}, {get, "/models/other"}},
	Messages: {{post, "/v1/messages/batches"}, {post, "/v1/files"}, {post, "/v1/complete"}, {get, "/v1/organizations/api_keys"}, {post, "/v1/skills"}},
	Gemini:   {{post, "/v1beta/cachedContents"}, {post, "/upload/v1beta/files"}, {get, "/v1beta/files"}, {post, "/v1beta/tunedModels"}, {post, "/v1beta/corpora"}},
}

// modelCalls are requests that no agent needs.
func (a Aim) modelCalls() (list []way) {
	no := []Outcome{modelPath}
	add := func(host ModelHost, method, path string) {
		q := inquiry{method: method, host: host, path: path}
		if method == post || method == put {
			q.body = `{"note":"` + mark + `"}`
		}
		name := method + " " + path + " of " + host.Name
		list = append(list, a.by(lanes[0], name, no, q), a.by(lanes[1], name, no, q))
	}
	for _, h := range a.Cage.Hosts {
		family := h.APIs[0]
		if family == Responses {
			family = Chat
		}
		for _, r := range needlessCalls[family] {
			add(h, r.method, h.Base+r.path)
		}
		for _, api := range []API{Chat, Responses} {
			if family == Chat && !slices.Contains(h.APIs, api) {
				add(h, post, h.path(api, ""))
			}
		}
		if family == Chat && !h.List {
			add(h, get, h.Base+"/models")
		}
	}
	c := a.first()
	for _, method := range []string{get, put, del, "PATCH", "TRACE", "OPTIONS"} {
		add(c.host, method, c.path())
	}
	add(c.host, get, "/")
	if c, ok := a.of(Gemini); ok {
		q := c.inquiry("")
		q.path = strings.Replace(q.path, ":generate", ":batchGenerate", 1)
		list = append(list, a.every("a method of Google's models that is none of the calls", []Outcome{Asked, modelPath}, q)...)
	}
	return append(list, a.modelSpellings()...)
}

// modelSpellings are paths that are not plain, which have no reading that all servers
// share, and requests that ask for another one.
func (a Aim) modelSpellings() (list []way) {
	c := a.first()
	path, root := c.path(), c.host.root()
	odd := []Outcome{modelPath, modelHost, BadRequest, "http.path"}
	if c.api == Gemini {
		odd = append(odd, Asked, NoModel) // its path names the model, and what it is to do
	}
	last := strings.LastIndex(path, "/")
	for _, path := range []string{path + "/../../files", path + "/%2e%2e/%2e%2e/files", root + "//files", "/" + root + "/files", path + "/", path + ";a=b", path[:last] + "%2f" + path[last+1:], root + "%2ffiles", path + "%00", path + "%3fa",
		strings.ToUpper(path), root + "/./files", path[:last] + "/..%5c..%5cfiles"} {
		q := c.inquiry("")
		q.path = path
		list = append(list, a.by(lanes[0], "a path in another spelling, "+path, odd, q), a.by(lanes[1], "a path in another spelling, "+path, odd, q))
	}
	overridden := []Outcome{modelPath, foreign, leaked}
	for _, f := range [][]string{{"X-HTTP-Method-Override", "DELETE"}, {"X-Method-Override", "PUT"}, {"X-HTTP-Method", "DELETE"}, {"X-Original-URL", "/v1/files"}, {"X-Rewrite-URL", "/v1/files"}} {
		q := c.inquiry("")
		q.fields = f
		list = append(list, a.every("another request in "+f[0], overridden, q)...)
	}
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "cmVpbiBsYWIgYTYgcmVpbg=="}
	paths := []string{path, root + "/realtime"}
	if c, ok := a.of(Responses); ok && c.path() != path {
		paths = append(paths, c.path())
	}
	for _, path := range paths {
		for _, route := range []lane{lanes[0], lanes[2]} {
			list = append(list, a.by(route, "a WebSocket to "+path, []Outcome{modelPath}, inquiry{method: get, host: c.host, path: path, fields: upgrade}))
		}
	}
	return list
}

// modelHosts are other hosts, at the door and in TLS.
func (a Aim) modelHosts() (list []way) {
	c, own := a.first(), a.first().host.Name
	no := []Outcome{modelHost, BadRequest, "http.framing"}
	to := func(name string) inquiry {
		q := c.inquiry("")
		q.host.Name = name
		return q
	}
	for _, name := range []string{outside, "evil." + own, strings.ToUpper(own), own + ".", own + ":443", own + ":8443", "x@" + own, own + "@" + outside, "127.0.0.1", fmt.Sprintf("127.0.0.1:%d", a.Cage.Upstream), "localhost", "[::1]", "169.254.169.254", "chatgpt.com", "files.openai.com", "..", fmt.Sprintf("%%%x", own[0]) + own[1:], ""} {
		list = append(list, a.door("the door to "+short(name), no, to(name))...)
	}
	door := a.Cage.Door.String()
	whole := func(target string) string {
		body := strings.ReplaceAll(c.body(""), mark, Marker(a.Token, "x"))
		return "POST " + target + " HTTP/1.1\r\nHost: " + door + "\r\n" + lines(c.host.carries(c.host.Placeholder)) + ProbeField + ": " + mark + "\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body
	}
	for _, t := range []string{"http://" + outside + c.path(), "https://" + outside + "/" + own + "/../" + c.path(), "http://127.0.0.1" + c.path(), "*", outside + ":443"} {
		list = append(list, a.raw("the door as a proxy to "+t, no, c.host, whole(t))[0])
	}
	list = append(list, a.raw("CONNECT at the door", no, c.host, "CONNECT "+outside+":443 HTTP/1.1\r\nHost: "+outside+":443\r\n\r\n")[0])
	// Another name on a connection to this one.
	mixed := []Outcome{"http.host", BadRequest, modelHost}
	for _, host := range []string{outside, a.another(), "127.0.0.1", own + ":8443", "x@" + own} {
		for _, route := range lanes[1:] {
			if !route.old && strings.Contains(host, "@") {
				continue // which clients do not send over HTTP/2
			}
			q := c.inquiry("")
			q.fields = []string{"Host", host}
			list = append(list, a.by(route, "Host: "+host, mixed, q))
		}
	}
	for _, name := range []string{"evil." + own, "chatgpt.com", "auth.openai.com", "console.anthropic.com", "statsig.anthropic.com", "play.googleapis.com"} {
		list = append(list, a.by(lanes[1], "TLS to "+name, []Outcome{NoName}, to(name)))
	}
	return list
}

// lines are fields as HTTP/1.1 has them.
func lines(fields []string) string {
	var b strings.Builder
	for i := 0; i+1 < len(fields); i += 2 {
		b.WriteString(fields[i] + ": " + fields[i+1] + "\r\n")
	}
	return b.String()
}

// modelBeside reaches for the hosts by other ways than theirs.
func (a Aim) modelBeside() (list []way) {
	c, own := a.Cage, a.first().host.Name
	gone := []Outcome{Reset, Unreachable}
	for _, g := range append([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}, a.Gateway...) {
		list = append(list, say("the model's server at "+g.String(), netip.AddrPortFrom(g, c.Upstream).String(), "GET / HTTP/1.1\r\n\r\n", gone))
	}
	for _, s := range a.Sinks {
		list = append(list, say("the model's server at "+s.Addr().String(), netip.AddrPortFrom(s.Addr(), c.Upstream).String(), "GET / HTTP/1.1\r\n\r\n", gone))
	}
	for _, port := range []string{"80", "8443", "22"} {
		list = append(list, say(own+" port "+port, own+":"+port, "GET / HTTP/1.1\r\n\r\n", gone))
	}
	gateway := netip.AddrPortFrom(a.Gateway[0], proxyPort).String()
	refusal := []Outcome{Reset, Unreachable, Page, BadRequest}
	for _, target := range []string{own + ":80", fmt.Sprintf("127.0.0.1:%d", c.Upstream), fmt.Sprintf("localhost:%d", c.Upstream), c.Door.String(), outside + ":443"} {
		list = append(list, connectBy("CONNECT at the proxy, to "+target, gateway, target))
	}
	return append(list, request("the proxy, http to "+own, "http://"+own+a.first().path(), refusal, "", gateway))
}
