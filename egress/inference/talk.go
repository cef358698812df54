package inference

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"hash/maphash"
	"math/bits"
	"strings"
)

// talk is what a request is made of, as a Counter sees it: without the texts.
type talk struct {
	base  []piece  // system prompt, tools, and what else the model is told, in any order
	items []piece  // of the conversation, in theirs
	chain []uint64 // of each item, with all before it
	turn  string
}

// piece is one part of a request.
type piece struct {
	hash  uint64
	reply bool // is of the model
	size
}

// size is what a piece is at most in tokens: one for each byte of ascii and other,
// and fixed.
type size struct{ ascii, other, fixed int64 }

func (s size) most() int64 { return s.ascii + s.other + s.fixed }

// likely counts two bytes of ASCII for a token.
func (s size) likely() int64 { return (s.ascii+1)/2 + s.other + s.fixed/4 }

func (s *size) add(o size) {
	s.ascii, s.other, s.fixed = s.ascii+o.ascii, s.other+o.other, s.fixed+o.fixed
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

// outline makes the talk of a request that was judged.
func (j *judge) outline(object int) talk {
	w := weigher{document: j.document, api: j.out.API, image: imageTokens(j.out.API, j.out.Model)}
	w.hash.SetSeed(seed)
	var t talk
	said := 0
	for m := range j.each(object) {
		switch name := string(j.name(m)); {
		case name == spoken[w.api]:
			said = m
		case untold[name]:
		case j.kind(m) == '[':
			for e := range j.each(m) {
				t.base = append(t.base, w.piece(e))
			}
		default:
			t.base = append(t.base, w.piece(m))
		}
	}
	if said == 0 {
		return t
	}
	w.pictures = true
	if j.kind(said) != '[' { // a text, or one item
		t.items = []piece{w.piece(said)}
		t.turn = w.turn([]int{said}, t.items)
	} else {
		var at []int
		for e := range j.each(said) {
			at = append(at, e)
			t.items = append(t.items, w.piece(e))
		}
		t.turn = w.turn(at, t.items)
	}
	w.hash.Reset()
	_, _ = w.hash.WriteString(string(w.api) + "\n" + j.out.Model + "\n")
	for _, p := range t.items {
		maphash.WriteComparable(&w.hash, p.hash)
		t.chain = append(t.chain, w.hash.Sum64())
	}
	return t
}

// weigher hashes and weighs parts of a document.
type weigher struct {
	*document
	api   API
	image int64 // tokens of one
	hash  maphash.Hash
	size  size
	// pictures: what looks like an image is one. In a tool's arguments and results
	// it is only text.
	pictures bool
	// turning: ids, proofs and thoughts are left out, which differ where the same
	// is said again; and what is written goes to said.
	turning bool
	said    hash.Hash
}

func (w *weigher) piece(i int) piece {
	w.hash.Reset()
	w.size = size{fixed: frame}
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
// the same: all of them where turns are compared, the first ones always.
var (
	marking  = map[string]bool{"cache_control": true}
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
	case marking[name]:
		return w.api == Messages || w.api == Chat // those of DashScope and OpenRouter have it, too
	case w.turning:
		return changing[name]
	case w.api == Responses && object == item: // which a server that stores gives, and other clients leave out
		return name == "id" || name == "status"
	}
	return false
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
		w.size.fixed += w.image
	default:
		pictures := w.pictures
		w.pictures = pictures && !data[w.api][name]
		w.walk(item, m)
		w.pictures = pictures
	}
}

// isImage reports whether a string is an image in base64.
func (w *weigher) isImage(object, m int, name string) bool {
	if !w.pictures {
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
