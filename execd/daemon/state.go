package daemon

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
)

// How a shell says in which state it ended: a trap on EXIT writes its directory,
// its exported variables as a child has them, and a mark that this was all of it,
// to a file that only the command's user can write and only the daemon reads.
// bash is given the trap by BASH_ENV, as for pipe statuses; another shell gets it
// in front of the first line of its command.

const (
	stateVar  = "REIN_SESSION_STATE"
	envVar    = "REIN_BASH_ENV" // the user's own BASH_ENV
	stateMark = "\x00."
)

// sayState is the shell text that writes the state to the file named by path.
func sayState(path string) string {
	return `{ command printf '%s\0' "${PWD-}" && ` + catProgram() + ` /proc/self/environ && command printf '\0.'; } >|` + path
}

// catProgram is the program's path: the user's PATH may lead elsewhere.
func catProgram() string {
	for _, p := range []string{"/bin/cat", "/usr/bin/cat"} {
		if unix.Access(p, unix.X_OK) == nil {
			return p
		}
	}
	return "cat"
}

// KeepsState implements StateKeeper: the directory's name stands in a trap.
func (m *OS) KeepsState() bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"
	return strings.Trim(m.opts.Dir, plain) == ""
}

// keepState has the shell of a request say in which state it ended.
func (m *OS) keepState(spec Spec, req *wardenRequest, files *commandFiles, bash bool) error {
	if !m.KeepsState() {
		return &StartError{Reason: "the state of a shell cannot be kept here"}
	}
	path := filepath.Join(m.opts.Dir, spec.ID+".st")
	f, err := m.createFor(path, *req)
	if err != nil {
		return fmt.Errorf("keep the state: %w", err)
	}
	files.state, files.statePath = f, path
	if !bash {
		return m.trapInFront(spec, req, files)
	}
	status := "/dev/null"
	if hasPipeline(spec.Command) {
		status = filepath.Join(m.opts.Dir, spec.ID+".ps")
		if files.status, err = m.createFor(status, *req); err != nil {
			return fmt.Errorf("keep the pipe status: %w", err)
		}
		files.statusPath = status
	}
	rc := filepath.Join(m.opts.Dir, "rc-session")
	if err := writeStateTrap(rc); err != nil {
		return fmt.Errorf("keep the state: %w", err)
	}
	env := req.Env[:len(req.Env):len(req.Env)]
	for i, kv := range env {
		if own, ok := strings.CutPrefix(kv, "BASH_ENV="); ok {
			env = append(append(env[:i:i], env[i+1:]...), envVar+"="+own)
			break
		}
	}
	req.Env = append(env, "BASH_ENV="+rc, pipeVar+"="+status, stateVar+"="+path)
	return nil
}

// writeStateTrap writes the file that bash reads first, once.
func writeStateTrap(rc string) error {
	if _, err := os.Lstat(rc); err == nil {
		return nil
	}
	text := `{ trap "{ builtin printf '%s ' \"\${PIPESTATUS[@]}\" >|'$` + pipeVar + `'; ` +
		strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`).Replace(sayState("@")) +
		`; } 2>/dev/null" EXIT; unset BASH_ENV ` + pipeVar + ` ` + stateVar + `; } 2>/dev/null` + "\n" +
		`if [ -n "${` + envVar + `-}" ]; then export BASH_ENV="$` + envVar + `"; unset ` + envVar + `; . "$BASH_ENV"; fi` + "\n"
	text = strings.Replace(text, ">|@", `>|'$`+stateVar+`'`, 1)
	part, err := os.CreateTemp(filepath.Dir(rc), "rc-*")
	if err != nil {
		return err
	}
	_, err = part.WriteString(text)
	if err == nil {
		err = part.Chmod(0o644)
	}
	if cErr := part.Close(); err == nil {
		err = cErr
	}
	if err == nil {
		err = os.Rename(part.Name(), rc)
	}
	if err != nil {
		os.Remove(part.Name())
	}
	return err
}

// trapInFront puts the trap on the first line of the command.
func (m *OS) trapInFront(spec Spec, req *wardenRequest, files *commandFiles) error {
	command := `trap '` + strings.ReplaceAll("{ "+sayState(files.statePath)+"; } 2>/dev/null", `'`, `'\''`) + `' 0; ` + spec.Command
	if files.script != "" {
		return os.WriteFile(files.script, []byte(command), 0o644)
	}
	req.Args = []string{filepath.Base(req.Path), "-c", command}
	return nil
}

var (
	_ StateKeeper = (*OS)(nil)
	_ Stateful    = (*osProcess)(nil)
)

// State implements Stateful.
func (p *osProcess) State() (dir string, env []string, err error) { return parseState(p.state) }

// shellState reads what the trap wrote, at most a byte more than may be left.
func (c *commandFiles) shellState() []byte {
	if c.state == nil {
		return nil
	}
	b, _ := io.ReadAll(io.NewSectionReader(c.state, 0, execd.MaxSessionState+1)) // cut short it lacks the mark
	return b
}

// parseState reads what the trap has written.
func parseState(b []byte) (dir string, env []string, err error) {
	if len(b) > execd.MaxSessionState {
		return "", nil, fmt.Errorf("its directory and variables have more than %d bytes", execd.MaxSessionState)
	}
	b, ok := bytes.CutSuffix(b, []byte(stateMark))
	if !ok {
		return "", nil, errStateUnknown
	}
	fields := strings.Split(string(b), "\x00")
	for _, f := range fields[1:] {
		if f != "" {
			env = append(env, f)
		}
	}
	return fields[0], env, nil
}
