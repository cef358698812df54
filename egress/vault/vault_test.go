package vault

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/rein-sh/rein/secret"
)

const (
	ghKey  = "ghp_abcdEFGHijklMNOPqrstUVWXyz0123456789"
	apiKey = "sk-live-0123456789abcdef0123456789abcdef"
)

func vaultOf(t testing.TB, secrets ...Secret) *Vault {
	t.Helper()
	v, faults := New(Key{1}, secrets)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return v
}

func one(value string, use ...Binding) Secret {
	return Secret{Name: "key", Value: secret.New("key", value), Variable: "KEY", Use: use}
}

// carried is a request as it goes out, or why it does not.
func carried(v *Vault, to Target, r *http.Request) (*http.Request, string, error) {
	path := r.URL.EscapedPath()
	g, err := v.Judge(to, r, path)
	if err != nil {
		return nil, "", err
	}
	out := r.Clone(r.Context())
	if err := g.Apply(out, path); err != nil {
		return nil, "", err
	}
	body := ""
	if out.Body != nil {
		b, err := io.ReadAll(out.Body)
		if err != nil {
			return nil, "", err
		}
		body = string(b)
	}
	return out, body, nil
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	bearer := Binding{Host: "api.example.org", As: Bearer}
	basic := Binding{Host: "api.example.org", As: Basic, User: "x-access-token"}
	for _, c := range []struct {
		name    string
		use     Binding
		request func(r *http.Request, ph string)
		sees    func(r *http.Request, body string) string
		want    string // of sees, with KEY for the secret
		rule    string
	}{
		{name: "bearer, absent", use: bearer, want: "Bearer KEY"},
		{name: "bearer", use: bearer, request: func(r *http.Request, ph string) { r.Header.Set("Authorization", "Bearer "+ph) }, want: "Bearer KEY"},
		{name: "token", use: bearer, request: func(r *http.Request, ph string) { r.Header.Set("Authorization", "token "+ph) }, want: "token KEY"},
		{name: "another key", use: bearer, request: func(r *http.Request, _ string) { r.Header.Set("Authorization", "Bearer "+apiKey) }, rule: RuleForeign},
		{name: "basic where bearer is bound", use: bearer, request: func(r *http.Request, ph string) { r.SetBasicAuth("x", ph) }, rule: RuleForeign},
		{name: "another field", use: bearer, request: func(r *http.Request, _ string) { r.Header.Set("Private-Token", "abc") }, rule: RuleForeign},
		{name: "another parameter", use: bearer, request: func(r *http.Request, _ string) { r.URL.RawQuery = "access_token=abc" }, rule: RuleForeign},
		{name: "another spelling of a field", use: bearer, request: func(r *http.Request, _ string) { r.Header.Set("X_Api_Key", "abc") }, rule: RuleForeign},
		{name: "a query cut elsewhere", use: bearer, request: func(r *http.Request, _ string) { r.URL.RawQuery = "a=1;access_token=abc" }, rule: RuleForeign},
		{name: "twice", use: bearer, request: func(r *http.Request, ph string) {
			r.Header["Authorization"] = []string{"Bearer " + ph, "Bearer " + ph}
		}, rule: RuleForeign},
		{name: "basic, absent", use: basic, want: "Basic " + b64("x-access-token:"+ghKey)},
		{name: "basic", use: basic, request: func(r *http.Request, ph string) { r.SetBasicAuth("x-access-token", ph) }, want: "Basic " + b64("x-access-token:"+ghKey)},
		{name: "basic of another user", use: basic, request: func(r *http.Request, ph string) { r.SetBasicAuth("me", ph) }, rule: RuleForeign},
		{name: "basic of any user", use: Binding{Host: "api.example.org", As: Basic}, request: func(r *http.Request, ph string) { r.SetBasicAuth("me", ph) }, want: "Basic " + b64("me:"+ghKey)},
		{name: "header", use: Binding{Host: "api.example.org", As: Header, Name: "x-api-key"},
			request: func(r *http.Request, ph string) { r.Header.Set("X-Api-Key", ph) },
			sees:    func(r *http.Request, _ string) string { return r.Header.Get("X-Api-Key") }, want: "KEY"},
		{name: "header beside Authorization", use: Binding{Host: "api.example.org", As: Header, Name: "x-api-key"},
			request: func(r *http.Request, ph string) { r.Header.Set("Authorization", "Bearer "+ph) }, rule: RuleForeign},
		{name: "query", use: Binding{Host: "api.example.org", As: Query, Name: "key"},
			request: func(r *http.Request, ph string) { r.URL.RawQuery = "a=1&key=" + url.QueryEscape(ph) + "&b=2" },
			sees:    func(r *http.Request, _ string) string { return r.URL.RawQuery }, want: "a=1&key=KEY&b=2"},
		{name: "query, absent", use: Binding{Host: "api.example.org", As: Query, Name: "key"},
			sees: func(r *http.Request, _ string) string { return r.URL.RawQuery }, want: "key=KEY"},
		{name: "substitute in the body", use: Binding{Host: "api.example.org", As: Substitute, In: []Place{InBody}},
			request: func(r *http.Request, ph string) { r.Body = io.NopCloser(strings.NewReader(`{"token":"` + ph + `"}`)) },
			sees:    func(_ *http.Request, body string) string { return body }, want: `{"token":"KEY"}`},
		{name: "substitute in the path", use: Binding{Host: "api.example.org", As: Substitute, In: []Place{InPath}},
			request: func(r *http.Request, ph string) { r.URL.Path = "/bot" + ph + "/send" },
			sees:    func(r *http.Request, _ string) string { return r.URL.Opaque }, want: "/botKEY/send"},
		{name: "another's path where the secret is in it", use: Binding{Host: "api.example.org", As: Substitute, In: []Place{InPath}},
			request: func(r *http.Request, _ string) { r.URL.Path = "/botTheirs/send" }, rule: RuleForeign},
		{name: "another's query where the secret is in it", use: Binding{Host: "api.example.org", As: Substitute, In: []Place{InPath, InQuery}},
			request: func(r *http.Request, _ string) { r.URL.RawQuery = "project_key=theirs" }, rule: RuleForeign},
		{name: "substitute in the query", use: Binding{Host: "api.example.org", As: Substitute, In: []Place{InPath, InQuery}},
			request: func(r *http.Request, ph string) { r.URL.RawQuery = "project_key=" + ph },
			sees:    func(r *http.Request, _ string) string { return r.URL.RawQuery }, want: "project_key=KEY"},
		{name: "not where the secret is in the path", use: Binding{Host: "api.example.org", As: Substitute, In: []Place{InPath}, Paths: []string{"/bot*"}}, want: ""},
		{name: "substitute in a field", use: Binding{Host: "api.example.org", As: Substitute, In: []Place{InHeader}},
			request: func(r *http.Request, ph string) { r.Header.Set("X-Mine", "v="+ph) },
			sees:    func(r *http.Request, _ string) string { return r.Header.Get("X-Mine") }, want: "v=KEY"},
		{name: "a credential beside the placeholder", use: Binding{Host: "api.example.org", As: Substitute, In: []Place{InHeader}},
			request: func(r *http.Request, ph string) {
				r.Header.Set("Authorization", `Digest username="me", opaque="`+ph+`"`)
			}, rule: RuleForeign},
		{name: "another method by a field", use: Binding{Host: "api.example.org", As: Bearer, Methods: []string{"GET"}},
			request: func(r *http.Request, ph string) {
				r.Header.Set("Authorization", "Bearer "+ph)
				r.Header.Set("X-Http-Method-Override", "DELETE")
			}, rule: RuleForeign},
		{name: "not in another place", use: Binding{Host: "api.example.org", As: Substitute, In: []Place{InPath}},
			request: func(r *http.Request, ph string) { r.Header.Set("X-Mine", "v="+ph) }, rule: RuleLeak},
		{name: "not of the method", use: Binding{Host: "api.example.org", As: Bearer, Methods: []string{"POST"}},
			request: func(r *http.Request, ph string) { r.Header.Set("Authorization", "Bearer "+ph) }, rule: RuleForeign},
		{name: "not on the path", use: Binding{Host: "api.example.org", As: Bearer, Paths: []string{"/v2/*"}}, want: ""},
		{name: "in the body", use: bearer, request: func(r *http.Request, ph string) { r.Body = io.NopCloser(strings.NewReader(`{"token":"` + ph + `"}`)) }, rule: RuleLeak},
		{name: "in the body, in base64", use: bearer, request: func(r *http.Request, ph string) {
			r.Body = io.NopCloser(strings.NewReader("x" + b64("ab"+ph+"cd")))
		}, rule: RuleLeak},
		{name: "in the path", use: bearer, request: func(r *http.Request, ph string) { r.URL.Path = "/" + ph }, rule: RuleLeak},
		{name: "in the query", use: bearer, request: func(r *http.Request, ph string) { r.URL.RawQuery = "q=" + ph }, rule: RuleLeak},
		{name: "in a field, hexadecimal", use: bearer, request: func(r *http.Request, ph string) { r.Header.Set("User-Agent", hexOf(ph)) }, rule: RuleLeak},
		{name: "at another host", use: Binding{Host: "other.example.org", As: Bearer},
			request: func(r *http.Request, ph string) { r.Header.Set("Authorization", "Bearer "+ph) }, rule: RuleLeak},
		{name: "at another host, basic", use: Binding{Host: "other.example.org", As: Bearer},
			request: func(r *http.Request, ph string) { r.SetBasicAuth("me", ph) }, rule: RuleLeak},
		{name: "at another port", use: Binding{Host: "api.example.org", Ports: []int{8443}, As: Bearer},
			request: func(r *http.Request, ph string) { r.Header.Set("Authorization", "Bearer "+ph) }, rule: RuleLeak},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := vaultOf(t, one(ghKey, c.use))
			ph := v.Environment()["KEY"]
			r, _ := http.NewRequest("GET", "https://api.example.org/v1/x", nil)
			if c.request != nil {
				c.request(r, ph)
			}
			out, body, err := carried(v, Target{"api.example.org", 443}, r)
			if c.rule != "" {
				refused, ok := errors.AsType[*Refusal](err)
				if !ok || refused.Rule != c.rule {
					t.Fatalf("%v, want %s", err, c.rule)
				}
				if strings.Contains(err.Error(), ghKey) || strings.Contains(err.Error(), ph) {
					t.Errorf("it tells the secret: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			sees := c.sees
			if sees == nil {
				sees = func(r *http.Request, _ string) string { return r.Header.Get("Authorization") }
			}
			if got := sees(out, body); got != strings.ReplaceAll(c.want, "KEY", ghKey) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// Two secrets in one field and one path are both put in.
func TestSubstitutesBoth(t *testing.T) {
	t.Parallel()
	use := Binding{Host: "api.example.org", As: Substitute, In: []Place{InHeader, InPath, InQuery}}
	v := vaultOf(t, Secret{Name: "id", Value: secret.New("id", ghKey), Variable: "ID", Use: []Binding{use}}, Secret{Name: "key", Value: secret.New("key", apiKey), Variable: "KEY", Use: []Binding{use}})
	env := v.Environment()
	r, _ := http.NewRequest("GET", "https://api.example.org/"+env["ID"]+"/"+env["KEY"]+"?a="+env["ID"]+"&b="+env["KEY"], nil)
	r.Header.Set("X-Mine", "id="+env["ID"]+" key="+env["KEY"])
	out, _, err := carried(v, Target{"api.example.org", 443}, r)
	if err != nil {
		t.Fatal(err)
	}
	if out.URL.Opaque != "/"+ghKey+"/"+apiKey || out.URL.RawQuery != "a="+ghKey+"&b="+apiKey || out.Header.Get("X-Mine") != "id="+ghKey+" key="+apiKey {
		t.Errorf("%q %q %v", out.URL.Opaque, out.URL.RawQuery, out.Header)
	}
}

func hexOf(s string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, c := range []byte(s) {
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

func TestPlaceholders(t *testing.T) {
	t.Parallel()
	for _, key := range []string{ghKey, apiKey, "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "550e8400-e29b-41d4-a716-446655440000",
		"Passw0rd", "k3T9xQ2_aB7cD8eF-Zx81mN0pQ_r5S6tU7vW8-yZ12345678", "0123456789ABCDEF0123456789ABCDEF", strings.Repeat("long", 200)} {
		s, err := shapeOf(key)
		if err != nil {
			t.Fatal(key, err)
		}
		a, b := s.placeholder(Key{1}, key), s.placeholder(Key{1}, key)
		if a == b || a == key || len(a) != len(key) {
			t.Errorf("%q: %q, %q", key, a, b)
		}
		for i := range key {
			if s.hex == 0 && kindOf(key[i]) != kindOf(a[i]) {
				t.Errorf("%q: %q is of another kind at %d", key, a, i)
			}
		}
		if !s.is(Key{1}, a) || s.is(Key{2}, a) || s.is(Key{1}, key) {
			t.Errorf("%q: whose %q is", key, a)
		}
		in, _ := s.within(Key{1}, "x"+a+"y")
		part, _ := s.within(Key{1}, a[1:])
		if known := len(s.free) >= 2*minSealed; in != known || part {
			t.Errorf("%q within", a)
		}
		same := 0
		for _, at := range s.free {
			if a[at] == key[at] {
				same++
			}
		}
		if same > len(s.free)/2 {
			t.Errorf("%q tells %d of %d characters of %q", a, same, len(s.free), key)
		}
	}
	for _, key := range []string{"", "short", "1234567", strings.Repeat("-", 40)} {
		if _, err := shapeOf(key); err == nil {
			t.Errorf("%q has a placeholder", key)
		}
	}
}

// What another sandbox of the host has is known for what it is.
func TestForeignPlaceholder(t *testing.T) {
	t.Parallel()
	use := Binding{Host: "api.example.org", As: Bearer}
	mine, other := vaultOf(t, one(ghKey, use)), vaultOf(t, one(ghKey, use))
	r, _ := http.NewRequest("GET", "https://elsewhere.example.org/?q="+other.Environment()["KEY"], nil)
	_, _, err := carried(mine, Target{"elsewhere.example.org", 443}, r)
	if refused, ok := errors.AsType[*Refusal](err); !ok || refused.Rule != RuleLeak {
		t.Errorf("%v", err)
	}
}

func TestRotateAndWipe(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one(ghKey, Binding{Host: "api.example.org", As: Bearer}))
	before := v.Environment()["KEY"]
	another := "ghp_" + strings.Repeat("x7Q2", (len(ghKey)-4)/4)
	if err := v.Rotate("key", secret.New("key", another)); err != nil {
		t.Fatal(err)
	}
	r, _ := http.NewRequest("GET", "https://api.example.org/", nil)
	out, _, err := carried(v, Target{"api.example.org", 443}, r)
	if err != nil || out.Header.Get("Authorization") != "Bearer "+another || v.Environment()["KEY"] != before {
		t.Errorf("%v, %v", out, err)
	}
	v.Wipe()
	if _, _, err := carried(v, Target{"api.example.org", 443}, r); err == nil {
		t.Error("a secret that was wiped is given")
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	bearer := Binding{Host: "a.example.org", As: Bearer}
	for _, c := range []struct {
		use  []Binding
		path string
	}{
		{nil, "key.use"},
		{[]Binding{{As: Bearer}}, "key.use[0].host"},
		{[]Binding{{Host: "*.example.org", As: Bearer}}, "key.use[0].host"},
		{[]Binding{{Host: "a.example.org"}}, "key.use[0].as"},
		{[]Binding{{Host: "a.example.org", As: "cookie"}}, "key.use[0].as"},
		{[]Binding{{Host: "a.example.org", As: Header}}, "key.use[0].name"},
		{[]Binding{{Host: "a.example.org", As: Header, Name: "Host"}}, "key.use[0].name"},
		{[]Binding{{Host: "a.example.org", As: Bearer, Name: "X"}}, "key.use[0].name"},
		{[]Binding{{Host: "a.example.org", As: Substitute}}, "key.use[0].in"},
		{[]Binding{{Host: "a.example.org", As: AWS4}}, "key.use[0].access_key"},
		{[]Binding{{Host: "a.example.org", As: Bearer, Ports: []int{0}}}, "key.use[0].ports[0]"},
		{[]Binding{{Host: "a.example.org", As: Bearer, Paths: []string{"/a/../b"}}}, "key.use[0].paths[0]"},
		{[]Binding{bearer, {Host: "a.example.org", As: Basic}}, "key.use[1]"},
		{[]Binding{bearer, {Host: "a.example.org", As: Bearer, Methods: []string{"GET"}}}, "key.use[1]"},
	} {
		faults := Check([]Secret{{Name: "key", Use: c.use}})
		if len(faults) == 0 || faults[0].Path != c.path {
			t.Errorf("%+v: %v, want %s", c.use, faults, c.path)
		}
	}
	apart := []Binding{{Host: "a.example.org", As: Bearer, Methods: []string{"GET"}, Paths: []string{"/a/*"}},
		{Host: "a.example.org", As: Basic, Methods: []string{"GET"}, Paths: []string{"/b/*"}}, {Host: "a.example.org", As: Header, Name: "X-Api-Key"}}
	if faults := Check([]Secret{{Name: "key", Use: apart}}); len(faults) > 0 {
		t.Error(faults)
	}
}

// The example of AWS's own documentation.
func TestSignature(t *testing.T) {
	t.Parallel()
	r, _ := http.NewRequest("GET", "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08", nil)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	r.Header.Set("X-Amz-Date", "20150830T123600Z")
	s, err := parseSignature(r, awsAlgorithm+" Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, SignedHeaders=content-type;host;x-amz-date, "+
		"Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7")
	if err != nil {
		t.Fatal(err)
	}
	if s.payload, err = new(Vault).payloadOf(r, false, "iam"); err != nil {
		t.Fatal(err)
	}
	if !s.matches(r, "/", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY") {
		t.Error("the signature is another one")
	}
	if s.matches(r, "/", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEZ") {
		t.Error("another key makes the same signature")
	}
}

// presign puts a signature in the query, as a client does.
func presign(t *testing.T, s *signing, r *http.Request) {
	t.Helper()
	r.URL.RawQuery += "&X-Amz-Algorithm=" + awsAlgorithm + "&X-Amz-Credential=" + url.QueryEscape(s.keyID+"/"+strings.Join(s.scope, "/")) +
		"&X-Amz-Date=" + s.date + "&X-Amz-SignedHeaders=host"
	made, err := s.make(r, r.URL.EscapedPath(), r.URL.RawQuery, s.secret)
	if err != nil {
		t.Fatal(err)
	}
	r.URL.RawQuery += "&X-Amz-Signature=" + made
}

// Other services than S3 have paths encoded once more, some clear segments away
// first, and what is signed in a query is the body. A field that is taken out of a
// request is not said to be signed.
func TestSignsForOtherServices(t *testing.T) {
	t.Parallel()
	const key, id = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "AKIDEXAMPLE"
	empty := fmt.Sprintf("%x", sha256.Sum256(nil))
	for name, c := range map[string]struct {
		path     string
		spelling spelling
		inQuery  bool
		cookie   bool
	}{"as it is": {"/a", encoded, false, false}, "encoded": {"/a%20b", encoded, false, false}, "cleared": {"/a//b/./c/../d%20e/", cleared, false, false},
		"in a query": {"/", encoded, true, false}, "a field less": {"/", encoded, false, true}} {
		v := vaultOf(t, one(key, Binding{Host: "svc.example.org", As: AWS4, AccessKey: id}))
		signed := func(secretKey string, cookie bool) *http.Request {
			r, _ := http.NewRequest("GET", "https://svc.example.org"+c.path+"?Action=List", nil)
			s := &signing{scope: []string{"20150830", "us-east-1", "sts", "aws4_request"}, date: "20150830T123600Z", signed: []string{"host"}, host: r.Host,
				payload: empty, keyID: id, secret: secretKey, inQuery: c.inQuery, spelling: c.spelling}
			if cookie {
				r.Header.Set("Cookie", "a=b")
				s.signed = []string{"cookie", "host"}
			}
			if c.inQuery {
				presign(t, s, r)
				return r
			}
			r.Header.Set("X-Amz-Date", s.date)
			if _, err := s.apply(r, r.URL.EscapedPath()); err != nil {
				t.Fatal(err)
			}
			return r
		}
		out, _, err := carried(v, Target{"svc.example.org", 443}, signed(v.Environment()["KEY"], c.cookie))
		if err != nil {
			t.Error(name, err)
			continue
		}
		if want := signed(key, false); out.URL.RawQuery != want.URL.RawQuery || out.Header.Get("Authorization") != want.Header.Get("Authorization") {
			t.Errorf("%s: %q %v, want %v", name, out.URL.RawQuery, out.Header, want.Header)
		}
	}
}

func TestSignsAgain(t *testing.T) {
	t.Parallel()
	const key, id = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "AKIDEXAMPLE"
	for _, inQuery := range []bool{false, true} {
		v := vaultOf(t, one(key, Binding{Host: "s3.example.org", As: AWS4, AccessKey: id}))
		signed := func(secretKey, keyID string) *http.Request {
			r, _ := http.NewRequest("PUT", "https://s3.example.org/bucket/a%20b?x=1", strings.NewReader("content"))
			s := &signing{scope: []string{"20150830", "us-east-1", "s3", "aws4_request"}, date: "20150830T123600Z", signed: []string{"host"}, host: r.Host,
				payload: awsUnsigned, keyID: keyID, secret: secretKey, inQuery: inQuery}
			if inQuery {
				presign(t, s, r)
				return r
			}
			r.Header.Set("X-Amz-Date", s.date)
			r.Header.Set("X-Amz-Content-Sha256", awsUnsigned)
			if _, err := s.apply(r, r.URL.EscapedPath()); err != nil {
				t.Fatal(err)
			}
			return r
		}
		out, body, err := carried(v, Target{"s3.example.org", 443}, signed(v.Environment()["KEY"], id))
		if err != nil {
			t.Fatal(inQuery, err)
		}
		if want := signed(key, id); body != "content" || out.URL.RawQuery != want.URL.RawQuery || out.Header.Get("Authorization") != want.Header.Get("Authorization") {
			t.Errorf("%q %v, want %v", out.URL.RawQuery, out.Header, want.Header)
		}
		for _, r := range []*http.Request{signed("another", id), signed(v.Environment()["KEY"], "AKIDOTHER")} {
			_, _, err := carried(v, Target{"s3.example.org", 443}, r)
			if refused, ok := errors.AsType[*Refusal](err); !ok || refused.Rule != RuleForeign {
				t.Errorf("%v", err)
			}
		}
	}
}

// What a server says of a secret is masked, packed or not, in fields, body and
// trailers.
func TestAnswer(t *testing.T) {
	t.Parallel()
	// Simulated time: a machine with load must not be taken for a server that pauses.
	synctest.Test(t, answer)
}

func answer(t *testing.T) {
	v := vaultOf(t, one(ghKey, Binding{Host: "api.example.org", As: Bearer}))
	r, _ := http.NewRequest("GET", "https://api.example.org/", nil)
	g, err := v.Judge(Target{"api.example.org", 443}, r, "/")
	if err != nil {
		t.Fatal(err)
	}
	pack := map[string]func(io.Writer) io.WriteCloser{
		"":        func(w io.Writer) io.WriteCloser { return plain{w} },
		"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
		"br":      func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
		"zstd":    func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z },
	}
	text := "a " + ghKey + " b " + base64.StdEncoding.EncodeToString([]byte("xy"+ghKey)) + " c " + hexOf(ghKey)
	for coding, packer := range pack {
		var b bytes.Buffer
		w := packer(&b)
		io.WriteString(w, text)
		w.Close()
		resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}, "X-Echo": {ghKey}, "Set-Cookie": {"a=b"}},
			Body: io.NopCloser(iotest.OneByteReader(&b)), ContentLength: int64(b.Len()), Request: r, Trailer: http.Header{"X-End": {ghKey}}}
		if coding != "" {
			resp.Header.Set("Content-Encoding", coding)
		}
		if err := g.Answer(resp); err != nil {
			t.Fatal(coding, err)
		}
		got, err := io.ReadAll(resp.Body)
		if want := "a [secret:key] b eHl[secret:key base64] c [secret:key hex]"; err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", coding, got, err)
		}
		if resp.Header.Get("X-Echo") != "[secret:key]" || resp.Header.Get("Set-Cookie") != "" || resp.Trailer.Get("X-End") != "[secret:key]" || resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %v %v", coding, resp.Header, resp.Trailer)
		}
	}
	image := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"image/png"}}, Body: io.NopCloser(strings.NewReader(ghKey)), ContentLength: int64(len(ghKey)), Request: r}
	if err := g.Answer(image); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(image.Body); string(got) != ghKey || image.ContentLength != int64(len(ghKey)) {
		t.Errorf("no text: %q", got)
	}
	odd := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/plain"}, "Content-Encoding": {"compress"}}, Body: http.NoBody, ContentLength: 5, Request: r}
	if err := g.Answer(odd); err == nil {
		t.Error("a coding that nobody asked for is passed on")
	}
	out := r.Clone(t.Context())
	out.Header.Set("Accept-Encoding", "compress, gzip;q=0.5, *")
	out.Header.Set("Accept-Charset", "utf-32")
	if err := g.Apply(out, "/"); err != nil || out.Header.Get("Accept-Encoding") != "gzip;q=0.5" || out.Header.Get("Accept-Charset") != "" {
		t.Errorf("asks for %v, %v", out.Header, err)
	}
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }
