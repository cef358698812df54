package run

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/rein-sh/rein/secret"
)

// masked returns a copy of rep whose values hold no known secret. A text is
// masked; a number or a time, which has no room for a mark, becomes zero, and a
// warning names it. The names of members are the format's own and stay.
func masked(rep *Report, m *secret.Masker) (*Report, error) {
	data, err := json.Marshal(rep)
	if err != nil {
		return nil, err
	}
	out := &Report{}
	if err := json.Unmarshal(data, out); err != nil {
		return nil, err
	}
	w := masking{masker: m}
	w.value("", reflect.ValueOf(out).Elem())
	out.Version = ReportVersion
	for _, name := range w.zeroed {
		out.Warnings = append(out.Warnings, name+" is not told: it holds a known secret")
	}
	return out, nil
}

// masking is a walk over a value of plain data.
type masking struct {
	masker *secret.Masker
	zeroed []string
}

// value masks what v holds. name is its place, in the names of the JSON.
func (w *masking) value(name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(w.masker.String(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			w.value(name, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			w.value(name, v.Index(i))
		}
	case reflect.Map:
		w.entries(name, v)
	case reflect.Struct:
		if _, ok := v.Interface().(time.Time); ok {
			w.scalar(name, v)
			return
		}
		for i := range v.NumField() {
			tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			w.value(strings.TrimPrefix(name+"."+tag, "."), v.Field(i))
		}
	case reflect.Bool:
	default:
		w.scalar(name, v)
	}
}

// entries masks a map of counts. Names that have the same mark are counted
// together.
func (w *masking) entries(name string, v reflect.Value) {
	counts := v.Interface().(map[string]int) // a report has no other map
	sums := map[string]int{}
	for key, n := range counts {
		sums[w.masker.String(key)] += n
	}
	clear(counts)
	for key, n := range sums {
		w.value(name+"."+key, reflect.ValueOf(&n).Elem())
		counts[key] = n
	}
}

func (w *masking) scalar(name string, v reflect.Value) {
	text, err := json.Marshal(v.Interface())
	if err != nil || len(w.masker.Find(text)) > 0 {
		v.SetZero()
		w.zeroed = append(w.zeroed, name)
	}
}
