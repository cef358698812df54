package vault

import (
	"net/http"
	"testing"
)

// Where a secret is a part of the address, another's address is refused in every
// spelling, by every method, and in fields by which some servers go.
func TestAnothersAddress(t *testing.T) {
	t.Parallel()
	to := Target{"api.example.org", 443}
	v := vaultOf(t, one(ghKey, Binding{Host: to.Host, As: Substitute, In: []Place{InPath}, Methods: []string{"POST"}, Paths: []string{"/bot*"}}),
		Secret{Name: "other", Value: one(apiKey).Value, Variable: "OTHER", Use: []Binding{{Host: to.Host, As: Substitute, In: []Place{InPath}, Paths: []string{"/hook/*"}}}})
	mine := v.Environment()["KEY"]
	for _, c := range []struct{ method, path, field, rule string }{
		{"POST", "/bot" + mine + "/send", "", ""},
		{"POST", "/hook/" + v.Environment()["OTHER"], "", ""},
		{"GET", "/status", "", ""},
		{"GET", "/bot" + mine + "/send", "", RuleLeak}, // the binding is for POST
		{"POST", "/botTheirs/send", "", RuleForeign},
		{"GET", "/botTheirs/send", "", RuleForeign},
		{"POST", "/%62otTheirs/send", "", RuleForeign},
		{"POST", "/BOTTheirs/send", "", RuleForeign},
		{"POST", "/x/../botTheirs/send", "", RuleForeign},
		{"POST", "/x%2f..%2fbotTheirs/send", "", RuleForeign},
		{"POST", "//botTheirs/send", "", RuleForeign},
		{"POST", "/;x/botTheirs/send", "", RuleForeign},
		{"POST", "/%2562otTheirs/send", "", RuleForeign},
		{"POST", "/hook/theirs", "", RuleForeign},
		{"POST", "/status", "/botTheirs/send", RuleForeign},
		{"POST", "/bot" + mine + "/send", "/botTheirs/send", RuleForeign},
	} {
		r, _ := http.NewRequest(c.method, "https://api.example.org/", nil)
		if c.field != "" {
			r.Header.Set("X-Original-Url", c.field)
		}
		rule := ""
		if _, err := v.Judge(to, r, c.path); err != nil {
			rule = err.(*Refusal).Rule
		}
		if rule != c.rule {
			t.Errorf("%s %s %s: %q, want %q", c.method, c.path, c.field, rule, c.rule)
		}
	}
}
