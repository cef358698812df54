package daemon

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxArgument is the longest command that goes to the shell as an argument.
// The kernel refuses a single argument of 128 KiB (MAX_ARG_STRLEN).
const maxArgument = 100 << 10

// shells in the order of preference; OpenSandbox falls back to sh as well.
var shells = [...]string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh", "/usr/bin/sh"}

// findShell returns the shell to use now, "" where there is none: one may be
// installed any time.
func (m *OS) findShell() (path string, bash bool) {
	for _, s := range m.shells {
		if unix.Access(s, unix.X_OK) == nil {
			return s, filepath.Base(s) == "bash"
		}
	}
	return "", false
}

// request decides program, arguments and helper files of a command.
func (m *OS) request(spec Spec) (wardenRequest, *commandFiles, error) {
	if len(spec.Argv) > 0 {
		req, err := m.argv(spec)
		return req, &commandFiles{}, err
	}
	shell, bash := m.findShell()
	command := spec.Command
	if strings.HasPrefix(command, "-") || strings.HasPrefix(command, "+") {
		command = " " + command // not options of the shell
	}
	req := wardenRequest{Path: shell, Args: []string{filepath.Base(shell), "-c", command}, Dir: spec.Dir, Env: spec.Env, Merge: spec.MergeStderr}
	if err := m.identity(spec, &req); err != nil {
		return req, nil, err
	}
	if shell == "" {
		if spec.KeepState { // which takes a shell to keep it
			command = ""
		}
		return req, &commandFiles{}, req.noShell(command)
	}
	if !hasKey(spec.Env, "SHELL") {
		// As a login would have it; without it bash looks the user up each time.
		req.Env = append(spec.Env[:len(spec.Env):len(spec.Env)], "SHELL="+shell)
	}
	files := &commandFiles{}
	if len(spec.Command) > maxArgument {
		path := filepath.Join(m.opts.Dir, spec.ID+".sh")
		if err := writeNew(path, []byte(spec.Command), 0o644); err != nil {
			return req, nil, fmt.Errorf("keep the script: %w", err)
		}
		files.script = path
		req.Args = []string{filepath.Base(shell), path}
	}
	if spec.KeepState {
		if err := m.keepState(spec, &req, files, bash); err != nil {
			files.remove()
			return req, nil, err
		}
		return req, files, nil
	}
	if bash && m.bash.usable() && hasPipeline(spec.Command) && !hasKey(spec.Env, "BASH_ENV") {
		path := filepath.Join(m.opts.Dir, spec.ID+".ps")
		f, err := m.createFor(path, req)
		if err != nil {
			files.remove()
			return req, nil, fmt.Errorf("keep the pipe status: %w", err)
		}
		files.status, files.statusPath = f, path
		req.Env = append(req.Env[:len(req.Env):len(req.Env)], "BASH_ENV="+m.bash.rc, pipeVar+"="+path)
	}
	return req, files, nil
}

// identity checks and sets whom the command runs as.
func (m *OS) identity(spec Spec, req *wardenRequest) error {
	if m.opts.User != nil {
		req.Switch, req.UID, req.GID = true, m.opts.User.UID, m.opts.User.GID
	}
	if spec.UID == nil {
		return nil
	}
	uid, gid := *spec.UID, uint32(0)
	if spec.GID != nil {
		gid = *spec.GID
	} else if m.opts.User != nil {
		gid = m.opts.User.GID
	}
	own := uint32(unix.Geteuid())
	switch {
	case m.opts.User == nil && uid == own && (spec.GID == nil || gid == uint32(unix.Getegid())):
		return nil
	case m.opts.User == nil:
		return &StartError{Reason: fmt.Sprintf("commands can only run as uid %d here", own)}
	case uid == own || uid == 0 || spec.GID != nil && gid == 0:
		return &StartError{Reason: "commands cannot run as root or as the daemon's own user"}
	}
	req.UID, req.GID = uid, gid
	return nil
}

// createFor makes an empty file that only the command's user can write. The
// user cannot replace it: the directory is the daemon's.
func (m *OS) createFor(path string, req wardenRequest) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if req.Switch {
		if err := f.Chown(int(req.UID), int(req.GID)); err != nil {
			f.Close()
			os.Remove(path)
			return nil, err
		}
	}
	return f, nil
}

// commandFiles are the files of one running command.
type commandFiles struct {
	script     string
	status     *os.File
	statusPath string
	state      *os.File
	statePath  string
}

func (c *commandFiles) remove() {
	if c.state != nil {
		c.state.Close()
		os.Remove(c.statePath)
		c.state = nil
	}
	if c.script != "" {
		os.Remove(c.script)
	}
	if c.status != nil {
		c.status.Close()
		os.Remove(c.statusPath)
		c.status = nil
	}
}

// pipeStatus reads what the trap wrote, nil when it did not run or the last
// pipeline had one member. The content is the user's: it is only believed to
// be numbers.
func (c *commandFiles) pipeStatus() []int {
	if c.status == nil {
		return nil
	}
	var b [512]byte
	n, _ := c.status.ReadAt(b[:], 0)
	f := strings.Fields(string(b[:n]))
	if len(f) < 2 || n == len(b) {
		return nil
	}
	codes := make([]int, len(f))
	for i, s := range f {
		v, err := strconv.Atoi(s)
		if err != nil || v < 0 || v > 255 {
			return nil
		}
		codes[i] = v
	}
	return codes
}

// pipeTrap has bash report the exit codes of its last pipeline. The trap comes
// from BASH_ENV, which a shell reads before its command, so line numbers, error
// messages and $0 are the user's own; it does not change the exit code, is not
// seen under set -x, and gives way to a trap of the user.
type pipeTrap struct{ rc string }

const pipeVar = "REIN_PIPE_STATUS"

func newPipeTrap(dir string) pipeTrap {
	rc := filepath.Join(dir, "rc")
	if strings.ContainsAny(rc, "'\\\"$`\n") {
		return pipeTrap{}
	}
	text := `{ unset BASH_ENV; trap "{ builtin printf '%s ' \"\${PIPESTATUS[@]}\" >|'$` + pipeVar + `'; } 2>/dev/null" EXIT; unset ` + pipeVar + `; } 2>/dev/null` + "\n"
	if os.WriteFile(rc, []byte(text), 0o644) != nil {
		return pipeTrap{}
	}
	return pipeTrap{rc}
}

func (t pipeTrap) usable() bool { return t.rc != "" }

// hasPipeline reports whether the command may contain a pipeline. Mistaking
// another "|" for one costs a file and changes nothing.
func hasPipeline(command string) bool {
	for i := 0; i < len(command); i++ {
		if command[i] != '|' {
			continue
		}
		if i+1 < len(command) && command[i+1] == '|' {
			i++
			continue
		}
		return true
	}
	return false
}

func hasKey(env []string, key string) bool {
	for _, kv := range env {
		if strings.HasPrefix(kv, key) && strings.HasPrefix(kv[len(key):], "=") {
			return true
		}
	}
	return false
}

// oomKills reads the sandbox's count of processes killed for memory, or -1:
// the line "oom_kill N" of memory.events, or of memory.oom_control.
func (m *OS) oomKills() int64 {
	if m.opts.OOMEvents == nil {
		return -1
	}
	var b [1024]byte
	n, _ := m.opts.OOMEvents.ReadAt(b[:], 0)
	return parseOOMKills(b[:n])
}

func parseOOMKills(b []byte) int64 {
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) == 2 && string(f[0]) == "oom_kill" {
			if v, err := strconv.ParseInt(string(f[1]), 10, 64); err == nil {
				return v
			}
		}
	}
	return -1
}
