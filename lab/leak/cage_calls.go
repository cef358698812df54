package leak

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// modelControls show that what is allowed works.
func (a Aim) modelControls() (list []way) {
	c := a.Cage
	for _, g := range []struct {
		name string
		inquiry
	}{
		{"allowed: Chat Completions", inquiry{host: c.OpenAI, path: chatPath, body: a.chat("")}},
		{"allowed: Chat Completions, streamed", inquiry{host: c.OpenAI, path: chatPath, body: a.chat(`,"stream":true`)}},
		{"allowed: Responses", inquiry{host: c.OpenAI, path: responsesPath, body: a.responses("")}},
		{"allowed: Messages", inquiry{host: c.Anthropic, path: messagesPath, body: a.messages("")}},
		{"allowed: generateContent", inquiry{host: c.Google, path: a.generatePath(), body: a.generate("")}},
		{"allowed: the list of models", inquiry{method: http.MethodGet, host: c.OpenAI, path: "/v1/models"}},
		{"allowed: a tool that the client runs", inquiry{host: c.OpenAI, path: chatPath, body: a.chat(`,"tools":[{"type":"function","function":{"name":"shell"}}]`)}},
	} {
		list = append(list, a.every(g.name, []Outcome{Welcome}, g.inquiry)...)
	}
	return list
}

// modelEchoes have the server send the key back, in a text and in a field.
func (a Aim) modelEchoes() (list []way) {
	for _, form := range []string{"plain", "base64", "hexadecimal", "percent", "field", "stream"} {
		for _, route := range lanes {
			more := `,"user":"echo ` + form + `"`
			if form == "stream" {
				more += `,"stream":true`
			}
			r := inquiry{host: a.Cage.OpenAI, path: chatPath, body: a.chat(more), method: http.MethodPost}
			list = append(list, by("", "the key sent back, "+form+", by "+route.name, fmt.Sprintf("POST https://%s%s by %s", r.host.Name, r.path, route.name), []Outcome{Masked}, func(ctx context.Context, p *probe) seen {
				got, err := p.ask(ctx, route, r)
				if err != nil {
					return cut(err)
				}
				var all strings.Builder
				_ = got.Header.Write(&all) // never fails
				all.WriteString(got.body)
				_, found, _ := NewFinder(p.aim.Cage.Search.Traces...).Find(strings.NewReader(all.String()))
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
	c, key := a.Cage, a.Cage.Foreign
	refused := []Outcome{foreign}
	for _, f := range []struct {
		name   string
		bare   bool
		query  string
		fields []string
	}{
		{"as the bearer", true, "", []string{"Authorization", "Bearer " + key}},
		{"beside the right one", false, "", []string{"Authorization", "Bearer " + key}},
		{"behind the right one", true, "", []string{"Authorization", "Bearer " + c.OpenAI.Placeholder + ", Bearer " + key}},
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
		list = append(list, a.every("another's key "+f.name, refused, inquiry{host: c.OpenAI, path: chatPath + f.query, bare: f.bare, fields: f.fields, body: a.chat("")})...)
	}
	list = append(list, a.every("another's key for Anthropic", refused, inquiry{host: c.Anthropic, path: messagesPath, bare: true, fields: []string{"X-Api-Key", key}, body: a.messages("")})...)
	list = append(list, a.every("another's key for Anthropic, as the bearer", refused, inquiry{host: c.Anthropic, path: messagesPath, fields: []string{"Authorization", "Bearer " + key}, body: a.messages("")})...)
	list = append(list, a.every("another's project of Google", refused, inquiry{host: c.Google, path: a.generatePath(), fields: []string{"X-Goog-User-Project", key[4:]}, body: a.generate("")})...)
	list = append(list, a.every("another's key for Google, in the query", refused, inquiry{host: c.Google, path: a.generatePath() + "?key=" + key, bare: true, body: a.generate("")})...)
	// What cannot be told whose it is, is taken out: the server says that it came without.
	list = append(list, a.every("another's key in a cookie, which is taken out", []Outcome{Welcome}, inquiry{host: c.OpenAI, path: chatPath, fields: []string{"Cookie", "session=" + key}, body: a.chat("")})...)
	return list
}

// modelPlaceholders put a placeholder where its key may not go.
func (a Aim) modelPlaceholders() (list []way) {
	c := a.Cage
	key := c.OpenAI.Placeholder
	no := []Outcome{leaked}
	in := func(name, text string) {
		list = append(list, a.every("the placeholder in a body, "+name, no, inquiry{host: c.OpenAI, path: chatPath, body: a.chat(`,"user":"` + text + `"`)})...)
	}
	in("as it is", key)
	in("in base64", base64.StdEncoding.EncodeToString([]byte(key)))
	in("in base64 with what is before", base64.StdEncoding.EncodeToString([]byte("k="+key)))
	in("in hexadecimal", hex.EncodeToString([]byte(key)))
	in("percent-encoded", url.QueryEscape(key))
	in("escaped as PHP does in JSON", strings.ReplaceAll(key, "/", `\/`))
	for _, f := range []struct {
		name, query string
		fields      []string
	}{
		{"in another field", "", []string{"X-Note", key}},
		{"in User-Agent", "", []string{"User-Agent", "agent/" + key}},
		{"in another field, in base64", "", []string{"X-Note", base64.StdEncoding.EncodeToString([]byte(key))}},
		{"in another field, in hexadecimal", "", []string{"X-Note", hex.EncodeToString([]byte(key))}},
		{"in the query", "?note=" + url.QueryEscape(key), nil},
	} {
		list = append(list, a.every("the placeholder "+f.name, no, inquiry{host: c.OpenAI, path: chatPath + f.query, fields: f.fields, body: a.chat("")})...)
	}
	refused := []Outcome{leaked, foreign}
	list = append(list, a.every("the placeholder in X-Api-Key", refused, inquiry{host: c.OpenAI, path: chatPath, fields: []string{"X-Api-Key", key}, body: a.chat("")})...)
	list = append(list, a.every("the placeholder to another vendor, as its key", refused, inquiry{host: c.Anthropic, path: messagesPath, bare: true, fields: []string{"X-Api-Key", key}, body: a.messages("")})...)
	list = append(list, a.every("the placeholder to another vendor, as the bearer", refused, inquiry{host: c.Anthropic, path: messagesPath, fields: []string{"Authorization", "Bearer " + key}, body: a.messages("")})...)
	list = append(list, a.every("the placeholder to another vendor, in a body", no, inquiry{host: c.Anthropic, path: messagesPath, body: a.messages(`,"metadata":{"user_id":"` + key + `"}`)})...)
	return list
}

// modelCalls are requests that no agent needs.
func (a Aim) modelCalls() (list []way) {
	c := a.Cage
	no := []Outcome{modelPath}
	get, post, del, put := http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodPut
	for _, r := range []struct {
		method, path string
		host         ModelHost
	}{
		{get, "/v1/files", c.OpenAI}, {post, "/v1/files", c.OpenAI}, {get, "/v1/files/file-1/content", c.OpenAI}, {del, "/v1/files/file-1", c.OpenAI}, {post, "/v1/uploads", c.OpenAI},
		{post, "/v1/batches", c.OpenAI}, {get, "/v1/batches", c.OpenAI}, {post, "/v1/fine_tuning/jobs", c.OpenAI}, {post, "/v1/assistants", c.OpenAI}, {post, "/v1/threads/runs", c.OpenAI},
		{post, "/v1/vector_stores", c.OpenAI}, {post, "/v1/images/generations", c.OpenAI}, {post, "/v1/audio/transcriptions", c.OpenAI}, {post, "/v1/embeddings", c.OpenAI}, {post, "/v1/evals", c.OpenAI},
		{post, "/v1/containers", c.OpenAI}, {post, "/v1/conversations", c.OpenAI}, {post, "/v1/realtime/sessions", c.OpenAI}, {post, "/v1/organization/admin_api_keys", c.OpenAI}, {post, "/v1/completions", c.OpenAI},
		{get, "/v1/chat/completions", c.OpenAI}, {get, "/v1/responses/resp_1", c.OpenAI}, {del, "/v1/responses/resp_1", c.OpenAI}, {put, chatPath, c.OpenAI}, {del, "/v1/models", c.OpenAI}, {"PATCH", chatPath, c.OpenAI}, {"TRACE", chatPath, c.OpenAI}, {"OPTIONS", chatPath, c.OpenAI},
		{get, "/", c.OpenAI}, {get, "/v1/models/other", c.OpenAI},
		{post, "/v1/messages/batches", c.Anthropic}, {post, "/v1/files", c.Anthropic}, {post, "/v1/complete", c.Anthropic}, {get, "/v1/organizations/api_keys", c.Anthropic}, {post, "/v1/skills", c.Anthropic},
		{post, "/v1beta/cachedContents", c.Google}, {post, "/upload/v1beta/files", c.Google}, {get, "/v1beta/files", c.Google}, {post, "/v1beta/tunedModels", c.Google}, {post, "/v1beta/corpora", c.Google},
	} {
		q := inquiry{method: r.method, host: r.host, path: r.path}
		if r.method == post || r.method == put {
			q.body = `{"note":"` + mark + `"}`
		}
		name := r.method + " " + r.path + " of " + r.host.Name
		list = append(list, a.by(lanes[0], name, no, q), a.by(lanes[1], name, no, q))
	}
	list = append(list, a.every("a method of Google's models that is none of the calls", []Outcome{Asked, modelPath}, inquiry{host: c.Google, path: "/v1beta/models/" + c.Model + ":batchGenerateContent", body: a.generate("")})...)
	// Other spellings of paths: those that are not plain have no reading that all servers share.
	odd := []Outcome{modelPath, modelHost, BadRequest, "http.path"}
	for _, path := range []string{chatPath + "/../../files", chatPath + "/%2e%2e/%2e%2e/files", "/v1//files", "//v1/files", chatPath + "/", chatPath + ";a=b", "/v1/chat%2fcompletions", "/v1%2ffiles", chatPath + "%00", chatPath + "%3fa", "/V1/CHAT/COMPLETIONS", "/v1/./files", "/v1/chat/..%5c..%5cfiles"} {
		q := inquiry{host: c.OpenAI, path: path, body: a.chat("")}
		list = append(list, a.by(lanes[0], "a path in another spelling, "+path, odd, q), a.by(lanes[1], "a path in another spelling, "+path, odd, q))
	}
	overridden := []Outcome{modelPath, foreign, leaked}
	for _, f := range [][]string{{"X-HTTP-Method-Override", "DELETE"}, {"X-Method-Override", "PUT"}, {"X-HTTP-Method", "DELETE"}, {"X-Original-URL", "/v1/files"}, {"X-Rewrite-URL", "/v1/files"}} {
		list = append(list, a.every("another request in "+f[0], overridden, inquiry{host: c.OpenAI, path: chatPath, fields: f, body: a.chat("")})...)
	}
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "cmVpbiBsYWIgYTYgcmVpbg=="}
	for _, path := range []string{responsesPath, "/v1/realtime"} {
		for _, route := range []lane{lanes[0], lanes[2]} {
			list = append(list, a.by(route, "a WebSocket to "+path, no, inquiry{method: get, host: c.OpenAI, path: path, fields: upgrade}))
		}
	}
	return list
}

// modelHosts are other hosts, at the door and in TLS.
func (a Aim) modelHosts() (list []way) {
	c := a.Cage
	no := []Outcome{modelHost, BadRequest, "http.framing"}
	for _, name := range []string{outside, "evil." + c.OpenAI.Name, strings.ToUpper(c.OpenAI.Name), c.OpenAI.Name + ".", c.OpenAI.Name + ":443", c.OpenAI.Name + ":8443", "x@" + c.OpenAI.Name, c.OpenAI.Name + "@" + outside, "127.0.0.1", fmt.Sprintf("127.0.0.1:%d", c.Upstream), "localhost", "[::1]", "169.254.169.254", "chatgpt.com", "files.openai.com", "..", "%61" + c.OpenAI.Name[1:], ""} {
		q := inquiry{host: ModelHost{Name: name, Placeholder: c.OpenAI.Placeholder}, path: chatPath, body: a.chat("")}
		list = append(list, a.door("the door to "+short(name), no, q)...)
	}
	door := c.Door.String()
	whole := func(target string) string {
		body := strings.ReplaceAll(a.chat(""), mark, Marker(a.Token, "x"))
		return "POST " + target + " HTTP/1.1\r\nHost: " + door + "\r\nAuthorization: Bearer " + c.OpenAI.Placeholder + "\r\nX-Lab: " + mark + "\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body
	}
	for _, t := range []string{"http://" + outside + chatPath, "https://" + outside + "/" + c.OpenAI.Name + "/../" + chatPath, "http://127.0.0.1" + chatPath, "*", outside + ":443"} {
		list = append(list, a.raw("the door as a proxy to "+t, no, c.OpenAI, whole(t))[0])
	}
	list = append(list, a.raw("CONNECT at the door", no, c.OpenAI, "CONNECT "+outside+":443 HTTP/1.1\r\nHost: "+outside+":443\r\n\r\n")[0])
	// Another name on a connection to this one.
	mixed := []Outcome{"http.host", BadRequest, modelHost}
	for _, host := range []string{outside, c.Anthropic.Name, "127.0.0.1", c.OpenAI.Name + ":8443", "x@" + c.OpenAI.Name} {
		for _, route := range lanes[1:] {
			if !route.old && strings.Contains(host, "@") {
				continue // which clients do not send over HTTP/2
			}
			list = append(list, a.by(route, "Host: "+host, mixed, inquiry{host: c.OpenAI, path: chatPath, fields: []string{"Host", host}, body: a.chat("")}))
		}
	}
	noName := []Outcome{NoName}
	for _, name := range []string{"evil." + c.OpenAI.Name, "chatgpt.com", "auth.openai.com", "console.anthropic.com", "statsig.anthropic.com", "play.googleapis.com"} {
		list = append(list, a.by(lanes[1], "TLS to "+name, noName, inquiry{host: ModelHost{Name: name, Placeholder: c.OpenAI.Placeholder}, path: chatPath, body: a.chat("")}))
	}
	return list
}

// modelBeside reaches for the hosts by other ways than theirs.
func (a Aim) modelBeside() (list []way) {
	c := a.Cage
	gone := []Outcome{Reset, Unreachable}
	for _, g := range append([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}, a.Gateway...) {
		list = append(list, say("the model's server at "+g.String(), netip.AddrPortFrom(g, c.Upstream).String(), "GET / HTTP/1.1\r\n\r\n", gone))
	}
	for _, s := range a.Sinks {
		list = append(list, say("the model's server at "+s.Addr().String(), netip.AddrPortFrom(s.Addr(), c.Upstream).String(), "GET / HTTP/1.1\r\n\r\n", gone))
	}
	for _, port := range []string{"80", "8443", "22"} {
		list = append(list, say(c.OpenAI.Name+" port "+port, c.OpenAI.Name+":"+port, "GET / HTTP/1.1\r\n\r\n", gone))
	}
	gateway := netip.AddrPortFrom(a.Gateway[0], proxyPort).String()
	refusal := []Outcome{Reset, Unreachable, Page, BadRequest}
	for _, target := range []string{c.OpenAI.Name + ":80", fmt.Sprintf("127.0.0.1:%d", c.Upstream), fmt.Sprintf("localhost:%d", c.Upstream), c.Door.String(), outside + ":443"} {
		list = append(list, connectBy("CONNECT at the proxy, to "+target, gateway, target))
	}
	return append(list, request("the proxy, http to "+c.OpenAI.Name, "http://"+c.OpenAI.Name+chatPath, refusal, "", gateway))
}
