package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/internal/spelling"
)

// Set is an ordered collection of tools. It is immutable and safe for
// concurrent use.
type Set struct {
	tools   []Tool
	close   func(context.Context)
	recall  func(Call, Result, time.Time)
	schemas []func() (*jsonschema.Resolved, error)
	sandbox func() string
}

// NewSet returns the tools as a set. sandboxID is what every result names, and
// may be nil. A tool with a missing or doubled name, or a schema that is none,
// is an error.
func NewSet(sandboxID func() string, tools ...Tool) (*Set, error) {
	s := &Set{tools: slices.Clone(tools), sandbox: sandboxID}
	for i, t := range s.tools {
		if t.Name == "" || t.Run == nil {
			return nil, errors.New("tool: a tool needs a name and a function")
		}
		if slices.ContainsFunc(s.tools[:i], func(o Tool) bool { return o.Name == t.Name }) {
			return nil, fmt.Errorf("tool: two tools are named %q", t.Name)
		}
		if _, err := resolve(t.Schema); err != nil {
			return nil, fmt.Errorf("tool: schema of %s: %w", t.Name, err)
		}
		// Made again for the first call: few tools are called, and each is large.
		s.schemas = append(s.schemas, sync.OnceValues(func() (*jsonschema.Resolved, error) { return resolve(t.Schema) }))
	}
	return s, nil
}

// Close ends what calls left open in the sandbox: sessions. Whoever runs the
// calls closes the set when there are no more. Idempotent.
func (s *Set) Close(ctx context.Context) {
	if s.close != nil {
		s.close(ctx)
	}
}

// Definitions lists the tools in order.
func (s *Set) Definitions() []Definition {
	defs := make([]Definition, len(s.tools))
	for i, t := range s.tools {
		defs[i] = t.Definition
	}
	return defs
}

// Run answers one call. Whatever is wrong with it is in the result: an unknown
// name and arguments that are no JSON, or not what the schema asks, are
// fixable. The result always names the call, and its time.
func (s *Set) Run(ctx context.Context, c Call) Result {
	start := time.Now()
	r := s.dispatch(ctx, c)
	r.CallID = c.ID
	if s.sandbox != nil {
		r.SandboxID = s.sandbox()
	}
	if r.DurationMS == 0 {
		r.DurationMS = time.Since(start).Milliseconds()
	}
	if r.Err != nil || r.Timeout {
		r.OK = false
	}
	return r
}

// Check returns the result of a call that is wrong by its name or by its arguments'
// schema, and else nil. A call that it lets pass may still be refused by its tool.
func (s *Set) Check(c Call) *Result {
	_, no := s.check(c)
	return no
}

func (s *Set) check(c Call) (i int, no *Result) {
	fail := func(code, message, hint string) (int, *Result) {
		r := Fail(OpArguments, code, message, hint)
		return 0, &r
	}
	if i = slices.IndexFunc(s.tools, func(t Tool) bool { return t.Name == c.Name }); i < 0 {
		r := s.unknown(c.Name)
		return 0, &r
	}
	args, err := object(c.Arguments)
	if err != nil {
		return fail(CodeInvalidJSON, err.Error(), "send the arguments as one JSON object")
	}
	schema, err := s.schemas[i]()
	if err != nil {
		return fail(CodeInternal, err.Error(), "")
	}
	if err := schema.Validate(args); err != nil {
		where, what := fault(err)
		return fail(CodeInvalidArguments, where+": "+what, "correct "+where+"; the tool's schema says what it takes")
	}
	return i, nil
}

func (s *Set) dispatch(ctx context.Context, c Call) Result {
	i, no := s.check(c)
	if no != nil {
		return *no
	}
	if len(bytes.TrimSpace(c.Arguments)) == 0 {
		c.Arguments = []byte("{}")
	}
	return s.tools[i].Run(ctx, c)
}

func (s *Set) unknown(name string) Result {
	var names []string
	for _, t := range s.tools {
		names = append(names, t.Name)
	}
	hint := "the tools are " + strings.Join(names, ", ")
	if best := spelling.Nearest(name, names); best != "" {
		hint = "did you mean " + best + "? " + hint
	}
	return Fail(OpArguments, CodeUnknownTool, fmt.Sprintf("there is no tool %q", evidence.Cut(name, 64)), hint)
}
