package main

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/image"
	"github.com/spf13/cobra"
)

const imageHelp = `OCI images that sandboxes can be made from: unpacked once, checked against their
digests, kept in $XDG_CACHE_HOME/rein/images. Which may be used is said by
images.allow of the configuration; without it, none.

REFERENCE is an image of a registry (debian:12, ghcr.io/org/app@sha256:...), an
OCI layout (oci:DIR, oci:DIR:NAME) or what "docker save" wrote
(docker-archive:FILE).`

func (a *app) imageCommand() *cobra.Command {
	return group("image", "images that sandboxes can be made from", imageHelp,
		a.imagePullCommand(), a.imageListCommand(), a.imageRemoveCommand(), a.imagePruneCommand())
}

// openImages opens the cache of images. told may be nil.
func (a *app) openImages(c config.Config, told func(image.Progress)) (*image.Store, error) {
	dir := c.Images.Dir
	if dir == "" {
		cache, err := a.env.cacheDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(cache, "images")
	}
	transport := image.NewTransport()
	transport.Proxy = http.ProxyFromEnvironment
	return image.Open(image.Options{Dir: dir, Allow: c.Images.Allow, Insecure: c.Images.Insecure,
		Keychain: authn.DefaultKeychain, Transport: transport, Progress: told})
}

const pullHelp = `Brings an image into the cache, ready to be used, and prints its digest. One that
is there already is not fetched again; where a tag leads is asked each time.

Credentials are those of Docker: "docker login" and credential helpers, as
$DOCKER_CONFIG or ~/.docker/config.json says.`

// pulled is what "rein image pull --json" prints.
type pulled struct {
	Reference string        `json:"reference"`
	Digest    string        `json:"digest"`
	Fetched   bool          `json:"fetched"`
	Size      int64         `json:"size"`
	Entries   int           `json:"entries"`
	Dropped   image.Dropped `json:"dropped"`
	Config    image.Config  `json:"config"`
	Notes     []string      `json:"notes"`
}

func (a *app) imagePullCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "pull REFERENCE", Short: "bring an image into the cache", Long: pullHelp, Args: exactly("REFERENCE"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			f, err := a.load()
			if err != nil {
				return err
			}
			if args[0] == hostImage {
				return &usageError{message: "host is no OCI image but this host's own files: there is nothing to pull", hint: "an image of this name is docker.io/library/host"}
			}
			ref, err := absoluteReference(args[0])
			if err != nil {
				return err
			}
			p := a.newPullProgress()
			defer p.end()
			store, err := a.openImages(f.Config, p.event)
			if err != nil {
				return err
			}
			img, err := store.Get(cmd.Context(), ref)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, img.Close()) }()
			p.end()
			return a.printPulled(img, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printPulled says what came in. The digest alone goes to stdout.
func (a *app) printPulled(img *image.Image, asJSON bool) error {
	for _, n := range img.Notes {
		a.note("note: %s", n)
	}
	if asJSON {
		return a.printJSON(pulled{img.Reference, img.Digest, img.Fetched, img.Size, img.Entries, img.Dropped, img.Config, append([]string{}, img.Notes...)})
	}
	verb := "in the cache already"
	if img.Fetched {
		verb = "fetched"
	}
	a.note("%s: %s, %s in %d files", img.Reference, verb, bytesText(img.Size), img.Entries)
	if text := droppedText(img.Dropped); text != "" {
		a.note("left out: %s", text)
	}
	_, err := fmt.Fprintln(a.out, img.Digest)
	return err
}

// droppedText says what an image holds and its tree does not.
func droppedText(d image.Dropped) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{d.Devices, "device nodes"}, {d.Pipes, "FIFOs"}, {d.Setuid, "setuid or setgid bits"}, {d.Attributes, "extended attributes"},
		{d.Modes, "modes that kept you from reading"}, {d.Owners, "owners, as you are not root"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}

// absoluteReference makes the path of a layout or an archive absolute where it
// begins with a dot.
func absoluteReference(ref string) (string, error) {
	for _, scheme := range []string{"oci:", "docker-archive:"} {
		rest, ok := strings.CutPrefix(ref, scheme)
		if !ok || !strings.HasPrefix(rest, ".") {
			continue
		}
		place, name, named := strings.Cut(rest, ":")
		abs, err := filepath.Abs(place)
		if err != nil {
			return "", err
		}
		if named {
			abs += ":" + name
		}
		return scheme + abs, nil
	}
	return ref, nil
}

func (a *app) imageListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls", Short: "list the images in the cache, the last used first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := a.imagesOf()
			if err != nil {
				return err
			}
			list, err := store.List(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(list)
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "IMAGE\tSIZE\tFILES\tUSED\tREFERENCES")
			for _, i := range list {
				used := i.Used.Local().Format("2006-01-02 15:04")
				if i.InUse {
					used = "now"
				}
				if i.Damage != "" {
					a.note("note: %s is damaged (%s): it is fetched again when it is asked for; rein image prune removes it", shortDigest(i.Digest), cleanLine(i.Damage))
				}
				fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", shortDigest(i.Digest), bytesText(i.Size), i.Entries, used, cleanLine(strings.Join(i.References, ", ")))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// imagesOf opens the cache for what needs no progress.
func (a *app) imagesOf() (*image.Store, error) {
	f, err := a.load()
	if err != nil {
		return nil, err
	}
	return a.openImages(f.Config, nil)
}

// shortDigest is enough of a digest to name it by.
func shortDigest(d string) string { return d[:min(len(d), len("sha256:")+12)] }

func (a *app) imageRemoveCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "rm IMAGE...", Short: "remove images from the cache",
		Long: `Removes images from the cache, each named by a reference that led to it, or by the
beginning of its digest: sha256: and 6 digits or more, or 12 digits or more alone.
One that a sandbox uses stays, and that is an error.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactly("IMAGE...")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := a.imagesOf()
			if err != nil {
				return err
			}
			gone := []image.Info{}
			for _, ref := range args {
				var info image.Info
				if ref, err = absoluteReference(ref); err == nil {
					info, err = store.Remove(cmd.Context(), ref)
				}
				if err != nil {
					break
				}
				gone = append(gone, info)
				if !asJSON {
					fmt.Fprintln(a.out, "removed", info.Digest)
				}
			}
			if asJSON {
				err = errors.Join(err, a.printJSON(gone))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) imagePruneCommand() *cobra.Command {
	var asJSON bool
	var older config.Duration
	cmd := &cobra.Command{
		Use: "prune", Short: "remove images that nobody uses",
		Long: "Removes the images that no sandbox uses; with --older-than only those that nobody\nhas asked for since.", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := a.imagesOf()
			if err != nil {
				return err
			}
			gone, err := store.Prune(cmd.Context(), image.Policy{Unused: time.Duration(older)})
			if asJSON {
				return errors.Join(err, a.printJSON(append([]image.Info{}, gone...)))
			}
			var size int64
			for _, i := range gone {
				size += i.Size
				fmt.Fprintln(a.out, "removed", i.Digest)
			}
			if err == nil {
				a.note("%d images removed, %s", len(gone), bytesText(size))
			}
			return err
		},
	}
	cmd.Flags().Var(textValue[config.Duration, *config.Duration]{&older, "duration"}, "older-than", "only what nobody has asked for since, such as 168h")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
