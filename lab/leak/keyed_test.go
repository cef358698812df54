package leak

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"testing"
)

// A key that comes back is seen, in every form in which the server sends it: a probe
// that did not see it would show nothing.
func TestFindKey(t *testing.T) {
	const real, placeholder = "rein_ABCDEFGHIJKL+MNOPQRSTUV/WXYZ23=", "rein_KLMNOPQRSTUV+ABCDEFGHIJ/OPQR67="
	k := &Keys{Placeholder: placeholder, Sum: fmt.Sprintf("%x", sha256.Sum256([]byte(real)))}
	for name, form := range forms {
		for _, before := range []string{"", "Bearer ", "x", "xy"} {
			text := `{"said":"you sent ` + form(before+real) + `, thank you"}`
			if !k.findKey(text) {
				t.Errorf("%s of %q: not found in %s", name, before, text)
			}
			if text := `{"said":"you sent ` + form(before+placeholder) + `, thank you"}`; k.findKey(text) {
				t.Errorf("%s of %q: found in %s", name, before, text)
			}
		}
	}
	if !k.findKey("https://leak.example.org/?key=" + url.QueryEscape("Bearer "+real)) {
		t.Error("not found in an address")
	}
}

// Only the gateway's pages are refusals: whatever a server answers is none.
func TestJudge(t *testing.T) {
	const page = "rein: this request was refused\ntarget: api.github.com port 443\nrule:   vault.leak\nreason: the placeholder\n"
	none := http.Header{"Lab-Credential": {"none"}}
	for _, c := range []struct {
		status int
		fields http.Header
		body   string
		want   Outcome
	}{
		{403, nil, page, "vault.leak"}, {421, nil, page, "vault.leak"}, {403, nil, "forbidden\n", Open}, {401, none, "no key\n", Served}, {200, nil, "ok: " + page, Open},
		{400, nil, "400 Bad Request", Open}, {200, none, "the allowed server\n", Served}, {200, http.Header{"Lab-Credential": {"some"}}, "the allowed server\n", Open}, {200, nil, welcome + "\n", Welcome},
	} {
		if got := judge(c.status, c.fields, c.body); got.outcome != c.want {
			t.Errorf("%d %q: %s, want %s", c.status, c.body, got.outcome, c.want)
		}
	}
}
