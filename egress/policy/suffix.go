package policy

import (
	_ "embed"
	"strings"
	"sync"

	"golang.org/x/net/publicsuffix"
)

//go:embed suffixes.txt
var suffixesTXT string

var aboveSuffixes = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(suffixesTXT) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			names[line] = true
		}
	}
	return names
})

// manyOwners reports whether the names beneath name, in canonical form, belong
// to many: it is a public suffix, or there is one beneath it.
func manyOwners(name string) bool {
	suffix, _ := publicsuffix.PublicSuffix(name)
	return suffix == name || aboveSuffixes()[name]
}

// Registrable returns the part of a name that somebody has registered, such as
// example.org of a.b.example.org. What is a public suffix itself, or no name,
// is returned as it is.
func Registrable(name string) string {
	canonical, err := Canonical(name)
	if err != nil {
		return name
	}
	if domain, err := publicsuffix.EffectiveTLDPlusOne(canonical); err == nil {
		return domain
	}
	return canonical
}
