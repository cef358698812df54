package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/sandbox"
)

// nestImage is the image as the nest uses it.
type nestImage struct {
	Root   string    `json:"root"`   // for a nest that maps the user's own id
	Mapped bool      `json:"mapped"` // the keeper sends a mount instead
	User   imageUser `json:"user"`

	tree int // descriptor of the mount, or of Root
}

// Where the layers of a root file system from an image are put together.
const (
	lowerPath = nestRoot + "/image"
	layerPath = nestRoot + "/layer"
)

// openTree opens the image's tree before anything is mounted over it.
func (img *nestImage) openTree() (err error) {
	if img == nil || img.Mapped {
		return nil
	}
	img.tree, err = unix.Open(img.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the image %s: %w", img.Root, err)
	}
	return nil
}

// buildFromImage lays a writable layer over the image and puts the sandbox's own
// files into it. Under runc the layer is what bounds the disk; gVisor has one of
// its own above this.
func buildFromImage(cfg *nestConfig) error {
	size := int64(64 << 20)
	if !cfg.LowerDisk {
		size = cfg.Resources.Disk
	}
	for _, dir := range []string{lowerPath, layerPath, rootfsPath} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := cfg.Image.mount(); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", layerPath, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,"+tmpfsLimits(size)); err != nil {
		return fmt.Errorf("mount the writable layer: %w", err)
	}
	for _, dir := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(layerPath, dir), 0o755); err != nil {
			return err
		}
	}
	opts := "lowerdir=" + lowerPath + ",upperdir=" + layerPath + "/upper,workdir=" + layerPath + "/work,userxattr"
	if err := unix.Mount("overlay", rootfsPath, "overlay", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		return &sandbox.Error{Kind: sandbox.KindHost, Op: "lay a writable layer over the image", Err: err,
			Hint: "images need Linux 5.11 with overlayfs (sudo modprobe overlay); --image host needs neither"}
	}
	own, err := cfg.trust("/")
	if err != nil {
		return err
	}
	return insideRoot(rootfsPath, func() error {
		if err := furnish(cfg); err != nil || own == nil {
			return err
		}
		return own.install()
	})
}

// mount puts the image's tree at lowerPath.
func (img *nestImage) mount() error {
	if img.Mapped {
		if err := unix.MoveMount(img.tree, "", unix.AT_FDCWD, lowerPath, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount the image: %w", err)
		}
		return unix.Close(img.tree)
	}
	if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(img.tree), lowerPath, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the image: %w", err)
	}
	return unix.Close(img.tree)
}

// insideRoot calls f on a thread whose root directory is root: the image's
// links lead nowhere else, whatever they say. The thread ends with it.
func insideRoot(root string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		goruntime.LockOSThread()
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Chroot(root)
		}
		if err == nil {
			err = unix.Chdir("/")
		}
		if err != nil {
			done <- fmt.Errorf("enter the image: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// furnish makes what every sandbox has in the root directory, which is the
// image's: paths are the image's own.
func furnish(cfg *nestConfig) error {
	user := cfg.Image.User
	if err := os.RemoveAll(filepath.Dir(execdPath)); err != nil {
		return err
	}
	if err := makeDirs(cfg); err != nil {
		return err
	}
	if err := checkLinks(cfg); err != nil {
		return err
	}
	if err := takeDir("/var/tmp", openMode); err != nil {
		return noRoom("/var/tmp", err)
	}
	for name, content := range map[string]string{
		"/etc/hostname":    "sandbox\n",
		"/etc/hosts":       "127.0.0.1 localhost sandbox\n::1 localhost\n",
		"/etc/resolv.conf": resolvConf(cfg.Link.Gateways),
	} {
		if err := os.RemoveAll(name); err != nil { // often a link
			return err
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			return err
		}
	}
	if user.Name == "" {
		if err := addUser(user); err != nil {
			return err
		}
	}
	return copyExecd(execdPath)
}

// The modes of the sandbox's own directories: what execd trusts, and what
// everybody writes to.
const (
	ownMode  = 0o755
	openMode = 0o777 | os.ModeSticky
)

// makeDirs makes the directories of every sandbox that the image lacks.
func makeDirs(cfg *nestConfig) error {
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run", "/run/rein", filepath.Dir(execdPath)} {
		if err := takeDir(dir, ownMode); err != nil {
			return noRoom(dir, err)
		}
	}
	if err := takeDir("/tmp", openMode); err != nil {
		return noRoom("/tmp", err)
	}
	dirs := []string{"/etc", "/var", "/tmp/.X11-unix", cfg.Image.User.Home, cfg.Cwd}
	for _, m := range cfg.Mounts {
		dirs = append(dirs, filepath.Dir(m.Target))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return noRoom(dir, err)
		}
	}
	return nil
}

func noRoom(dir string, err error) error {
	return fmt.Errorf("the image has no room for %s: %w", dir, err)
}

// takeDir makes dir root's directory, whatever the image has there, links
// included: nobody but the sandbox itself can rename it, nor fill it unless mode
// lets them.
func takeDir(dir string, mode os.FileMode) error {
	st, err := os.Lstat(dir)
	if err == nil && !st.IsDir() {
		err = os.Remove(dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Lchown(dir, 0, 0); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// checkLinks refuses an image whose links lead from what is written, given to the
// user or to everybody, or mounted, to what the sandbox itself is made of.
func checkLinks(cfg *nestConfig) error {
	places := []string{"/var", cfg.Image.User.Home, cfg.Cwd}
	if real, err := filepath.EvalSymlinks("/etc"); err != nil || real != "/etc" {
		places = append(places, "/etc")
	}
	for _, m := range cfg.Mounts {
		places = append(places, m.Target)
	}
	for _, p := range places {
		real, err := filepath.EvalSymlinks(p)
		if _, missing := os.Lstat(p); errors.Is(missing, fs.ErrNotExist) { // a mount's target, made later
			real, err = filepath.EvalSymlinks(filepath.Dir(p))
			real = filepath.Join(real, filepath.Base(p))
		}
		if err == nil {
			err = checkInside(real, imageReserved)
		}
		if err != nil {
			return &sandbox.Error{Kind: sandbox.KindDenied, Op: "use the image's " + p, Err: err}
		}
	}
	return nil
}

// addUser gives the commands' uid a name, as programs expect, and their group
// where it has none.
func addUser(u imageUser) error {
	group := userName
	if u.GID == 0 {
		group = "root"
	}
	err := addEntry("/etc/passwd", userName, u.UID, fmt.Sprintf("%d:%s:%s:/bin/sh", u.GID, userName, u.Home))
	return errors.Join(err, addEntry("/etc/group", group, u.GID, ""))
}

// addEntry adds an entry to a user database, unless it has one of this name,
// which is somebody else, or of this number.
func addEntry(file, name string, id uint32, rest string) error {
	old, err := readBounded(file)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for line := range strings.Lines(old) {
		fields := strings.SplitN(line, ":", 4)
		if fields[0] == name || len(fields) == 4 && fields[2] == strconv.FormatUint(uint64(id), 10) {
			return nil
		}
	}
	if old != "" && !strings.HasSuffix(old, "\n") {
		old += "\n"
	}
	if err := os.RemoveAll(file); err != nil { // often a link
		return err
	}
	return os.WriteFile(file, fmt.Appendf([]byte(old), "%s:x:%d:%s\n", name, id, rest), 0o644)
}

// readBounded reads a small regular file of the image.
func readBounded(name string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file", name)
	}
	const most = 1 << 20
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return string(b), err
}
