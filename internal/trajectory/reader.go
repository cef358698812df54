package trajectory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/tool"
)

// Measure is what was seen of a run.
type Measure struct {
	StateDir string
	// Steps is how many requests there were, and Calls how many calls the script
	// made; Reread counts those made to read something again.
	Steps, Calls, Reread int
	// Bytes is the sum of all requests, and Largest the largest share of one
	// result in one of them, in percent.
	Bytes   int64
	Largest float64
	// Notes say what each request was.
	Notes []string
	// Used counts the texts that calls used from results, and Missing names
	// those that were not in the prompt of the call and could not be read again.
	Used    int
	Missing []string
}

// Tokens is Bytes at four bytes a token.
func (m *Measure) Tokens() int64 { return m.Bytes / 4 }

// Reader is a model that knows only what it is sent. Its decisions are those of
// a script; before each call it checks that what the call uses is in the
// prompt. It serves one run.
type Reader struct {
	script model.Model
	m      Measure
	// first is each result as it was first sent, with what reading on has shown
	// of it since, and order is their ids as they came.
	first map[string]string
	order []string
	// again are the reader's own calls: the result they read, by call id.
	again map[string]reading
	used  map[string]bool // texts that were counted
}

// maxReread bounds the calls that read again in one run.
const maxReread = 200

// reading is a call that reads a result again.
type reading struct {
	of     string // the result's call id
	path   string
	offset int64
}

// NewReader returns a reader around a script's model.
func NewReader(m model.Model) *Reader {
	return &Reader{script: m, first: map[string]string{}, again: map[string]reading{}, used: map[string]bool{}}
}

// Name is the script's.
func (r *Reader) Name() string { return r.script.Name() }

// Measure is what was seen so far.
func (r *Reader) Measure() *Measure { return &r.m }

// Generate answers with the script's next reply, or with a call that reads
// again what that reply uses and the request does not hold.
func (r *Reader) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	r.measure(req)
	if len(req.Messages) == 1 && len(req.Tools) == 0 && req.Messages[0].Role == model.RoleUser {
		return summary(req), nil
	}
	r.take(req)
	asked := r.scripted(req)
	reply, err := r.script.Generate(ctx, asked, emit)
	if failed, ok := errors.AsType[*model.Error](err); ok && failed.Code == script.CodeFailed {
		// What it looks for is not in what it was shown: it reads on.
		if next, ok := r.readOn(req); ok {
			r.note("reads on in %s at %d: %s", next.path, next.offset, failed.Message)
			return r.read(next), nil
		}
	}
	if err != nil {
		return reply, err
	}
	prompt := text(req)
	for _, c := range reply.Message.Calls {
		for _, t := range tokens(c.Arguments) {
			from := r.source(t, asked)
			if from == "" {
				continue
			}
			if !r.used[t] {
				r.used[t] = true
				r.m.Used++
			}
			if strings.Contains(prompt, t) {
				continue
			}
			if next, ok := r.reference(req, from); ok && r.m.Reread < maxReread {
				r.note("%s needs %q of %s: reads %s at %d", c.Name, t, from, next.path, next.offset)
				return r.read(next), nil
			}
			r.m.Missing = append(r.m.Missing, fmt.Sprintf("step %d: %s, first seen in %s", r.m.Steps, t, from))
		}
	}
	r.m.Calls += len(reply.Message.Calls)
	return reply, nil
}

// summary answers the request for one: with the first lines of what is to be
// summed up, since a script has no judgement.
func summary(req *model.Request) *model.Reply {
	var lines []string
	for line := range strings.Lines(req.Messages[0].Text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "run_command ") || strings.HasPrefix(line, "read_file ") {
			lines = append(lines, line)
		}
	}
	return &model.Reply{Stop: model.StopEnd, Message: model.Message{Role: model.RoleAssistant, Text: "Results of: " + strings.Join(lines, "; ")}}
}

func (r *Reader) note(format string, args ...any) {
	r.m.Notes = append(r.m.Notes, fmt.Sprintf("%d: ", r.m.Steps)+fmt.Sprintf(format, args...))
}

func (r *Reader) measure(req *model.Request) {
	total := len(req.System)
	for _, t := range req.Tools {
		total += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	for _, m := range req.Messages {
		total += history.Size(m)
	}
	for _, m := range req.Messages {
		for _, res := range m.Results {
			r.m.Largest = max(r.m.Largest, 100*float64(len(res.Content))/float64(total))
		}
	}
	r.m.Steps++
	r.m.Bytes += int64(total)
	r.note("%d bytes", total)
}

// take notes the results that are new.
func (r *Reader) take(req *model.Request) {
	for _, m := range req.Messages {
		for _, res := range m.Results {
			if _, known := r.first[res.ID]; known {
				continue
			}
			r.first[res.ID] = res.Content
			r.order = append(r.order, res.ID)
			if a, ok := r.again[res.ID]; ok {
				r.first[a.of] = joined(r.first[a.of], res.Content, a.offset > 1)
			}
		}
	}
}

// joined is a result with what was read of it since.
func joined(content, more string, on bool) string {
	was, add := parse(content), parse(more)
	field := "stdout"
	if was.Omitted != nil && was.Omitted.Stderr.Bytes > 0 {
		field = "stderr"
	}
	var all map[string]any
	if json.Unmarshal(object(content), &all) != nil {
		return content
	}
	before, _ := all[field].(string)
	if !on && was.File == nil {
		before = ""
	}
	all[field] = before + add.Stdout
	data, err := json.Marshal(all)
	if err != nil {
		return content
	}
	return string(data)
}

// scripted is the conversation as the script knows it: with results as they
// were first, and without the calls that are not its own.
func (r *Reader) scripted(req *model.Request) *model.Request {
	out := *req
	out.Messages = nil
	own := func(m model.Message) bool {
		for _, c := range m.Calls {
			if _, ok := r.again[c.ID]; ok {
				return false
			}
		}
		for _, res := range m.Results {
			if _, ok := r.again[res.ID]; ok {
				return false
			}
		}
		return true
	}
	for _, m := range req.Messages {
		if !own(m) {
			continue
		}
		var results []model.ToolResult
		for _, res := range m.Results {
			res.Content = r.first[res.ID]
			results = append(results, res)
		}
		m.Results = results
		out.Messages = append(out.Messages, m)
	}
	return &out
}

// source is the id of the result in which a text was seen first, unless it was
// in the task or in an earlier call before.
func (r *Reader) source(t string, conversation *model.Request) string {
	if strings.Contains(conversation.System, t) {
		return ""
	}
	for _, m := range conversation.Messages {
		if strings.Contains(m.Text, t) {
			return ""
		}
		for _, c := range m.Calls {
			if strings.Contains(strings.Join(values(c.Arguments), "\n"), t) {
				return ""
			}
		}
		for _, res := range m.Results {
			if strings.Contains(plain(res.Content), t) {
				return res.ID
			}
		}
	}
	return ""
}

// read is a reply that reads a file again.
func (r *Reader) read(next reading) *model.Reply {
	r.m.Reread++
	id := fmt.Sprintf("again_%d", r.m.Reread)
	r.again[id] = next
	args, err := json.Marshal(map[string]any{"path": next.path, "offset": max(1, next.offset)})
	if err != nil { // plain data always encodes
		panic(err)
	}
	return &model.Reply{Stop: model.StopToolCalls, Message: model.Message{Role: model.RoleAssistant,
		Calls: []model.ToolCall{{ID: id, Name: tool.ReadFile, Arguments: string(args)}}}}
}

// readOn is the next part of the newest result, when there is one.
func (r *Reader) readOn(req *model.Request) (reading, bool) {
	newest := req.Messages[len(req.Messages)-1].Results
	for _, res := range newest {
		got := parse(res.Content)
		if was, ok := r.again[res.ID]; ok {
			return reading{was.of, was.path, nextOffset(got)}, nextOffset(got) > 0
		}
		switch {
		case nextOffset(got) > 0:
			return reading{res.ID, got.File.Path, got.File.NextOffset}, true
		case got.Truncated && got.Spill != nil:
			return reading{res.ID, got.Spill.Path, 1}, true
		}
	}
	return reading{}, false
}

func nextOffset(res tool.Result) int64 {
	if res.File == nil {
		return 0
	}
	return res.File.NextOffset
}

// reference is where the text of a result can be read, as the request says:
// in its reference, or in what is still shown of it. What was begun is read on.
func (r *Reader) reference(req *model.Request, id string) (reading, bool) {
	for _, res := range req.Messages[len(req.Messages)-1].Results {
		if was, ok := r.again[res.ID]; ok && was.of == id {
			next := nextOffset(parse(res.Content))
			return reading{id, was.path, next}, next > 0
		}
	}
	var from struct{ Offset int64 } // a file is read again from where it was read
	for _, m := range req.Messages {
		for _, c := range m.Calls {
			if c.ID == id && c.Name == tool.ReadFile {
				_ = json.Unmarshal([]byte(c.Arguments), &from) // what is no number is the beginning
			}
		}
		for _, res := range m.Results {
			if res.ID != id {
				continue
			}
			var ref struct {
				Text struct {
					Path string `json:"read_file"`
				}
			}
			got := parse(res.Content)
			switch {
			case json.Unmarshal(object(res.Content), &ref) == nil && ref.Text.Path != "":
				return reading{id, ref.Text.Path, max(1, from.Offset)}, true
			case got.Spill != nil:
				return reading{id, got.Spill.Path, 1}, true
			case got.File != nil:
				return reading{id, got.File.Path, max(1, from.Offset)}, true
			}
		}
	}
	return reading{}, false
}

// object is the JSON object in a result.
func object(content string) []byte {
	dec := json.NewDecoder(strings.NewReader(content[max(0, strings.IndexByte(content, '{')):]))
	var raw json.RawMessage
	if dec.Decode(&raw) != nil {
		return nil
	}
	return raw
}

func parse(content string) (res tool.Result) {
	_ = json.Unmarshal(object(content), &res) // what is no result has none of its fields
	return res
}

// word is a text that a call may have from a result: a path, a name, a number.
// long also has what stands between words in addresses, times, versions, hashes
// and assignments.
var (
	word = regexp.MustCompile(`[\pL\pN_][\pL\pN_./\-]{10,}[\pL\pN_]`)
	long = regexp.MustCompile(`[\pL\pN_@+][\pL\pN_./\-:@+=%~,#]{10,}[\pL\pN_=+]`)
)

// tokens are those of a call's arguments: the words, and what they are parts of,
// since a call may have put the whole together itself.
func tokens(arguments string) []string {
	var all []string
	for _, v := range values(arguments) {
		all = append(all, word.FindAllString(v, -1)...)
		for _, t := range long.FindAllString(v, -1) {
			if !slices.Contains(all, t) {
				all = append(all, t)
			}
		}
	}
	return all
}

// values are the strings in a JSON text.
func values(text string) (all []string) {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return []string{text}
	}
	var walk func(any)
	walk = func(v any) {
		switch x := v.(type) {
		case string:
			all = append(all, x)
		case []any:
			for _, e := range x {
				walk(e)
			}
		case map[string]any:
			for _, e := range x {
				walk(e)
			}
		}
	}
	walk(v)
	return all
}

// plain is the text of a result, without JSON's escapes.
func plain(content string) string {
	var b strings.Builder
	b.WriteString(content)
	dec := json.NewDecoder(strings.NewReader(content[max(0, strings.IndexByte(content, '{')):]))
	for {
		var raw json.RawMessage
		if dec.Decode(&raw) != nil {
			return b.String()
		}
		b.WriteByte('\n')
		b.WriteString(strings.Join(values(string(raw)), "\n"))
	}
}

// text is all that a request says.
func text(req *model.Request) string {
	var b strings.Builder
	b.WriteString(req.System)
	for _, m := range req.Messages {
		b.WriteString("\n" + m.Text)
		for _, c := range m.Calls {
			b.WriteString("\n" + strings.Join(values(c.Arguments), "\n"))
		}
		for _, res := range m.Results {
			b.WriteString("\n" + plain(res.Content))
		}
	}
	return b.String()
}
