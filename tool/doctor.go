package tool

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/internal/spelling"
	"github.com/rein-sh/rein/sandbox"
)

// doctor looks at the sandbox for what a diagnosis needs to know. What it asks
// is recorded, under this name.
type doctor struct {
	b   *builtin
	cwd string // of the command
}

const doctorTool = "diagnosis"

// lookTimeout bounds each look.
const lookTimeout = 5 * time.Second

// missingCommand says what could be meant, or could install it.
func missingCommand(ctx context.Context, d *doctor, name string) string {
	if strings.Contains(name, "/") {
		return missingFile(ctx, d, name)
	}
	hint := name + " is not installed, or not on PATH"
	switch m := d.b.managers(ctx); {
	case m.names == "":
		return hint + "; do it with what is there, which command -v tells"
	case m.root:
		return hint + "; " + m.names + " could install it, if the network is opened for that"
	default:
		return hint + "; " + m.names + " is there, but commands run as a user who may not install: do it with what is there, which command -v tells"
	}
}

// managers are the package managers of the sandbox, and whether commands run as
// a user who may use them.
type managers struct {
	names string
	root  bool
}

const lookForManagers = `id -u; for m in apt-get apk dnf yum pacman zypper; do command -v "$m" >/dev/null 2>&1 && echo "$m"; done; true`

// managers looks for them once. When they cannot be looked for there are none.
func (b *builtin) managers(ctx context.Context) managers {
	b.mu.Lock()
	known := b.found
	b.mu.Unlock()
	if known != nil {
		return *known
	}
	r, err := b.Sandbox.Run(ctx, sandbox.Command{Tool: doctorTool, Shell: lookForManagers, Timeout: lookTimeout})
	if err != nil || !r.OK() {
		return managers{}
	}
	words := strings.Fields(string(r.Stdout.Head) + string(r.Stdout.Tail))
	m := managers{}
	if len(words) > 0 {
		m = managers{names: strings.Join(words[1:min(len(words), 3)], ", "), root: words[0] == "0"}
	}
	b.mu.Lock()
	b.found = &m
	b.mu.Unlock()
	return m
}

// locate is the path of a file that the command names, and whether it lies in the
// workspace.
func (d *doctor) locate(name string) (full string, ours bool) {
	if full = path.Clean(name); !path.IsAbs(name) {
		full = path.Join(d.cwd, name)
	}
	return full, strings.HasPrefix(full, d.b.cwd+"/")
}

// missingFile names the file in the same directory that could be meant. Only the
// workspace is looked at.
func missingFile(ctx context.Context, d *doctor, name string) string {
	full, ours := d.locate(name)
	if !ours {
		return "there is no " + name + "; look with ls for what is there"
	}
	dir, err := d.b.list(ctx, path.Dir(full))
	switch {
	case sandbox.KindOf(err) == sandbox.KindNotFound:
		return "the directory " + path.Dir(full) + " is not there either"
	case err != nil:
		return "look with ls for what is there"
	}
	if best := spelling.Nearest(path.Base(full), dir); best != "" {
		return "did you mean " + path.Join(path.Dir(name), best) + "?"
	}
	if len(dir) == 0 {
		return "the directory " + path.Dir(full) + " is empty"
	}
	return "the directory " + path.Dir(full) + " has " + strings.Join(dir[:min(len(dir), 8)], ", ") + more(len(dir)-8)
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// list names what a directory of the workspace has, but for what holds
// credentials.
func (b *builtin) list(ctx context.Context, dir string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	infos, err := b.Sandbox.List(ctx, dir, 1, sandbox.Access{Tool: doctorTool, Root: b.cwd})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, i := range infos {
		if name := path.Base(i.Path); !Secret(i.Path) && evidence.Visible(name) == name && len(name) < 100 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// forbidden says who may do what with a file of the workspace.
func forbidden(ctx context.Context, d *doctor, name string) string {
	full, ours := d.locate(name)
	if !ours || name == "" {
		return "that place is not for the user that commands run as; work in " + d.b.cwd
	}
	short, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	info, err := d.b.Sandbox.Stat(short, full, sandbox.Access{Tool: doctorTool, Root: d.b.cwd})
	if err != nil {
		return "look at its permissions with ls -l"
	}
	if info.Type == "file" && !executable(info) {
		return fmt.Sprintf("%s has the mode %d, so it cannot be executed: chmod +x it, or run it with its interpreter", name, info.Mode)
	}
	return fmt.Sprintf("%s is a %s of %s with the mode %d", name, info.Type, info.Owner, info.Mode)
}

// executable reports whether anybody may execute a file; its mode is octal
// digits read as decimal.
func executable(info execd.FileInfo) bool {
	return info.Mode%2 == 1 || info.Mode/10%2 == 1 || info.Mode/100%2 == 1
}

// unreachable says that a network error is one, and what is known of the policy.
func unreachable(_ context.Context, _ *doctor, host string) string {
	if host == "" {
		host = "the network"
	}
	return host + " cannot be reached from this sandbox: its network is closed but for what the host has opened; work without it, or say in your answer what you would need"
}

// missingModule says where to look for what is installed.
func missingModule(look string) func(context.Context, *doctor, string) string {
	return func(_ context.Context, _ *doctor, name string) string {
		if name == "" {
			name = "a module"
		}
		return name + " is not installed here (" + look + "); installing needs the network, which may be closed: see whether the task can do without it"
	}
}

// bound is the limit in force of a resource, in words; "" when it is not known.
func (d *doctor) bound(what string) string {
	for _, l := range d.b.Sandbox.Info().Limits {
		if l.Resource != what {
			continue
		}
		if n, err := strconv.Atoi(l.Value); err == nil && what != "pids" { // in bytes
			return " (" + kib(n) + ")"
		}
		return " (" + l.Value + ")"
	}
	return ""
}
