package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Setting is one effective value and where it comes from.
type Setting struct {
	Path   string `json:"path"`
	Value  string `json:"value"`
	Source string `json:"source"` // FILE:LINE:COLUMN, or "default"
}

// Settings lists every value of effective, in the order of the types. f says
// which of them a file has set; the others are defaults. Values of target
// environments are not shown, as they may hold what they should not: only
// their names are.
func Settings(f *File, effective Config) []Setting {
	var out []Setting
	flatten(reflect.ValueOf(effective), "", func(path, value string) {
		s := Setting{Path: path, Value: value, Source: "default"}
		if at, ok := f.Set[path]; ok {
			s.Source = at.String()
		}
		if strings.HasPrefix(path, "targets.") && strings.Contains(path, ".env.") {
			s.Value = "(set)"
		}
		out = append(out, s)
	})
	return out
}

func flatten(v reflect.Value, path string, emit func(path, value string)) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	if t, ok := v.Interface().(interface{ MarshalText() ([]byte, error) }); ok {
		if text, err := t.MarshalText(); err == nil && !v.IsZero() {
			emit(path, string(text))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i, name := range fieldsOf(v.Type()).names {
			flatten(v.Field(i), join(path, name), emit)
		}
	case reflect.Map:
		for _, k := range slices.Sorted(maps.Keys(keys(v))) {
			flatten(v.MapIndex(reflect.ValueOf(k)), join(path, k), emit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			flatten(v.Index(i), fmt.Sprintf("%s[%d]", path, i), emit)
		}
	default:
		if !v.IsZero() {
			emit(path, fmt.Sprint(v.Interface()))
		}
	}
}

func keys(m reflect.Value) map[string]bool {
	out := map[string]bool{}
	for _, k := range m.MapKeys() {
		out[k.String()] = true
	}
	return out
}
