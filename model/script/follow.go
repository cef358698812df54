package script

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rein-sh/rein/internal/spelling"
	"github.com/rein-sh/rein/model"
)

// state is what a conversation has come to.
type state struct {
	task    string
	turn    int
	results map[string]result
	values  map[string]any
}

func (s *state) lookup(r ref) (any, error) {
	v, found, why := s.find(r)
	if !found {
		return nil, fmt.Errorf("%s", why)
	}
	return v, nil
}

// find returns what r refers to, or why there is nothing.
func (s *state) find(r ref) (v any, found bool, why string) {
	switch {
	case r.name == refTask:
		return s.task, true, ""
	case r.name == refTurn:
		return s.turn, true, ""
	case r.name != "":
		if v, ok := s.values[r.name]; ok {
			return v, true, ""
		}
		return nil, false, fmt.Sprintf("the value %q has not been captured yet", r.name)
	}
	res, ok := s.results[r.call]
	if !ok {
		return nil, false, fmt.Sprintf("the call %q has no result yet", r.call)
	}
	if v, ok := res.field(r.path); ok {
		return v, true, ""
	}
	return nil, false, fmt.Sprintf("the result of %q has no %s%s; %s", r.call, strings.Join(r.path, "."),
		meant(r.path, res), res.saw())
}

// meant names the field a path probably meant.
func meant(path []string, res result) string {
	if _, ok := res.fields[path[0]]; ok {
		return ""
	}
	if n := spelling.Nearest(path[0], res.names()); n != "" {
		return ` (did you mean "` + n + `"?)`
	}
	return ""
}

// exchange is a reply of the model and the results of its calls.
type exchange struct {
	reply   *model.Message
	results []model.ToolResult
}

// result returns what answers the i-th call. Ids decide; a protocol without
// them answers in order.
func (e exchange) result(i int) (model.ToolResult, bool) {
	if i >= len(e.reply.Calls) {
		return model.ToolResult{}, false
	}
	id := e.reply.Calls[i].ID
	for _, r := range e.results {
		if r.ID == id && id != "" {
			return r, true
		}
	}
	if id == "" && len(e.results) == len(e.reply.Calls) {
		return e.results[i], true
	}
	return model.ToolResult{}, false
}

func exchanges(messages []model.Message) (task string, out []exchange) {
	tasked := false
	for i := range messages {
		m := &messages[i]
		switch {
		case m.Role == model.RoleUser && !tasked:
			task, tasked = m.Text, true
		case m.Role == model.RoleAssistant:
			out = append(out, exchange{reply: m})
		case m.Role == model.RoleTool && len(out) > 0:
			last := &out[len(out)-1]
			last.results = append(last.results, m.Results...)
		}
	}
	return task, out
}

// exchanges are those of a conversation without what the agent itself put before
// the model's first reply.
func (s *Script) exchanges(messages []model.Message) (string, []exchange) {
	task, exs := exchanges(messages)
	for len(exs) > 0 && len(exs[0].reply.Calls) == 0 && slices.Contains(s.preface, exs[0].reply.Text) {
		exs = exs[1:]
	}
	return task, exs
}

// follow plays a conversation from its beginning and returns what it has come
// to and the index of the step that answers next, len(steps) after the last.
// Expectations are checked on the newest results only: earlier ones were
// checked when they were new.
func (s *Script) follow(messages []model.Message) (*state, int, error) {
	task, exs := s.exchanges(messages)
	st := &state{task: task, results: map[string]result{}, values: map[string]any{}}
	at := 0
	for i, ex := range exs {
		st.turn = i + 1
		var err error
		if at, err = s.skipDropped(st, at, ex); err != nil {
			return nil, 0, err
		}
		if s.isFinal(st, at, ex) {
			continue
		}
		if at >= len(s.steps) {
			return nil, 0, s.failed(pos{}, "the conversation has a reply after the last step; was it begun by another script or model?")
		}
		step := s.steps[at]
		if err := s.follows(step, ex, i); err != nil {
			return nil, 0, err
		}
		if err := s.settle(st, step, ex, i == len(exs)-1); err != nil {
			return nil, 0, err
		}
		if at, err = s.after(st, at); err != nil {
			return nil, 0, err
		}
	}
	st.turn = len(exs) + 1
	return st, at, nil
}

// skipDropped passes over steps whose reply the agent left out.
func (s *Script) skipDropped(st *state, at int, ex exchange) (int, error) {
	for range len(s.steps) {
		if at >= len(s.steps) || !s.steps[at].droppable() || s.steps[at].said(st, ex) {
			break
		}
		var err error
		if at, err = s.after(st, at); err != nil {
			return 0, err
		}
	}
	return at, nil
}

// said reports whether the reply is what the step says. Calls of a cut reply
// may have been left out.
func (t *step) said(st *state, ex exchange) bool {
	want, err := t.text.string(st)
	if err != nil || ex.reply.Text != want {
		return false
	}
	return len(ex.reply.Calls) == 0 || t.sameCalls(ex)
}

func (t *step) sameCalls(ex exchange) bool {
	if len(ex.reply.Calls) != len(t.calls) {
		return false
	}
	for i, c := range t.calls {
		if ex.reply.Calls[i].Name != c.tool {
			return false
		}
	}
	return true
}

// isFinal recognises the closing text, which stands for no step.
func (s *Script) isFinal(st *state, at int, ex exchange) bool {
	if len(ex.reply.Calls) > 0 || at < len(s.steps) && len(s.steps[at].calls) == 0 {
		return false
	}
	want, err := s.final.string(st)
	return err == nil && ex.reply.Text == want
}

// follows refuses a conversation that is not this script's.
func (s *Script) follows(t *step, ex exchange, i int) error {
	if t.sameCalls(ex) || t.stop == model.StopLength && len(ex.reply.Calls) == 0 {
		return nil
	}
	var want, saw []string
	for _, c := range t.calls {
		want = append(want, c.tool)
	}
	for _, c := range ex.reply.Calls {
		saw = append(saw, c.Name)
	}
	return s.failed(t.pos, "step %q makes the calls [%s], but reply %d of the conversation made [%s]; was it begun by another script or model?",
		t.name, strings.Join(want, ", "), i+1, strings.Join(saw, ", "))
}

// settle takes in the results of a step's calls.
func (s *Script) settle(st *state, t *step, ex exchange, newest bool) error {
	got := make([]*result, len(t.calls))
	for i, c := range t.calls {
		if r, ok := ex.result(i); ok {
			parsed := parseResult(r.Content)
			got[i] = &parsed
			if c.name != "" {
				st.results[c.name] = parsed
			}
		}
	}
	for i, c := range t.calls {
		if got[i] == nil {
			if newest && len(c.expect)+len(c.capture) > 0 {
				return s.failed(c.pos, "step %q: no result came back for %s", t.name, c.title(i))
			}
			continue
		}
		if newest {
			if err := s.expect(st, t, i, *got[i]); err != nil {
				return err
			}
		}
		for _, k := range c.capture {
			v, err := k.take(*got[i], st)
			if err != nil {
				return s.failed(k.pos, "step %q: %s: %s", t.name, c.title(i), err)
			}
			st.values[k.name] = v
		}
	}
	return nil
}

func (c *call) title(i int) string {
	if c.name != "" {
		return fmt.Sprintf("call %q (%s)", c.name, c.tool)
	}
	return fmt.Sprintf("call %d (%s)", i+1, c.tool)
}

// expect checks one call's result and reports everything that is wrong.
func (s *Script) expect(st *state, t *step, i int, r result) error {
	c := t.calls[i]
	var problems []string
	var first pos
	for _, k := range c.expect {
		v, found := r.field(k.ref.path)
		problem, err := k.run(v, found, st)
		if err != nil {
			return s.failed(k.pos, "step %q: %s", t.name, err)
		}
		if problem == "" {
			continue
		}
		if !found {
			problem += meant(k.ref.path, r)
		}
		if problems == nil {
			first = k.pos
		}
		problems = append(problems, strings.Join(k.ref.path, ".")+": "+problem)
	}
	if problems == nil {
		return nil
	}
	return s.failed(first, "step %q, %s: %s; %s", t.name, c.title(i), strings.Join(problems, "; "), r.saw())
}

// after returns the index of the step that follows.
func (s *Script) after(st *state, at int) (int, error) {
	t := s.steps[at]
	if len(t.next) == 0 {
		return at + 1, nil
	}
	for _, b := range t.next {
		ok, err := s.holds(st, b.when)
		if err != nil {
			return 0, err
		}
		if ok {
			return b.step, nil
		}
	}
	seen := ""
	for _, b := range t.next {
		for _, c := range b.when {
			v, found, why := st.find(c.ref)
			if found {
				why = c.ref.String() + " is " + excerpt(v)
			}
			if !strings.Contains(seen, why) {
				seen += "; " + why
			}
		}
	}
	return 0, s.failed(t.pos, "step %q: none of its branches applies%s", t.name, seen)
}

func (s *Script) holds(st *state, checks []check) (bool, error) {
	for _, c := range checks {
		v, found, _ := st.find(c.ref)
		problem, err := c.run(v, found, st)
		if err != nil {
			return false, s.failed(c.pos, "%s", err)
		}
		if problem != "" {
			return false, nil
		}
	}
	return true, nil
}

// CodeFailed is the code of the error that says a script's expectation does
// not hold, or that the script cannot go on.
const CodeFailed = "script_failed"

func (s *Script) failed(p pos, format string, args ...any) error {
	where := s.file
	if p.line > 0 {
		where += fmt.Sprintf(":%d:%d", p.line, p.col)
	}
	return &model.Error{
		Kind: model.KindInvalid, Model: s.modelName(), Code: CodeFailed,
		Message: where + ": " + fmt.Sprintf(format, args...),
	}
}

func (s *Script) modelName() string { return "script/" + s.name }
