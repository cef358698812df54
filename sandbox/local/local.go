// Package local creates sandboxes on this machine with an OCI runtime and
// nothing else: no daemon, no root, no image, no network.
//
// Each sandbox has one host process, the keeper (rein-keep), which owns the
// sandbox's only network link, its deadline and its control socket. The keeper
// starts the nest (rein-keep again) as the first process of new user, pid, mount,
// network and IPC namespaces; the nest lays out the root file system there and
// becomes the OCI runtime. Everything the sandbox consists of lives in those
// namespaces, so the kernel itself removes all of it when the nest dies, and
// the nest dies with its keeper.
//
//	rein ──control socket──▶ keeper ──owns──▶ nest = runtime ──▶ execd ──▶ user code
//	                           └──── tap ◀── eth0 of the sandbox
//
// What outlives a keeper that was killed is an empty cgroup and a directory of
// small files; Sweep removes them.
package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/image"
	"github.com/rein-sh/rein/sandbox"
)

// Options configure the provider. Only StateDir is required.
type Options struct {
	// Keep and Execd are rein-keep and rein-execd. Empty: beside the running
	// executable, then $PATH.
	Keep, Execd string
	// Runtime is "gvisor" (the default), "runc", "crun", or the path of
	// another OCI runtime with runc's command line.
	Runtime string
	// RuntimePath overrides where the binary of Runtime is. Empty: for gvisor
	// "rein-runsc" beside the running executable, then $PATH; $PATH otherwise.
	RuntimePath string
	// StateDir is where live sandboxes and their records are kept (0700).
	StateDir string
	// Images is where sandboxes get the images that a Spec names; nil: they can
	// be made from the host's only.
	Images *image.Store
	// Resources are the defaults for the zero fields of Spec.Resources, and
	// themselves default to 2 cores, 2 GiB, 512 processes and 2 GiB of disk.
	Resources sandbox.Resources
	// Egress is this host's way to the network, for sandboxes whose Spec allows
	// something. The zero value is the host as it is configured.
	Egress Egress
	// StartTimeout bounds the time from Create to an answering execd.
	// Zero means 30 seconds.
	StartTimeout time.Duration
}

// Provider is the embedded provider. It keeps no state of its own: every
// answer comes from StateDir and the keepers, so any number of processes may
// use one StateDir at once.
type Provider struct {
	opts    Options
	runtime ociRuntime
	missing error // binaries that were not found
}

var (
	_ sandbox.Provider        = (*Provider)(nil)
	_ sandbox.NetworkRecorder = (*Provider)(nil)
)

// defaultResources bound a sandbox whose configuration says nothing.
var defaultResources = sandbox.Resources{CPU: 2, Memory: 4 << 30, PIDs: 512, Disk: 2 << 30}

// New checks the options and creates StateDir. Binaries it does not find are
// reported when one is needed: listing, killing and sweeping need none.
func New(o Options) (*Provider, error) {
	if o.StateDir == "" || !filepath.IsAbs(o.StateDir) {
		return nil, &sandbox.Error{Kind: sandbox.KindInvalid, Op: "configure", Subject: "local",
			Err: fmt.Errorf("StateDir %q is not an absolute path", o.StateDir)}
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = 30 * time.Second
	}
	o.Resources = withDefaults(o.Resources, defaultResources)
	if o.Runtime == "" {
		o.Runtime = "gvisor"
	}
	if err := o.Egress.check(); err != nil {
		return nil, &sandbox.Error{Kind: sandbox.KindInvalid, Op: "configure", Subject: "egress", Err: err}
	}
	p := &Provider{opts: o}
	for _, dir := range []string{p.liveDir(), p.recordsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, &sandbox.Error{Kind: sandbox.KindHost, Op: "configure", Subject: o.StateDir, Err: err,
				Hint: "choose a directory you can write with XDG_STATE_HOME"}
		}
	}
	if err := ownDirectory(o.StateDir); err != nil {
		return nil, &sandbox.Error{Kind: sandbox.KindDenied, Op: "configure", Subject: o.StateDir, Err: err,
			Hint: "choose a directory of your own with XDG_STATE_HOME"}
	}
	// What is missing is said by Create and Probe: the rest works without.
	var missing []error
	var err error
	if p.opts.Keep, err = findBinary(o.Keep, "rein-keep"); err != nil {
		missing = append(missing, err)
	}
	if p.opts.Execd, err = findBinary(o.Execd, "rein-execd"); err != nil {
		missing = append(missing, err)
	}
	if p.runtime, err = findRuntime(o.Runtime, o.RuntimePath); err != nil {
		missing = append(missing, err)
	}
	p.missing = errors.Join(missing...)
	return p, nil
}

// ownDirectory refuses a state directory in which another user could put or
// replace files.
func ownDirectory(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to uid %d, not to %d", st.Uid, os.Geteuid())
	}
	if st.Mode&0o022 != 0 {
		return fmt.Errorf("its mode %04o lets others write in it", st.Mode&0o7777)
	}
	return nil
}

// Name returns "local".
func (p *Provider) Name() string { return "local" }

func (p *Provider) liveDir() string    { return filepath.Join(p.opts.StateDir, "live") }
func (p *Provider) recordsDir() string { return filepath.Join(p.opts.StateDir, "sandboxes") }

// withDefaults fills in what r leaves open. What is written to disk is held in
// memory and counts against its limit, so that a full disk must leave half of it.
func withDefaults(r, d sandbox.Resources) sandbox.Resources {
	switch {
	case r.Memory == 0 && r.Disk == 0:
		r.Memory, r.Disk = d.Memory, d.Disk
	case r.Memory == 0:
		r.Memory = max(d.Memory, 2*r.Disk)
	case r.Disk == 0:
		r.Disk = min(d.Disk, r.Memory/2)
	}
	if r.CPU == 0 {
		r.CPU = d.CPU
	}
	if r.PIDs == 0 {
		r.PIDs = d.PIDs
	}
	return r
}

// findBinary resolves one of rein's own binaries.
func findBinary(given, name string) (string, error) {
	if given != "" {
		abs, err := filepath.Abs(given)
		if err == nil {
			_, err = os.Stat(abs)
		}
		if err != nil {
			return "", &sandbox.Error{Kind: sandbox.KindHost, Op: "find", Subject: name, Err: err,
				Hint: "correct the path, or leave it out: " + name + " is then looked for beside this program and on PATH"}
		}
		return abs, nil
	}
	if self, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(self), name); executable(path) {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &sandbox.Error{Kind: sandbox.KindHost, Op: "find", Subject: name,
			Err:  errors.New("it is neither beside this program nor on PATH"),
			Hint: "CGO_ENABLED=0 go install github.com/rein-sh/rein/cmd/" + name + "@latest"}
	}
	return filepath.Abs(path)
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// runtimeKind says whose command line and abilities a runtime has.
type runtimeKind string

const (
	kindGVisor runtimeKind = "gvisor"
	kindRunc   runtimeKind = "runc" // also crun and others like it
)

// Runtimes are the names that Options.Runtime takes besides a path.
func Runtimes() []string { return []string{string(kindGVisor), string(kindRunc), "crun"} }

// ociRuntime is the OCI runtime in use.
type ociRuntime struct {
	Kind runtimeKind `json:"kind"`
	Name string      `json:"name"` // as configured and shown
	Path string      `json:"path"`
}

func findRuntime(name, path string) (ociRuntime, error) {
	r := ociRuntime{Kind: kindRunc, Name: name, Path: path}
	if name == "gvisor" {
		r.Kind = kindGVisor
		bin, err := findBinary(path, "rein-runsc")
		r.Path = bin
		return r, err
	}
	if r.Path == "" {
		r.Path = name
	}
	found, err := exec.LookPath(r.Path)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil {
		hint := "--runtime gvisor is built in; or apt-get install runc, and --runtime runc"
		if !strings.Contains(name, "/") {
			hint = "known: gvisor, or the name or path of an OCI runtime such as runc or crun"
			if name == "runc" || name == "crun" {
				hint = "apt-get install " + name
			}
		}
		return r, &sandbox.Error{Kind: sandbox.KindHost, Op: "find", Subject: "runtime " + name, Err: err, Hint: hint}
	}
	r.Path = found
	return r, nil
}
