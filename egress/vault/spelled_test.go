package vault

import (
	"html"
	"html/template"
	"strings"
	"testing"
)

// A key is masked as pages and scripts spell it.
func TestSpelledByPages(t *testing.T) {
	t.Parallel()
	const key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCY'EXAMPLE&KEY="
	v := vaultOf(t, one(key, Binding{Host: "api.example.org", As: Bearer}))
	every := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(key) }
	for what, text := range map[string]string{
		"itself": key, "html/template": template.HTMLEscapeString(key), "html": html.EscapeString(key),
		"in a script":      template.JSEscapeString(key),
		"html/template, +": every("'", "&#39;", "&", "&amp;", "+", "&#43;"),
		"Mustache":         every("'", "&#39;", "&", "&amp;", "/", "&#x2F;", "=", "&#x3D;"),
		"Handlebars":       every("'", "&#x27;", "&", "&amp;", "=", "&#x3D;"),
		"OWASP's":          every("'", "&#x27;", "&", "&amp;", "/", "&#x2F;"),
		"PHP's":            every("'", "&#039;", "&", "&amp;"),
		"decimal":          every("'", "&#39;", "&", "&#38;", "/", "&#47;", "+", "&#43;", "=", "&#61;"),
		"hexadecimal":      every("'", "&#x27;", "&", "&#x26;", "/", "&#x2f;", "+", "&#x2b;", "=", "&#x3d;"),
		"of a script":      every("'", `\x27`, "&", `\x26`, "/", `\x2F`, "+", `\x2B`, "=", `\x3D`),
		"quoted-printable": every("'", "=27", "&", "=26", "/", "=2F", "+", "=2B", "=", "=3D"),
		"encoded twice":    every("'", "%2527", "&", "%2526", "/", "%252F", "+", "%252B", "=", "%253D"),
	} {
		if got := v.values.String("a " + text + " b"); got != "a [secret:key] b" && got != "a [secret:key json] b" {
			t.Errorf("%s: %q", what, got)
		}
	}
	if list := spelled("ghp_abcdEFGH-ijkl.0123"); list != nil {
		t.Errorf("of a plain key %q", list)
	}
}
