package vault

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A signature says one thing: a name, a date or a scope that holds lines of its own
// is none, whoever made it.
func TestSignatureOfMoreLines(t *testing.T) {
	t.Parallel()
	const key, id = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "AKIDEXAMPLE"
	v := vaultOf(t, one(key, Binding{Host: "svc.example.org", As: AWS4, AccessKey: id}))
	placeholder := v.Environment()["KEY"]
	sign := func(date string, scope, signed []string) *http.Request {
		r, _ := http.NewRequest("GET", "https://svc.example.org/?a=b", nil)
		s := &signing{scope: scope, date: date, signed: signed, host: r.Host, payload: fmt.Sprintf("%x", sha256.Sum256(nil)), keyID: id, secret: placeholder, inQuery: true}
		r.URL.RawQuery += "&X-Amz-Algorithm=" + awsAlgorithm + "&X-Amz-Credential=" + url.QueryEscape(id+"/"+strings.Join(scope, "/")) +
			"&X-Amz-Date=" + url.QueryEscape(date) + "&X-Amz-SignedHeaders=" + url.QueryEscape(strings.Join(signed, ";"))
		made, err := s.make(r, "/", r.URL.RawQuery, placeholder)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.RawQuery += "&X-Amz-Signature=" + made
		return r
	}
	const date = "20150830T123600Z"
	scope := []string{"20150830", "us-east-1", "sts", "aws4_request"}
	if _, _, err := carried(v, Target{"svc.example.org", 443}, sign(date, scope, []string{"host"})); err != nil {
		t.Fatal(err)
	}
	for what, r := range map[string]*http.Request{
		"a name":          sign(date, scope, []string{"host", "host:other.example.org\nx"}),
		"a capital":       sign(date, scope, []string{"Host", "host"}),
		"a name twice":    sign(date, scope, []string{"host", "host"}),
		"an empty name":   sign(date, scope, []string{"", "host"}),
		"a date":          sign(date+"\n"+strings.Join(scope, "/"), scope, []string{"host"}),
		"a region":        sign(date, []string{"20150830", "us\neast", "sts", "aws4_request"}, []string{"host"}),
		"another day":     sign(date, []string{"20150831", "us-east-1", "sts", "aws4_request"}, []string{"host"}),
		"a date of words": sign("yesterday", scope, []string{"host"}),
	} {
		_, _, err := carried(v, Target{"svc.example.org", 443}, r)
		if refused, ok := errors.AsType[*Refusal](err); !ok || refused.Rule != RuleForeign {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A signature is made again where it stands, and nowhere else.
func TestSignatureStandsOnce(t *testing.T) {
	t.Parallel()
	const key, id = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "AKIDEXAMPLE"
	v := vaultOf(t, one(key, Binding{Host: "svc.example.org", As: AWS4, AccessKey: id}))
	r, _ := http.NewRequest("GET", "https://svc.example.org/?a=b", nil)
	s := &signing{scope: []string{"20150830", "us-east-1", "sts", "aws4_request"}, date: "20150830T123600Z", signed: []string{"host"}, host: r.Host,
		payload: fmt.Sprintf("%x", sha256.Sum256(nil)), keyID: id, secret: v.Environment()["KEY"], inQuery: true}
	presign(t, s, r)
	_, signature, _ := strings.Cut(r.URL.RawQuery, "&X-Amz-Signature=")
	r.URL.RawQuery = "=" + signature + "&" + r.URL.RawQuery // a part without a name was not signed
	if _, _, err := carried(v, Target{"svc.example.org", 443}, r); err == nil {
		t.Error("a request with a part that nobody signed passes")
	}
	r.URL.RawQuery = strings.Replace(strings.TrimPrefix(r.URL.RawQuery, "="+signature+"&"), "X-Amz-Signature="+signature[:1], fmt.Sprintf("X-Amz-Signature=%%%02x", signature[0]), 1)
	out, _, err := carried(v, Target{"svc.example.org", 443}, r)
	if err != nil {
		t.Fatal(err)
	}
	want, err := s.make(r, "/", r.URL.RawQuery, key)
	if err != nil || !strings.HasSuffix(out.URL.RawQuery, "&X-Amz-Signature="+want) {
		t.Errorf("%q, %v, want the signature %s", out.URL.RawQuery, err, want)
	}
}
