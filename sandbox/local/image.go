package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/image"
	"github.com/rein-sh/rein/sandbox"
)

// rootImage is an unpacked image as the keeper uses it.
type rootImage struct {
	Root string            `json:"root"`
	Lock string            `json:"lock"` // held shared as long as the sandbox lives
	Env  map[string]string `json:"env"`
	User imageUser         `json:"user"`
}

// imageUser runs the commands. Name is empty when the image knows nobody of this
// uid: the sandbox then adds its own user.
type imageUser struct {
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Name string `json:"name"`
	Home string `json:"home"`
}

// openImage gets the image a Spec names, nil for the host's, and completes what
// the image decides: the working directory, when the Spec names none. The
// caller closes the image once the keeper holds its lock.
func (p *Provider) openImage(ctx context.Context, spec *sandbox.Spec) (*image.Image, *rootImage, error) {
	if spec.Image == ImageHost {
		return nil, nil, nil
	}
	img, err := p.opts.Images.Get(ctx, spec.Image)
	if err != nil {
		return nil, nil, imageError(spec.Image, err)
	}
	root, err := describeImage(img)
	if err == nil && spec.Cwd == "" {
		spec.Cwd = defaultCwd
		if wd := img.Config.WorkingDir; checkInside(wd, imageReserved) == nil {
			spec.Cwd = wd
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, img.Close())
	}
	return img, root, nil
}

// describeImage takes from an image's configuration what the image
// specification says a container has (config.md).
func describeImage(img *image.Image) (*rootImage, error) {
	user, err := img.Config.ResolveUser(img.Root)
	if err != nil {
		return nil, imageError(img.Reference, err)
	}
	if user.UID == 0 {
		// Root inside is execd's own id, which user code never has.
		own := image.Config{User: fmt.Sprint(userID)}
		if user, err = own.ResolveUser(img.Root); err != nil {
			return nil, imageError(img.Reference, err)
		}
		if user.Name == "" {
			user.GID = userID
		}
	}
	r := &rootImage{Root: img.Root, Lock: img.Lock, Env: map[string]string{},
		User: imageUser{UID: user.UID, GID: user.GID, Name: user.Name, Home: user.Home}}
	if r.User.Name == "" || checkInside(r.User.Home, imageReserved) != nil { // it is given to the user
		r.User.Home = userHome
	}
	for _, kv := range img.Config.Env {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" && !strings.ContainsRune(kv, 0) {
			r.Env[k] = v
		}
	}
	return r, nil
}

// imageNotes says what of the image cannot be had here. cwd is set when the Spec
// named a working directory.
func (p *Provider) imageNotes(img *image.Image, cwd bool) (notes []string) {
	if wd := img.Config.WorkingDir; !cwd && wd != "/" {
		if err := checkInside(wd, imageReserved); err != nil {
			notes = append(notes, fmt.Sprintf("commands run in %s, not in the image's working directory %.100q: %v", defaultCwd, wd, err))
		}
	}
	if !p.sameUser() || img.Config.User == "" {
		return notes
	}
	user, err := img.Config.ResolveUser(img.Root)
	if err != nil || user.UID == 0 {
		return notes
	}
	return append(notes, fmt.Sprintf("commands run as root inside, not as the image's user %.100q: as an ordinary user, %s has one id for execd and them", img.Config.User, p.runtime.Name))
}

// imageKinds translates the kinds of package image.
var imageKinds = map[image.Kind]sandbox.Kind{
	image.KindInvalid: sandbox.KindInvalid, image.KindDenied: sandbox.KindDenied, image.KindUnauthorized: sandbox.KindDenied,
	image.KindNotFound: sandbox.KindNotFound, image.KindUnavailable: sandbox.KindUnavailable, image.KindUnsupported: sandbox.KindUnsupported,
	image.KindTooLarge: sandbox.KindTooLarge, image.KindCorrupt: sandbox.KindInvalid, image.KindRefused: sandbox.KindDenied,
	image.KindInUse: sandbox.KindConflict, image.KindHost: sandbox.KindHost,
}

func imageError(ref string, err error) error {
	e := &sandbox.Error{Kind: sandbox.KindHost, Op: "create", Subject: "image " + ref, Err: err}
	if ie, ok := errors.AsType[*image.Error](err); ok {
		e.Kind, e.Hint = imageKinds[ie.Kind], ie.Hint
		if strings.Contains(ie.Error(), ref) {
			e.Subject = "" // it names the image itself
		}
	} else if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		e.Kind = sandbox.KindTimeout
	}
	return e
}

// holdImage keeps the image from being removed until the file is closed. Its
// creator holds it too until the keeper has answered, so this never waits.
func holdImage(img *rootImage) (*os.File, error) {
	f, err := os.Open(img.Lock)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("hold the image %s: %w", img.Root, err)
	}
	return f, nil
}

// mappedTree is a detached mount of the image's tree in which the image's ids
// are those of the nest's user namespace: root's files are root's inside
// (mount_setattr(2), ID-mapped mounts). Only root can make one; an ordinary
// user's files need none, and the result is then nil.
func mappedTree(img *rootImage, idBase, nest int) (*os.File, error) {
	if img == nil || idBase == 0 {
		return nil, nil
	}
	fail := func(op string, err error) (*os.File, error) {
		return nil, &sandbox.Error{Kind: sandbox.KindHost, Op: op, Subject: img.Root, Err: err,
			Hint: "images need Linux 5.12 and a file system with ID-mapped mounts (ext4, xfs, btrfs, tmpfs): keep them on one, or run rein as an ordinary user"}
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", nest))
	if err != nil {
		return fail("map the image's ids", err)
	}
	defer ns.Close()
	fd, err := unix.OpenTree(unix.AT_FDCWD, img.Root, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fail("clone the image's mount", err)
	}
	tree := os.NewFile(uintptr(fd), "image")
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		tree.Close()
		return fail("map the image's ids", err)
	}
	return tree, nil
}

// entrypointOf is what the image starts: its entrypoint with its arguments.
func entrypointOf(img *image.Image) []string {
	return slices.Concat(img.Config.Entrypoint, img.Config.Cmd)
}
