// Package layer keeps programs of npm for sandboxes: installed once, in a sandbox
// made for that and thrown away, whose network is the registry alone; brought out
// as a read-only tree with one digest; and shown inside the sandboxes of runs.
//
// A tree is the work of strangers. It is unpacked within bounds, without devices,
// setuid bits and links that lead out of it, and nothing of it is run on the host.
package layer

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/image"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// At is where a layer is shown inside.
const At = "/opt/rein/agent"

// bin is where npm puts the programs of a tree.
const bin = "node_modules/.bin"

// Package is what is installed.
type Package struct {
	Name string
	// Version is an exact one. Empty is the newest: the layer that was last installed
	// as the newest is used, however old, unless Update asks the registry again.
	Version string
	Update  bool
	// Scripts are the packages whose install scripts are run; no other's are.
	Scripts []string
	// Node is the least version of Node.js that the target must have, such as 20 or
	// 20.11; empty: any.
	Node string
}

// IsName reports whether s can be the name of a package: what npm allows, without
// other first characters.
// https://docs.npmjs.com/cli/v11/configuring-npm/package-json#name
func IsName(s string) bool { return len(s) <= 214 && packageName.MatchString(s) }

// IsVersion reports whether s is one exact version.
func IsVersion(s string) bool { return exactVersion.MatchString(s) }

// IsLeast reports whether s can be Package.Node.
func IsLeast(s string) bool { return leastVersion.MatchString(s) }

var (
	packageName  = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._~-]*/)?[a-z0-9][a-z0-9._~-]*$`)
	exactVersion = regexp.MustCompile(`^[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}(-[0-9A-Za-z.-]{1,64})?$`)
	leastVersion = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9}){0,2}$`)
)

// String is as npm takes it.
func (p Package) String() string {
	if p.Version == "" {
		return p.Name
	}
	return p.Name + "@" + p.Version
}

func (p Package) check() error {
	for _, name := range append([]string{p.Name}, p.Scripts...) {
		if !IsName(name) {
			return &Error{Kind: KindInvalid, Op: "install", Subject: name, Err: fmt.Errorf("it is no name of a package"), Advice: "such as @openai/codex"}
		}
	}
	if p.Version != "" && !IsVersion(p.Version) {
		return &Error{Kind: KindInvalid, Op: "install", Subject: p.String(), Err: fmt.Errorf("%q is no version", p.Version), Advice: "write one such as 1.2.3"}
	}
	if p.Node != "" && !IsLeast(p.Node) {
		return &Error{Kind: KindInvalid, Op: "install", Subject: p.String(), Err: fmt.Errorf("%q is no version of Node.js", p.Node)}
	}
	return nil
}

// Target is for which sandboxes a layer is: the tree fits the system, the
// architecture and Node.js of what it was installed in.
type Target struct {
	Provider sandbox.Provider
	// Spec is that of the sandboxes of runs. Of it the image, the resources and what is
	// required are those of the sandbox for the installation, and nothing else.
	Spec sandbox.Spec
	// Base names what the sandboxes are made from: the digest of an image. Empty is
	// the reference as it is written, or the host.
	Base string
	// Node is the version that the target has, where that is known: then a layer for
	// another one does not count.
	Node string
}

// Options say where layers are kept and how they are installed.
type Options struct {
	// Dir is the store, an absolute path. It is made with mode 0700, and refused when
	// it belongs to another user or others may enter it.
	Dir string
	// Records is the directory of the records of sandboxes outside a run, in which
	// that of ID has the file ID/audit.jsonl. It is made if need be.
	Records string
	// Registry is the URL of a registry instead of npm's; only GET and HEAD reach it.
	Registry string
	// Credential is what Registry wants. It is given to requests that read it, and is
	// not in the sandbox, which has a placeholder.
	Credential Credential
	// Allow is what the sandbox may reach besides, such as the registry's private
	// address.
	Allow []policy.Rule
	// Masker is told of the credential once it is read. nil: only the installation's
	// own record is without it.
	Masker *secret.Masker
	// Limits bound a tree. A zero field takes its default.
	Limits Limits
	// Wall is how long an installation may take, the sandbox's end with it; 10 minutes
	// unless set.
	Wall time.Duration
	Now  func() time.Time // the clock; nil is time.Now
}

// Limits bound a tree. Each is enforced before what it counts is written.
type Limits struct {
	Entries int   // files, directories and links; default 100,000
	Bytes   int64 // of all files, and of the archive; default 3 GiB
	File    int64 // bytes of one file; default 1 GiB
	Disk    int64 // bytes that the sandbox may write; default 4 GiB
}

// Layer is a tree in use. It stays in the store until Close.
type Layer struct {
	Name string // in the store
	Dir  string // the tree
	Manifest
	Fresh bool // it was installed by this Get

	held *hold
}

// Close gives up the layer. It may be called more than once.
func (l *Layer) Close() error {
	if l == nil || l.held == nil {
		return nil
	}
	err := l.held.Close()
	l.held = nil
	return err
}

// Mount shows the layer in a sandbox, at At.
func (l *Layer) Mount() sandbox.Mount { return sandbox.Mount{Source: l.Dir, Target: At} }

// Bin is the directory inside with its programs.
func (l *Layer) Bin() string { return path.Join(At, bin) }

// Has reports whether it has a program of that name.
func (l *Layer) Has(program string) bool {
	_, err := os.Lstat(path.Join(l.Dir, bin, path.Base(program)))
	return err == nil
}

// Fits is an error when a sandbox is not what the layer was installed for: another
// image, or Node.js of another major version, which native parts are made for. node
// is what "node --version" says there; empty does not count.
func (l *Layer) Fits(info sandbox.Info, node string) error {
	why := ""
	switch node = strings.TrimPrefix(strings.TrimSpace(node), "v"); {
	case info.ImageDigest != l.ImageDigest:
		why = fmt.Sprintf("it was installed for the image %s, and this one is %s", named(l.ImageDigest), named(info.ImageDigest))
	case node != "" && major(node) != major(l.Node):
		why = fmt.Sprintf("it was installed for Node.js %s, and there is %s", l.Node, node)
	default:
		return nil
	}
	return &Error{Kind: KindChanged, Op: "use", Subject: l.Package + "@" + l.Version, Err: fmt.Errorf("%s", why), Advice: "remove it, and it is installed again: rein layer rm " + l.Name}
}

func named(digest string) string {
	if digest == "" {
		return "host"
	}
	return digest
}

func major(version string) string {
	m, _, _ := strings.Cut(version, ".")
	return m
}

// Progress is one thing that happened while a layer is installed.
type Progress struct {
	Package string
	Stage   Stage
	Done    int64 // of StageCopy: bytes
}

// Stage is what is being done.
type Stage string

// The stages of an installation, in order.
const (
	StageWait    Stage = "wait"    // another process installs the same
	StageSandbox Stage = "sandbox" // one is made
	StageInstall Stage = "install" // npm works in it
	StageScripts Stage = "scripts" // the install scripts that were named run in it
	StageCopy    Stage = "copy"    // the tree is brought out
	StageDone    Stage = "done"
	StageFailed  Stage = "failed" // instead of done
)

// Kind classifies an Error.
type Kind string

// The kinds.
const (
	KindInvalid  Kind = "invalid"   // what was asked for makes no sense
	KindNode     Kind = "node"      // the target has no Node.js or npm, or one that is too old
	KindInstall  Kind = "install"   // npm failed, or said nothing that can be used
	KindRefused  Kind = "refused"   // the tree is more than it may be, or none
	KindChanged  Kind = "changed"   // a layer is not what was installed
	KindInUse    Kind = "in_use"    // a run uses it
	KindNotFound Kind = "not_found" // there is none
	KindHost     Kind = "host"      // the store cannot be read or written
)

// Error is what this package returns, besides *sandbox.Error and the errors of
// contexts.
type Error struct {
	Kind        Kind
	Op, Subject string
	Err         error
	Advice      string // what the reader can do; may be empty
}

func (e *Error) Error() string { return e.Op + " " + e.Subject + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Hint says what the reader can do.
func (e *Error) Hint() string { return e.Advice }

// Dropped is what a tree lost on its way out.
type Dropped struct {
	image.Dropped
	Links []string `json:"links,omitempty"` // paths of links that led out of it; at most 100
}
