package vault

import (
	"fmt"
	"slices"
	"strings"
)

// escapes are what encoders of pages and scripts put in the place of characters:
// html/template of Go, Mustache, Handlebars, OWASP's, XML's, MarkupSafe, PHP's and
// Python's.
var escapes = []map[byte]string{
	{'&': "&amp;", '<': "&lt;", '>': "&gt;", '"': "&#34;", '\'': "&#39;", '+': "&#43;"},
	{'&': "&amp;", '<': "&lt;", '>': "&gt;", '"': "&quot;", '\'': "&#39;", '/': "&#x2F;", '`': "&#x60;", '=': "&#x3D;"},
	{'&': "&amp;", '<': "&lt;", '>': "&gt;", '"': "&quot;", '\'': "&#x27;", '`': "&#x60;", '=': "&#x3D;"},
	{'&': "&amp;", '<': "&lt;", '>': "&gt;", '"': "&quot;", '\'': "&#x27;", '/': "&#x2F;"},
	{'&': "&amp;", '<': "&lt;", '>': "&gt;", '"': "&quot;", '\'': "&apos;"},
	{'&': "&amp;", '<': "&lt;", '>': "&gt;", '"': "&#34;", '\'': "&#39;"},
	{'&': "&amp;", '<': "&lt;", '>': "&gt;", '"': "&quot;", '\'': "&#039;"},
	{'&': "&amp;", '<': "&lt;", '>': "&gt;"},
	{'&': `\u0026`, '<': `\u003C`, '>': `\u003E`, '=': `\u003D`, '"': `\"`, '\'': `\'`, '\\': `\\`}, // html/template's JavaScript
}

// anyEscape are those that encoders put in the place of each character that is no
// letter or digit, and none of -._: references of HTML, escapes of scripts,
// quoted-printable, and percent-encoding that was encoded once more.
var anyEscape = []string{"&#%d;", "&#x%x;", "&#x%X;", `\x%02x`, `\x%02X`, `\u%04x`, `\u%04X`, "=%02X", "%%25%02x", "%%25%02X"}

// spelled are the texts other than itself as which a page or a script may hold a
// value. Most keys have no such text.
func spelled(value string) (list []string) {
	add := func(escape func(c byte) string) {
		var b strings.Builder
		for _, c := range []byte(value) {
			if text := escape(c); text != "" {
				b.WriteString(text)
				continue
			}
			b.WriteByte(c)
		}
		if text := b.String(); text != value && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	for _, some := range escapes {
		add(func(c byte) string { return some[c] })
	}
	for _, form := range anyEscape {
		add(func(c byte) string {
			if kindOf(c) != 0 || c >= 0x80 || strings.IndexByte("-._", c) >= 0 {
				return ""
			}
			return fmt.Sprintf(form, c)
		})
	}
	return list
}
