package inference

import (
	"mime"
	"net/http"
	"slices"
	"strings"
)

// Request is a request that was judged. It keeps the body that it was read from,
// which must not be changed. It is not changed itself once it was read.
type Request struct {
	API    API
	Model  string
	Stream bool
	// Output is the cap that the client has set, in tokens; 0: none.
	Output int64
	// Least is the smallest cap with which the vendor takes the request, at least
	// 1; but see LeastOf.
	Least int64
	// Free: it counts tokens, costs nothing, and Body does not change it.
	Free bool

	body []byte
	caps []limit // where the cap is, or is put
	flip []edit  // has a stream say its usage
	talk talk
}

// LeastOf is the smallest cap, in tokens, with which the vendor takes the request,
// whose fields are header: Anthropic refuses one that is not above
// thinking.budget_tokens, and OpenAI one of Responses below 16. It is not above
// what the client has set itself.
//
// With interleaved thinking the budget is that of several answers, and may be above
// the cap (docs.anthropic.com/en/docs/build-with-claude/extended-thinking).
func (r *Request) LeastOf(header http.Header) int64 {
	if r.API == Messages {
		for _, field := range header.Values("Anthropic-Beta") {
			if strings.Contains(field, "interleaved-thinking-") {
				return 1
			}
		}
	}
	if r.Output > 0 {
		return min(r.Least, r.Output)
	}
	return r.Least
}

// Read judges the body of a request of call.API, which has been decompressed.
// path is the request's target with its query: Gemini has the model there, and the
// way of streaming. The error is a *Refusal.
//
// What passes is what is known. Refused is what would let a request use what is not
// in it, or cost what nobody can foresee from it:
//   - models that are not on the list, also as a fallback or a helper;
//   - tools that the vendor runs, and records of them in the conversation;
//   - what the vendor keeps from elsewhere: previous responses, conversations,
//     prompts, files, containers, caches with a name, references to items. Whether
//     it keeps this one (store) is left to the client;
//   - what the vendor would fetch;
//   - answers in the background, several answers to one request (n,
//     candidateCount), summaries made on the way (compaction) and predictions, for
//     which the cap of the output does not hold;
//   - other modalities of output than text, tiers, regions and modes with prices of
//     their own, unless r.Dearer;
//   - members of the outermost object that this package does not know, unless
//     r.Members names them: the next feature of a vendor's is one of these;
//   - whatever two readers may take differently: a member twice, also in another
//     spelling, bytes that are no UTF-8 or follow the JSON, a cap that is no whole
//     number.
func Read(call Call, path, contentType string, body []byte, r Rules) (*Request, error) {
	if !isJSON(contentType) {
		return nil, &Refusal{RefuseForm, "the body is not sent as application/json"}
	}
	d, problem := parse(body)
	if problem != "" {
		return nil, &Refusal{RefuseForm, problem}
	}
	if d.kind(0) != '{' {
		return nil, &Refusal{RefuseForm, "the body is no JSON object"}
	}
	var err error
	j := judge{document: d, rules: &r, out: &Request{API: call.API, Free: call.Free, Least: 1, body: body}}
	if err = j.target(path); err != nil {
		return nil, err
	}
	if err = j.outermost(0); err != nil {
		return nil, err
	}
	if err = j.whole(); err != nil {
		return nil, err
	}
	if j.out.talk, err = j.outline(j.nested); err != nil { // 0 is the whole
		return nil, err
	}
	return j.out, nil
}

// Held is about how many bytes are held for the request besides its body.
func (r *Request) Held() int64 { return r.talk.held() }

// googleFields are those of Google's servers that change nothing about an answer.
// Among the others is X-Goog-FieldMask, which leaves parts of it out, and so can what
// was counted.
// https://cloud.google.com/apis/docs/system-parameters
var googleFields = map[string]bool{"X-Goog-Api-Key": true, "X-Goog-Api-Client": true, "X-Goog-User-Project": true, "X-Goog-Request-Params": true}

// ReadHeader judges what the fields of a request ask of the vendor, which have the
// canonical form of package net/http. The error is a *Refusal.
func ReadHeader(api API, header http.Header, r Rules) error {
	for name := range header {
		if api == Gemini && strings.HasPrefix(strings.ReplaceAll(name, "_", "-"), "X-Goog-") && !googleFields[name] {
			return &Refusal{RefuseForm, "the request has the field " + quoted(name) + ", which is not known to be harmless"}
		}
	}
	for _, field := range header.Values("Anthropic-Beta") {
		// More than 200,000 tokens of input then cost twice as much.
		if api == Messages && strings.Contains(field, "context-1m-") && !r.Dearer {
			return &Refusal{RefusePrice, "the request asks for a context of a million tokens, which has a price of its own"}
		}
	}
	return nil
}

func isJSON(contentType string) bool {
	kind, params, err := mime.ParseMediaType(contentType)
	charset, has := params["charset"]
	return err == nil && kind == "application/json" && (!has || strings.EqualFold(charset, "utf-8"))
}

// judge reads one request.
type judge struct {
	*document
	rules *Rules
	out   *Request

	named   bool // the path has the model
	nested  int  // Gemini's countTokens has the request in one, 0: not
	config  int  // Gemini's generationConfig
	options int  // Chat's stream_options
}

func refuse(code RefusalCode, reason string) error { return &Refusal{code, reason} }

// outermost judges the members of the request.
func (j *judge) outermost(object int) error {
	known, twins := members[j.out.API], map[string]bool{}
	for i := range j.each(object) {
		name := j.name(i)
		m, ok := known[string(name)]
		switch {
		case !ok && slices.Contains(j.rules.Members, string(name)) && !j.twin(name):
			continue
		case !ok:
			return refuse(RefuseForm, "the request has the member "+quoted(name)+", which is not known to be harmless")
		case j.out.API == Gemini && twins[folded(name)]: // it reads generation_config as generationConfig
			return refuse(RefuseForm, "the request says "+quoted(name)+" twice, in two spellings")
		}
		twins[folded(name)] = true
		if m != nil {
			if err := m(j, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// twin reports whether a lenient reader may take a name for a member that is known.
func (j *judge) twin(name []byte) bool {
	for known := range members[j.out.API] {
		if folded([]byte(known)) == folded(name) {
			return true
		}
	}
	return false
}

// listed reports whether a name is one of the patterns, exact or ending in *.
func listed(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if head, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(name, head)
		}
		return p == name
	})
}

// maxName is how many bytes a model's name may have.
const maxName = 256

// searching are parts of names of models that search the web without being asked
// to, by OpenAI, OpenRouter, Perplexity and Groq. A pattern with * is not taken to
// mean them.
var searching = []string{"-search", "deep-research", ":online", "sonar", "compound"}

func (j *judge) isModel(name string) error {
	patterns := j.rules.Models
	if slices.ContainsFunc(searching, func(part string) bool { return strings.Contains(name, part) }) {
		patterns = slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return strings.HasSuffix(p, "*") })
	}
	if name == "" || len(name) > maxName || !listed(patterns, name) {
		return refuse(RefuseModel, "the model "+quoted(name)+" is none that this run may ask")
	}
	return nil
}
