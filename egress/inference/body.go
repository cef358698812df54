package inference

import (
	"slices"
	"strconv"
)

// edit puts a text in place of a part of the body.
type edit struct {
	start, end int32
	text       string
}

// limit is where the output's cap is, or is put when value is below 0: between
// before and after.
type limit struct {
	start, end    int32
	value         int64
	before, after string
}

// leastResponses is the smallest cap that Responses takes. Source: platform.openai.com/docs/api-reference/responses/create.
const leastResponses = 16

// whole judges what takes more than one member, and finds what Body changes.
func (j *judge) whole() error {
	r := j.out
	if j.nested != 0 {
		if err := j.outermost(j.nested); err != nil {
			return err
		}
	}
	if r.Model == "" {
		return refuse(RefuseModel, "the request names no model")
	}
	if r.Free {
		return nil
	}
	switch r.API {
	case Chat:
		j.capIn(0, "max_completion_tokens")
		j.switchUsage()
	case Responses:
		r.Least = leastResponses
		j.capIn(0, "max_output_tokens")
	case Messages:
		j.capIn(0, "max_tokens")
	case Gemini:
		j.capGemini()
	}
	return nil
}

// capIn has the caps that the client has set, or puts one at the beginning of an
// object.
func (j *judge) capIn(object int, name string) {
	if len(j.out.caps) > 0 {
		return
	}
	at := j.values[object].start + 1
	j.out.caps = append(j.out.caps, limit{start: at, end: at, value: -1, before: strconv.Quote(name) + ":", after: j.comma(object)})
}

// comma is what follows a member at the beginning of an object.
func (j *judge) comma(object int) string {
	if int(j.values[object].next) == object+1 {
		return ""
	}
	return ","
}

// capGemini puts the cap into the generation config, which the request may not
// have.
func (j *judge) capGemini() {
	switch {
	case j.config == 0:
		at := j.values[0].start + 1
		j.out.caps = append(j.out.caps, limit{start: at, end: at, value: -1,
			before: `"generationConfig":{"maxOutputTokens":`, after: "}" + j.comma(0)})
	case j.kind(j.config) == 'n':
		v := &j.values[j.config]
		j.out.caps = append(j.out.caps, limit{start: v.start, end: v.end, value: -1, before: `{"maxOutputTokens":`, after: "}"})
	default:
		j.capIn(j.config, "maxOutputTokens")
	}
}

// switchUsage has a stream of Chat Completions end with its usage.
func (j *judge) switchUsage() {
	if !j.out.Stream {
		return
	}
	const on = `"include_usage":true`
	at := j.values[0].start + 1
	e := edit{at, at, `"stream_options":{` + on + `}` + j.comma(0)}
	if j.options != 0 {
		v := &j.values[j.options]
		e = edit{v.start, v.end, "{" + on + "}"}
		if v.kind == '{' {
			e = edit{v.start + 1, v.start + 1, on + j.comma(j.options)}
			if m := j.member(j.options, "include_usage"); m != 0 {
				e = edit{j.values[m].start, j.values[m].end, "true"}
				if j.kind(m) == 't' {
					return
				}
			}
		}
	}
	j.out.flip = append(j.out.flip, e)
}

// Body is the request's body with an output cap of at most most tokens, at least 1,
// and with the switch that has a stream say its usage. All other bytes are as they
// were; where nothing need change it is the very slice that was read.
func (r *Request) Body(most int64) []byte {
	if r.Free {
		return r.body
	}
	edits := slices.Clone(r.flip)
	text := strconv.FormatInt(max(most, 1), 10)
	for _, c := range r.caps {
		if c.value < 0 || c.value > max(most, 1) {
			edits = append(edits, edit{c.start, c.end, c.before + text + c.after})
		}
	}
	if len(edits) == 0 {
		return r.body
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return int(a.start - b.start) })
	out := make([]byte, 0, len(r.body)+128)
	at := int32(0)
	for _, e := range edits {
		out = append(append(out, r.body[at:e.start]...), e.text...)
		at = e.end
	}
	return append(out, r.body[at:]...)
}
