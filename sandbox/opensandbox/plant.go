package opensandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"debug/elf"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"path"
	"strings"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// program is rein's execd on this host.
type program struct {
	path    string
	size    int64
	machine string // as uname -m says it
}

// machines are the architectures that rein-execd is made for.
var machines = map[elf.Machine]string{elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64"}

// openProgram looks at the binary: it must be one of Linux that needs nothing
// else, because the images it is put into have what they have.
func openProgram(file string) (*program, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("rein-execd at %s: %w", file, err)
	}
	defer f.Close()
	machine, ok := machines[f.Machine]
	if !ok {
		return nil, fmt.Errorf("rein-execd at %s is for %v", file, f.Machine)
	}
	for _, s := range f.Progs {
		if s.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("rein-execd at %s is not static; build it with CGO_ENABLED=0", file)
		}
	}
	st, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	return &program{path: file, size: st.Size(), machine: machine}, nil
}

// Bounds of putting rein's execd into a sandbox.
const (
	plantTimeout = 60 * time.Second
	startTimeout = 10 * time.Second
	portTries    = 3
	// Ports for rein's execd: above those that programs like to listen on, and
	// below those the kernel gives to outgoing connections.
	firstPort, lastPort = 23000, 32000
)

// survey is a shell text that says what there is: the architecture, who
// commands run as and where their home is, a directory in which a program may
// be run, whether /run can be written, and the environment that the image
// gives. It leaves nothing behind but the directory for spills.
const survey = `# rein survey
echo "machine=$(uname -m)"
echo "uid=$(id -u)"
echo "home=$HOME"
for d in /tmp /var/tmp /dev/shm "$HOME"; do
	t="$d/.rein-$$"
	printf '#!/bin/sh\nexit 0\n' > "$t" 2> /dev/null && chmod 700 "$t" && "$t" 2> /dev/null && echo "dir=$d"
	rm -f "$t" 2> /dev/null
done
mkdir -p /run/rein 2> /dev/null && test -w /run/rein && echo "run=yes"
echo "env=$(env -0 | base64 | tr -d '\n')"
`

// findings is what a survey said.
type findings struct {
	machine, uid, home, dir string
	run                     bool
	env                     map[string]string
}

func parseFindings(out string) findings {
	var f findings
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key {
		case "machine":
			f.machine = value
		case "uid":
			f.uid = value
		case "home":
			if path.IsAbs(value) {
				f.home = value
			}
		case "dir":
			if f.dir == "" && path.IsAbs(value) {
				f.dir = value
			}
		case "run":
			f.run = true
		case "env":
			f.env = parseEnvironment(value)
		}
	}
	return f
}

// parseEnvironment reads variables, NUL after each, in base64. Those of the
// server's execd and of the shell that printed them are left out.
func parseEnvironment(text string) map[string]string {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	env := map[string]string{}
	for kv := range strings.SplitSeq(string(b), "\x00") {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" || k == "_" || k == "PWD" || k == "OLDPWD" || k == "SHLVL" ||
			strings.HasPrefix(k, "EXECD_") || strings.HasPrefix(k, "OPENSANDBOX_") || strings.HasPrefix(k, "JUPYTER_") {
			continue
		}
		env[k] = v
	}
	return env
}

// plant puts rein's execd into a sandbox and starts it there, beside the
// server's. The error says why it cannot be; the sandbox is then used through
// the server's.
//
// Its boot message, which holds the token, arrives over standard input: it is
// uploaded readable for its owner only, opened, removed, and only then is the
// program started. The token is in no argument, variable or log; what user code
// could do with it, it could do through the server's execd anyway, which asks
// for none.
func (p *Provider) plant(ctx context.Context, id string, ep sandbox.Endpoint, rec *record) error {
	if p.missing != nil {
		return p.missing
	}
	ctx, cancel := context.WithTimeout(ctx, p.planting)
	defer cancel()
	c := clientOf(ep)
	defer c.Close()
	out, err := shell(ctx, c, survey)
	if err != nil {
		return fmt.Errorf("looking around in the sandbox: %w", err)
	}
	f := parseFindings(out)
	switch {
	case f.machine != p.program.machine:
		return fmt.Errorf("the sandbox is %s, and rein-execd is for %s", shorten(f.machine), p.program.machine)
	case f.dir == "":
		return errors.New("no directory of the sandbox takes a program that can be run (/tmp, /var/tmp and /dev/shm are noexec or not writable)")
	case !f.run:
		return fmt.Errorf("its user (uid %s) cannot write to /run, where spills are kept", shorten(f.uid))
	}
	dir := path.Join(f.dir, ".rein-"+strings.ToLower(rand.Text()))
	if err := c.Mkdir(ctx, "", map[string]execd.Permission{dir: {Mode: 700}}); err != nil {
		return err
	}
	rec.Left = ""
	err = p.uploadProgram(ctx, c, dir+"/rein-execd")
	for try := 0; err == nil; try++ {
		rec.Port = firstPort + mathrand.IntN(lastPort-firstPort)
		var running string
		if running, err = p.start(ctx, id, c, ep, dir, f, rec); err == nil {
			break
		}
		rec.note(undone(ctx, func(ctx context.Context) error { return endStarted(ctx, c, running) }))
		if try == portTries-1 || ctx.Err() != nil {
			break
		}
		err = nil // another port may be free
	}
	// The program lives on without its file. What is left of it hinders nothing.
	rec.note(undone(ctx, func(ctx context.Context) error {
		_, err := shell(ctx, c, "rm -rf "+quoted(dir))
		return err
	}))
	if err != nil {
		rec.Port, rec.Token = 0, ""
	}
	return err
}

// note keeps what could not be taken away.
func (r *record) note(err error) {
	if err != nil {
		r.Left = strings.TrimPrefix(r.Left+"; "+shorten(err.Error()), "; ")
	}
}

// undone takes back something, also when the time for doing it is over.
func undone(ctx context.Context, back func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shellTimeout)
	defer cancel()
	return back(ctx)
}

// endStarted ends a program that was started and is not used. One that has
// ended by itself is fine.
func endStarted(ctx context.Context, c *execd.Client, running string) error {
	if running == "" {
		return nil // nothing is known to have started
	}
	err := c.Interrupt(ctx, running)
	if err == nil {
		return nil
	}
	if st, statusErr := c.Status(ctx, running); execd.IsNotFound(statusErr) || statusErr == nil && !st.Running {
		return nil
	}
	return fmt.Errorf("ending rein-execd: %w", err)
}

func (p *Provider) uploadProgram(ctx context.Context, c *execd.Client, to string) error {
	file, err := os.Open(p.program.path)
	if err != nil {
		return err
	}
	defer file.Close()
	mode := 700
	if _, err := c.Upload(ctx, execd.UploadMetadata{Path: to, Mode: &mode}, file, p.program.size); err != nil {
		return fmt.Errorf("uploading rein-execd: %w", err)
	}
	// A server's execd that cuts uploads short says nothing of it.
	info, err := c.Stat(ctx, "", to)
	if err == nil && info[to].Size != p.program.size {
		err = fmt.Errorf("rein-execd arrived with %d of %d bytes", info[to].Size, p.program.size)
	}
	return err
}

// start starts the program on rec.Port and waits until it answers. running is
// the command that it is, once it was started.
func (p *Provider) start(ctx context.Context, id string, c *execd.Client, ep sandbox.Endpoint, dir string, f findings, rec *record) (running string, err error) {
	// One header carries the tokens of both, should the server's want one.
	if rec.Token = ep.Header.Get(execd.TokenHeader); rec.Token == "" {
		rec.Token = rand.Text() + rand.Text()
	}
	env := map[string]string{}
	for _, m := range []map[string]string{f.env, rec.Env} {
		for k, v := range m {
			env[k] = v
		}
	}
	boot, err := json.Marshal(execd.Boot{Token: rec.Token, Listen: fmt.Sprintf("127.0.0.1:%d", rec.Port), Guest: true, Home: f.home, Cwd: rec.Cwd, Env: env})
	if err != nil {
		return "", err
	}
	mode := 600
	if _, err := c.Upload(ctx, execd.UploadMetadata{Path: dir + "/boot", Mode: &mode}, bytes.NewReader(boot), int64(len(boot))); err != nil {
		return "", fmt.Errorf("uploading its boot message: %w", err)
	}
	_, err = c.Run(ctx, execd.RunRequest{Cwd: "/", Background: true,
		Command: fmt.Sprintf(`{ rm -f %[1]s/boot; exec %[1]s/rein-execd; } < %[1]s/boot`, quoted(dir))}, func(e execd.Event) {
		if e.Type == execd.EventInit {
			running = e.Text
		}
	})
	if err != nil {
		return running, fmt.Errorf("starting rein-execd: %w", err)
	}
	short, cancel := context.WithTimeout(ctx, p.starting)
	defer cancel()
	for {
		direct, err := p.endpoint(short, id, rec.Port)
		for _, way := range []struct {
			ep      sandbox.Endpoint
			through bool
			known   bool
		}{{direct, false, err == nil}, {through(ep, rec.Port), true, true}} {
			if way.known && p.ours(short, withToken(way.ep, rec.Token)) {
				rec.Through = way.through
				return running, nil
			}
		}
		if st, err := c.Status(short, running); err == nil && !st.Running {
			return running, fmt.Errorf("rein-execd does not run there: %s", said(short, c, running))
		}
		if sleep(short, readyPoll/2) != nil {
			return running, errors.New("rein-execd was started, and does not answer through the server")
		}
	}
}

// quoted is a text that a shell takes as it is.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// ours reports whether rein's execd answers there.
func (p *Provider) ours(ctx context.Context, ep sandbox.Endpoint) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c := clientOf(ep)
	defer c.Close()
	f, err := c.Features(ctx)
	return err == nil && f.CallIDs
}

// said is what a background command has printed.
func said(ctx context.Context, c *execd.Client, id string) string {
	b, _, err := c.Logs(ctx, id, 0)
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return "it ended without a word"
	}
	return shorten(string(b))
}

// ownEndpoint is how rein's execd in a sandbox is reached now.
func (p *Provider) ownEndpoint(ctx context.Context, id string, rec record) (sandbox.Endpoint, error) {
	port := rec.Port
	if rec.Through {
		port = execd.Port
	}
	ep, err := p.endpoint(ctx, id, port)
	if err != nil {
		return ep, err
	}
	if rec.Through {
		ep = through(ep, rec.Port)
	}
	return withToken(ep, rec.Token), nil
}

// shellTimeout bounds one command of the provider's own.
const shellTimeout = 20 * time.Second

// shell runs a command by the server's execd and returns what it printed.
func shell(ctx context.Context, c *execd.Client, text string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, shellTimeout)
	defer cancel()
	var out strings.Builder
	o, err := c.Run(ctx, execd.RunRequest{Command: text, Cwd: "/", Timeout: shellTimeout.Milliseconds()}, func(e execd.Event) {
		if e.Type == execd.EventStdout && out.Len() < 1<<20 {
			io.WriteString(&out, strings.TrimSuffix(e.Text, "\n")+"\n")
		}
	})
	switch {
	case err != nil:
		return "", err
	case o.ExitCode == nil:
		return "", errors.New("it was killed")
	case *o.ExitCode != 0:
		return "", fmt.Errorf("exit code %d", *o.ExitCode)
	}
	return out.String(), nil
}
