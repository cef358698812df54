package history

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/model"
)

// Bounds of what stands for a result, in bytes.
const (
	maxWhat    = 64
	maxLine    = 200
	maxExcerpt = 600
	// maxLedger bounds the ledger, besides the share of one result, and
	// maxDocument that of the strategy Structured.
	maxLedger   = 2 << 10
	maxDocument = 4 << 10
)

// reference is what is left of a result.
type reference struct {
	Reduced string     `json:"reduced"` // what it was
	Outcome string     `json:"outcome,omitempty"`
	Line    string     `json:"line,omitempty"`
	Text    *textPlace `json:"text,omitempty"`
	Excerpt string     `json:"excerpt,omitempty"`
}

type textPlace struct {
	Path  string `json:"read_file"`
	Bytes int64  `json:"bytes,omitempty"`
	Lines int64  `json:"lines,omitempty"`
}

// refer makes the reference to a result, and reports whether something in it is
// a tool's.
func (h *History) refer(it *item) (ref string, foreign bool) {
	r := reference{Reduced: line(it.What, maxWhat), Outcome: line(it.Outcome, maxState), Line: line(it.Line, maxLine)}
	switch {
	case it.Path != "":
		r.Text = &textPlace{it.Path, it.Bytes, it.Lines}
	case h.o.Excerpt != nil:
		r.Excerpt = evidence.Cut(strings.ToValidUTF8(h.o.Excerpt(it.Content), "\uFFFD"), maxExcerpt)
	}
	if h.o.Strategy == Structured && r.Text != nil { // the document says the rest
		r.Line = ""
	}
	data, err := json.Marshal(r)
	if err != nil { // strings and numbers always encode
		panic(err)
	}
	return string(data), r.Line != "" || r.Excerpt != ""
}

// dress makes the content of a reference, with what stands behind it.
func (h *History) dress(it *item, state string) {
	it.state = state
	switch {
	case state != "":
		it.content = h.o.Quote(it.Name, it.ref+"\n"+state)
	case it.foreign:
		it.content = h.o.Quote(it.Name, it.ref)
	default:
		it.content = it.ref
	}
	if _, after, ok := strings.Cut(it.content, it.ref); ok { // it is not kept twice
		end := len(it.content) - len(after)
		it.ref = it.content[end-len(it.ref) : end]
	}
}

// reduce makes references of the older results, until no more than low bytes
// are whole. Those of the newest step stay.
func (h *History) reduce(ctx context.Context, low int) {
	newest, sum, full := h.newest(), 0, false
	low = h.atLeast(newest, low)
	most := h.size() // that a result of the newest step may hold in what is left
	if h.o.Share < 100 {
		most = max(MinResult, (h.size()-h.whole()+low)*h.o.Share/100)
	}
	var taken []Result
	for i := len(h.entries) - 1; i >= 0; i-- {
		for _, it := range slices.Backward(h.entries[i].items) {
			switch {
			case it.reduced:
			case i == newest:
				sum += min(len(it.content), most)
			case !full && sum+len(it.content) <= low:
				sum += len(it.content)
			default:
				full = true
				whole := it.Result
				if h.replace(i, it) {
					taken = append(taken, whole)
				}
			}
		}
	}
	if len(taken) == 0 {
		return
	}
	if h.o.Strategy == Summary {
		slices.Reverse(taken)
		h.sumUp(ctx, taken)
	}
	h.pin()
}

// atLeast raises low so that the longest result of the newest step keeps its
// share whole, but not so far that the next reduction would come at once.
func (h *History) atLeast(newest, low int) int {
	longest := 0
	for _, it := range h.entries[newest].items {
		longest = max(longest, len(it.content))
	}
	want := longest*100/h.o.Share - (h.size() - h.whole())
	return max(low, min(want, (3*low+h.o.High)/4))
}

// replace makes a reference of a result, when that is shorter.
func (h *History) replace(i int, it *item) bool {
	if it.reduced {
		return false
	}
	next := item{Result: Result{ToolResult: model.ToolResult{ID: it.ID, Name: it.Name, IsError: it.IsError}}, reduced: true}
	next.ref, next.foreign = h.refer(it)
	if h.dress(&next, ""); len(next.content) >= len(it.content) {
		return false
	}
	*it = next
	h.changed(i)
	return true
}

// newest is the index of the last message with results, or -1.
func (h *History) newest() int {
	for i, e := range slices.Backward(h.entries) {
		if len(e.items) > 0 {
			return i
		}
	}
	return -1
}

// pin puts the ledger behind the last reference, or behind the task when
// nothing older is left, and takes it from where it was.
func (h *History) pin() {
	at, last := 0, (*item)(nil)
	for i, e := range h.entries {
		for _, it := range e.items {
			if it.state != "" {
				h.dress(it, "")
				h.changed(i)
			}
			if it.reduced {
				at, last = i, it
			}
		}
	}
	if h.dropped > 0 {
		h.preface = fmt.Sprintf("\n\n(%d earlier steps are left out here to save space.)", h.dropped)
		h.changed(0)
	}
	if last == nil {
		if h.dropped > 0 {
			h.preface += "\n" + h.o.Quote("ledger", h.render(h.size()*h.o.Share/100))
		}
		return
	}
	if state := h.render(h.size()*h.o.Share/100 - len(last.content) - 128); state != "" {
		h.dress(last, state)
		h.changed(at)
	}
}

// render is the ledger in no more than so many bytes.
func (h *History) render(most int) string {
	if h.o.Strategy == Structured {
		return h.ledger.render(h.summary, min(most, maxDocument), true)
	}
	return h.ledger.render(h.summary, min(most, maxLedger+len(h.summary)), false)
}

// share sees to it that no result holds more than its share of the request.
// Older results become references; those of the newest step are shortened.
func (h *History) share() {
	again := false
	newest := h.newest()
	for range maxRounds {
		most, over := h.level(newest), false
		for i, e := range h.entries {
			for _, it := range e.items {
				if len(it.content) <= most || !h.over(it) {
					continue
				}
				switch {
				case it.state != "":
					h.dress(it, "")
					h.changed(i)
					over, again = true, true
				case i == newest && h.shorten(it, most):
					h.changed(i)
					over = true
				case h.replace(i, it):
					over, again = true, true
				}
			}
		}
		if !over {
			break
		}
	}
	if again {
		h.pin()
	}
}

// maxRounds bounds how often one request is looked at again: what was shortened
// is a part of the whole that the shares are of.
const maxRounds = 32

// over reports whether a result holds more than its share.
func (h *History) over(it *item) bool {
	return len(it.content) > MinResult && len(it.content)*100 > h.size()*h.o.Share
}

// level is how long results may be when those of the newest step that are
// longer are cut to it: their share of what the request then has.
func (h *History) level(newest int) int {
	if newest < 0 || h.o.Share >= 100 {
		return h.size()
	}
	items := h.entries[newest].items
	most, rest := h.size(), h.size()
	for _, it := range items {
		rest -= len(it.content)
	}
	for range maxRounds {
		sum := rest
		for _, it := range items {
			sum += min(len(it.content), most)
		}
		next := max(MinResult, sum*h.o.Share/100)
		if next >= most {
			break
		}
		most = next
	}
	return most
}

// shorten makes a result that is not a reference shorter.
func (h *History) shorten(it *item, most int) bool {
	if it.reduced {
		return false
	}
	var content string
	if it.Shorten != nil {
		content = it.Shorten(most)
	} else {
		content = cut(it.content, most)
	}
	if len(content) > most || len(content) >= len(it.content) {
		return false
	}
	it.content = content
	return true
}

// cut takes out the middle of a text.
func cut(text string, most int) string {
	return evidence.Show(evidence.Text([]byte(text)), evidence.Stream{}, evidence.Options{Bytes: most, Lines: 1 << 20}).Stdout.Text
}

// sumUp has the summary take in the results that were replaced.
func (h *History) sumUp(ctx context.Context, taken []Result) {
	if h.o.Summarize == nil {
		return
	}
	var b strings.Builder
	if h.summary != "" {
		fmt.Fprintf(&b, "So far:\n%s\n\n", h.summary)
	}
	each := maxToSum / len(taken)
	for _, r := range taken {
		fmt.Fprintf(&b, "%s: %s\n%s\n\n", line(r.What, maxWhat), line(r.Outcome, maxState), cut(r.Content, max(evidence.MinBytes, each)))
	}
	text, err := h.o.Summarize(ctx, evidence.Cut(b.String(), 2*maxToSum))
	if err != nil {
		if h.o.Warn != nil {
			h.o.Warn(err)
		}
		return
	}
	if text = strings.TrimSpace(text); text != "" {
		h.summary = evidence.Cut(text, maxSummary)
	}
}

// Bounds of a summary and of what it is made from, in bytes.
const (
	maxSummary = 2 << 10
	maxToSum   = 24 << 10
)

// squeeze makes the next request no longer than so many bytes, or as short as
// it can be: older results become references, those of the newest step are
// shortened, then long arguments of older calls, and then the oldest steps are
// left out altogether.
func (h *History) squeeze(most int) {
	defer h.pin()
	newest := h.newest()
	for i, e := range h.entries {
		for _, it := range e.items {
			if h.size() <= most {
				return
			}
			if i != newest {
				h.replace(i, it)
			}
		}
	}
	if newest >= 0 {
		for _, it := range h.entries[newest].items {
			if over := h.size() - most; over > 0 && h.shorten(it, max(MinResult, len(it.content)-over)) {
				h.changed(newest)
			}
		}
	}
	for i := range h.entries {
		if h.size() > most && i < newest-1 {
			h.shortenCalls(i)
		}
	}
	for h.size() > most && h.drop() {
	}
	if newest = h.newest(); newest >= 0 && h.size() > most {
		for _, it := range h.entries[newest].items {
			h.replace(newest, it)
		}
	}
}

// maxArgument is how long a text in the arguments of an older call may be when
// space is short.
const maxArgument = 256

// shortenCalls cuts long texts in the arguments of the calls of message i. A
// message with something opaque stays: its vendor compares them.
func (h *History) shortenCalls(i int) {
	m := &h.entries[i].m
	if len(m.Opaque) > 0 {
		return
	}
	calls := slices.Clone(m.Calls)
	was := len(calls)
	for j, c := range calls {
		var args map[string]any
		if len(c.Arguments) <= maxArgument || json.Unmarshal([]byte(c.Arguments), &args) != nil {
			continue
		}
		for k, v := range args {
			if s, ok := v.(string); ok && len(s) > maxArgument {
				if h.o.Mask != nil {
					s = h.o.Mask(s)
				}
				args[k] = fmt.Sprintf("%s… (%d bytes, left out to save space)", evidence.Cut(s, maxArgument/4), len(s))
			}
		}
		if data, err := json.Marshal(args); err == nil && len(data) < len(c.Arguments) {
			calls[j].Arguments = string(data)
			was = min(was, j)
		}
	}
	if was < len(calls) {
		m.Calls = calls
		h.changed(i)
	}
}

// drop leaves out the oldest step: a reply and what followed it up to the next
// one. The task and the newest step stay.
func (h *History) drop() bool {
	isReply := func(e *entry) bool { return e.m.Role == model.RoleAssistant }
	first := slices.IndexFunc(h.entries, isReply)
	if first < 0 {
		return false
	}
	next := slices.IndexFunc(h.entries[first+1:], isReply)
	if next < 0 {
		return false
	}
	h.entries = slices.Delete(h.entries, first, first+1+next)
	h.dropped++
	h.changed(0)
	return true
}
