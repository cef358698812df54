package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rein-sh/rein/evidence"
)

// Func makes a tool of a function of the host program. It runs there, not in the
// sandbox. Its context ends with the time a call may take; a function that goes
// on all the same is waited for. Its arguments are In, a struct whose schema comes
// from its types and its json and jsonschema tags; what is missing or does not fit
// is refused before the call. Its result is shown like a command's output: a
// string as it is, anything else as JSON. An *Error is the call's error as it is;
// any other, and a panic, fail the call.
func Func[In, Out any](name, description string, f func(context.Context, In) (Out, error)) (Custom, error) {
	if !toolName.MatchString(name) || slices.Contains(reserved, name) {
		return Custom{}, fmt.Errorf("tool: %q is no name of a tool of one's own", name)
	}
	if f == nil || strings.TrimSpace(description) == "" {
		return Custom{}, fmt.Errorf("tool: %s: it needs a description and a function", name)
	}
	s, err := jsonschema.For[In](nil)
	if err != nil {
		return Custom{}, fmt.Errorf("tool: %s: %w", name, err)
	}
	if s.Type != "object" {
		return Custom{}, fmt.Errorf("tool: %s: its arguments are no struct", name)
	}
	schema, err := json.Marshal(s)
	if err != nil {
		return Custom{}, fmt.Errorf("tool: %s: %w", name, err)
	}
	return Custom{Definition: Definition{Name: name, Description: description, Schema: schema}, run: func(b *builtin) func(context.Context, Call) Result {
		return func(ctx context.Context, c Call) Result { return b.function(ctx, c, invoke(f)) }
	}}, nil
}

// invoke is f on JSON.
func invoke[In, Out any](f func(context.Context, In) (Out, error)) func(context.Context, Call) (string, error) {
	return func(ctx context.Context, c Call) (text string, err error) {
		in, err := decode[In](c)
		if err != nil {
			return "", Fail(OpArguments, CodeInvalidArguments, err.Error(), "").Err
		}
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("it panicked: %v", v)
			}
		}()
		out, err := f(ctx, in)
		if err != nil {
			return "", err
		}
		if s, ok := any(out).(string); ok {
			return s, nil
		}
		data, err := json.Marshal(out)
		return string(data), err
	}
}

// function runs a function and shows what it returns.
func (b *builtin) function(ctx context.Context, c Call, f func(context.Context, Call) (string, error)) Result {
	if c.Begun {
		return fateUnknown(OpRun, "rein was ended while "+c.Name+" was under way; nobody can say what it did")
	}
	timeout, no := b.callTimeout(0, false, false)
	if no != nil {
		return *no
	}
	if b.Begin == nil {
		return b.invoke(ctx, c, timeout, f)
	}
	ended, err := b.Begin(c)
	if err != nil {
		return Fail(OpRun, CodeHost, "the call could not be recorded: "+err.Error(), "")
	}
	res := b.invoke(ctx, c, timeout, f)
	if err := ended(res); err != nil && res.Err == nil {
		res.Err = Fail(OpRun, CodeHost, "the end of the call could not be recorded: "+err.Error(), "").Err
	}
	return res
}

func (b *builtin) invoke(ctx context.Context, c Call, timeout time.Duration, f func(context.Context, Call) (string, error)) Result {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	text, err := f(ctx, c)
	if e, ok := errors.AsType[*Error](err); ok {
		return Result{Err: e}
	}
	if err != nil {
		return Fail(OpRun, CodeFunctionFailed, c.Name+": "+evidence.Cut(b.Masker.String(err.Error()), maxMessage), "")
	}
	shown := evidence.Show(evidence.Stream{Head: []byte(text), Bytes: int64(len(text)), Lines: int64(strings.Count(text, "\n")) + 1},
		evidence.Stream{}, evidence.Options{Bytes: c.limits.OutputBytes, Lines: c.limits.OutputLines, Masker: b.Masker})
	res := Result{OK: true, Stdout: shown.Stdout.Text, OutputBytes: int64(len(text))}
	res.account(shown)
	return res
}
