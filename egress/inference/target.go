package inference

import (
	"net/url"
	"strings"
)

// queries are what a request's query may say, by protocol. Google's servers take
// more from one, a method or fields of the answer for example.
var queries = map[API]map[string][]string{
	Messages: {"beta": {"true", "false"}},
	Gemini:   {"alt": {"sse", "json"}, "prettyPrint": {"true", "false"}, "key": nil},
}

// target judges the path and the query.
func (j *judge) target(target string) error {
	path, query, _ := strings.Cut(target, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return refuse(RefuseForm, "the query cannot be read")
	}
	for name, given := range values {
		allowed, ok := queries[j.out.API][name]
		if !ok || len(given) != 1 || allowed != nil && !listed(allowed, given[0]) {
			return refuse(RefuseForm, "the query has "+quoted(name)+", which is not known to be harmless")
		}
	}
	if _, ok := members[j.out.API]; !ok {
		return refuse(RefuseForm, "the protocol "+quoted(j.out.API)+" is not known")
	}
	if j.out.API != Gemini {
		return nil
	}
	dir, last, _ := cutLast(path, "/")
	name, method, _ := cutLast(last, ":")
	if _, collection, _ := cutLast(dir, "/"); collection != "models" || !plainName(name) {
		return refuse(RefuseModel, "the path names no model")
	}
	switch method {
	case "generateContent":
		j.out.Free = false
	case "streamGenerateContent":
		j.out.Free, j.out.Stream = false, true
	case "countTokens":
		j.out.Free = true
	default:
		return refuse(RefuseForm, "the method "+quoted(method)+" is not known")
	}
	j.named, j.out.Model = true, name
	return j.isModel(name)
}

// cutLast cuts around the last sep; without one, all is after it.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

// plainName reports whether a model's name is written as names are, without
// escapes.
func plainName(s string) bool {
	for _, c := range []byte(s) {
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_') {
			return false
		}
	}
	return s != "" && s != "." && s != ".."
}
