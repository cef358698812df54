package layer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/image"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// install makes a layer and returns its name. The caller holds the lock of key.
func (l *Layers) install(ctx context.Context, key string, p Package, t Target, say func(Stage, int64)) (name string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.o.Wall,
		&Error{Kind: KindInstall, Op: "install", Subject: p.String(), Err: fmt.Errorf("it took more than %v", l.o.Wall)})
	defer cancel()
	work := l.at("tmp", key)
	if err := errors.Join(removeTree(work), os.Mkdir(work, 0o700), os.Mkdir(filepath.Join(work, treeDir), 0o755)); err != nil {
		return "", l.fault("install", p.String(), err)
	}
	defer func() { err = errors.Join(err, l.fault("install", p.String(), removeTree(work))) }()
	m := Manifest{Package: p.Name, Version: p.Version, Newest: p.Version == "", Scripts: p.Scripts, Base: t.base(),
		Registry: cmp.Or(l.o.Registry, npmRegistry), Installed: l.o.Now()}
	if err := l.fill(ctx, filepath.Join(work, treeDir), p, t, &m, say); err != nil {
		if ended := context.Cause(ctx); ended != nil {
			return "", ended
		}
		return "", err
	}
	entries, err := scan(ctx, filepath.Join(work, treeDir), true)
	if err != nil {
		return "", l.fault("install", p.String(), err)
	}
	m.Digest, m.Files = digestOf(entries), len(entries)
	for _, e := range entries {
		m.Bytes += e.Size
	}
	if err := l.understand(filepath.Join(work, treeDir), p, &m); err != nil {
		return "", err
	}
	if err := writeRecord(work, &record{Manifest: m, Entries: entries}); err != nil {
		return "", l.fault("install", p.String(), err)
	}
	return m.name(), l.fault("install", p.String(), l.place(ctx, work, m.name()))
}

// place puts a finished layer where it belongs. One that is there already stays if it
// is what was installed, and if a run uses it.
func (l *Layers) place(ctx context.Context, work, name string) error {
	f, err := os.Open(work)
	if err != nil {
		return err
	}
	err = errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
	if err != nil {
		return err
	}
	held, err := l.tryLock(name, unix.LOCK_EX)
	if err != nil {
		return err
	}
	if held != nil {
		defer held.Close()
	}
	if r, err := readRecord(l.at("layers", name)); err == nil && r != nil {
		if held != nil {
			if err := r.check(ctx, l.at("layers", name), true); err != nil {
				return l.changed(name, r, err)
			}
		}
		fresh, err := readRecord(work)
		if err != nil {
			return err
		}
		if fresh.Digest == r.Digest {
			// It is the last that was installed from now on: the newest may be one that was
			// the newest before.
			r.Installed = fresh.Installed
			again := filepath.Join(work, manifestFile)
			if err := errors.Join(os.Remove(again), writeRecord(work, r)); err != nil {
				return err
			}
			return os.Rename(again, l.at("layers", name, manifestFile))
		}
	}
	if held == nil {
		return nil // it is used: use says whether it can be
	}
	if err := removeTree(l.at("layers", name)); err != nil {
		return err
	}
	return os.Rename(work, l.at("layers", name))
}

// understand reads what npm says it has installed.
func (l *Layers) understand(tree string, p Package, m *Manifest) error {
	bad := func(err error) error {
		return &Error{Kind: KindRefused, Op: "install", Subject: p.String(), Err: err}
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return bad(err)
	}
	defer root.Close()
	f, err := root.Open("node_modules/.package-lock.json")
	if err != nil {
		return bad(fmt.Errorf("npm has left no lock: %w", err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxLock+1))
	if err == nil && len(data) > maxLock {
		err = fmt.Errorf("npm's lock has more than %d bytes", maxLock)
	}
	if err != nil {
		return bad(err)
	}
	if m.Packages, err = ParseLock(data); err != nil {
		return bad(err)
	}
	i := slices.IndexFunc(m.Packages, func(r Resolved) bool { return r.Path == "node_modules/"+p.Name })
	switch {
	case i < 0:
		return bad(errors.New("the package is not in npm's lock"))
	case p.Version != "" && m.Packages[i].Version != p.Version:
		return bad(fmt.Errorf("npm has installed %s", m.Packages[i].Version))
	}
	m.Version = m.Packages[i].Version
	return nil
}

// fill installs in a sandbox and brings the tree out of it.
func (l *Layers) fill(ctx context.Context, dir string, p Package, t Target, m *Manifest, say func(Stage, int64)) (err error) {
	say(StageSandbox, 0)
	box, closeLog, err := l.sandbox(ctx, t)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := sandbox.KillContext(ctx)
		defer cancel()
		err = errors.Join(err, box.Kill(end), closeLog())
	}()
	m.SandboxID, m.ImageDigest = box.ID(), box.Info().ImageDigest
	in := installation{box: box, p: p, registry: m.Registry, host: cmp.Or(t.Spec.Image, "host") == "host"}
	in.at, in.user = l.signIn()
	if m.Node, m.NPM, err = in.versions(ctx); err != nil {
		return err
	}
	say(StageInstall, 0)
	if err := in.npm(ctx, "the package cannot be installed", installScript, p.String()); err != nil {
		return err
	}
	if len(p.Scripts) > 0 {
		say(StageScripts, 0)
		if err := in.npm(ctx, "its install scripts failed", scriptsScript, p.Scripts...); err != nil {
			return err
		}
	}
	m.Dropped, err = in.bring(ctx, dir, l.o.Limits, func(n int64) { say(StageCopy, n) })
	return err
}

// sandbox makes the one for an installation, and its record as that of any sandbox
// outside a run: it begins before the id is known.
func (l *Layers) sandbox(ctx context.Context, t Target) (box *sandbox.Sandbox, closeLog func() error, err error) {
	network, err := l.network()
	if err != nil {
		return nil, nil, err
	}
	masker := cmp.Or(l.o.Masker, secret.NewMasker())
	secrets, err := l.secrets(ctx, masker)
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(l.o.Records, 0o700); err != nil {
		return nil, nil, l.fault("record", l.o.Records, err)
	}
	before := filepath.Join(l.o.Records, fmt.Sprintf("create-%d-%d.jsonl", time.Now().UnixNano(), os.Getpid()))
	log, err := audit.Create(before, audit.Options{Masker: masker})
	if err != nil {
		return nil, nil, err
	}
	resources := t.Spec.Resources
	resources.Disk = max(resources.Disk, l.o.Limits.Disk)
	spec := sandbox.Spec{Image: t.Spec.Image, NoEntrypoint: true, Cwd: workDir, TTL: l.o.Wall + time.Minute, Resources: resources,
		Require: t.Spec.Require, Network: network, Secrets: secrets, Labels: map[string]string{"rein.sh/layer": "install"}}
	box, err = sandbox.Create(ctx, t.Provider, spec, sandbox.Options{Log: log, Masker: masker})
	if err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	after := filepath.Join(l.o.Records, box.ID(), "audit.jsonl")
	if err := errors.Join(os.MkdirAll(filepath.Dir(after), 0o700), os.Rename(before, after)); err != nil {
		return nil, nil, errors.Join(l.fault("record", after, err), box.Kill(context.WithoutCancel(ctx)), log.Close())
	}
	return box, log.Close, nil
}

// Where things are in the sandbox of an installation.
const (
	workDir   = "/workspace"
	installed = "/tmp/agent"
)

// flags are npm's for both of its uses: nothing of the target's own settings, no
// questions, and no script but where scripts are what is asked for.
const flags = ` --prefix=` + installed + ` --no-audit --no-fund --no-update-notifier --no-progress --loglevel=error` +
	` --userconfig=/tmp/npmrc --globalconfig=/tmp/none/global --cache=/tmp/npm --registry="$REIN_REGISTRY" --omit=dev --fetch-retry-mintimeout=500 --fetch-retry-maxtimeout=4000`

// The scripts take packages as arguments. signInScript writes npm's settings: the
// placeholder, or the variable that has it.
const (
	signInScript = `{ [ -z "$REIN_REGISTRY_AT" ] || if [ -z "$REIN_REGISTRY_USER" ]; then printf '%s:_authToken=${` + tokenVariable + `}\n' "$REIN_REGISTRY_AT";` +
		` else printf '%s:_auth=%s\n' "$REIN_REGISTRY_AT" "$(printf '%s:%s' "$REIN_REGISTRY_USER" "$` + tokenVariable + `" | base64 | tr -d '\n')"; fi; } > /tmp/npmrc`
	versionsScript = `printf 'node %s\n' "$(node --version 2>/dev/null)"; printf 'npm %s\n' "$(npm --version 2>/dev/null)"`
	installScript  = `umask 022 && ` + signInScript + ` && mkdir -p ` + installed + ` && cd ` + installed + ` && printf '{"private":true}\n' > package.json &&` +
		` exec npm install --ignore-scripts --install-links=false` + flags + ` -- "$@"`
	scriptsScript = `umask 022 && cd ` + installed + ` && exec npm rebuild --ignore-scripts=false --foreground-scripts` + flags + ` -- "$@"`
	tarScript     = `exec tar -C ` + installed + ` -cf - .`
)

// installation is one, under way.
type installation struct {
	box      *sandbox.Sandbox
	p        Package
	registry string
	host     bool   // the target's programs are the host's
	at, user string // of the registry that wants a credential, and whose it is
}

func (in *installation) command(script string, args ...string) sandbox.Command {
	if len(args) > 0 { // names of packages, which need no more quoting
		script = "set -- '" + strings.Join(args, "' '") + "' && " + script
	}
	return sandbox.Command{Tool: "layer", Shell: script, Cwd: workDir,
		Env: map[string]string{"REIN_REGISTRY": in.registry, "REIN_REGISTRY_AT": in.at, "REIN_REGISTRY_USER": in.user, "HOME": "/tmp/home"}, Timeout: time.Hour}
}

// versions asks the target for Node.js and npm.
func (in *installation) versions(ctx context.Context) (node, npm string, err error) {
	c := in.command(versionsScript)
	c.Timeout = time.Minute
	r, err := in.box.Run(ctx, c)
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(r.Stdout.Head)) {
		switch of, version, _ := strings.Cut(strings.TrimSpace(line), " "); {
		case !IsVersion(strings.TrimPrefix(version, "v")):
		case of == "node":
			node = strings.TrimPrefix(version, "v")
		case of == "npm":
			npm = version
		}
	}
	need := cmp.Or(in.p.Node, "18")
	switch {
	case node == "":
		return "", "", in.lacks(need, "the target has no Node.js")
	case older(node, in.p.Node):
		return "", "", in.lacks(need, "it needs Node.js %s, and the target has %s", in.p.Node, node)
	case npm == "":
		return "", "", in.lacks(need, "the target has no npm")
	}
	return node, npm, nil
}

func (in *installation) lacks(need, format string, args ...any) error {
	from, _, _ := strings.Cut(need, ".")
	advice := fmt.Sprintf("use an image that has it, such as --image node:%s; images.allow of the configuration must name it", from)
	if in.host {
		advice = "install the packages nodejs and npm on this host (of Debian; others call them alike), or " + advice
	}
	return &Error{Kind: KindNode, Op: "install", Subject: in.p.String(), Err: fmt.Errorf(format, args...), Advice: advice}
}

// bring copies the tree out, as an archive that nobody trusts.
func (in *installation) bring(ctx context.Context, dir string, l Limits, told func(int64)) (Dropped, error) {
	r, w := io.Pipe()
	var d Dropped
	done := make(chan error, 1)
	go func() {
		var err error
		d, err = unpack(ctx, dir, r, l)
		if err == nil {
			_ = r.Close() // nobody reads any more
		} else {
			_ = r.CloseWithError(err)
		}
		done <- err
	}()
	c := in.command(tarScript)
	c.Stdout, c.Stderr = &counter{w: w, told: told}, io.Discard
	res, err := in.box.Run(ctx, c)
	if err == nil && !res.OK() {
		err = &Error{Kind: KindInstall, Op: "install", Subject: in.p.String(), Err: errors.New("tar failed in the sandbox")}
	}
	_ = w.CloseWithError(err) // nil is the end of the file
	if bad := <-done; bad != nil && (err == nil || errors.Is(err, bad)) {
		return d, in.refused(bad)
	}
	return d, err
}

// refused is why an archive was not taken.
func (in *installation) refused(err error) error {
	if e, ok := errors.AsType[*image.Error](err); ok && e.Kind != image.KindHost || errors.Is(err, errTooLong) {
		return &Error{Kind: KindRefused, Op: "install", Subject: in.p.String(), Err: err}
	}
	return &Error{Kind: KindHost, Op: "install", Subject: in.p.String(), Err: err}
}

// counter tells of what goes through it, a MiB at a time.
type counter struct {
	w       io.Writer
	n, last int64
	told    func(int64)
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if c.n += int64(n); c.n-c.last >= 1<<20 {
		c.last = c.n
		c.told(c.n)
	}
	return n, err
}
