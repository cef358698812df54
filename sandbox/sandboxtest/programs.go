package sandboxtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"mvdan.cc/sh/v3/interp"
)

// process is one call of a program.
type process struct {
	ctx            context.Context
	shell          *shell
	name           string
	args           []string
	dir            string
	env            []string
	stdin          io.Reader
	stdout, stderr io.Writer
}

// fail prints a message as bash does and returns the code.
func (p *process) fail(code int, format string, args ...any) int {
	fmt.Fprintf(p.stderr, "bash: %s: %s\n", p.name, fmt.Sprintf(format, args...))
	return code
}

// complain prints a program's own message.
func (p *process) complain(subject string, err error) int {
	fmt.Fprintf(p.stderr, "%s: %s: %v\n", p.name, subject, cause(err))
	return 1
}

// path is a name given to the program, as a path of the sandbox.
func (p *process) path(name string) string { return abs(p.dir, name) }

// flags takes the single-letter options off the front of the arguments; those
// in withValue take the next argument or what follows them.
func (p *process) flags(withValue string) map[byte]string {
	got := map[byte]string{}
	for len(p.args) > 0 && len(p.args[0]) > 1 && p.args[0][0] == '-' {
		arg := p.args[0][1:]
		p.args = p.args[1:]
		if arg == "-" {
			break
		}
		for len(arg) > 0 {
			c := arg[0]
			arg = arg[1:]
			got[c] = ""
			if strings.IndexByte(withValue, c) >= 0 {
				if arg == "" && len(p.args) > 0 {
					arg, p.args = p.args[0], p.args[1:]
				}
				got[c], arg = arg, ""
			}
		}
	}
	return got
}

// inputs calls f with each file named by the arguments, or standard input.
func (p *process) inputs(f func(name string, r io.Reader) error) int {
	code := 0
	names := p.args
	if len(names) == 0 {
		names = []string{"-"}
	}
	for _, name := range names {
		err := func() error {
			if name == "-" {
				return f("", p.stdin)
			}
			file, err := p.shell.files.open(p.path(name), os.O_RDONLY, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			return f(name, file)
		}()
		if err != nil {
			code = p.complain(name, err)
		}
	}
	return code
}

// program returns one of the programs a sandbox of Memory has besides the
// shell's builtins, or nil.
func program(name string) func(*process) int {
	switch name {
	case "bash", "sh":
		return sh
	case "cat":
		return cat
	case "chmod":
		return chmod
	case "cp":
		return cp
	case "env":
		return printEnv
	case "grep":
		return grep
	case "head":
		return head
	case "ln":
		return ln
	case "ls":
		return ls
	case "mkdir":
		return mkdir
	case "mv":
		return mv
	case "readlink":
		return readlink
	case "rm":
		return rm
	case "seq":
		return seq
	case "sha256sum":
		return sha256sum
	case "sleep":
		return sleep
	case "sort":
		return sortLines
	case "tail":
		return tail
	case "tee":
		return tee
	case "touch":
		return touch
	case "wc":
		return wc
	case "which":
		return which
	case "yes":
		return yes
	}
	return nil
}

func sleep(p *process) int {
	if len(p.args) != 1 {
		return p.fail(1, "needs one duration")
	}
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(p.args[0], "s"), 64)
	if err != nil || seconds < 0 {
		return p.fail(1, "invalid time interval %q", p.args[0])
	}
	p.shell.pause(p.ctx, time.Duration(seconds*float64(time.Second)))
	return 0
}

// sh is bash -c TEXT [NAME ARGS], or bash FILE [ARGS].
func sh(p *process) int {
	flags := p.flags("c")
	if text, ok := flags['c']; ok {
		if len(p.args) > 0 {
			p.args = p.args[1:] // $0
		}
		return p.interpret(text)
	}
	if len(p.args) == 0 {
		text, err := io.ReadAll(p.stdin)
		if err != nil {
			return p.complain("-", err)
		}
		return p.interpret(string(text))
	}
	file := p.args[0]
	p.args = p.args[1:]
	return runScript(p, p.path(file), p.args)
}

// runScript interprets a file of the sandbox.
func runScript(p *process, file string, args []string) int {
	f, err := p.shell.files.open(file, os.O_RDONLY, 0)
	if err != nil {
		p.complain(file, err)
		return 127
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		p.complain(file, err)
		return 126
	}
	if head, _, _ := bytes.Cut(text, []byte("\n")); bytes.IndexByte(head, 0) >= 0 {
		p.name = file
		return p.fail(126, "cannot execute binary file")
	}
	p.args = args
	return p.interpret(string(text))
}

func (p *process) interpret(text string) int {
	stdin, _ := p.stdin.(*os.File)
	code, rest, err := p.shell.run(p.ctx, task{
		source: text, dir: p.dir, env: p.env, params: p.args, stdin: stdin, stdout: p.stdout, stderr: p.stderr,
	})
	if err != nil {
		return 1
	}
	// What the inner shell left in the background lives on without it.
	p.shell.running.Add(1)
	go func() {
		defer p.shell.running.Add(-1)
		rest(p.ctx)
	}()
	return code
}

func printEnv(p *process) int {
	for len(p.args) > 0 && strings.Contains(p.args[0], "=") {
		p.env = append(p.env, p.args[0])
		p.args = p.args[1:]
	}
	if len(p.args) > 0 {
		p.name, p.args = p.args[0], p.args[1:]
		return p.shell.start(p)
	}
	for _, kv := range p.env {
		fmt.Fprintln(p.stdout, kv)
	}
	return 0
}

func which(p *process) int {
	p.flags("")
	code := 0
	for _, name := range p.args {
		switch {
		case interp.IsBuiltin(name):
			fmt.Fprintln(p.stdout, name)
		case program(name) != nil:
			fmt.Fprintln(p.stdout, "/usr/bin/"+name)
		default:
			code = 1
		}
	}
	return code
}
