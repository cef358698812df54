// Package history holds the conversation with a model and decides what of it
// is sent: the newest results of tools whole, older ones as references that say
// what it was, how it ended and where the text is, and a ledger of what is
// finished and what is open, so that nothing has to be remembered by the model.
//
// Results are replaced only when more than [Options.High] bytes of them are
// whole, and then down to [Options.Low]: between two reductions the messages
// only grow at their end, and a vendor's cache of what was sent before stays
// good. No reduction needs a model; that one succeeds never depends on one.
//
// Whatever is done, every call keeps exactly one result, calls and results keep
// their order, and a message with something opaque of its vendor is sent
// unchanged or not at all.
package history

import (
	"context"
	"errors"
	"fmt"

	"github.com/rein-sh/rein/model"
)

// Strategy is what stands for the results that are no longer sent.
type Strategy string

// The strategies. The zero value is Reference.
const (
	// Reference leaves a reference in the place of each result, and a ledger
	// of finished actions.
	Reference Strategy = "reference"
	// Summary also has a model sum up what is taken out. When that fails it is
	// Reference.
	Summary Strategy = "summary"
	// Structured keeps one document of facts, finished actions and open ends
	// instead, and of each result only where its text is.
	Structured Strategy = "structured"
)

// Strategies are all of them, the default first.
func Strategies() []Strategy { return []Strategy{Reference, Summary, Structured} }

// Defaults of Options.
const (
	DefaultHigh  = 24 << 10
	DefaultLow   = 8 << 10
	DefaultShare = 20
)

// Options of a History. The zero value is usable.
type Options struct {
	Strategy Strategy
	// High and Low bound the bytes of results that are sent whole: above High
	// the older ones are replaced until Low is left. 0 means the default.
	High, Low int
	// Share is how much of a request's bytes one result may hold, in percent;
	// 0 means DefaultShare. Results of MinResult bytes or less always stay.
	Share int
	// Window is how many tokens a request to the model may have; 0: not known
	// until a request was too long.
	Window int64
	// Quote puts text that is not to be trusted between marks, as the results
	// are that come from tools. Nil leaves it as it is.
	Quote func(tool, text string) string
	// Excerpt returns the beginning of what is said in the content of a result
	// that has no Path, once the result is no longer sent whole. Nil leaves
	// nothing of it.
	Excerpt func(content string) string
	// Summarize has a model sum up text, for the strategy Summary. It is asked
	// once for each reduction. Nil, or an error, means that there is no summary.
	Summarize func(ctx context.Context, text string) (string, error)
	// Mask masks text of the model's own before it is cut, which could split a value.
	// Nil leaves it.
	Mask func(string) string
	// Warn is told of a summary that failed. Nil tells nobody.
	Warn func(error)
}

// MinResult is how long a result may be, in bytes, whatever its share.
const MinResult = 1 << 10

// Result is the result of one call, as it goes to the model first, and what is
// left of it later.
type Result struct {
	model.ToolResult
	// What says which call it was, such as "run_command make test", and Outcome
	// how it ended, such as "exit 2".
	What, Outcome string
	// Line is the one line of the output that says most, if any.
	Line string
	// Path is a file inside the sandbox with the whole text, so many Bytes and
	// Lines of it. Empty: there is none, and an excerpt is kept instead.
	Path         string
	Bytes, Lines int64
	// Shorten returns the content in no more than so many bytes, or the
	// shortest that it can be. Nil cuts the middle out.
	Shorten func(bytes int) string
	// Facts are what the result has shown.
	Facts []Fact
}

// History is one conversation. It is not safe for concurrent use.
type History struct {
	o       Options
	entries []*entry
	ledger  ledger
	summary string

	fixed int // bytes of a request besides its messages
	sent  int // leading messages that are as they were sent last
	limit int // bytes of a request that was too long, less a margin; 0: none was
	// dropped counts the steps that are not sent at all, and preface is what
	// the first message says of them.
	dropped int
	preface string
	// Input tokens of the last request, and its bytes.
	tokens, measured int64
	lastSize         int64
}

// entry is one message.
type entry struct {
	m     model.Message // its Results are those returned last
	items []*item
	stale bool // its Results are to be made again
}

// item is one result, and in which form it is sent. Of one that is a reference
// only that is kept: a conversation is as large as what is sent of it.
type item struct {
	Result
	content string
	reduced bool   // it is a reference
	ref     string // which is in content
	foreign bool   // something in ref is a tool's
	state   string // what stands behind the reference, on the last one
}

// New returns an empty history.
func New(o Options) (*History, error) {
	switch o.Strategy {
	case "":
		o.Strategy = Reference
	case Reference, Summary, Structured:
	default:
		return nil, fmt.Errorf("history: there is no strategy %q", o.Strategy)
	}
	if o.High == 0 {
		o.High = DefaultHigh
	}
	if o.Low == 0 {
		o.Low = min(DefaultLow, o.High*DefaultLow/DefaultHigh)
	}
	if o.Share == 0 {
		o.Share = DefaultShare
	}
	if o.High < 0 || o.Low < 0 || o.Low >= o.High || o.Share < 0 || o.Share > 100 || o.Window < 0 {
		return nil, errors.New("history: low must be less than high, and the share of a result between 1 and 100 percent")
	}
	if o.Quote == nil {
		o.Quote = func(_, text string) string { return text }
	}
	return &History{o: o}, nil
}

// Add appends a message that has no results.
func (h *History) Add(m model.Message) {
	h.entries = append(h.entries, &entry{m: m})
}

// AddResults appends the results of the calls of the message before it.
func (h *History) AddResults(results []Result) {
	if i := h.newest(); i >= 0 { // only the newest are shortened
		for _, it := range h.entries[i].items {
			it.Shorten = nil
		}
	}
	e := &entry{m: model.Message{Role: model.RoleTool}, items: make([]*item, 0, len(results)), stale: true}
	for _, r := range results {
		for _, f := range r.Facts {
			h.ledger.note(f)
		}
		r.Facts = nil
		e.items = append(e.items, &item{Result: r, content: r.Content})
	}
	h.entries = append(h.entries, e)
}

// Note puts a fact into the ledger that no result has shown.
func (h *History) Note(f Fact) { h.ledger.note(f) }

// Messages returns what is to be sent now. fixed is how many bytes the request
// has besides: the system prompt and the tools. The first so many messages,
// same, are as they were returned before. What is returned is not changed later.
func (h *History) Messages(ctx context.Context, fixed int) (messages []model.Message, same int) {
	h.fixed = fixed
	h.share() // first, since a long new result is not a reason to reduce those before it
	if h.whole() > h.o.High {
		h.reduce(ctx, h.o.Low)
		h.share()
	}
	if limit := h.room(); limit > 0 && h.size() > limit {
		h.squeeze(limit / 10 * 8)
		h.share()
	}
	same = min(h.sent, len(h.entries))
	messages = make([]model.Message, 0, len(h.entries))
	for i, e := range h.entries {
		messages = append(messages, e.message())
		if i == 0 {
			messages[0].Text += h.preface
		}
	}
	h.sent, h.lastSize = len(h.entries), int64(h.size())
	return messages, same
}

// Used says how many tokens the last request had, as the vendor counted them.
func (h *History) Used(tokens int64) {
	if tokens > 0 && h.lastSize > 0 {
		h.tokens, h.measured = tokens, h.lastSize
	}
}

// Overflow says that the last request was too long for the model, and reduces
// what the next one sends. It reports whether there was anything to reduce.
func (h *History) Overflow() bool {
	before := h.size()
	h.limit = before / 10 * 9
	h.squeeze(before / 10 * 7)
	return h.size() < before
}

// room is how many bytes a request may have; 0: not known. A token is as many
// bytes as in the last request that was counted, or three while none was.
func (h *History) room() int {
	if h.o.Window == 0 {
		return h.limit
	}
	room := h.o.Window * 3
	if h.tokens > 0 {
		room = h.o.Window * h.measured / h.tokens
	}
	if h.limit > 0 {
		room = min(room, int64(h.limit))
	}
	return int(max(1, room))
}

// message is e as it is sent. What was returned before is not changed.
func (e *entry) message() model.Message {
	if !e.stale {
		return e.m
	}
	e.stale = false
	e.m.Results = make([]model.ToolResult, 0, len(e.items))
	for _, it := range e.items {
		r := it.ToolResult
		r.Content = it.content
		e.m.Results = append(e.m.Results, r)
	}
	return e.m
}

// size is the bytes of the next request.
func (h *History) size() int {
	n := h.fixed + len(h.preface)
	for _, e := range h.entries {
		n += e.size()
	}
	return n
}

func (e *entry) size() int {
	m := e.m
	m.Results = nil
	n := Size(m)
	for _, it := range e.items {
		n += len(it.ID) + len(it.Name) + len(it.content)
	}
	return n
}

// Size is the bytes of a message: its text, the names, ids and arguments of its
// calls, its results, and what is opaque in it.
func Size(m model.Message) int {
	n := len(m.Text) + len(m.Opaque)
	for _, c := range m.Calls {
		n += len(c.ID) + len(c.Name) + len(c.Arguments)
	}
	for _, r := range m.Results {
		n += len(r.ID) + len(r.Name) + len(r.Content)
	}
	return n
}

// whole is how many bytes of results are not references.
func (h *History) whole() int {
	n := 0
	for _, e := range h.entries {
		for _, it := range e.items {
			if !it.reduced {
				n += len(it.content)
			}
		}
	}
	return n
}

// changed notes that message i is no longer as it was sent.
func (h *History) changed(i int) {
	h.sent = min(h.sent, i)
	h.entries[i].stale = len(h.entries[i].items) > 0
}
