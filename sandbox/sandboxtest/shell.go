package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// A shell interprets shell programs over one directory, which they see as "/".
// No host program is run and no file outside the directory is opened: every
// path goes through files, and what the interpreter itself would look up on the
// host (programs, scripts to source, users' homes, its FIFOs) is answered here.
type shell struct {
	files *files
	clock Clock
	// running counts the programs that run now, in the foreground or not.
	running atomic.Int64
	// left is what the command left: its directory and exported variables.
	left func() (dir string, env []string)
}

// task is one command to interpret.
type task struct {
	source         string
	dir            string
	env            []string // name=value
	params         []string // $1 and on
	stdin          *os.File // nil is empty
	stdout, stderr io.Writer
}

// nul marks a path that the interpreter must not look up by itself: no host
// call accepts it, so that only our open handler sees what it was.
const nul = "\x00"

// run interprets t and returns its exit code and what is left of it: a function
// that waits for the jobs the command left in the background. The error is that
// of ctx when it ended first.
func (s *shell) run(ctx context.Context, t task) (code int, rest func(context.Context), err error) {
	rest = func(context.Context) {}
	prog, err := parse(t.source)
	if err != nil {
		fmt.Fprintf(t.stderr, "bash: %v\n", err)
		return 2, rest, nil
	}
	env := &environ{vars: expand.ListEnviron(t.env...)}
	var stdin io.Reader
	if t.stdin != nil { // a nil *os.File in an io.Reader would not be nil
		stdin = t.stdin
	}
	r, err := interp.New(
		interp.Env(env), interp.StdIO(stdin, t.stdout, t.stderr), interp.Params(append([]string{"--"}, t.params...)...),
		interp.CallHandler(s.call), interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return s.exec }),
		interp.OpenHandler(s.open), interp.StatHandler(s.stat),
		interp.ReadDirHandler2(func(_ context.Context, p string) ([]fs.DirEntry, error) { return s.files.readDir(p) }),
		interp.AccessHandler(func(_ context.Context, p string, _ interp.AccessMode) error {
			_, err := s.files.stat(p, true)
			return err
		}),
	)
	if err != nil {
		return 0, rest, err
	}
	r.Dir = t.dir
	r.Reset()
	env.ready = true
	err = r.Run(ctx, prog)
	if ctx.Err() != nil {
		return 0, rest, ctx.Err()
	}
	s.left = func() (string, []string) { return r.Dir, exported(env, r.Vars) }
	rest = func(ctx context.Context) {
		wait, _ := syntax.NewParser().Parse(strings.NewReader("wait"), "")
		_ = r.Run(ctx, wait) // its jobs' failures are nobody's any more
	}
	if status, ok := errors.AsType[interp.ExitStatus](err); ok {
		return int(status), rest, nil
	}
	if err != nil { // what the interpreter cannot do
		fmt.Fprintf(t.stderr, "bash: %v\n", err)
		return 2, rest, nil
	}
	return 0, rest, nil
}

// exported lists the variables that a child would have: those of before, but
// for what was changed.
func exported(before expand.Environ, changed map[string]expand.Variable) (env []string) {
	before.Each(func(name string, v expand.Variable) bool {
		if _, ok := changed[name]; !ok && v.Exported {
			env = append(env, name+"="+v.Str)
		}
		return true
	})
	for name, v := range changed {
		if v.IsSet() && v.Exported && v.Kind == expand.String {
			env = append(env, name+"="+v.Str)
		}
	}
	return env
}

// parse parses bash. Its parser takes a carriage return before a newline for a
// part of it, which bash does not: while it parses, another character stands
// for them.
func parse(source string) (*syntax.File, error) {
	standIn := "\uE00D"
	for strings.Contains(source, standIn) {
		standIn += "\uE00D"
	}
	prog, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(strings.ReplaceAll(source, "\r", standIn)), "")
	if err != nil {
		return nil, err
	}
	syntax.Walk(prog, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ProcSubst: // a FIFO of the host's
			err = errors.New("an interpreter in memory has no process substitution")
		case *syntax.Lit:
			n.Value = strings.ReplaceAll(n.Value, standIn, "\r")
		case *syntax.SglQuoted:
			n.Value = strings.ReplaceAll(n.Value, standIn, "\r")
		}
		return true
	})
	return prog, err
}

// environ is the environment of a command. Until ready it gives the interpreter
// a directory for FIFOs that does not exist, because it opens those directly.
type environ struct {
	vars  expand.Environ
	ready bool
}

func (e *environ) Get(name string) expand.Variable {
	if name == "TMPDIR" && !e.ready {
		return expand.Variable{Set: true, Kind: expand.String, Str: "/" + nul}
	}
	if user, ok := strings.CutPrefix(name, "HOME "); ok { // ~user: not looked up on the host
		return expand.Variable{Set: true, Kind: expand.String, Str: "~" + user}
	}
	return e.vars.Get(name)
}

func (e *environ) Each(f func(string, expand.Variable) bool) { e.vars.Each(f) }

// call changes the builtins that would search the host's PATH.
func (s *shell) call(_ context.Context, args []string) ([]string, error) {
	for len(args) > 1 && (args[0] == "builtin" || args[0] == "command" && !strings.HasPrefix(args[1], "-")) {
		args = args[1:]
	}
	switch {
	case (args[0] == "source" || args[0] == ".") && len(args) > 1:
		args = slices.Clone(args)
		args[1] = nul + args[1]
	case args[0] == "type" || args[0] == "hash" || args[0] == "command" && len(args) > 1:
		args = append([]string{"which"}, args[1:]...)
	}
	return args, nil
}

// exec runs what is neither a function nor a builtin: one of our programs, or a
// script in the sandbox.
func (s *shell) exec(ctx context.Context, args []string) error {
	hc := interp.HandlerCtx(ctx)
	s.running.Add(1)
	defer s.running.Add(-1)
	p := &process{
		ctx: ctx, shell: s, name: args[0], args: args[1:], dir: hc.Dir,
		stdout: hc.Stdout, stderr: hc.Stderr, stdin: eof{},
	}
	if f, ok := hc.Stdin.(*os.File); ok && f != nil {
		p.stdin = f
	}
	hc.Env.Each(func(name string, v expand.Variable) bool {
		if v.Exported && v.Kind == expand.String {
			p.env = append(p.env, name+"="+v.Str)
		}
		return true
	})
	code := s.start(p)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if code != 0 {
		return interp.ExitStatus(code)
	}
	return nil
}

func (s *shell) start(p *process) int {
	if !strings.Contains(p.name, "/") {
		if f := program(p.name); f != nil {
			return f(p)
		}
		return p.fail(127, "command not found")
	}
	full := abs(p.dir, p.name)
	info, err := s.files.stat(full, true)
	switch {
	case err != nil:
		if f := program(path.Base(full)); f != nil && slices.Contains([]string{"/bin", "/usr/bin"}, path.Dir(full)) {
			return f(p)
		}
		return p.fail(127, "No such file or directory")
	case info.IsDir():
		return p.fail(126, "Is a directory")
	case info.Mode()&0o111 == 0:
		return p.fail(126, "Permission denied")
	}
	return runScript(p, full, p.args)
}

// open opens a file for a redirection.
func (s *shell) open(ctx context.Context, name string, flag int, perm fs.FileMode) (io.ReadWriteCloser, error) {
	name = abs(interp.HandlerCtx(ctx).Dir, strings.TrimPrefix(name, nul))
	if name == "/dev/null" {
		return null{}, nil
	}
	f, err := s.files.open(name, flag, perm)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: cause(err)}
	}
	return f, nil
}

func (s *shell) stat(_ context.Context, name string, follow bool) (fs.FileInfo, error) {
	return s.files.stat(name, follow)
}

// abs is name as an absolute, clean path of the sandbox.
func abs(dir, name string) string {
	if !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	return path.Clean(name)
}

// cause is the innermost error of a file operation, without its host path.
func cause(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

// null is /dev/null, eof an empty standard input.
type (
	null struct{}
	eof  struct{}
)

func (null) Read([]byte) (int, error)    { return 0, io.EOF }
func (null) Write(p []byte) (int, error) { return len(p), nil }
func (null) Close() error                { return nil }
func (eof) Read([]byte) (int, error)     { return 0, io.EOF }
