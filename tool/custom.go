package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rein-sh/rein/command"
	"github.com/rein-sh/rein/sandbox"
)

// Custom is a tool besides the built-in ones, made by Program.Tool or Func.
type Custom struct {
	Definition
	run     func(*builtin) func(context.Context, Call) Result
	program *Program // nil for a function
}

// Argv is the program and the arguments that a call with these arguments starts
// in the sandbox; nil for a function, and for arguments that do not fit.
func (c Custom) Argv(arguments json.RawMessage) []string {
	if c.program == nil {
		return nil
	}
	argv, _ := c.program.CommandOf(arguments)
	return argv
}

// Place is where the program starts, beneath the workspace if it says no other,
// and the variables that are added for it; none for a function.
func (c Custom) Place(workspace string) (cwd string, env map[string]string) {
	if c.program == nil {
		return workspace, nil
	}
	return c.program.cwd(workspace), maps.Clone(c.program.Env)
}

// cwd is where a program starts.
func (p Program) cwd(workspace string) string {
	if path.IsAbs(p.Cwd) {
		return p.Cwd
	}
	return path.Join(workspace, p.Cwd)
}

// Timeout is what each of its calls may take, 0 being the run's own and a
// function's.
func (c Custom) Timeout() time.Duration {
	if c.program == nil {
		return 0
	}
	return c.program.Timeout
}

func (c Custom) bind(b *builtin) (Tool, error) {
	if c.run == nil {
		return Tool{}, errors.New("tool: a custom tool is made by Program.Tool or Func")
	}
	return Tool{Definition: c.Definition, Run: c.run(b)}, nil
}

// Program is a narrow tool: one program in the sandbox, started without a shell
// having a part in its arguments.
type Program struct {
	// Name is what the model calls; letters, digits, "_" and "-".
	Name        string
	Description string
	Parameters  []Parameter
	// Argv is the program and its arguments. Each element is one argument
	// whatever it holds: {{name}} in it is replaced by the parameter's value and
	// never split. An element with a parameter that the call does not give is
	// left out. The program itself has no parameter in it.
	Argv []string
	// Cwd is where it starts: relative to the workspace, or absolute. Empty: the workspace.
	Cwd string
	// Timeout of a call; 0 is the run's own.
	Timeout time.Duration
	// Env is added to the sandbox's environment.
	Env map[string]string
}

// Parameter is one argument a narrow tool takes.
type Parameter struct {
	Name        string
	Description string
	Type        string // string, integer, number or boolean
	Required    bool
	// Enum are the values allowed, all others being refused.
	Enum []string
	// Pattern is a regular expression (RE2) of the whole value.
	Pattern string
	// Min and Max bound a number.
	Min, Max *float64
	// MaxLength bounds a string, in characters; 0 means DefaultMaxLength.
	MaxLength int
	// Path says that the value names a file of the workspace: it may not lead out of
	// it, over links neither, nor to where credentials are kept.
	Path bool
	// Dash allows a value that begins with "-" to be a whole argument, which the
	// program may take for an option. Enum and Pattern decide that themselves.
	Dash bool
}

// DefaultMaxLength of a Parameter's value.
const DefaultMaxLength = 4096

var (
	toolName  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)
	paramName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	insert    = regexp.MustCompile(`\{\{([^{}]*)\}\}`)
)

// reserved are the names of tools of rein's own.
var reserved = []string{SandboxCreate, RunCommand, ReadFile, WriteFile, SandboxKill, SessionCreate, SessionRun, SessionClose}

// Check says what is wrong with the definition. The error names the field.
func (p Program) Check() error {
	switch {
	case !toolName.MatchString(p.Name):
		return fmt.Errorf("name: %q is no name of a tool: letters, digits, _ and -, at most 64", p.Name)
	case slices.Contains(reserved, p.Name):
		return fmt.Errorf("name: %q is a tool of rein's own", p.Name)
	case strings.TrimSpace(p.Description) == "":
		return errors.New("description: it is empty, and all that the model knows of the tool")
	case len(p.Argv) == 0 || p.Argv[0] == "":
		return errors.New("argv: it has no program")
	case strings.Contains(p.Argv[0], "{{") || strings.HasPrefix(p.Argv[0], "-"):
		return errors.New("argv: the program is a name or path of its own, without a parameter")
	case p.Timeout < 0:
		return errors.New("timeout: it is negative")
	}
	for i, param := range p.Parameters {
		if err := param.check(); err != nil {
			return fmt.Errorf("parameters.%s.%w", param.Name, err)
		}
		if slices.ContainsFunc(p.Parameters[:i], func(o Parameter) bool { return o.Name == param.Name }) {
			return fmt.Errorf("parameters.%s: there are two of them", param.Name)
		}
	}
	used := map[string]bool{}
	for i, a := range p.Argv {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("argv[%d]: it holds a NUL", i)
		}
		for _, m := range insert.FindAllStringSubmatch(a, -1) {
			if !slices.ContainsFunc(p.Parameters, func(o Parameter) bool { return o.Name == m[1] }) {
				return fmt.Errorf("argv[%d]: there is no parameter %q", i, m[1])
			}
			used[m[1]] = true
		}
		if rest := insert.ReplaceAllString(a, ""); strings.Contains(rest, "{{") || strings.Contains(rest, "}}") {
			return fmt.Errorf("argv[%d]: %q has braces that belong to no parameter", i, a)
		}
	}
	for _, param := range p.Parameters {
		if !used[param.Name] {
			return fmt.Errorf("parameters.%s: argv does not use it", param.Name)
		}
	}
	return nil
}

func (p Parameter) check() error {
	switch {
	case !paramName.MatchString(p.Name):
		return fmt.Errorf("name: %q is no name of a parameter: letters, digits and _", p.Name)
	case !slices.Contains([]string{"string", "integer", "number", "boolean"}, p.Type):
		return fmt.Errorf("type: %q is not string, integer, number or boolean", p.Type)
	case p.Type != "string" && (len(p.Enum) > 0 || p.Pattern != "" || p.MaxLength != 0 || p.Path || p.Dash):
		return errors.New("type: enum, pattern, max_length, path and dash are for strings")
	case p.Type != "integer" && p.Type != "number" && (p.Min != nil || p.Max != nil):
		return errors.New("type: min and max are for numbers")
	case p.MaxLength < 0:
		return errors.New("max_length: it is negative")
	case p.Min != nil && p.Max != nil && *p.Min > *p.Max:
		return errors.New("min: it is more than max")
	}
	if _, err := regexp.Compile(p.Pattern); err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	return nil
}

// schema is the parameter's part of the schema.
func (p Parameter) schema() string {
	s := map[string]any{"type": p.Type}
	if p.Description != "" {
		s["description"] = p.Description
	}
	if p.Type == "string" {
		s["maxLength"] = cmp.Or(p.MaxLength, DefaultMaxLength)
	}
	if len(p.Enum) > 0 {
		s["enum"] = p.Enum
	}
	if p.Pattern != "" {
		s["pattern"] = entire(p.Pattern)
	}
	if p.Min != nil {
		s["minimum"] = *p.Min
	}
	if p.Max != nil {
		s["maximum"] = *p.Max
	}
	b, _ := json.Marshal(s) // plain data always encodes
	return string(b)
}

// entire makes a pattern one of the whole value.
func entire(pattern string) string { return `^(?:` + pattern + `)$` }

// Tool returns the program as a tool.
func (p Program) Tool() (Custom, error) {
	if err := p.Check(); err != nil {
		return Custom{}, fmt.Errorf("tool: %s: %w", p.Name, err)
	}
	var required []string
	var properties []property
	for _, param := range p.Parameters {
		properties = append(properties, property{param.Name, param.schema()})
		if param.Required {
			required = append(required, param.Name)
		}
	}
	d := Definition{Name: p.Name, Description: p.Description, Schema: objectSchema(required, properties...)}
	if _, err := resolve(d.Schema); err != nil {
		return Custom{}, fmt.Errorf("tool: %s: %w", p.Name, err)
	}
	return Custom{Definition: d, program: &p, run: func(b *builtin) func(context.Context, Call) Result {
		return func(ctx context.Context, c Call) Result { return b.program(ctx, c, p) }
	}}, nil
}

// CommandOf is the program and the arguments that a call starts. A call whose
// arguments do not fit is an *Error.
func (p Program) CommandOf(arguments json.RawMessage) ([]string, *Error) {
	given, err := object(arguments)
	values, ok := given.(map[string]any)
	if err != nil || !ok {
		return nil, Fail(OpArguments, CodeInvalidArguments, "the arguments are no object", "").Err
	}
	text := map[string]string{}
	for _, param := range p.Parameters {
		v, there := values[param.Name]
		if !there || v == nil {
			continue
		}
		s, fault := param.text(v)
		if fault != "" {
			return nil, Fail(OpArguments, CodeInvalidArguments, "arguments/"+param.Name+": "+fault, "correct arguments/"+param.Name).Err
		}
		text[param.Name] = s
	}
	var argv []string
	for _, a := range p.Argv {
		arg, there := p.expand(a, text)
		if !there {
			continue
		}
		if m := insert.FindStringSubmatch(a); m != nil && strings.HasPrefix(a, m[0]) && strings.HasPrefix(arg, "-") && !p.parameter(m[1]).dash() {
			return nil, Fail(OpArguments, CodeInvalidArguments, "arguments/"+m[1]+`: a value that begins with "-" would be taken for an option`,
				"for a file, begin with ./").Err
		}
		argv = append(argv, arg)
	}
	return argv, nil
}

// expand puts values into one element. It is not there when one of its values
// was not given.
func (p Program) expand(element string, text map[string]string) (string, bool) {
	there := true
	arg := insert.ReplaceAllStringFunc(element, func(m string) string {
		v, ok := text[m[2:len(m)-2]]
		there = there && ok
		return v
	})
	return arg, there
}

func (p Program) parameter(name string) Parameter {
	i := slices.IndexFunc(p.Parameters, func(o Parameter) bool { return o.Name == name })
	return p.Parameters[i] // Check has looked
}

func (p Parameter) dash() bool {
	return p.Dash || p.Type != "string" || len(p.Enum) > 0 || p.Pattern != ""
}

// text is a value as an argument.
func (p Parameter) text(v any) (text, fault string) {
	switch v := v.(type) {
	case string:
		if strings.ContainsRune(v, 0) {
			return "", "it holds a NUL"
		}
		if len(p.Enum) > 0 && !slices.Contains(p.Enum, v) {
			return "", "it is none of " + strings.Join(p.Enum, ", ")
		}
		if p.Pattern != "" && !regexp.MustCompile(`\A(?:`+p.Pattern+`)\z`).MatchString(v) {
			return "", "it does not match " + p.Pattern
		}
		return v, ""
	case bool:
		return strconv.FormatBool(v), ""
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), ""
	}
	return "", "it is no " + p.Type
}

// program runs a narrow tool.
func (b *builtin) program(ctx context.Context, c Call, p Program) Result {
	values, err := decode[map[string]any](c)
	if err != nil {
		return Fail(OpArguments, CodeInvalidArguments, err.Error(), "")
	}
	for _, param := range p.Parameters {
		name, given := values[param.Name].(string)
		if !param.Path || !given {
			continue
		}
		// Only looked at: the program is given the name the model wrote.
		if _, fault := b.place(ctx, c, name, b.roots[:1]); fault != nil {
			e := *fault
			e.Message = strings.Replace(e.Message, "arguments/path", "arguments/"+param.Name, 1)
			return Result{Err: &e}
		}
	}
	argv, fault := p.CommandOf(c.Arguments)
	if fault != nil {
		return Result{Err: fault}
	}
	timeout, no := b.callTimeout(p.Timeout, p.Timeout > 0, c.Begun)
	if no != nil {
		return *no
	}
	cwd := ""
	if p.Cwd != "" {
		cwd = p.cwd(b.cwd)
	}
	r, err := b.Sandbox.Run(ctx, sandbox.Command{
		CallID: c.ID, Tool: p.Name, Shell: CommandLine(argv), Argv: argv, Cwd: cwd, Env: p.Env, Timeout: timeout,
		Progress: c.Progress, Capture: max(minCapture, 4*c.limits.OutputBytes),
	})
	res := b.result(c, r)
	if err != nil {
		res.Err = Explain(OpRun, b.Sandbox.ID(), err)
	}
	res.Diagnosis = b.diagnose(ctx, &res, cwd)
	return res
}

// CommandLine is a command line that starts exactly these words, whatever they
// hold: quoted, and not a keyword, function or builtin of the shell.
func CommandLine(argv []string) string {
	words := []string{"exec"}
	for _, a := range argv {
		words = append(words, command.Quote(a))
	}
	return strings.Join(words, " ")
}
