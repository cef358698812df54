package egress_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/internal/modelserver"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/secret"
)

// pinged is a request of Chat Completions, and ponged its answer.
const (
	pinged = `{ "model":"demo",  "messages":[{"role":"user","content":"p\u0069ng"}] , "max_completion_tokens": 5 }`
	ponged = `{"id":"1","object":"chat.completion","model":"demo","choices":[{"index":0,"message":{"role":"assistant","content":"pong"},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":40}}}`
	chatPath = "/v1/chat/completions"
)

// vendor is a server of models that notes what it is asked.
type vendor struct {
	answer func(http.ResponseWriter, *http.Request) // nil: ponged

	mu    sync.Mutex
	asked []*http.Request
	body  [][]byte
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	v.mu.Lock()
	if v.asked, v.body = append(v.asked, r), append(v.body, b); err != nil {
		v.body[len(v.body)-1] = []byte(err.Error())
	}
	v.mu.Unlock()
	if v.answer != nil {
		v.answer(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, ponged)
}

// one is the only request that came.
func (v *vendor) one(t testing.TB) (*http.Request, string) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.asked) != 1 {
		t.Fatalf("%d requests came, not one", len(v.asked))
	}
	return v.asked[0], string(v.body[0])
}

// none came.
func (v *vendor) none(t testing.TB, what string) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.asked) > 0 {
		t.Errorf("%s: %s %s with %q came", what, v.asked[0].Method, v.asked[0].URL, v.body[0])
	}
}

// post asks with the placeholder, and other fields where they are given.
func (m *metered) post(t testing.TB, url, body string, field ...string) (*http.Response, string) {
	t.Helper()
	return m.send(t, "POST", url, strings.NewReader(body), field...)
}

func (m *metered) send(t testing.TB, method, url string, in io.Reader, field ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, in)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+m.placeholder)
	for i := 0; i < len(field); i += 2 {
		if r.Header.Set(field[i], field[i+1]); field[i+1] == "" {
			r.Header.Del(field[i])
		}
	}
	res, err := m.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return res, body(t, res, nil)
}

// What the vendor is sent is what the client sent, but for the key and the cap.
func TestModelsGetWhatWasSent(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, pinged)
	z.Close()
	capped := strings.Replace(pinged, ": 5 }", ": 5000 }", 1)
	for _, route := range []string{throughDoor, throughTLS} {
		for _, c := range []struct {
			name, sent, want string
			field            []string
		}{
			{"as it is", pinged, pinged, nil},
			{"with a lower cap", capped, strings.Replace(capped, "5000", "1000", 1), nil},
			{"packed", packed.String(), packed.String(), []string{"Content-Encoding", "gzip"}},
			{"expecting", pinged, pinged, []string{"Expect", "100-continue"}},
		} {
			t.Run(route[:5]+" "+c.name, func(t *testing.T) {
				t.Parallel()
				v := &vendor{}
				m := meteredTo(t, v, "", nil)
				res, text := m.post(t, route+chatPath+"", c.sent, append([]string{"User-Agent", "agent/1", "X-Stainless-Lang", "js"}, c.field...)...)
				if res.StatusCode != 200 || text != ponged {
					t.Fatalf("%s: %s; recorded %+v", res.Status, text, m.rec.all())
				}
				r, got := v.one(t)
				if got != c.want || r.ContentLength != int64(len(c.want)) || r.TransferEncoding != nil {
					t.Errorf("the body that came has %d bytes:\n%q, want\n%q", r.ContentLength, got, c.want)
				}
				if r.URL.RequestURI() != chatPath+"" || r.Host != modelName || r.Header.Get("User-Agent") != "agent/1" || r.Header.Get("X-Stainless-Lang") != "js" ||
					r.Header.Get("Authorization") != "Bearer "+modelKey || r.Header.Get("Content-Encoding") != encodingOf(c.field) || r.Header.Get("Expect") != "" {
					t.Errorf("what came is for %s%s: %v", r.Host, r.URL.RequestURI(), r.Header)
				}
				e := m.meter.wait(t, 1)[0]
				if (e.Usage != inference.Usage{Known: true, Input: 100, Cached: 40, Output: 20}) || e.Cut || !e.Sent {
					t.Errorf("the meter was told %+v", e)
				}
			})
		}
	}
}

func encodingOf(field []string) string {
	if len(field) == 2 && field[0] == "Content-Encoding" {
		return field[1]
	}
	return ""
}

// What came packed and is changed goes unpacked, and what came in pieces goes
// whole.
func TestModelsGetBodiesWhole(t *testing.T) {
	t.Parallel()
	v := &vendor{}
	m := meteredTo(t, v, "", nil)
	capped := strings.Replace(pinged, ": 5 }", ": 5000 }", 1)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, capped)
	z.Close()
	in, out := io.Pipe()
	go func() { // in chunks
		for _, b := range packed.Bytes() {
			out.Write([]byte{b})
		}
		out.Close()
	}()
	if res, text := m.send(t, "POST", throughDoor+chatPath, in, "Content-Encoding", "gzip"); res.StatusCode != 200 {
		t.Fatalf("%s: %s", res.Status, text)
	}
	r, got := v.one(t)
	if want := strings.Replace(capped, "5000", "1000", 1); got != want || r.ContentLength != int64(len(want)) || r.Header.Get("Content-Encoding") != "" {
		t.Errorf("what came is %q, %v", got, r.Header)
	}
}

// commented is a packed text with something in its head that is no part of the text.
func commented(t *testing.T, text, comment string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Comment = comment
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What may not be asked goes nowhere, is told, and is recorded.
func TestModelsRefuse(t *testing.T) {
	t.Parallel()
	v := &vendor{}
	m := meteredTo(t, v, "", nil)
	const foreign = "sk-proj-ZYXWvutsRQPOnmlkJIHGfedcba9876543210zyxw"
	for _, c := range []struct {
		name, method, path, body string
		field                    []string
		rule                     string
	}{
		{"another path", "POST", "/v1/files", pinged, nil, "models.path"},
		{"another method", "PUT", chatPath, pinged, nil, "models.path"},
		{"beside the path", "POST", "/v1//chat/completions", pinged, nil, "models.path"},
		{"an escaped path", "POST", "/v1/%63hat/completions", pinged, nil, "models.path"},
		{"out of the path", "POST", "/v1beta/models/../files", pinged, nil, "models.path"},
		{"another method in a field", "POST", chatPath, pinged, []string{"X-HTTP-Method-Override", "POST"}, "models.path"},
		{"another path in a field", "POST", chatPath, pinged, []string{"X-Original-URL", "/v1/files"}, "models.path"},
		{"a body where none is", "GET", "/v1/models", pinged, nil, "models.body"},
		{"a WebSocket", "GET", "/v1/models", "", []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}, "models.path"},
		{"another model", "POST", chatPath, strings.Replace(pinged, "demo", "other", 1), nil, "models.model"},
		{"no JSON", "POST", chatPath, "model=demo", nil, "models.form"},
		{"an unknown coding", "POST", chatPath, pinged, []string{"Content-Encoding", "compress"}, "models.body"},
		{"no coding", "POST", chatPath, pinged, []string{"Content-Encoding", "gzip"}, "models.body"},
		{"another key", "POST", chatPath, pinged, []string{"Authorization", "Bearer " + foreign}, "vault.foreign"},
		{"another key beside", "POST", chatPath, pinged, []string{"X-Api-Key", foreign}, "vault.foreign"},
		{"another key in the query", "POST", chatPath + "?key=" + foreign, pinged, nil, "vault.foreign"},
		{"another's placeholder in the body", "POST", chatPath, strings.Replace(pinged, "p\\u0069ng", m.elsewhere, 1), nil, "vault.leak"},
		{"another's placeholder beside a packed body", "POST", chatPath, commented(t, pinged, m.elsewhere), []string{"Content-Encoding", "gzip"}, "vault.leak"},
		{"another's placeholder as the key", "POST", chatPath, pinged, []string{"Authorization", "Bearer " + m.elsewhere}, "vault.leak"},
		{"the placeholder in the query", "POST", chatPath + "?a=" + m.placeholder, pinged, nil, "vault.leak"},
	} {
		for _, route := range []string{throughDoor, throughTLS} {
			if c.name == "a WebSocket" && route == throughTLS {
				continue // HTTP/2 has no such upgrade
			}
			before := len(m.rec.all())
			res, text := m.send(t, c.method, route+c.path, strings.NewReader(c.body), c.field...)
			if res.StatusCode/100 != 4 || strings.Contains(text, modelKey) {
				t.Errorf("%s, %s: %s: %s", c.name, route, res.Status, text)
			}
			a := m.rec.wait(t, func(a egress.Attempt) bool {
				return a.Verdict == "deny" && a.Rule == c.rule && len(m.rec.all()) > before
			})
			if a.Name != modelName || a.Port != 443 || a.Proto != policy.HTTPS {
				t.Errorf("%s, %s: recorded %+v", c.name, route, a)
			}
			v.none(t, c.name)
		}
	}
	m.meter.wait(t, 0)
}

// Who prints an environment tells the model its own placeholder, which is worth
// nothing there: it passes as it is.
func TestModelsHearTheirOwnPlaceholder(t *testing.T) {
	t.Parallel()
	v := &vendor{}
	m := meteredTo(t, v, "", nil)
	body := strings.Replace(pinged, "p\\u0069ng", "KEY="+m.placeholder, 1)
	for _, route := range []string{throughDoor, throughTLS} {
		if res, text := m.post(t, route+chatPath, body); res.StatusCode != 200 {
			t.Errorf("%s: %s: %s", route, res.Status, text)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, b := range v.body {
		if !strings.Contains(string(b), "KEY="+m.placeholder) || strings.Contains(string(b), modelKey) || v.asked[i].Header.Get("Authorization") != "Bearer "+modelKey {
			t.Errorf("%v: %s", v.asked[i].Header, b)
		}
	}
	if len(v.body) != 2 {
		t.Errorf("%d requests came", len(v.body))
	}
}

// A host of models is reached in no other way.
func TestModelsAreReachedByNoOtherWay(t *testing.T) {
	t.Parallel()
	v := &vendor{}
	m := meteredTo(t, v, "", func(o *egress.Options) {
		o.Policy = compile(t, policy.Document{Rules: []policy.Rule{
			{Host: modelName, Ports: []int{80}, Proto: "http"}, {Host: modelName, Ports: []int{8443}, Proto: "tls"},
			{Host: "alias.example.com", Ports: []int{443}, Proto: "tcp"}, {CIDR: "93.184.215.14/32", Ports: []int{443}, Proto: "tls"}}})
	})
	m.behind("alias.example.com", "93.184.215.14:443", m.servers[netip.MustParseAddrPort("93.184.215.14:443")])
	for _, to := range []struct {
		host string
		port int
		rule string
	}{{modelName, 80, "models.port"}, {modelName, 8443, "models.port"}, {"alias.example.com", 443, "models.beside"}} {
		if c, err := reach(t, m.ns, to.host, to.port); err == nil {
			c.Close()
			t.Errorf("%s:%d was reached", to.host, to.port)
		}
		m.rec.wait(t, func(a egress.Attempt) bool { return a.Rule == to.rule && a.Name == to.host && int(a.Port) == to.port })
	}
	if c, err := dialInside(m.ns, "93.184.215.14:443"); err == nil {
		c.Close()
		t.Error("its address was reached")
	}
	m.rec.wait(t, func(a egress.Attempt) bool {
		return a.Rule == "models.beside" && a.Address == netip.MustParseAddr("93.184.215.14") && a.Name == ""
	})
	v.none(t, "another way")
	for _, path := range []string{"/", "/other.example.com/v1/chat/completions", "/" + modelName} {
		if res, text := m.post(t, "http://10.88.0.1:3129"+path, pinged); res.StatusCode != 403 || !strings.Contains(text, "models.host") {
			t.Errorf("%s at the door: %s: %s", path, res.Status, text)
		}
	}
	// CONNECT leads to the same judgement.
	through := proxied(t, m.ns, "10.88.0.1:3128", &tls.Config{RootCAs: m.trust})
	r, err := http.NewRequest("POST", throughTLS+"/v1/files", strings.NewReader(pinged))
	if err != nil {
		t.Fatal(err)
	}
	res, err := through.Do(r)
	if text := body(t, res, err); err == nil && (res.StatusCode != 403 || !strings.Contains(text, "models.path")) {
		t.Errorf("through CONNECT: %s: %s", res.Status, text)
	}
	v.none(t, "through CONNECT")
}

// A rule that denies holds, also for one that came while the sandbox lived.
func TestModelsDenied(t *testing.T) {
	t.Parallel()
	v := &vendor{}
	m := meteredTo(t, v, "", nil)
	if res, text := m.post(t, throughDoor+chatPath, pinged); res.StatusCode != 200 {
		t.Fatalf("%s: %s", res.Status, text)
	}
	m.gateway.SetPolicy(compile(t, policy.Document{Rules: []policy.Rule{{Host: "*.example.com", Action: policy.ActionDeny}}}))
	if res, text := m.post(t, throughDoor+chatPath, pinged); res.StatusCode != 403 || !strings.Contains(text, "rules[0]") {
		t.Errorf("%s: %s", res.Status, text)
	}
	m.meter.wait(t, 1)
	v.one(t)
}

// Nobody to ask is no leave.
func TestModelsWithoutMeter(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*egress.Options){
		"none": func(o *egress.Options) { o.Meter = nil },
		"one that fails": func(o *egress.Options) {
			o.Meter.(*budgets).grant = func(context.Context, inference.Ask) (inference.Grant, error) {
				return inference.Grant{}, errors.New("gone")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &vendor{}
			m := meteredTo(t, v, "", change)
			if res, text := m.post(t, throughDoor+chatPath, pinged); res.StatusCode < 400 {
				t.Errorf("%s: %s", res.Status, text)
			}
			m.rec.wait(t, func(a egress.Attempt) bool { return a.Rule == "models.closed" && a.Name == modelName })
			v.none(t, name)
		})
	}
}

// When the budget is spent each vendor's client is told so that it gives up.
func TestModelsStopInVendorsWords(t *testing.T) {
	t.Parallel()
	for name, open := range wires {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := scripted(t, saying, modelserver.Options{})
			m := meteredTo(t, srv, "", func(o *egress.Options) {
				o.Meter.(*budgets).grant = func(context.Context, inference.Ask) (inference.Grant, error) {
					return inference.Grant{Stop: &inference.Stop{Code: inference.StopBudget, Reason: "the run has spent its 5 USD"}}, nil
				}
			})
			client, err := open(throughTLS, secret.New("placeholder", m.placeholder), m.client.Transport)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Generate(t.Context(), &model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "Do it."}}, MaxOutputTokens: 500}, nil)
			e, ok := errors.AsType[*model.Error](err)
			if !ok || !strings.Contains(err.Error(), "5 USD") {
				t.Fatalf("the client was told %v", err)
			}
			if e.Kind == model.KindUnavailable || e.Kind == model.KindRateLimit || e.Kind == model.KindOverloaded {
				t.Errorf("the client takes it for %s, and asks again: %v", e.Kind, err)
			}
			m.rec.wait(t, func(a egress.Attempt) bool { return a.Rule == "models.budget" && strings.Contains(a.Reason, "5 USD") })
			if n := srv.Seen().Count; n > 0 {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
}
