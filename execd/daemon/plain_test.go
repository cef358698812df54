package daemon

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dump is a script that prints all that a program can see of how it was started.
const dump = `#!/bin/sh
printf '<%s>\n' "$0" "$@"
pwd; ulimit -a
while read -r line; do
	case $line in SigQ*) ;; Sig*|Shd*|Cap*|NoNew*|Umask*|Name*) echo "$line" ;; esac
done </proc/$$/status
cd /proc/$$/fd && echo *
cat /proc/$$/environ
`

// programs makes a directory of programs of every kind.
func programs(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "execd-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	env, err := os.ReadFile("/usr/bin/env")
	if err != nil {
		t.Fatal(err)
	}
	foreign := slices.Clone(env)
	foreign[18] = 0xff // of another machine
	object := slices.Clone(env)
	object[16] = 1 // not linked
	for name, f := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"bin/dump": {dump, 0o755}, "bin/env": {string(env), 0o755}, "bin/foreign": {string(foreign), 0o755}, "bin/object": {string(object), 0o755},
		"bin/cut": {string(env[:100]), 0o755}, "bin/bare": {"[[ $0 == * ]] && echo bash $0 $1; exit 4\n", 0o755}, "bin/empty": {"", 0o755},
		"bin/lost": {"#!/no/such/interpreter\n", 0o755}, "bin/crlf": {"#!/bin/sh\r\necho\r\n", 0o755}, "bin/nobody": {"#!\n", 0o755},
		"bin/nested": {"#!" + dir + "/bin/dump -x\n", 0o755}, "bin/locked": {dump, 0o600}, "bin/secret": {dump, 0o700}, "bin/binary": {"\x00\x01\x02\n", 0o755},
		"bin/fails": {"#!/bin/sh\necho out; echo err >&2; exit 3\n", 0o755}, "bin/dies": {"#!/bin/sh\nkill -SEGV $$\n", 0o755},
		"bin/killed": {"#!/bin/sh\nkill -KILL $$\n", 0o755}, "bin/true": {"#!/bin/sh\necho mine; exit 5\n", 0o755}, "bin/a=b": {dump, 0o755},
		"bin/1": {dump, 0o755}, "bin/-x": {dump, 0o755}, "bin/+x": {dump, 0o755}, "bin/%1": {dump, 0o755}, "bin/echo": {dump, 0o755}, "bin/then": {dump, 0o755},
		"other/dump": {"echo another\n", 0o755}, "private/hidden": {dump, 0o755}, "later/locked": {"#!/bin/sh\necho found\n", 0o755},
		"~/bin/tilde": {"#!/bin/sh\necho a tilde is a name\n", 0o755}, "home/.bashrc": {"echo from bashrc\n", 0o644}, "home/bin/tilde": {"#!/bin/sh\necho a tilde is home\n", 0o755},
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(f.text), f.mode), os.Chmod(path, f.mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Chmod(dir, 0o755), os.Chmod(dir+"/private", 0o700), os.Mkdir(dir+"/bin/folder", 0o755), os.Symlink("dump", dir+"/bin/link"),
		os.Symlink("gone", dir+"/bin/dangling"), os.Symlink("loop", dir+"/bin/loop"), os.Symlink(".", dir+"/here"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shown is everything of a command that its user is told. An environment has no
// order, and here nothing has.
func shown(t *testing.T, m *OS, spec Spec) (all []string) {
	t.Helper()
	p, err := m.Start(spec)
	if err != nil {
		return []string{err.Error()}
	}
	errs := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(p.Stderr())
		errs <- b
	}()
	out, _ := io.ReadAll(p.Stdout())
	all = strings.FieldsFunc(string(out), func(c rune) bool { return c == '\n' || c == 0 })
	slices.Sort(all)
	stderr := <-errs
	<-p.Gone()
	e := p.Exit()
	return append(all, string(stderr), fmt.Sprintf("code %d, signal %v, %v", e.Code, e.Signal, e.Err))
}

// A command is indistinguishable from the same command run by bash, which is
// what a newline at its end brings about.
func TestPlainCommandsAreBashs(t *testing.T) {
	dir := programs(t)
	programs := []string{"dump", "env", "foreign", "object", "cut", "bare", "empty", "lost", "crlf", "nobody", "nested", "locked", "secret", "binary",
		"fails", "dies", "killed", "true", "a=b", "1", "-x", "+x", "%1", "echo", "then", "folder", "link", "dangling", "loop", "hidden", "tilde", "gone",
		"false", "ls", "pwd", "printenv", "..", ".", ":", "@", "id", "kill", "/", "/usr/bin/env", "//usr/bin/env"}
	args := []string{"", " ", "-x", "--help", "a=b", "1", "@x", "%1", "+x", "..", "/etc/hostname", "x,y", ":", "in", "then", "=", "-", "--", "/gone"}
	paths := []string{"PATH=" + dir + "/bin:/usr/bin:/bin", "PATH=/usr/bin:/bin:" + dir + "/bin", "PATH=bin:/usr/bin", "PATH=", "PATH=" + dir + "/other:/usr/bin",
		"PATH=:/usr/bin", "PATH=" + dir + "/bin/:/usr/bin", "PATH=~/bin:/usr/bin", "PATH=" + dir + "/private:" + dir + "/bin:" + dir + "/later", "NOPATH=1",
		"PATH=" + dir + "/../" + filepath.Base(dir) + "/bin", "PATH=/gone:" + dir + "/here/bin:/usr/bin", "PATH=" + dir + "/bin%builtin:" + dir + "/bin", "PATH=" + dir + "/bin:" + dir + "/../" + filepath.Base(dir) + "/later"}
	names := []string{"A", "a_1", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LANGUAGE", "TERM", "SHELL", "_A", "A.B", "1A", "A-B", "EMPTY", "CI", "TZ",
		"LD_LIBRARY_PATH", "LD_PRELOAD", "BASH", "BASH_ENV", "BASHOPTS", "HOSTNAME", "HISTFILE", "MAILCHECK", "PS0", "PS3", "CDPATH", "REPLY",
		"TIMEFORMAT", "IGNOREEOF", "CHILD_MAX", "INPUTRC", "PROMPT_COMMAND", "UMASK", "EMACS", "INSIDE_EMACS", "TMPDIR", "histchars", "auto_resume",
		"OLDPWD", "PS1", "PS2", "SSH_CLIENT", "POSIXLY_CORRECT", "GLOBIGNORE", "EXECIGNORE", "ENV", "COLUMNS", "SHELLOPTS"}
	for name := range shellVariables {
		if !strings.HasPrefix(name, "EPOCH") { // no two bashes agree
			names = append(names, name)
		}
	}
	slices.Sort(names)
	values := []string{"", "1", "C.UTF-8", "POSIX", "en_US.UTF-8", "de_DE", "xtrace", "noexec", "a b", "/tmp", dir, "() { echo x; }", "*", "\xff", "a=b", "two\nlines", "7"}

	machines := map[string]*OS{}
	users := map[string]*User{"own": nil}
	if os.Geteuid() == 0 {
		users["other"] = &User{UID: 61234, GID: 61235}
	}
	for name, user := range users {
		state := filepath.Join(dir, "state-"+name)
		if err := os.Mkdir(state, 0o711); err != nil {
			t.Fatal(err)
		}
		m, err := NewOS(OSOptions{Warden: []string{"/proc/self/exe", "warden"}, Dir: state, User: user})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		machines[name] = m
	}
	direct := 0
	try := func(command, cwd string, env ...string) {
		t.Helper()
		for name, m := range machines {
			spec := Spec{ID: "p", Command: command, Dir: cwd, Env: append([]string{"HOME=" + dir + "/home"}, env...)}
			req, _, err := m.request(spec)
			if err != nil {
				t.Fatal(err)
			}
			if _, plain := withoutShell(req, command); !plain {
				continue // both would be by bash
			}
			direct++
			got := shown(t, m, spec)
			spec.Command += "\n"
			if diff := cmp.Diff(shown(t, m, spec), got); diff != "" {
				t.Errorf("%s user: %q in %s with %q is not as by bash (-):\n%s", name, command, cwd, env, diff)
			}
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(list []string) string { return list[rnd.IntN(len(list))] }
	quote := func(w string) string { return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'" }
	odd := []string{"", "it's", "a  b", "$HOME", "`id`", "*", "~", "{a,b}", "#", "\\", "two\nlines", "\t", "ä €", "\xff", "\x01", "\x7f", "!!", "\"", ">x", "&", "'"}
	for _, program := range programs {
		try(quote(program)+" "+quote("a b"), dir, paths[0])
		try(quote("./bin/"+program), dir, paths[0])
		try(program, dir, paths[0])
		try(program+" --help", dir, paths[1])
		try("./bin/"+program+" x", dir+"/here", paths[0])
	}
	for _, path := range paths {
		for _, program := range []string{"dump", "env", "tilde", "locked", "bare", "true"} {
			try(program, dir, path)
		}
	}
	for _, name := range names {
		for range 4 {
			try("env", "/", paths[0], name+"="+pick(values))
		}
	}
	try("env", "/", paths[0], "A=1", "A=2")
	try("env", "/", paths[1], paths[0])
	try("env", "/", paths[0], "A")
	for _, w := range odd {
		try("dump "+quote(w), dir, paths[0])
		try(quote("dump")+" x"+quote(w)+"'y' "+quote(w)+quote(w), dir, paths[0])
		try(quote(w)+" x", dir, paths[0])
		try("dump '"+w, dir, paths[0])
	}
	for range 150 {
		command := pick([]string{"", "", "", " ", "./bin/", "bin/", "../" + filepath.Base(dir) + "/bin/", dir + "/bin/", dir + "/private/"}) + pick(programs)
		for range rnd.IntN(4) {
			if a := pick(args); rnd.IntN(3) > 0 {
				command += " " + a
			} else {
				command += " " + a + quote(pick(odd))
			}
		}
		var env []string
		for range rnd.IntN(3) {
			env = append(env, pick(names)+"="+pick(values))
		}
		try(command, pick([]string{dir, dir, dir + "/here", "/"}), append(env, pick(paths))...)
	}
	if direct < 200 {
		t.Errorf("only %d commands were started without a shell", direct)
	}
}

func TestWithoutShell(t *testing.T) {
	bash := wardenRequest{Path: "/bin/bash", Dir: "/", Env: []string{"A_1=", "PATH=/nowhere:/usr/bin:/bin"}}
	for command, want := range map[string]bool{
		"true":                     true,
		"ls -l":                    true,
		"./script x":               true,
		"  sh test.sh ":            true,
		"ls -run=TestX ./...":      true,
		"/usr/bin/env":             true,
		"sh -m http.server a@b,c":  true,
		"no-such-program":          false,
		"true --help":              false,
		"":                         false,
		"  ":                       false,
		"echo -e x":                false,
		"A=1 ls":                   false,
		"%1":                       false,
		"-ls":                      false,
		"time ls":                  false,
		"ls *.go":                  false,
		"ls ~":                     false,
		"ls | sh":                  false,
		"ls; sh":                   false,
		"ls\nls":                   false,
		"ls 'b'":                   true,
		"'ls' 'it'\\''s' ''":       true,
		"ls 'a;\nb' x'$y'z":        true,
		"''":                       false,
		"ls 'b":                    false,
		"ls \\":                    false,
		"ls \\'":                   true,
		"'cd' /":                   false,
		"'A=1' ls":                 false,
		"ls '\xff'":                false,
		"ls $B":                    false,
		"ls >b":                    false,
		"ls {b,c}":                 false,
		"ls # b":                   false,
		"ls &":                     false,
		"ls \u00e4":                false,
		"[ -f x ]":                 false,
		"ls\\ b":                   false,
		"!true":                    false,
		"ls\tb":                    false,
		"kill -SIGINT 1":           false,
		strings.Repeat("ls ", 1e5): false,
	} {
		if _, got := withoutShell(bash, command); got != want {
			t.Errorf("%.40q: %v", command, got)
		}
	}
	if _, plain := withoutShell(wardenRequest{Path: "/bin/sh", Dir: "/", Env: bash.Env}, "ls"); plain {
		t.Error("sh is not bash")
	}
	for _, kv := range []string{"BASH_ENV=/x", "BASH_FUNC_ls%%=() { :; }", "a.b=c", "1a=b", "=x", "none", "PATH=/bin", "SHELLOPTS=xtrace", "LC_ALL=xx", "SSH_CLIENT=x"} {
		req := bash
		req.Env = append([]string{kv}, bash.Env...)
		if _, plain := withoutShell(req, "ls"); plain {
			t.Errorf("a command with %q in its environment is plain", kv)
		}
	}
}

// Every builtin and keyword of the bash that is here is known to be one, and
// every variable that it sets.
func TestShellWords(t *testing.T) {
	for list, known := range map[string]func(string) bool{
		"compgen -b; compgen -k": func(w string) bool {
			return w == "true" || w == "false" || shellWords[w] || strings.ContainsAny(w, "[]{}!")
		},
		"compgen -v": func(w string) bool {
			handedOn := []string{"PATH", "SHELL", "TERM", "HOSTNAME"}
			return slices.Contains(handedOn, w) || shellVariables[w] || strings.HasPrefix(w, "BASH")
		},
	} {
		cmd := exec.Command("bash", "-c", list)
		cmd.Env = []string{}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for w := range strings.FieldsSeq(string(out)) {
			if !known(w) {
				t.Errorf("%s: %q is bash's own", list, w)
			}
		}
	}
}
