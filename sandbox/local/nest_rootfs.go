package local

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/sandbox"
)

// Where things are inside every sandbox.
const (
	execdPath  = "/.rein/execd"
	userID     = 1000
	userName   = "user"
	userHome   = "/home/user"
	rootfsPath = nestRoot + "/rootfs"
	sourcePath = nestRoot + "/src"
)

// setUpMounts makes the nest's mount namespace its own and lays the tmpfs on
// which all else is built over nestRoot.
func setUpMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return &sandbox.Error{Kind: sandbox.KindHost, Op: "mount /proc", Err: err,
			Hint: "inside a container, run it with an unmasked /proc (docker run --security-opt systempaths=unconfined)"}
	}
	if err := unix.Mount("tmpfs", nestRoot, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=64m"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", nestRoot, err)
	}
	return nil
}

// openMounts opens the host's side of the configured mounts, before anything
// is mounted over it.
func openMounts(cfg *nestConfig) ([]int, error) {
	fds := make([]int, 0, len(cfg.Mounts))
	for i, m := range cfg.Mounts {
		fd, err := openSource(m.Source, cfg.closed[i])
		if err == nil {
			err = checkAccess(fd, m.Writable, cfg.SameUser)
		}
		if err != nil {
			return nil, &sandbox.Error{Kind: sandbox.KindHost, Op: "mount", Subject: m.Source, Err: err,
				Hint: "commands run as an unprivileged user that owns no file of the host: let others read it, and write it where the mount is writable, or copy it in with --workspace"}
		}
		if cfg.Runtime.Kind == kindRunc && cfg.closed[i] < 0 {
			if err := refuseSockets(fd, m.Source); err != nil {
				return nil, &sandbox.Error{Kind: sandbox.KindDenied, Op: "mount", Subject: m.Source, Err: err,
					Hint: "use --runtime gvisor, which opens no socket of the host, mount a directory without, or copy it in with --workspace"}
			}
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// openSource opens a mount's source: the copy, where the keeper has made one.
func openSource(source string, closed int) (int, error) {
	if closed >= 0 {
		return unix.FcntlInt(uintptr(closed), unix.F_DUPFD_CLOEXEC, 0)
	}
	return unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
}

// checkAccess refuses a mount that the sandbox's user could not use. That user
// is nobody on the host, so that the bits for others decide; with a single id
// it is the caller itself.
func checkAccess(fd int, writable, sameUser bool) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	need := uint32(0o4)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		need |= 0o1
	}
	if writable {
		need |= 0o2
	}
	have := st.Mode
	if sameUser && st.Uid == 0 { // as this namespace shows the caller's own id
		have = st.Mode >> 6
	}
	if have&need != need {
		return fmt.Errorf("its mode %04o does not let the sandbox's user in", st.Mode&0o7777)
	}
	return nil
}

// bindSources gives the configured mounts paths that the runtime can use. Those
// that are closed are mounted as they came.
func bindSources(fds, closed []int) ([]string, error) {
	paths := make([]string, 0, len(fds))
	for i, fd := range fds {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, err
		}
		path := filepath.Join(sourcePath, strconv.Itoa(i))
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return nil, err
			}
		} else if err := writeFile(path, "", 0o644); err != nil {
			return nil, err
		}
		if closed[i] >= 0 {
			err := unix.MoveMount(closed[i], "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
			if err != nil {
				return nil, fmt.Errorf("closed mount %d: %w", i, err)
			}
			unix.Close(closed[i])
		} else if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return nil, fmt.Errorf("bind mount %d: %w", i, err)
		}
		unix.Close(fd)
		paths = append(paths, path)
	}
	return paths, nil
}

// hostDirs are shown read-only when they exist; where they are links (merged
// /usr) the link is copied. Never /home, /root, /var, /run, /srv or /opt.
var hostDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// hostEtcDirs are the parts of /etc without which installed programs do not
// run: links of alternatives, certificates, and Java's own settings.
var hostEtcDirs = []string{"alternatives", "ssl/certs", "ca-certificates", "java-*-openjdk", "pki/tls/certs", "pki/ca-trust/extracted"}

// hostEtcFiles are copied. None can hold a credential.
var hostEtcFiles = []string{"ld.so.cache", "ld.so.conf", "mime.types", "protocols", "services", "ssl/openssl.cnf", "debian_version", "alpine-release"}

// buildRootfs makes the skeleton of the root file system and returns the
// read-only binds of host directories that complete it.
func buildRootfs(cfg *nestConfig) (binds []string, err error) {
	if !cfg.LowerDisk {
		// The writable layer: everything user code can write lies in here.
		if err := os.Mkdir(rootfsPath, 0o755); err != nil {
			return nil, err
		}
		opts := "mode=0755," + tmpfsLimits(cfg.Resources.Disk)
		if err := unix.Mount("tmpfs", rootfsPath, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
			return nil, fmt.Errorf("mount the writable layer: %w", err)
		}
	}
	for _, d := range []string{"proc", "sys", "dev", "etc/ssl", "etc/pki", "run/rein", "var/tmp", "var/lib", "var/cache", "var/log", "tmp/.X11-unix", "root", userHome, cfg.Cwd, filepath.Dir(execdPath), "mnt", "opt", "srv"} {
		if err := os.MkdirAll(filepath.Join(rootfsPath, d), 0o755); err != nil {
			return nil, err
		}
	}
	// The directory in /tmp keeps gVisor from mounting a second, unlimited
	// tmpfs there.
	for dir, mode := range map[string]os.FileMode{"tmp": 0o777 | os.ModeSticky, "var/tmp": 0o777 | os.ModeSticky, "root": 0o700} {
		if err := os.Chmod(filepath.Join(rootfsPath, dir), mode); err != nil {
			return nil, err
		}
	}
	if err := copyExecd(filepath.Join(rootfsPath, execdPath)); err != nil {
		return nil, err
	}
	for _, dir := range hostDirs {
		bound, err := showHostDir(dir)
		if err != nil {
			return nil, err
		}
		if bound {
			binds = append(binds, dir)
		}
	}
	etc, err := buildEtc(cfg)
	if err != nil {
		return nil, err
	}
	own, err := cfg.trust(rootfsPath)
	if err == nil && own != nil {
		err = own.install()
		cfg.covered = own.shown
	}
	return append(binds, etc...), err
}

// tmpfsLimits bounds a tmpfs of the host's kernel: also its files, because even
// an empty one takes about 1 KiB of memory that size does not count. One for
// each page is what the kernel's own default allows (tmpfs(5), nr_inodes).
func tmpfsLimits(size int64) string {
	return fmt.Sprintf("size=%d,nr_inodes=%d", size, max(size/4096, 1024))
}

// showHostDir copies dir when it is a link, or makes the mount point for it.
func showHostDir(dir string) (bound bool, err error) {
	st, err := os.Lstat(dir)
	if err != nil {
		return false, nil // not on this host
	}
	inside := filepath.Join(rootfsPath, dir)
	if st.Mode()&os.ModeSymlink != 0 {
		target, err := os.Readlink(dir)
		if err != nil {
			return false, err
		}
		return false, os.Symlink(target, inside)
	}
	return true, os.MkdirAll(inside, 0o755)
}

// copyExecd copies the daemon from the descriptor the keeper opened. A bind
// would need a path this user can reach.
func copyExecd(path string) error {
	src := os.NewFile(nestExecdFD, "rein-execd")
	defer src.Close()
	dst, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return fmt.Errorf("copy execd: %w", err)
	}
	return dst.Close()
}

// buildEtc writes a synthetic /etc and returns the host directories of /etc to
// bind read-only.
func buildEtc(cfg *nestConfig) (binds []string, err error) {
	files := map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\n" +
			fmt.Sprintf("%s:x:%d:%d:%s:%s:/bin/sh\n", userName, userID, userID, userName, userHome) +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         fmt.Sprintf("root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", userName, userID),
		"hostname":      "sandbox\n",
		"hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
		"resolv.conf":   resolvConf(cfg.Link.Gateways),
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
		"shells":        "/bin/sh\n/bin/bash\n",
	}
	etc := filepath.Join(rootfsPath, "etc")
	for name, content := range files {
		if err := writeFile(filepath.Join(etc, name), content, 0o644); err != nil {
			return nil, err
		}
	}
	for _, name := range hostEtcFiles {
		b, err := os.ReadFile(filepath.Join("/etc", name))
		if err != nil {
			continue // not on this host
		}
		if err := writeFile(filepath.Join(etc, name), string(b), 0o644); err != nil {
			return nil, err
		}
	}
	for _, pattern := range hostEtcDirs {
		matches, _ := filepath.Glob(filepath.Join("/etc", pattern)) // the patterns are ours and valid
		for _, dir := range matches {
			if st, err := os.Stat(dir); err != nil || !st.IsDir() {
				continue
			}
			inside := filepath.Join(rootfsPath, dir)
			if err := os.MkdirAll(inside, 0o755); err != nil {
				return nil, err
			}
			if cfg.Trust != "" && slices.Contains(trustKept, pattern) {
				if err := copyKept(dir, inside); err != nil {
					return nil, err
				}
				continue
			}
			binds = append(binds, dir)
		}
	}
	if link, err := os.Readlink("/etc/localtime"); err == nil {
		if err := os.Symlink(link, filepath.Join(etc, "localtime")); err != nil {
			return nil, err
		}
	}
	for name, target := range map[string]string{"mtab": "/proc/self/mounts", "os-release": "../usr/lib/os-release"} {
		if err := os.Symlink(target, filepath.Join(etc, name)); err != nil {
			return nil, err
		}
	}
	return binds, nil
}

func resolvConf(gateways []string) string {
	var b strings.Builder
	for _, g := range gateways {
		b.WriteString("nameserver " + g + "\n")
	}
	b.WriteString("options timeout:2 attempts:1\n")
	return b.String()
}

func writeFile(path, content string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), mode)
}
