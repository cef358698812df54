package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/sandbox"
)

// A read-only mount keeps nobody from connecting to a socket in it, or from
// writing into a FIFO: neither is a change of the file system. gVisor has both
// closed; under runc they would be a way to a program of the host that nobody
// allowed. What closes them there is an ID-mapped mount (mount_setattr(2)) in
// which the owner of no file has an id: whatever needs the right to write, such
// as connect(2), then fails with EACCES, and what others may read can be read, as
// before. It takes root and a file system that knows such mounts. Elsewhere, and
// where a mount is writable, one that holds a socket or a FIFO is refused.

// A copy is also how a directory is shown whose own path the sandbox's user cannot
// follow: one in the home directory of root, say. What is in it that user reads if
// others may.

// closedTrees are detached copies of the read-only mounts, in which under runc
// nothing can be connected to. A copy is nil where there can be none.
func closedTrees(mounts []sandbox.Mount, kind runtimeKind, idBase int) ([]*os.File, error) {
	trees := make([]*os.File, len(mounts))
	if idBase == 0 {
		return trees, nil
	}
	var ns *os.File
	for i, m := range mounts {
		if m.Writable {
			continue
		}
		if ns == nil && kind == kindRunc {
			var err error
			if ns, err = emptyUserNamespace(idBase); err != nil {
				return trees, &sandbox.Error{Kind: sandbox.KindHost, Op: "close the sockets of mounts", Err: err}
			}
			defer ns.Close()
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil && kind != kindRunc {
			continue // it is opened by its path
		}
		if err != nil {
			return trees, &sandbox.Error{Kind: sandbox.KindHost, Op: "mount", Subject: m.Source, Err: err}
		}
		tree := os.NewFile(uintptr(fd), m.Source)
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		if ns != nil {
			attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
			attr.Userns_fd = uint64(ns.Fd())
		}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			tree.Close() // this file system has none: it is searched
			continue
		}
		trees[i] = tree
	}
	return trees, nil
}

// unusedID is one that no file has: the kernel's largest.
const unusedID = 1<<32 - 2

// emptyUserNamespace maps that id only. It lives as long as the descriptor: the
// process that it takes to make one stops before it runs anything.
func emptyUserNamespace(id int) (*os.File, error) {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	ids := []syscall.SysProcIDMap{{ContainerID: unusedID, HostID: id, Size: 1}}
	p, err := os.StartProcess("/proc/self/exe", []string{"ids"}, &os.ProcAttr{Env: []string{}, Sys: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Ptrace: true, Pdeathsig: syscall.SIGKILL,
	}})
	if err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	killErr := p.Kill()
	_, waitErr := p.Wait()
	if err := errors.Join(err, killErr, waitErr); err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	return ns, nil
}

// mostSearched is how many files of a mount are looked at.
const mostSearched = 1 << 20

// refuseSockets fails when the mount that was opened, wherever links at source led,
// is or holds a socket or a FIFO. One that is made later it cannot know of.
func refuseSockets(fd int, source string) error {
	root := "/proc/self/fd/" + strconv.Itoa(fd)
	st, err := os.Stat(root)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return refuseSocket(source, st.Mode())
	}
	seen := 0
	return filepath.WalkDir(root+"/.", func(name string, d fs.DirEntry, err error) error {
		seen++
		switch {
		case errors.Is(err, fs.ErrPermission) && unix.Access(name, unix.X_OK) != nil, errors.Is(err, fs.ErrNotExist):
			return nil // nor can the sandbox's user enter it, or it is gone
		case err != nil:
			return fmt.Errorf("it cannot be searched for sockets: %w", err)
		case seen > mostSearched:
			return fmt.Errorf("it holds more than %d files, too many to be searched for sockets", mostSearched)
		}
		return refuseSocket(filepath.Join(source, strings.TrimPrefix(name, root)), d.Type())
	})
}

func refuseSocket(name string, kind fs.FileMode) error {
	switch {
	case kind&fs.ModeSocket != 0:
		return fmt.Errorf("%s is a socket: commands could connect to it", name)
	case kind&fs.ModeNamedPipe != 0:
		return fmt.Errorf("%s is a FIFO: commands could write to it", name)
	}
	return nil
}
