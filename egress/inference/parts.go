package inference

import "strings"

func (j *judge) generation(i int) error {
	if j.config = i; j.kind(i) == 'n' {
		return nil
	}
	if j.kind(i) != '{' {
		return refuse(RefuseForm, quoted(j.name(i))+" is no object")
	}
	twins := map[string]bool{}
	for m := range j.each(i) {
		judged, ok := spellings[string(j.name(m))]
		twin := folded(j.name(m))
		if !ok || twins[twin] {
			return refuse(RefuseForm, "the generation config has the member "+quoted(j.name(m))+", which is not known to be harmless, or twice")
		}
		twins[twin] = true
		if judged != nil {
			if err := judged(j, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// spellings are the members of the generation config in both spellings that
// readers of protocol buffers' JSON take.
var spellings = func() map[string]rule {
	out := map[string]rule{}
	for name, r := range generation {
		snake := name
		for c := 'A'; c <= 'Z'; c++ {
			snake = strings.ReplaceAll(snake, string(c), "_"+string(c+'a'-'A'))
		}
		out[name], out[snake] = r, r
	}
	return out
}()

func (j *judge) wrapped(i int) error {
	if j.nested != 0 || j.out.API != Gemini || !j.out.Free || j.kind(i) != '{' {
		return refuse(RefuseForm, "the request has one in it")
	}
	j.nested = i
	return nil
}

func (j *judge) streamOptions(i int) error {
	j.options = i
	if k := j.kind(i); k != '{' && k != 'n' {
		return refuse(RefuseForm, quoted(j.name(i))+" is no object")
	}
	for m := range j.each(i) {
		switch name := string(j.name(m)); name {
		case "include_usage":
			if k := j.kind(m); k != 't' && k != 'f' && k != 'n' {
				return refuse(RefuseForm, `"include_usage" is neither true nor false`)
			}
		case "include_obfuscation", "chunk_include_usage":
		default:
			return refuse(RefuseForm, "the stream options have the member "+quoted(name)+", which is not known to be harmless")
		}
	}
	return nil
}

// thinking reads how long the model may think at least.
func (j *judge) thinking(i int) error {
	for m := range j.each(i) {
		if folded(j.name(m)) != "budgettokens" || j.kind(m) == 'n' {
			continue
		}
		n, ok := j.number(m)
		if !ok || string(j.name(m)) != "budget_tokens" {
			return refuse(RefuseForm, "the budget for thinking is no whole number")
		}
		j.out.Least = n + 1
	}
	return nil
}

// cache refuses caches of an hour, which cost more to write than those of five
// minutes, the price of which is in the price list.
func (j *judge) cache(i int) error {
	for m := range j.each(i) {
		if folded(j.name(m)) == "ttl" && j.kind(m) != 'n' && !j.is(m, "5m") && !j.rules.Dearer {
			return refuse(RefusePrice, "the request asks for a cache that is kept longer than five minutes, which has a price of its own")
		}
	}
	return nil
}

// contextManagement lets the vendor forget, but not write summaries, which are
// answers of their own.
func (j *judge) contextManagement(i int) error {
	for m := range j.each(i) {
		if string(j.name(m)) != "edits" {
			return refuse(RefuseHosted, "the context management has the member "+quoted(j.name(m))+", which is not known to be harmless")
		}
		for e := range j.each(m) {
			kind := j.member(e, "type")
			name := string(j.str(kind))
			if kind == 0 || !listed([]string{"clear_tool_uses_*", "clear_thinking_*"}, name) && !listed(j.rules.Hosted, name) {
				return refuse(RefuseHosted, "the vendor would change the context by "+quoted(name))
			}
		}
	}
	return nil
}
