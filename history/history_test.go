package history_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/model"
)

// fixed is what the requests of these tests have besides their messages.
const fixed = 9000

// script drives a history and checks each of its requests.
type script struct {
	t        *testing.T
	o        history.Options
	h        *history.History
	original map[string]string // contents by call id
	opaque   []model.Message
	before   []model.Message
	reduced  map[string]bool
	steps    int
}

func newScript(t *testing.T, o history.Options) *script {
	t.Helper()
	h, err := history.New(o)
	if err != nil {
		t.Fatal(err)
	}
	h.Add(model.Message{Role: model.RoleUser, Text: "the task"})
	return &script{t: t, o: o, h: h, original: map[string]string{}, reduced: map[string]bool{}}
}

// output is text with lines of about 60 bytes.
func output(bytes int) string {
	var b strings.Builder
	for i := 0; b.Len() < bytes; i++ {
		fmt.Fprintf(&b, "%06d a line of output that says \"quoted\" things\n", i)
	}
	return b.String()[:bytes]
}

// step adds a reply with calls of results of these sizes.
func (s *script) step(opaque bool, sizes ...int) {
	s.steps++
	m := model.Message{Role: model.RoleAssistant, Text: fmt.Sprintf("step %d", s.steps)}
	var results []history.Result
	for i, size := range sizes {
		id := fmt.Sprintf("c%d-%d", s.steps, i)
		command := fmt.Sprintf("make target-%d-%d", s.steps, i)
		args, _ := json.Marshal(map[string]string{"command": command + " # " + strings.Repeat("x", size%700)})
		m.Calls = append(m.Calls, model.ToolCall{ID: id, Name: "run_command", Arguments: string(args)})
		s.original[id] = output(size)
		results = append(results, history.Result{
			ToolResult: model.ToolResult{ID: id, Name: "run_command", Content: s.original[id]},
			What:       "run_command " + command, Outcome: "exit 0", Path: "/run/rein/out/" + id, Bytes: int64(size),
			Facts: []history.Fact{{Kind: history.Written, Name: "file-" + id, State: "1 byte"}, {Kind: history.Command, Name: command, State: "exit 0"}},
		})
	}
	if opaque {
		m.Opaque = json.RawMessage(fmt.Sprintf(`{"signed":%d}`, s.steps))
		s.opaque = append(s.opaque, m)
	}
	s.h.Add(m)
	s.h.AddResults(results)
}

func isReference(content string) bool { return strings.HasPrefix(content, `{"reduced":`) }

// request takes the messages and checks what must hold of any.
func (s *script) request() []model.Message {
	s.t.Helper()
	messages, same := s.h.Messages(context.Background(), fixed)
	if same > len(s.before) || same > 0 && cmp.Diff(s.before[:same], messages[:same]) != "" {
		s.t.Fatalf("%d messages are said to be the same, and are not", same)
	}
	s.before = messages
	s.valid(messages)
	s.shares(messages)
	for _, m := range s.opaque {
		i := slices.IndexFunc(messages, func(o model.Message) bool { return o.Role == m.Role && o.Text == m.Text })
		if i >= 0 && cmp.Diff(m, messages[i]) != "" {
			s.t.Fatalf("a message with something opaque was changed: %s", cmp.Diff(m, messages[i]))
		}
	}
	return messages
}

// valid checks what every vendor asks for.
func (s *script) valid(messages []model.Message) {
	s.t.Helper()
	if messages[0].Role != model.RoleUser || !strings.HasPrefix(messages[0].Text, "the task") {
		s.t.Fatalf("the conversation begins with %+v", messages[0])
	}
	for i, m := range messages {
		if m.Role == model.RoleTool && messages[i-1].Role != model.RoleAssistant {
			s.t.Fatalf("results after %s", messages[i-1].Role)
		}
		if m.Role != model.RoleAssistant {
			continue
		}
		if i > 0 && messages[i-1].Role == model.RoleAssistant {
			s.t.Fatal("two replies in a row")
		}
		if len(m.Calls) == 0 {
			continue
		}
		var want, got []string
		for _, c := range m.Calls {
			want = append(want, c.ID)
			if !json.Valid([]byte(c.Arguments)) {
				s.t.Fatalf("arguments are no JSON: %s", c.Arguments)
			}
		}
		for _, r := range messages[i+1].Results {
			got = append(got, r.ID)
			if s.reduced[r.ID] && !isReference(r.Content) {
				s.t.Fatalf("%s was a reference and is not any more", r.ID)
			}
			s.reduced[r.ID] = isReference(r.Content)
		}
		if d := cmp.Diff(want, got); d != "" {
			s.t.Fatalf("results of step %d:\n%s", i, d)
		}
	}
}

func bytesOf(messages []model.Message) int {
	n := fixed
	for _, m := range messages {
		n += history.Size(m)
	}
	return n
}

func (s *script) shares(messages []model.Message) {
	s.t.Helper()
	total, share := bytesOf(messages), s.o.Share
	if share == 0 {
		share = history.DefaultShare
	}
	for _, m := range messages {
		for _, r := range m.Results {
			if n := len(r.Content); n > history.MinResult && n*100 > total*share {
				s.t.Fatalf("%s holds %d of %d bytes: reference %v", r.ID, n, total, isReference(r.Content))
			}
		}
	}
}

// ledger is the JSON object of the ledger in the messages, if any.
func ledger(messages []model.Message) string {
	for _, m := range messages {
		for _, text := range append([]string{m.Text}, contents(m)...) {
			if i := strings.Index(text, `{"ledger":`); i >= 0 {
				return text[i:]
			}
		}
	}
	return ""
}

func contents(m model.Message) []string {
	var all []string
	for _, r := range m.Results {
		all = append(all, r.Content)
	}
	return all
}

func TestReferences(t *testing.T) {
	s := newScript(t, history.Options{})
	changes, wholeBefore := 0, 0
	for range 60 {
		s.step(false, 3000)
		last := len(s.before)
		messages := s.request()
		whole := 0
		for _, m := range messages {
			for _, r := range m.Results {
				if !isReference(r.Content) {
					whole += len(r.Content)
				}
			}
		}
		if whole > history.DefaultHigh {
			t.Fatalf("%d bytes of results are whole", whole)
		}
		newest := messages[len(messages)-1].Results[0]
		if isReference(newest.Content) {
			t.Fatal("the newest result is a reference")
		}
		if last > 0 && cmp.Diff(s.before[:last], messages[:last]) != "" || whole < wholeBefore {
			changes++
			if whole > history.DefaultLow+3000 {
				t.Errorf("after a reduction %d bytes are whole", whole)
			}
		}
		wholeBefore = whole
	}
	// 24 KiB between the marks, 3000 bytes a step: a reduction each 8 steps.
	if changes < 4 || changes > 8 {
		t.Errorf("%d changes of what was sent in 60 steps", changes)
	}
	got := ledger(s.before)
	for _, want := range []string{"file-c1-0: 1 byte", "make target-50-0: exit 0"} {
		if !strings.Contains(got, want) {
			t.Errorf("the ledger lacks %q: %s", want, got)
		}
	}
	if n := strings.Count(fmt.Sprint(s.before), `{"ledger":`); n != 1 {
		t.Errorf("there are %d ledgers", n)
	}
	ref := s.before[2].Results[0].Content
	for _, want := range []string{`"reduced":"run_command make target-1-0"`, `"outcome":"exit 0"`, `"read_file":"/run/rein/out/c1-0"`, `"bytes":3000`} {
		if !strings.Contains(ref, want) {
			t.Errorf("the reference lacks %s: %s", want, ref)
		}
	}
}

// TestRandom has random conversations go on and overflow.
func TestRandom(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			o := history.Options{Strategy: history.Strategies()[r.IntN(3)]}
			if r.IntN(3) == 0 {
				o.High, o.Low = 8000+r.IntN(50000), 1000+r.IntN(7000)
			}
			if r.IntN(4) == 0 {
				o.Window = 4000 + r.Int64N(20000)
			}
			if r.IntN(2) == 0 {
				o.Summarize = func(context.Context, string) (string, error) {
					if r.IntN(3) == 0 {
						return "", errors.New("no summary")
					}
					return output(r.IntN(4000)), nil
				}
			}
			play(newScript(t, o), r)
		})
	}
}

func play(s *script, r *rand.Rand) {
	for range 10 + r.IntN(40) {
		var sizes []int
		for range 1 + r.IntN(4)*r.IntN(2) {
			sizes = append(sizes, r.IntN(1<<(4+r.IntN(11))))
		}
		s.step(r.IntN(3) == 0, sizes...)
		messages := s.request()
		s.h.Used(int64(bytesOf(messages) / 4))
		switch r.IntN(12) {
		case 0:
			s.h.Add(model.Message{Role: model.RoleAssistant, Text: "I think it is done."})
			s.h.Add(model.Message{Role: model.RoleUser, Text: "It is not."})
		case 1:
			before := bytesOf(messages)
			could := s.h.Overflow()
			if after := bytesOf(s.request()); could != (after < before) {
				s.t.Fatalf("overflow %v: %d bytes, then %d", could, before, after)
			}
		}
	}
	// Whatever it is, it can be brought down to the task and the newest step.
	for n := 0; s.h.Overflow(); n++ {
		if s.request(); n > 200 {
			s.t.Fatal("overflow finds something to reduce for ever")
		}
	}
	if n := len(s.request()); n > 5 {
		s.t.Errorf("%d messages are left when nothing can be reduced any more", n)
	}
	if s.before[0].Text == "the task" {
		s.t.Error("what was left out is not told")
	}
	if s.o.Strategy != history.Summary && !strings.Contains(ledger(s.before), "file-c") {
		s.t.Errorf("the ledger is gone: %v", s.before)
	}
}

func TestWindow(t *testing.T) {
	s := newScript(t, history.Options{Window: 6000, High: 1 << 20, Low: 1 << 19})
	perToken, longest := 3, 0 // until a request was counted
	for range 40 {
		s.step(false, 2000)
		n := bytesOf(s.request())
		if n > 6000*perToken {
			t.Fatalf("a request of %d bytes at %d a token", n, perToken)
		}
		longest = max(longest, n)
		s.h.Used(int64(n / 4))
		perToken = 4
	}
	if longest <= 6000*3 {
		t.Errorf("no request has more than %d bytes: what was counted made no difference", longest)
	}
}

func TestOverflowIsRemembered(t *testing.T) {
	s := newScript(t, history.Options{High: 1 << 20, Low: 1 << 19})
	for range 20 {
		s.step(false, 3000)
	}
	limit := bytesOf(s.request())
	if !s.h.Overflow() {
		t.Fatal("there was nothing to reduce")
	}
	for range 30 {
		if n := bytesOf(s.request()); n >= limit {
			t.Fatalf("a request of %d bytes was too long, and one of %d follows", limit, n)
		}
		s.step(false, 3000)
	}
}

func TestNoWindowForTheNewestStepOnly(t *testing.T) {
	s := newScript(t, history.Options{})
	s.step(true, 900)
	s.request()
	if s.h.Overflow() && bytesOf(s.request()) > fixed+1500 {
		t.Error("it is said to be shorter")
	}
	for range 3 {
		if !s.h.Overflow() {
			return
		}
	}
	t.Error("there is always something to reduce")
}

func TestSummary(t *testing.T) {
	var asked []string
	o := history.Options{Strategy: history.Summary, Summarize: func(_ context.Context, text string) (string, error) {
		asked = append(asked, text)
		return fmt.Sprintf("summary number %d", len(asked)), nil
	}}
	s := newScript(t, o)
	for range 40 {
		s.step(false, 3000)
		s.request()
	}
	if len(asked) < 2 || len(asked) > 6 { // once a reduction
		t.Fatalf("%d summaries", len(asked))
	}
	if !strings.Contains(asked[0], "run_command make target-1-0: exit 0\n000000 a line") || len(asked[0]) > 60<<10 {
		t.Errorf("asked to sum up: %.300s", asked[0])
	}
	if !strings.Contains(asked[1], "summary number 1") {
		t.Error("the second summary does not know the first")
	}
	if got := ledger(s.before); !strings.Contains(got, fmt.Sprintf(`"summary":"summary number %d"`, len(asked))) || !strings.Contains(got, "file-c1-0") {
		t.Errorf("summary and ledger: %s", got)
	}
}

func TestSummaryFails(t *testing.T) {
	var warned []error
	s := newScript(t, history.Options{Strategy: history.Summary,
		Summarize: func(context.Context, string) (string, error) { return "", errors.New("no model") },
		Warn:      func(err error) { warned = append(warned, err) }})
	for range 20 {
		s.step(false, 3000)
		s.request()
	}
	if len(warned) == 0 || len(warned) > 3 || !isReference(s.before[2].Results[0].Content) { // once a reduction
		t.Errorf("%d warnings", len(warned))
	}
}

func TestStructured(t *testing.T) {
	s := newScript(t, history.Options{Strategy: history.Structured})
	s.h.Note(history.Fact{Kind: history.Read, Name: "go.mod", State: "30 bytes"})
	s.h.Note(history.Fact{Kind: history.Command, Name: "go test", State: "exit 1", Open: true, Line: "a_test.go:3: want 5"})
	s.h.Note(history.Fact{Kind: history.Command, Name: "go vet", State: "exit 1", Open: true})
	s.h.Note(history.Fact{Kind: history.Command, Name: "go vet", State: "exit 0"})
	for range 15 {
		s.step(false, 3000)
		s.request()
	}
	var got struct {
		Ledger struct{ Files_written, Commands, Facts, Open []string }
	}
	if err := json.Unmarshal([]byte(ledger(s.before)), &got); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(got.Ledger.Facts, "read go.mod: 30 bytes") || !slices.Contains(got.Ledger.Open, "go test: exit 1: a_test.go:3: want 5") ||
		!slices.Contains(got.Ledger.Commands, "go vet: exit 0 (2 times)") || len(got.Ledger.Open) != 1 {
		t.Errorf("the document: %+v", got)
	}
}

func TestExcerpts(t *testing.T) {
	h, err := history.New(history.Options{High: 3000, Low: 1000,
		Quote:   func(tool, text string) string { return "<" + tool + "\n" + text + ">" },
		Excerpt: func(content string) string { return content[:10] },
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Add(model.Message{Role: model.RoleUser, Text: "the task"})
	var first []model.Message
	for i := range 9 {
		id := fmt.Sprint("c", i)
		h.Add(model.Message{Role: model.RoleAssistant, Calls: []model.ToolCall{{ID: id, Name: "tell", Arguments: "{}"}}})
		h.AddResults([]history.Result{{ToolResult: model.ToolResult{ID: id, Name: "tell", Content: fmt.Sprint("content ", i, strings.Repeat("x", 990))},
			What: id, Facts: []history.Fact{{Kind: history.Command, Name: id}}}})
		messages, _ := h.Messages(context.Background(), fixed)
		if i == 1 {
			first = messages
		}
	}
	messages, _ := h.Messages(context.Background(), fixed)
	if got, want := messages[2].Results[0].Content, `<tell`+"\n"+`{"reduced":"c0","excerpt":"content 0x"}>`; got != want {
		t.Errorf("the oldest result is %q, want %q", got, want)
	}
	with := 0
	for _, m := range messages {
		with += strings.Count(strings.Join(contents(m), ""), `{"ledger":`)
	}
	if with != 1 {
		t.Errorf("%d ledgers", with)
	}
	if got := first[2].Results[0].Content; len(got) != 999 {
		t.Errorf("what was returned before has become %q", got)
	}
}

func TestParallelResults(t *testing.T) {
	s := newScript(t, history.Options{})
	s.step(false, 16000, 16000, 16000, 200, 16000)
	for _, r := range s.request()[2].Results {
		if isReference(r.Content) || len(r.Content) < 200 {
			t.Errorf("%s has %d bytes", r.ID, len(r.Content))
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []history.Options{{Strategy: "guess"}, {High: 10, Low: 20}, {High: -1}, {Share: 101}, {Window: -1}, {Low: 1 << 20}} {
		if _, err := history.New(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// FuzzHistory drives a conversation by bytes.
func FuzzHistory(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 250, 7, 7}, uint16(0), uint16(0))
	f.Add([]byte{255, 255, 255, 255, 255, 255}, uint16(9000), uint16(500))
	f.Add([]byte{9, 1, 9, 1, 255, 17, 255, 17}, uint16(20000), uint16(19000))
	f.Fuzz(func(t *testing.T, plan []byte, high, low uint16) {
		if len(plan) > 60 {
			plan = plan[:60]
		}
		o := history.Options{High: int(high), Low: int(low)}
		if _, err := history.New(o); err != nil {
			return // it is refused, which TestOptions looks at
		}
		s := newScript(t, o)
		for _, b := range plan {
			switch b % 5 {
			case 0:
				s.step(b%2 == 0, int(b)*int(b)/3, int(b))
			case 1:
				s.h.Add(model.Message{Role: model.RoleAssistant, Text: "so"})
				s.h.Add(model.Message{Role: model.RoleUser, Text: "no"})
			case 2:
				s.h.Overflow()
			default:
				s.step(b%2 == 0, int(b)*40)
			}
			s.request()
		}
	})
}
