package secret

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// pattern is one text to look for, and what stands for it.
type pattern struct {
	text string
	mark string
	// breaks is how many line breaks may interrupt the text; 0 for a text that
	// encoders do not wrap.
	breaks int
}

// longest is the length of the longest occurrence.
func (p *pattern) longest() int { return len(p.text) + len("\r\n")*p.breaks }

// minWidth is the narrowest line an encoder is expected to make. (Common ones:
// 60 for xxd -p, 64 for PEM, 76 for base64 and MIME.)
const minWidth = 16

// catalogue collects the forms of values, each text once: that of the value
// that came first, and its plainest form.
type catalogue struct {
	patterns []pattern // only ever appended to: matchers share it
	values   map[string]bool
	seen     map[string]bool // texts of patterns
}

// add adds the forms of v, and reports whether v is a new value.
func (c *catalogue) add(v Value) bool {
	if c.seen == nil {
		c.values, c.seen = map[string]bool{}, map[string]bool{}
	}
	s := v.Reveal()
	if c.values[s] {
		return false
	}
	c.values[s] = true
	c.form(v, "", false, s)
	c.form(v, "json", false, jsonForms(s)...)
	c.form(v, "url", false, urlForms(s)...)
	c.form(v, "base64", true, base64Forms(s)...)
	lower := hex.EncodeToString([]byte(s))
	c.form(v, "hex", true, lower, strings.ToUpper(lower))
	return true
}

func (c *catalogue) form(v Value, name string, wrapped bool, texts ...string) {
	for _, text := range texts {
		if c.seen[text] {
			continue
		}
		c.seen[text] = true
		p := pattern{text: text, mark: v.mark(name)}
		if wrapped {
			p.breaks = len(text)/minWidth + 1
		}
		c.patterns = append(c.patterns, p)
	}
}

// base64Forms returns what s looks like inside base64, for the three ways its
// first byte can fall into a group of three, in both alphabets. Of each, only
// the characters whose six bits all come from s are certain; when s ends the
// data, its last character is too (its other bits are zero).
func base64Forms(s string) []string {
	var forms []string
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := enc.EncodeToString([]byte(strings.Repeat("\x00", before) + s))
			first, end := (8*before+5)/6, 8*(before+len(s))/6
			forms = append(forms, text[first:end], text[first:])
		}
	}
	return forms
}

// urlForms returns s percent-encoded by the rules in use: which characters stay
// beside letters and digits, and whether a space is "+".
func urlForms(s string) []string {
	rules := []struct {
		safe string
		plus bool
	}{
		{"-._~", false},                  // RFC 3986: curl, jq @uri
		{"-._~", true},                   // Go url.QueryEscape, Python quote_plus
		{"-._*", true},                   // HTML forms, URLSearchParams
		{"-._~/", false},                 // Python quote
		{"-._~$&+=:@", false},            // Go url.PathEscape
		{"-._~$&+,/:;=@", false},         // Go URL.EscapedPath
		{"-._~!*'()", false},             // encodeURIComponent
		{"-._~!*'();/?:@&=+$,#", false},  // encodeURI
		{"\x00all bytes encoded", false}, // nothing stays
	}
	var forms []string
	for _, r := range rules {
		for _, verb := range []string{"%%%02X", "%%%02x"} {
			var b strings.Builder
			for _, c := range []byte(s) {
				alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
				switch {
				case r.safe[0] != 0 && (alnum || strings.IndexByte(r.safe, c) >= 0):
					b.WriteByte(c)
				case c == ' ' && r.plus:
					b.WriteByte('+')
				default:
					fmt.Fprintf(&b, verb, c)
				}
			}
			forms = append(forms, b.String())
		}
	}
	return forms
}

// jsonForms returns s as it stands between the quotes of a JSON string, as the
// encoders in use write it, and as JSON inside a JSON string.
func jsonForms(s string) []string {
	var forms []string
	for _, html := range []string{"", "<>&", "<>&='", "<>&'+`\""} { // plain; Go; Gson; .NET
		for _, slash := range []bool{false, true} { // PHP
			for _, ascii := range []bool{false, true} { // Python
				for _, verb := range []string{`\u%04x`, `\u%04X`} {
					forms = append(forms, jsonEscape(s, html, slash, ascii, verb))
				}
			}
		}
	}
	slices.Sort(forms)
	forms = slices.Compact(forms)
	for _, f := range forms {
		forms = append(forms, jsonEscape(f, "", false, false, `\u%04x`), jsonEscape(f, "<>&", false, false, `\u%04x`))
	}
	return forms
}

func jsonEscape(s, html string, slash, ascii bool, verb string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch short := strings.IndexRune("\b\f\n\r\t\"\\", r); {
		case r == utf8.RuneError && size == 1:
			b.WriteByte(s[i]) // not UTF-8: no encoder agrees; leave it
		case strings.ContainsRune(html, r), r < ' ' && short < 0, r == '\u2028', r == '\u2029':
			fmt.Fprintf(&b, verb, r)
		case short >= 0:
			b.WriteString(`\` + `bfnrt"\`[short:short+1])
		case r == '/' && slash:
			b.WriteString(`\/`)
		case ascii && r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, verb+verb, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case ascii && r > '~':
			fmt.Fprintf(&b, verb, r)
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}
