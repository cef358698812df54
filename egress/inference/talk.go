package inference

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"hash/maphash"
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// talk is what a request is made of, as a Counter sees it: without the texts.
type talk struct {
	base  []piece  // system prompt, tools, and what else the model is told, in any order
	items []piece  // of the conversation, in theirs
	chain []uint64 // of each item, with all before it and what governs how it is counted
	turn  string
}

// piece is one part of a request.
type piece struct {
	hash  uint64
	reply bool // is of the model
	size
}

// size is what a piece is at most in tokens: one for each byte of ascii and other,
// and those of its frame and its images.
type size struct{ ascii, other, frame, image int64 }

func (s size) most() int64 { return s.ascii + s.other + s.frame + s.image }

// likely counts two bytes of ASCII for a token.
func (s size) likely() int64 { return (s.ascii+1)/2 + s.other + s.frame/4 + s.image }

func (s *size) add(o size) {
	s.ascii, s.other, s.frame, s.image = s.ascii+o.ascii, s.other+o.other, s.frame+o.frame, s.image+o.image
}

// What vendors add to a request around each part, and to the whole, in tokens at
// most: roles, marks, the prompt that makes a model use tools.
const frame, frames = 32, 512

// imageTokens are the most that an image comes to, however large it is: vendors
// scale it. Sources, as of 2026:
//   - OpenAI (platform.openai.com/docs/guides/images-vision): 10,000 patches with
//     detail "original", 1,536 for other models, times up to 2.46; and of the models
//     that count tiles at most 8 of them, which for gpt-4o-mini are 2,833 + 8 × 5,667.
//   - Anthropic (docs.anthropic.com/en/docs/build-with-claude/vision): the pixels by
//     750, at most about 4,784 of models with high resolution and 1,600 of others.
//   - Google (ai.google.dev/gemini-api/docs/tokens): 258 for each tile of 768 pixels
//     of at most 3,072 in either direction; 2,240 with the highest resolution of
//     Gemini 3.
//
// What is no image, or has no such bound, counts its bytes in base64.
func imageTokens(api API, model string) int64 {
	switch {
	case api == Messages || api == Gemini:
		return 5_000
	case strings.Contains(model, "4o-mini"):
		return 48_169
	}
	return 24_600
}

// seed makes the hashes of one process: nobody in a sandbox can look for two
// conversations with the same.
var seed = maphash.MakeSeed()

// untold are members of a request of which the model is told nothing.
var untold = map[string]bool{"model": true, "stream": true, "stream_options": true, "metadata": true, "client_metadata": true,
	"diagnostics": true, "user": true, "store": true, "prompt_cache_key": true, "safety_identifier": true, "service_tier": true,
	"max_tokens": true, "max_completion_tokens": true, "max_output_tokens": true, "temperature": true, "top_p": true, "top_k": true,
	"include": true, "labels": true, "safetySettings": true, "generateContentRequest": true}

// spoken are the members that the conversation is in.
var spoken = map[API]string{Chat: "messages", Responses: "input", Messages: "messages", Gemini: "contents"}

// governing are members by which a vendor takes, and counts, less or more of the same
// conversation: what was counted with one of them holds with the very same alone.
var governing = map[string]bool{"context_management": true, "truncation": true, "thinking": true, "enable_thinking": true,
	"preserve_thinking": true, "reasoning": true, "include_reasoning": true, "chat_template_kwargs": true,
	"vl_high_resolution_images": true, "mediaResolution": true, "media_resolution": true}

// maxPieces bounds a talk. A conversation of a million tokens has some thousands.
const maxPieces = 1 << 14

// held is about how many bytes a talk takes.
func (t *talk) held() int64 { return 56 * int64(cap(t.base)+cap(t.items)) }

// outline makes the talk of a request that was judged.
func (j *judge) outline(object int) (talk, error) {
	w := weigher{document: j.document, api: j.out.API, image: imageTokens(j.out.API, j.out.Model)}
	w.hash.SetSeed(seed)
	var t talk
	var governed []uint64
	said := 0
	for m := range j.each(object) {
		name := string(j.name(m))
		switch {
		case name == spoken[w.api]:
			said = m
		case untold[name]:
		case j.kind(m) == '[':
			for e := range j.each(m) {
				if t.base = append(t.base, w.piece(name, e)); len(t.base) > maxPieces {
					return t, tooMuch()
				}
			}
		default:
			t.base = append(t.base, w.piece(name, m))
		}
		for g := range w.governors(m) {
			governed = append(governed, w.piece(string(j.name(g)), g).hash)
		}
	}
	if said == 0 {
		return t, nil
	}
	w.images = true
	at := []int{said} // a text, or one item
	if j.kind(said) == '[' {
		at = at[:0]
		for e := range j.each(said) {
			if at = append(at, e); len(at) > maxPieces {
				return t, tooMuch()
			}
		}
	}
	t.items = make([]piece, len(at))
	for i, e := range at {
		t.items[i] = w.piece("", e)
	}
	t.turn = w.turn(at, t.items)
	w.hash.Reset()
	_, _ = w.hash.WriteString(string(w.api) + "\n" + j.out.Model + "\n")
	slices.Sort(governed)
	for _, h := range governed {
		maphash.WriteComparable(&w.hash, h)
	}
	t.chain = make([]uint64, len(t.items))
	for i, p := range t.items {
		maphash.WriteComparable(&w.hash, p.hash)
		t.chain[i] = w.hash.Sum64()
	}
	return t, nil
}

func tooMuch() error {
	return refuse(RefuseForm, "the request has more than "+strconv.Itoa(maxPieces)+" messages, or as many tools")
}

// governors are the members of a request, and of Gemini's generation config, that
// govern how it is counted.
func (w *weigher) governors(m int) iter.Seq[int] {
	return func(yield func(int) bool) {
		switch name := string(w.name(m)); {
		case governing[name]:
			yield(m)
		case name == "generationConfig" || name == "generation_config":
			for g := range w.each(m) {
				if governing[string(w.name(g))] && !yield(g) {
					return
				}
			}
		}
	}
}

// weigher hashes and weighs parts of a document.
type weigher struct {
	*document
	api   API
	image int64 // tokens of one
	hash  maphash.Hash
	size  size
	// images: what is walked is of the conversation, which may have some.
	images bool
	// content: the value is where the protocol has what is said. In a tool's schema,
	// arguments and results what looks like an image, or like a mark, is only text.
	content bool
	// turning: ids, proofs and thoughts are left out, which differ where the same
	// is said again; and what is written goes to said.
	turning bool
	said    hash.Hash
}

// piece is one part, of a member's.
func (w *weigher) piece(member string, i int) piece {
	w.hash.Reset()
	_, _ = w.hash.WriteString(member + "\n")
	w.size, w.content = size{frame: frame}, true
	w.walk(i, i)
	return piece{hash: w.hash.Sum64(), reply: w.isReply(i), size: w.size}
}

// isReply reports whether an item is what the model has said.
func (w *weigher) isReply(i int) bool {
	role := w.member(i, "role")
	if role != 0 {
		return w.is(role, "assistant") || w.is(role, "model")
	}
	kind := w.member(i, "type")
	return w.api == Responses && kind != 0 && !bytes.HasSuffix(w.str(kind), []byte("_output"))
}

// turn is the hash of the last thing that the model said, and of what was said
// to it since.
func (w *weigher) turn(at []int, items []piece) string {
	first := len(items)
	for first > 0 && !items[first-1].reply {
		first--
	}
	for first > 0 && items[first-1].reply {
		first--
	}
	w.turning, w.said = true, sha256.New()
	for _, i := range at[first:] {
		w.walk(i, i)
	}
	w.turning = false
	return hex.EncodeToString(w.said.Sum(nil)[:16])
}

// What is hashed besides names and values.
var (
	lineEnd, objectBegins, objectEnds, listBegins, listEnds = []byte("\n"), []byte("{"), []byte("}"), []byte("["), []byte("]")

	textBegins = [][]byte{listBegins, objectBegins, []byte("type"), []byte(`"text"`), []byte("text")}
)

// write hashes a part as it is written.
func (w *weigher) write(p []byte) {
	if w.turning {
		_, _ = w.said.Write(p)
		_, _ = w.said.Write(lineEnd)
		return
	}
	_, _ = w.hash.Write(p)
	_ = w.hash.WriteByte('\n')
}

// changing are names of what clients and vendors change about a part that stays
// the same, where turns are compared.
var (
	changing = map[string]bool{"id": true, "call_id": true, "tool_call_id": true, "tool_use_id": true, "status": true,
		"signature": true, "encrypted_content": true, "thoughtSignature": true, "thought_signature": true,
		"reasoning": true, "reasoning_content": true, "reasoning_details": true}
	thoughts = map[string]bool{"thinking": true, "redacted_thinking": true, "reasoning": true}
)

// ignored reports whether a member is none of what its object says.
func (w *weigher) ignored(item, object, m int, name string) bool {
	switch {
	case w.kind(m) == 'n':
		return true
	case name == "cache_control":
		return (w.api == Messages || w.api == Chat) && w.content && w.isMark(m) // those of DashScope and OpenRouter have it, too
	case w.turning:
		return changing[name]
	case w.api == Responses && object == item: // which a server that stores gives, and other clients leave out
		return name == "id" || name == "status"
	}
	return false
}

// isMark reports whether a value says what to cache, and nothing else.
func (w *weigher) isMark(m int) bool {
	if w.kind(m) != '{' {
		return false
	}
	for e := range w.each(m) {
		if name := string(w.name(e)); w.kind(e) != '"' || len(w.raw(e)) > 16 || name != "type" && name != "ttl" && name != "scope" {
			return false
		}
	}
	return true
}

// walk hashes and weighs a value of an item. The weight is about that of the same
// JSON without spaces and escapes.
func (w *weigher) walk(item, i int) {
	switch w.kind(i) {
	case '{':
		if w.turning {
			if kind := w.member(i, "type"); kind != 0 && thoughts[string(w.str(kind))] {
				return
			}
		}
		w.size.ascii += 2
		w.write(objectBegins)
		for m := range w.each(i) {
			w.walkMember(item, i, m)
		}
		w.write(objectEnds)
	case '[':
		w.size.ascii += 2
		w.write(listBegins)
		for e := range w.each(i) {
			w.size.ascii++
			w.walk(item, e)
		}
		w.write(listEnds)
	case '"':
		w.write(w.raw(i))
		w.weigh(i)
	default:
		w.write(w.raw(i))
		w.size.ascii += int64(len(w.raw(i)))
	}
}

func (w *weigher) walkMember(item, object, m int) {
	name := string(w.name(m))
	if w.ignored(item, object, m, name) {
		return
	}
	w.size.ascii += int64(len(name)) + 4
	w.write(w.name(m))
	switch {
	case w.kind(m) == '"' && name == "content" && (w.api == Messages || w.api == Chat):
		// The same as a list of one text, which clients make of it to mark it.
		for _, part := range textBegins {
			w.write(part)
		}
		w.size.ascii += int64(len(`[{"type":"text","text":}]`))
		w.walk(item, m)
		w.write(objectEnds)
		w.write(listEnds)
	case w.kind(m) == '"' && w.isImage(object, m, name):
		w.write(w.raw(m))
		w.size.image += w.image
	default:
		content := w.content
		w.content = content && contents[w.api][name]
		w.walk(item, m)
		w.content = content
	}
}

// contents are the members on the way from an item to what is said in it.
var contents = map[API]map[string]bool{
	Chat:      {"content": true, "image_url": true},
	Responses: {"content": true, "output": true},
	Messages:  {"content": true, "source": true},
	Gemini:    {"parts": true, "inlineData": true, "inline_data": true, "functionResponse": true, "function_response": true},
}

// isImage reports whether a string is an image in base64.
func (w *weigher) isImage(object, m int, name string) bool {
	if !w.images || !w.content {
		return false
	}
	switch name {
	case "url", "image_url":
		head := w.raw(m)
		return len(head) > 12 && strings.EqualFold(string(head[1:12]), "data:image/")
	case "data":
		for _, kind := range []string{"media_type", "mimeType", "mime_type"} {
			if k := w.member(object, kind); k != 0 {
				return bytes.HasPrefix(w.str(k), []byte("image/"))
			}
		}
	}
	return false
}

// weigh weighs a string as it is without escapes.
func (w *weigher) weigh(i int) {
	v, raw := &w.values[i], w.raw(i)
	other := nonASCII(raw) + int64(v.wide)
	w.size.ascii += int64(len(raw)) - int64(v.less) - other
	w.size.other += other
}

// nonASCII counts the bytes that are not ASCII.
func nonASCII(p []byte) (n int64) {
	const high = 0x8080808080808080
	for ; len(p) >= 8; p = p[8:] {
		n += int64(bits.OnesCount64(binary.LittleEndian.Uint64(p) & high))
	}
	for _, c := range p {
		n += int64(c >> 7)
	}
	return n
}
