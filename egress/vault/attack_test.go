package vault

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/secret"
)

// A signature made again would let whoever sees it repeat the request from
// elsewhere: servers repeat it in errors and in where they redirect to.
func TestSignatureIsMasked(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", Binding{Host: "s3.example.org", As: AWS4, AccessKey: "AKIAIOSFODNN7EXAMPLE"}))
	s := &signing{scope: []string{"20260101", "us-east-1", "s3", "aws4_request"}, date: "20260101T000000Z", signed: []string{"host"},
		host: "s3.example.org", inQuery: true, payload: awsUnsigned}
	r, _ := http.NewRequest("GET", "https://s3.example.org/bucket/x", nil)
	r.URL.RawQuery = "X-Amz-Algorithm=" + awsAlgorithm + "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20260101%2Fus-east-1%2Fs3%2Faws4_request" +
		"&X-Amz-Date=" + s.date + "&X-Amz-SignedHeaders=host"
	made, err := s.make(r, r.URL.EscapedPath(), r.URL.RawQuery, v.Environment()["KEY"])
	if err != nil {
		t.Fatal(err)
	}
	r.URL.RawQuery += "&X-Amz-Signature=" + made
	g, err := v.Judge(Target{"s3.example.org", 443}, r, r.URL.EscapedPath())
	if err != nil {
		t.Fatal(err)
	}
	out := r.Clone(t.Context())
	if err := g.Apply(out, r.URL.EscapedPath()); err != nil {
		t.Fatal(err)
	}
	real := out.URL.Query().Get("X-Amz-Signature")
	if real == made || len(real) != 64 {
		t.Fatalf("signed with %q", real)
	}
	resp := &http.Response{StatusCode: 307, Request: out, ContentLength: -1,
		Header: http.Header{"Location": {"https://elsewhere.example.org/?" + out.URL.RawQuery}, "Content-Type": {"application/xml"}},
		Body:   io.NopCloser(strings.NewReader("<SignatureProvided>" + real + "</SignatureProvided>"))}
	if err := g.Answer(resp); err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	if strings.Contains(string(body)+resp.Header.Get("Location"), real) {
		t.Errorf("%s, %v", body, resp.Header)
	}
}

// A value that comes later is masked in every form, or not taken.
func TestRotateMasks(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one(ghKey, Binding{Host: "api.example.org", As: Bearer}))
	if err := v.Rotate("key", secret.New("key", "abc")); err == nil {
		t.Error("a value that cannot be masked was taken")
	}
	another := "ghp_" + strings.Repeat("x7Q2", (len(ghKey)-4)/4)
	if err := v.Rotate("key", secret.New("key", another)); err != nil {
		t.Fatal(err)
	}
	g := &Grant{vault: v, bound: true}
	wide := strings.Join(strings.Split(another, ""), "\x00") + "\x00"
	for _, text := range []string{ghKey, another, wide} {
		if got := g.Text(text); got == text {
			t.Errorf("%q is not masked", text)
		}
	}
}

// refusedBy is the rule by which a request is refused; "" when it passes.
func refusedBy(t *testing.T, v *Vault, to Target, r *http.Request) string {
	t.Helper()
	_, _, err := carried(v, to, r)
	refused, ok := errors.AsType[*Refusal](err)
	switch {
	case ok:
		return refused.Rule
	case err != nil:
		t.Fatal(err)
	}
	return ""
}

// A server that goes by other fields than the first line would use the secret
// for what it is not bound to.
func TestBoundByEveryReading(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one(ghKey, Binding{Host: "api.example.org", As: Bearer, Methods: []string{"GET"}, Paths: []string{"/v1/*"}}))
	for name, values := range map[string][2]string{
		"X-HTTP-Method-Override": {"GET", "DELETE"},
		"X_Http_Method":          {"get", "delete"},
		"X-Method-Override":      {"GET", "PUT"},
		"X-Original-URL":         {"/v1/y?a=b", "/admin"},
		"X-Rewrite-Url":          {"/v1/y", "/v1/../admin"},
	} {
		for i, want := range []string{"Bearer " + ghKey, ""} {
			r, _ := http.NewRequest("GET", "https://api.example.org/v1/x", nil)
			r.Header.Set(name, values[i])
			out, _, err := carried(v, Target{"api.example.org", 443}, r)
			if err != nil {
				t.Fatal(err)
			}
			if got := out.Header.Get("Authorization"); got != want {
				t.Errorf("%s: %s: given %q", name, values[i], got)
			}
		}
	}
}

// Credentials of somebody else are refused however their place is spelled.
func TestForeignSpellings(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one(ghKey, Binding{Host: "api.example.org", As: Query, Name: "appid"}))
	for _, query := range []string{"Access_Token=x", "access%5Ftoken=x", "access.token=x", "+access_token=x", "access_token%5B%5D=x", "access_token[]=x",
		"access_token%00=x", "access%20token=x", "AppId=x", "appid[]=x", "%u0061ccess_token=x", "access_token%=x", "client_secret=x", "auth=x", "sentry_key=x", "X-Oss-Signature=x"} {
		r, _ := http.NewRequest("GET", "https://api.example.org/v1/x", nil)
		r.URL.RawQuery = query
		if got := refusedBy(t, v, Target{"api.example.org", 443}, r); got != RuleForeign {
			t.Errorf("%s: %q", query, got)
		}
	}
	for _, field := range []string{"X.Api.Key", "X_Api_Key", "X-Nuget-Apikey", "X-Shopify-Access-Token", "Xi-Api-Key", "X-Jfrog-Art-Api", "X-Authorization",
		"X-Their-Secret", "X_Their_Secret", "Their-Api-Key", "X-Their-Credentials", "X-Registry-Auth"} {
		r, _ := http.NewRequest("GET", "https://api.example.org/v1/x", nil)
		r.Header[http.CanonicalHeaderKey(field)] = []string{"x"}
		if got := refusedBy(t, v, Target{"api.example.org", 443}, r); got != RuleForeign {
			t.Errorf("%s: %q", field, got)
		}
	}
	for _, protocols := range []string{"realtime, openai-insecure-api-key.abc", "base64url.bearer.authorization.k8s.io.YWJj"} {
		r, _ := http.NewRequest("GET", "https://api.example.org/v1/x", nil)
		r.Header.Set("Sec-WebSocket-Protocol", protocols)
		if got := refusedBy(t, v, Target{"api.example.org", 443}, r); got != RuleForeign {
			t.Errorf("%s: %q", protocols, got)
		}
	}
	for _, query := range []string{"", "q=token&page=2&sort[]=key", "a=%5B&b"} {
		r, _ := http.NewRequest("GET", "https://api.example.org/v1/x", nil)
		r.URL.RawQuery = query
		r.Header = http.Header{"Idempotency-Key": {"x"}, "Sec-Websocket-Key": {"x"}, "X-Csrf-Token": {"x"}, "X-Secret-Santa": {"x"}} // of no account
		if got := refusedBy(t, v, Target{"api.example.org", 443}, r); got != "" {
			t.Errorf("%s: %q", query, got)
		}
	}
}

// What waits behind the beginning of a placeholder is bounded.
func TestMessagesWaitBounded(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one(ghKey, Binding{Host: "api.example.org", As: Bearer}))
	begin := frame(0x01, v.Environment()["KEY"][:8])
	ping := frame(0x89, "")
	sent := 0
	endless := readerOf(func(p []byte) (int, error) {
		if sent += len(p); sent > 64<<20 {
			return 0, io.EOF
		}
		return copy(p, strings.Repeat(string(ping), len(p)/len(ping))), nil
	})
	g := &Grant{vault: v, bound: true}
	_, err := io.Copy(io.Discard, g.Messages(io.MultiReader(strings.NewReader(string(begin)), endless)))
	if _, ok := errors.AsType[*Refusal](err); !ok || sent > 4<<20 {
		t.Errorf("%v after %d bytes", err, sent)
	}
}

type readerOf func([]byte) (int, error)

func (f readerOf) Read(p []byte) (int, error) { return f(p) }

// A head full of what could be placeholders, which HTTP/2 has in a few bytes, is
// refused before it takes time.
func TestLeaksTakeNoTime(t *testing.T) {
	t.Parallel()
	for _, key := range []string{strings.Repeat("0123456789abcdef", 4), strings.Repeat("0123456789abcdef", 1000)} {
		v := vaultOf(t, one(key, Binding{Host: "api.example.org", As: Bearer}))
		for _, host := range []string{"api.example.org", "other.example.org"} {
			r, _ := http.NewRequest("GET", "https://"+host+"/", nil)
			for i := range 3 {
				r.Header.Set("X-Long-"+string(rune('A'+i)), strings.Repeat("ab12", 5000))
			}
			begin := time.Now()
			if rule := refusedBy(t, v, Target{host, 443}, r); rule != RuleForm {
				t.Errorf("%q", rule)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		}
	}
}

// A malformed escape somewhere does not hide a placeholder elsewhere.
func TestLeakBehindMalformedEscape(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one(ghKey, Binding{Host: "api.example.org", As: Bearer}))
	ph := v.Environment()["KEY"]
	for _, query := range []string{"a=%zz&q=%67" + ph[1:], "q=" + ph[:5] + "%" + hexOf(ph[5:6]) + ph[6:] + "&b=%"} {
		r, _ := http.NewRequest("GET", "https://other.example.org/", nil)
		r.URL.RawQuery = query
		if got := refusedBy(t, v, Target{"other.example.org", 443}, r); got != RuleLeak {
			t.Errorf("%s: %q", query, got)
		}
	}
}

// Bodies that are kept to be signed are bounded together, and are not counted any
// more when their requests have ended.
func TestSignedBodiesBounded(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", Binding{Host: "s3.example.org", As: AWS4, AccessKey: "AKIDEXAMPLE"}))
	try := func(ctx context.Context) error {
		r, _ := http.NewRequestWithContext(ctx, "PUT", "https://s3.example.org/x", strings.NewReader(strings.Repeat("x", 10<<20)))
		_, err := v.payloadOf(r, false, "s3")
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range 6 {
		if err := try(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		err := try(ctx)
		if refused, ok := errors.AsType[*Refusal](err); !ok || refused.Rule != RuleForm {
			t.Errorf("%v, want %s", err, RuleForm)
		}
	}
	cancel()
	for v.kept.Load() > 0 {
		runtime.Gosched()
	}
	if err := try(t.Context()); err != nil {
		t.Error(err)
	}
}

// Two secrets may stand in one place.
func TestSubstitutesTwo(t *testing.T) {
	t.Parallel()
	use := Binding{Host: "api.example.org", As: Substitute, In: []Place{InHeader, InPath, InQuery, InBody}}
	v := vaultOf(t, Secret{Name: "a", Value: secret.New("a", ghKey), Variable: "A", Use: []Binding{use}},
		Secret{Name: "b", Value: secret.New("b", apiKey), Variable: "B", Use: []Binding{use}})
	env := v.Environment()
	r, _ := http.NewRequest("POST", "https://api.example.org/"+env["A"]+"/"+env["B"]+"?q="+env["A"]+","+env["B"], strings.NewReader(env["A"]+":"+env["B"]))
	r.Header.Set("X-Mine", env["A"]+":"+env["B"])
	out, body, err := carried(v, Target{"api.example.org", 443}, r)
	if err != nil {
		t.Fatal(err)
	}
	both := ghKey + ":" + apiKey
	if out.Header.Get("X-Mine") != both || body != both || out.URL.Opaque != "/"+ghKey+"/"+apiKey || out.URL.RawQuery != "q="+ghKey+","+apiKey {
		t.Errorf("%q, %q, %q, %q", out.Header.Get("X-Mine"), body, out.URL.Opaque, out.URL.RawQuery)
	}
}

// The length of a body is said when it stays the same, in every form.
func TestSubstitutedLength(t *testing.T) {
	t.Parallel()
	const before, after = "secret+value/0123456789", "secret-value_0123456789"
	v := vaultOf(t, one(before, Binding{Host: "api.example.org", As: Substitute, In: []Place{InBody}}))
	if err := v.Rotate("key", secret.New("key", after)); err != nil {
		t.Fatal(err)
	}
	form := url.Values{"k": {v.Environment()["KEY"]}}.Encode()
	r, _ := http.NewRequest("POST", "https://api.example.org/", strings.NewReader(form))
	out, body, err := carried(v, Target{"api.example.org", 443}, r)
	if err != nil || body != "k="+after || out.ContentLength >= 0 && out.ContentLength != int64(len(body)) {
		t.Errorf("%q of %d bytes, %v", body, out.ContentLength, err)
	}
}

// A field that names another host does not go where a secret does.
func TestNoOtherHost(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one(ghKey, Binding{Host: "api.example.org", As: Bearer}))
	r, _ := http.NewRequest("GET", "https://api.example.org/", nil)
	names := []string{"X-Forwarded-Host", "X_forwarded_host", "Forwarded", "X-Host", "X-Original-Host"}
	for _, name := range names {
		r.Header.Set(name, "other.example.org")
	}
	out, _, err := carried(v, Target{"api.example.org", 443}, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if out.Header.Get(name) != "" {
			t.Errorf("%s: %s", name, out.Header.Get(name))
		}
	}
}

// An answer that has no body has none when its body would be packed.
func TestAnswerWithoutBody(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one(ghKey, Binding{Host: "api.example.org", As: Bearer}))
	for _, coding := range []string{"gzip", "deflate", "br", "zstd"} {
		resp := &http.Response{StatusCode: 304, ContentLength: 500, Body: http.NoBody,
			Header: http.Header{"Content-Type": {"text/html"}, "Content-Encoding": {coding}}}
		if err := (&Grant{vault: v, bound: true}).Answer(resp); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || len(b) > 0 {
			t.Errorf("%s: %q, %v", coding, b, err)
		}
	}
}

// Answers whose decoders take megabytes are unpacked so many at once and no more,
// and asked for no longer while there are many.
func TestWideAnswers(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one(ghKey, Binding{Host: "api.example.org", As: Bearer}))
	g := &Grant{vault: v, bound: true}
	answer := func(coding string) (*http.Response, error) {
		resp := &http.Response{StatusCode: 200, ContentLength: 500, Body: http.NoBody,
			Header: http.Header{"Content-Type": {"text/html"}, "Content-Encoding": {coding}}}
		return resp, g.Answer(resp)
	}
	asksFor := func() string {
		r, _ := http.NewRequest("GET", "https://api.example.org/", nil)
		r.Header.Set("Accept-Encoding", "gzip, br, zstd")
		if err := g.Apply(r, "/"); err != nil {
			t.Fatal(err)
		}
		return r.Header.Get("Accept-Encoding")
	}
	if got := asksFor(); got != "gzip, br, zstd" {
		t.Errorf("asks for %q", got)
	}
	var open []*http.Response
	for i := range maxWide {
		resp, err := answer([]string{"br", "zstd"}[i%2])
		if err != nil {
			t.Fatal(i, err)
		}
		open = append(open, resp)
	}
	if _, err := answer("zstd"); err == nil {
		t.Error("one more is unpacked")
	}
	if got := asksFor(); got != "gzip" {
		t.Errorf("asks for %q", got)
	}
	if resp, err := answer("gzip"); err != nil {
		t.Error(err)
	} else {
		resp.Body.Close()
	}
	open[0].Body.Close()
	open[0].Body.Close()
	for i, fails := range []bool{false, true} {
		if _, err := answer("br"); (err != nil) != fails {
			t.Errorf("%d after one was closed: %v", i+1, err)
		}
	}
}

func TestWhatIsText(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"text/plain", "Text/HTML; charset=utf-8", "application/json", "application/problem+json", "application/x-ndjson", "message/http",
		"multipart/mixed; boundary=x", "application/vnd.github.raw; charset=utf-8", "application/xhtml+xml", "image/svg+xml", "application/javascript",
		"application/octet-stream, text/plain", "nonsense", "text/plain; =", ""} {
		if !isText([]string{kind}) {
			t.Errorf("%q is no text", kind)
		}
	}
	for _, kind := range []string{"application/octet-stream", "image/png", "application/gzip", "application/grpc", "application/octet-stream; charset=binary", "application/zip"} {
		if isText([]string{kind}) {
			t.Errorf("%q is text", kind)
		}
	}
	if !isText(nil) || !isText([]string{"image/png", "text/plain"}) {
		t.Error("no type, or one of two, is no text")
	}
}
