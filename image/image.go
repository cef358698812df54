// Package image brings OCI images onto this host as directories: it finds an
// image in a registry, an OCI layout or a docker-archive, checks every byte
// against its digest, and unpacks the layers into one read-only tree per image,
// shared by all who use it.
//
// Images are written by others. What is allowed by [Options.Allow] is used, and
// nothing else; what is used is bounded by [Limits], and unpacking never
// touches anything outside the tree. Devices, FIFOs, sockets, setuid and
// setgid bits and extended attributes are left out and counted in [Dropped].
//
// The tree is data of strangers all the same. Links in it may point anywhere:
// whoever opens a path of it on the host does so with os.Root or the like.
package image

import (
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
)

// Options say where images are kept and which may be used.
type Options struct {
	// Dir is the cache, an absolute path. It is made with mode 0700, and
	// refused when it belongs to another user or others may enter it.
	Dir string
	// Allow lists what may be used, as [ParsePattern] reads it. Empty allows
	// nothing.
	Allow []string
	// Keychain finds credentials of registries; nil is anonymous.
	Keychain authn.Keychain
	// Insecure lists registries, HOST or HOST:PORT, that are spoken to over
	// plain HTTP where they do not answer HTTPS. Loopback needs no mention; no
	// other host is ever spoken to without TLS.
	Insecure []string
	// Limits bound an image. A zero field takes its default.
	Limits Limits
	// Progress is told what happens, from one goroutine at a time. It must not
	// block. It may be nil.
	Progress func(Progress)
	// Platform is OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT; empty is linux
	// and this program's architecture.
	Platform string
	// Transport carries the requests to registries; nil is one with the system's
	// certificates and without a proxy.
	Transport http.RoundTripper
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Limits bound what an image may be. Every one is enforced before the bytes it
// counts are written.
type Limits struct {
	Manifest     int64 // bytes of a manifest, an index or a configuration; default 4 MiB
	IndexDepth   int   // indexes in indexes; default 3
	IndexEntries int   // entries of an index; default 512
	Layers       int   // default 128
	Compressed   int64 // bytes of all layers as they are stored; default 8 GiB
	Unpacked     int64 // bytes of all layers unpacked, and of each layer's archive; default 16 GiB
	Entries      int   // entries of all layers together; default 2,000,000
	Steps        int   // directories and links gone through to place the entries; default 32,000,000
	Path         int   // bytes of a path or of a link's target; default 2,048
	Depth        int   // components of a path; default 128
	File         int64 // bytes of one file; default 8 GiB
	Ratio        int64 // unpacked bytes for each compressed one, of all layers together, beyond the first 256 MiB; default 250
}

// Image is an unpacked image in use. It stays in the cache until Close, and
// longer for whoever else holds the lock.
type Image struct {
	Reference string // as it was asked for, written out
	// Digest is that of the manifest for this platform; of a docker-archive,
	// which has none, that of the configuration (Docker's image ID).
	Digest string
	Config Config
	// Root is the directory with the unpacked root file system. It is shared:
	// nobody writes to it.
	Root string
	// Lock is a file to hold flock(LOCK_SH) on as long as Root is used. A
	// process that goes on using Root takes it, waiting, while this Image is
	// open; then it is free at once.
	Lock    string
	Entries int   // files, directories and links in the tree
	Size    int64 // bytes of its files
	Dropped Dropped
	Fetched bool     // by this Get; false is from the cache
	Notes   []string // what a person should know, such as that the registry did not answer

	held *os.File
}

// Close gives up the image. It may be called more than once.
func (i *Image) Close() error {
	if i == nil || i.held == nil {
		return nil
	}
	err := i.held.Close() // which ends the lock
	i.held = nil
	return err
}

// Dropped counts what an image holds and its tree does not.
type Dropped struct {
	Devices    int `json:"devices"`    // device nodes
	Pipes      int `json:"pipes"`      // FIFOs
	Setuid     int `json:"setuid"`     // files that lost setuid or setgid
	Attributes int `json:"attributes"` // extended attributes, capabilities among them
	Modes      int `json:"modes"`      // modes widened so that their owner can read (not as root)
	Owners     int `json:"owners"`     // entries of others than root that are now the user's own (not as root)
}

// Config is what an image says about running it. Nothing in it is trusted to
// exist in the tree.
type Config struct {
	User         string            `json:"user,omitempty"` // see ResolveUser
	Env          []string          `json:"env,omitempty"`  // NAME=VALUE
	Entrypoint   []string          `json:"entrypoint,omitempty"`
	Cmd          []string          `json:"cmd,omitempty"`         // arguments of Entrypoint, or the command
	WorkingDir   string            `json:"working_dir,omitempty"` // absolute and clean; "/" when the image names none
	Labels       map[string]string `json:"labels,omitempty"`
	StopSignal   string            `json:"stop_signal,omitempty"`
	OS           string            `json:"os,omitempty"`
	Architecture string            `json:"architecture,omitempty"`
}

// Progress is one thing that happened while an image is fetched.
type Progress struct {
	Reference string
	Stage     Stage
	Layer     int    // from 1; 0 when it is about the image
	Layers    int    // of the image
	Digest    string // of the layer, or of what is in it where its source gives none
	Done      int64  // compressed bytes: fetched, or unpacked
	Total     int64  // compressed bytes of the layer
}

// Stage is what is being done.
type Stage string

// The stages of a Get that does not find the image in the cache, in order.
// Before anything else every layer is told once, with nothing done; nothing
// follows the last.
const (
	StageWait   Stage = "wait"   // another process fetches the same image
	StageFetch  Stage = "fetch"  // a layer is read from a registry and checked
	StageUnpack Stage = "unpack" // a layer is written into the tree
	StageDone   Stage = "done"
	StageFailed Stage = "failed" // instead of done; Get says why
)

// Info describes an image in the cache.
type Info struct {
	Digest     string    `json:"digest"`
	References []string  `json:"references"` // that led to it
	Size       int64     `json:"size"`       // bytes of its files
	Entries    int       `json:"entries"`
	Dropped    Dropped   `json:"dropped"`
	Fetched    time.Time `json:"fetched"`
	Used       time.Time `json:"used"` // last
	InUse      bool      `json:"in_use"`
	// Damage is what is wrong with the image's own record; "" is nothing. Then
	// only Digest, References, Used and InUse are known, and Get fetches the image
	// again.
	Damage string `json:"damage,omitempty"`
}

// Policy says what Prune removes: images that nobody uses.
type Policy struct {
	// Unused is how long nobody may have asked for an image; zero removes all
	// that nobody uses.
	Unused time.Duration
}
