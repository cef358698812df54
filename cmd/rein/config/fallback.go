package config

import (
	"maps"
	"slices"
	"strings"
)

// fallbacks checks that each names another model.
func (v *validator) fallbacks(all map[string]Model, known Known) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at, back := "models."+name+".fallback", all[name].Fallback
		_, named := all[back]
		vendor, rest, _ := strings.Cut(strings.Replace(back, ":", "/", 1), "/")
		switch {
		case back == "" || named && back != name:
		case back == name:
			v.fault(at, "name another one, or leave it out", "a model cannot be its own fallback")
		case !slices.Contains(known.Vendors, vendor) || rest == "":
			v.fault(at, DidYouMean(back, slices.Sorted(maps.Keys(all))), "no model %q", back)
		}
	}
}
