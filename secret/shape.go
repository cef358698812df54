package secret

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// Shapes of keys that vendors document. What has one is masked although nobody
// has said that it is a secret. They are chosen so that ordinary text has none:
// each begins with a text of its own, and what follows is as long as the vendor's,
// and looks drawn at random.

// alphabets of what follows the beginning of a key.
var (
	alnum    = class("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
	upper    = class("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
	hexes    = class("0123456789abcdef")
	word     = class("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
	dashed   = class("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
	dotted   = class("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
	token68  = class("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/=")
	base64ed = class("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=")
)

func class(chars string) *[256]bool {
	var c [256]bool
	for i := range len(chars) {
		c[chars[i]] = true
	}
	return &c
}

// shape is one kind of key: a text, and a run of characters after it.
type shape struct {
	kind        string // in the mark
	begin       string
	chars       *[256]bool
	least, most int // characters of the run; most 0: maxToken

	// with is what the run must hold besides, such as the dots of a token.
	with func(run []byte) bool
	// context says that begin is no part of the key, which is what follows.
	context bool
}

const (
	maxToken = 512
	maxJWT   = 8 << 10
	maxPEM   = 16 << 10
)

// kinds are the shapes that are looked for. The longest beginning wins at a place.
func kinds() []shape {
	list := []shape{
		// AWS: ids are not secret by themselves, but name the account of what is beside them.
		{kind: "aws-access-key", begin: "AKIA", chars: upper, least: 16, most: 16},
		{kind: "aws-access-key", begin: "ASIA", chars: upper, least: 16, most: 16},
		{kind: "github-token", begin: "github_pat_", chars: word, least: 50, most: 255},
		{kind: "openai-key", begin: "sk-proj-", chars: dashed, least: 40},
		{kind: "openai-key", begin: "sk-svcacct-", chars: dashed, least: 40},
		{kind: "openai-key", begin: "sk-admin-", chars: dashed, least: 40},
		{kind: "anthropic-key", begin: "sk-ant-", chars: dashed, least: 40},
		{kind: "openrouter-key", begin: "sk-or-v1-", chars: hexes, least: 64, most: 64},
		{kind: "api-key", begin: "sk-", chars: alnum, least: 32, most: 64},
		{kind: "google-key", begin: "AIza", chars: dashed, least: 35, most: 35},
		{kind: "google-token", begin: "ya29.", chars: dashed, least: 30},
		{kind: "google-secret", begin: "GOCSPX-", chars: dashed, least: 28, most: 28},
		{kind: "slack-token", begin: "xapp-", chars: dashed, least: 40},
		{kind: "slack-webhook", begin: "hooks.slack.com/services/", chars: class("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/"), least: 40, most: 100},
		{kind: "stripe-secret", begin: "whsec_", chars: base64ed, least: 32, most: 64},
		{kind: "npm-token", begin: "npm_", chars: alnum, least: 36, most: 36},
		{kind: "pypi-token", begin: "pypi-AgE", chars: dashed, least: 50},
		{kind: "gitlab-token", begin: "glpat-", chars: dotted, least: 20, most: 300},
		{kind: "huggingface-token", begin: "hf_", chars: alnum, least: 34, most: 40},
		{kind: "digitalocean-token", begin: "dop_v1_", chars: hexes, least: 64, most: 64},
		{kind: "sendgrid-key", begin: "SG.", chars: dotted, least: 66, most: 66, with: dots(1)},
		{kind: "groq-key", begin: "gsk_", chars: alnum, least: 48, most: 56},
		{kind: "xai-key", begin: "xai-", chars: alnum, least: 70, most: 90},
		{kind: "shopify-token", begin: "shpat_", chars: hexes, least: 32, most: 32},
	}
	for _, begin := range []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_"} {
		list = append(list, shape{kind: "github-token", begin: begin, chars: alnum, least: 36, most: 255})
	}
	for _, c := range "abeoprs" {
		list = append(list, shape{kind: "slack-token", begin: "xox" + string(c) + "-", chars: dashed, least: 24})
	}
	for _, begin := range []string{"sk_live_", "sk_test_", "rk_live_", "rk_test_"} {
		list = append(list, shape{kind: "stripe-key", begin: begin, chars: alnum, least: 24, most: 247})
	}
	// The header of a JSON Web Token is an object whose first member is one of these.
	for _, begin := range []string{"eyJhbGci", "eyJ0eXAi", "eyJraWQi", "eyJ4NXQi", "eyJjdHki", "eyJlbmMi", "eyJhbGciOi", "eyJqa3Ui", "eyJ4NWMi"} {
		list = append(list, shape{kind: "jwt", begin: begin, chars: dotted, least: 40, most: maxJWT, with: dots(2, 4)})
	}
	// What follows these is a key, whatever it looks like.
	for _, sep := range []string{"=", ":", " = ", ": ", `="`, `":"`, `": "`, ` = "`} {
		for _, name := range []string{"aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey", "secretAccessKey"} {
			list = append(list, shape{kind: "aws-secret-key", begin: name + sep, chars: base64ed, least: 40, most: 40, context: true})
		}
	}
	for _, sep := range []string{": ", ":", `": "`, `":"`, `": ["`, `":["`} {
		for _, scheme := range []string{"Bearer ", "bearer ", "token ", "Basic ", "basic "} {
			for _, name := range []string{"Authorization", "authorization"} {
				list = append(list, shape{kind: "authorization", begin: name + sep + scheme, chars: token68, least: 16, most: maxJWT, context: true})
			}
		}
	}
	return list
}

// dots returns what holds for a run with one of these numbers of dots, of which none
// is at an end or beside another.
func dots(n ...int) func([]byte) bool {
	return func(run []byte) bool {
		return slices.Contains(n, bytes.Count(run, []byte("."))) && run[0] != '.' && run[len(run)-1] != '.' && !bytes.Contains(run, []byte(".."))
	}
}

// shapes finds them. Of each beginning three characters are picked that other text
// seldom has; two of them stand at an even place, so every other pair of a text is
// looked up, and hardly any has more to it.
type shapes struct {
	list    []shape
	pairs   [1 << 16]uint8 // index into backs; 0: no beginning has the pair
	backs   [][]int        // how far before the pair a beginning is
	starts  [256][]int32   // shapes by their first character, the longest beginning first
	longest int            // characters of the longest beginning
	exempt  func([]byte) bool
}

// Private keys in PEM are found by their lines.
const (
	pemBegin = "-----BEGIN "
	pemKind  = "PRIVATE KEY"
	pemEnd   = "-----END "
	dashes   = "-----"
)

func newShapes(exempt func([]byte) bool) *shapes {
	s := &shapes{list: append(kinds(), shape{kind: "private-key", begin: pemBegin}), exempt: exempt}
	slices.SortStableFunc(s.list, func(a, b shape) int { return len(b.begin) - len(a.begin) })
	s.longest, s.backs = len(s.list[0].begin), [][]int{nil}
	for i, k := range s.list {
		s.starts[k.begin[0]] = append(s.starts[k.begin[0]], int32(i))
		at := seldom(k.begin)
		s.index(k.begin[at:], at)
		s.index(k.begin[at+1:], at+1)
	}
	return s
}

func (s *shapes) index(text string, back int) {
	p := &s.pairs[pair(text[0], text[1])]
	if *p == 0 {
		*p = uint8(len(s.backs))
		s.backs = append(s.backs, nil)
	}
	if list := &s.backs[*p]; !slices.Contains(*list, back) {
		*list = append(*list, back)
	}
}

// seldom is where in a beginning the three characters are whose two pairs other
// text has least.
func seldom(begin string) int {
	often := func(a, b byte) int {
		rank := func(c byte) int {
			return strings.IndexByte("QXZJKqzjVYWxUkGH_OFvLIMBCDPbASyRgwNTpf\"Emuhd.-c:/lsrn9876543210iaote ", c) + 1
		}
		return rank(a) * rank(b)
	}
	best := 0
	for at := range len(begin) - 2 {
		if often(begin[at], begin[at+1])+often(begin[at+1], begin[at+2]) < often(begin[best], begin[best+1])+often(begin[best+1], begin[best+2]) {
			best = at
		}
	}
	return best
}

func pair(a, b byte) uint16 { return uint16(a) | uint16(b)<<8 }

// hit is one occurrence.
type hit struct {
	start, end int
	mark       string
}

// find returns the occurrences in b in the order of their starts, and how far it
// came: len(b), or, unless b is final, the first place where b may end within one.
// keys says whether keys in PEM are looked for, too.
func (s *shapes) find(b []byte, final, keys bool) (found []hit, passed int) {
	passed = len(b)
	var seen runs
	look := func(start int) {
		if start < 0 || start > 0 && alnum[b[start-1]] { // the end of a word, or within other data
			return
		}
		if h, open := s.at(b, start, final, keys, &seen); open {
			passed = min(passed, start)
		} else if h.end > 0 {
			found = append(found, h)
		}
	}
	for i := 0; i+1 < len(b); i += 2 {
		if p := s.pairs[pair(b[i], b[i+1])]; p != 0 {
			for _, back := range s.backs[p] {
				look(i - back)
			}
		}
	}
	if !final { // a beginning may have begun
		for i := max(0, len(b)-s.longest); i < len(b); i++ {
			if s.starts[b[i]] != nil {
				look(i)
			}
		}
	}
	slices.SortStableFunc(found, func(x, y hit) int { return cmp.Or(x.start-y.start, y.end-x.end) })
	return found, passed
}

// at returns the occurrence at a place, and whether b ends before it is known.
func (s *shapes) at(b []byte, start int, final, keys bool, seen *runs) (h hit, open bool) {
	rest := b[start:]
	for _, i := range s.starts[rest[0]] {
		k := &s.list[i]
		if len(rest) < len(k.begin) {
			if !final && string(rest) == k.begin[:len(rest)] {
				return hit{}, true
			}
			continue
		}
		if string(rest[:len(k.begin)]) != k.begin {
			continue
		}
		if k.chars == nil && !keys {
			continue
		}
		if k.chars == nil {
			return pem(b, start, final)
		}
		n, open := k.run(b, start+len(k.begin), final, seen)
		if open {
			return hit{}, true
		}
		if n == 0 {
			continue // a shorter beginning may fit
		}
		h := hit{start, start + len(k.begin) + n, shapeMark(k.kind)}
		if k.context {
			h.start += len(k.begin)
		}
		if s.exempt != nil && s.exempt(b[h.start:h.end]) {
			return hit{}, false
		}
		return h, false
	}
	return hit{}, false
}

// run is the length of the shape's run at a place, 0 when there is none; open says
// that b ends before that can be told.
func (k *shape) run(b []byte, from int, final bool, seen *runs) (n int, open bool) {
	most := k.most
	if most == 0 {
		most = maxToken
	}
	n = seen.end(b, from, k.chars) - from
	switch {
	case from+n == len(b) && n <= most && !final:
		return 0, true
	case n < k.least || n > most || k.with != nil && !k.with(b[from:from+n]) || !random(b[from:from+min(n, maxToken)]):
		return 0, false
	}
	return n, false
}

// runs are where runs of characters lie that were looked at, the newest of each
// class: a text of nothing but beginnings, of which each is in the run of the one
// before it, is gone through once.
type runs struct {
	of []struct {
		chars     *[256]bool
		from, end int
	}
}

// end is where the run at a place ends.
func (r *runs) end(b []byte, from int, chars *[256]bool) int {
	i := 0
	for i < len(r.of) && r.of[i].chars != chars {
		i++
	}
	if i == len(r.of) {
		r.of = append(r.of, struct {
			chars     *[256]bool
			from, end int
		}{chars, from, from})
	}
	known := &r.of[i]
	if known.from <= from && from < known.end {
		return known.end
	}
	end := from
	for end < len(b) && chars[b[end]] {
		if end == known.from && known.from < known.end {
			end = known.end
			break
		}
		end++
	}
	known.from, known.end = from, end
	return end
}

// shapeMark is what stands for a key that is known by its shape. No name of a Value
// has its question mark.
func shapeMark(kind string) string { return "[secret:?" + kind + "]" }

// random reports whether a run looks drawn at random: examples of documents
// (…EXAMPLE, xxxx, 0123456789abcdef) do not.
func random(run []byte) bool {
	var seen [256]bool
	distinct, steps := 0, 0
	for i, c := range run {
		if !seen[c] {
			seen[c] = true
			distinct++
		}
		if i > 0 && (c == run[i-1] || c == run[i-1]+1) {
			steps++
		}
	}
	return distinct >= 8 && steps*3 < len(run) && !bytes.Contains(run, []byte("EXAMPLE")) && !bytes.Contains(run, []byte("example"))
}

// inPEM are the characters between the first line of a key in PEM and its last:
// those of base64, of the fields that may be above it, of line breaks and quotes as
// programs write them, and of what logs begin lines with.
var inPEM = class("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/= \t\r\n\\:,.-()[]|>\"'")

// pem is a private key in PEM, from its first line to its last one, also where the
// line breaks are written as \n. What is only spoken of, as in a program that looks
// for one, is none.
func pem(b []byte, start int, final bool) (hit, bool) {
	rest := b[start:min(len(b), start+maxPEM)]
	unfinished := !final && len(rest) < maxPEM
	line := len(pemBegin)
	for line < len(rest) && (rest[line] == ' ' || rest[line] >= 'A' && rest[line] <= 'Z' || rest[line] >= '0' && rest[line] <= '9') && line < 64 {
		line++
	}
	if line+5 > len(rest) && unfinished {
		return hit{}, true
	}
	name := string(rest[len(pemBegin):line])
	if !strings.HasSuffix(name, pemKind) && !strings.HasSuffix(name, pemKind+" BLOCK") || !bytes.HasPrefix(rest[line:], []byte(dashes)) {
		return hit{}, false
	}
	body := rest[line+len(dashes):]
	end := bytes.Index(body, []byte(dashes))
	if end >= 0 {
		body = body[:end]
	}
	plain := 0
	for plain < len(body) && inPEM[body[plain]] {
		plain++
	}
	last := []byte(pemEnd + name + dashes)
	after := rest[line+len(dashes)+len(body):]
	switch whole := plain == len(body); {
	case whole && unfinished && (end < 0 || len(after) < len(last) && bytes.HasPrefix(last, after)):
		return hit{}, true
	case whole && bytes.HasPrefix(after, last):
		if len(body) < 64 { // a template
			return hit{}, false
		}
		return hit{start, start + len(rest) - len(after) + len(last), shapeMark("private-key")}, false
	}
	// Cut off, or too long: what there is of it.
	n := 0
	for n < len(body) && (base64ed[body[n]] || body[n] == '\n' || body[n] == '\r') {
		n++
	}
	if n < 64 {
		return hit{}, false
	}
	return hit{start, start + line + len(dashes) + n, shapeMark("private-key")}, false
}
