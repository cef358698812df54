package config

import (
	"maps"
	"reflect"
	"slices"
)

// merge lays over on top of base and returns the result. A target or a model
// replaces the one of the same name as a whole, a list replaces a list; every
// other key wins by itself.
func merge(base, over *File) *File {
	out := &File{Name: over.Name, Config: base.Config, Set: maps.Clone(base.Set),
		faults: slices.Concat(base.faults, over.faults), broken: slices.Concat(base.broken, over.broken)}
	mergeStruct(reflect.ValueOf(&out.Config).Elem(), reflect.ValueOf(over.Config), "", over.Set, out.Set)
	return out
}

func mergeStruct(dst, src reflect.Value, path string, srcSet, dstSet map[string]Position) {
	fields := fieldsOf(src.Type())
	for i, name := range fields.names {
		at := join(path, name)
		if _, ok := srcSet[at]; !ok {
			continue
		}
		d, s := dst.Field(i), src.Field(i)
		switch {
		case s.Kind() == reflect.Struct && !isText(s):
			dstSet[at] = srcSet[at]
			mergeStruct(d, s, at, srcSet, dstSet)
		case s.Kind() == reflect.Map:
			merged := reflect.MakeMap(s.Type())
			for _, m := range []reflect.Value{d, s} {
				for it := m.MapRange(); it.Next(); {
					merged.SetMapIndex(it.Key(), it.Value())
				}
			}
			for _, k := range s.MapKeys() {
				replaceSet(dstSet, srcSet, join(at, k.String()))
			}
			dstSet[at] = srcSet[at]
			d.Set(merged)
		default:
			replaceSet(dstSet, srcSet, at)
			d.Set(s)
		}
	}
}

// replaceSet makes dst's places at and beneath path those of src.
func replaceSet(dst, src map[string]Position, path string) {
	maps.DeleteFunc(dst, func(p string, _ Position) bool { return beneath(p, path) })
	for p, at := range src {
		if beneath(p, path) {
			dst[p] = at
		}
	}
}

func isText(v reflect.Value) bool {
	_, ok := v.Interface().(interface{ MarshalText() ([]byte, error) })
	return ok
}
