package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
)

// ids are a user and a group to give a file to.
type ids struct{ uid, gid int }

// owner finds whom a new file belongs to: names or numbers of the request,
// else the commands' user. Nil: whoever the daemon is.
func (s *Server) owner(owner, group string) (*ids, error) {
	var id *ids
	if s.cfg.User != nil {
		id = &ids{int(s.cfg.User.UID), int(s.cfg.User.GID)}
	}
	if owner == "" && group == "" {
		return id, nil
	}
	if id == nil {
		id = &ids{-1, -1}
	}
	var ok bool
	if owner != "" {
		if id.uid, ok = idIn(s.osPath("/etc/passwd"), owner); !ok {
			return nil, refuse(http.StatusBadRequest, execd.CodeInvalidMetadata, "no user is called %q", owner)
		}
	}
	if group != "" {
		if id.gid, ok = idIn(s.osPath("/etc/group"), group); !ok {
			return nil, refuse(http.StatusBadRequest, execd.CodeInvalidMetadata, "no group is called %q", group)
		}
	}
	return id, nil
}

// splitName splits a name at its last slash, without cleaning it: ".." after a
// link is not what the letters say.
func splitName(name string) (dir, base string) {
	i := strings.LastIndexByte(name, '/')
	return name[:i+1], name[i+1:]
}

// writing is a file that is being written beside its place.
type writing struct {
	scope
	name   string      // where it goes, links followed
	old    fs.FileInfo // what is there now, or nil
	temp   string
	file   *os.File
	sum    []byte // SHA-256 of what was written
	size   int64
	placed bool
}

// create begins a write to name: parents are made, the place is checked.
func (sc scope) create(name string) (*writing, error) {
	final, err := sc.target(name)
	if err != nil {
		return nil, err
	}
	dir, base := splitName(final)
	if base == "" || base == "." || base == ".." {
		return nil, refuse(http.StatusBadRequest, execd.CodeInvalidFile, "it is a directory, not a regular file")
	}
	wr := &writing{scope: sc, name: final, temp: dir + ".rein-" + randomID()}
	switch wr.old, err = sc.lstat(final); {
	case err == nil:
		if err := regular(wr.old); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case final == name:
		if err := sc.parents(strings.TrimSuffix(dir, "/")); err != nil {
			return nil, err
		}
	}
	wr.file, err = sc.open(wr.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return wr, nil
}

// parents makes the missing directories above a file, the user's own.
func (sc scope) parents(dir string) error {
	if dir == "" {
		dir = "/"
	}
	return sc.mkdirAll(dir, func(made string) error {
		owner, err := sc.srv.owner("", "")
		if err != nil || owner == nil {
			return err
		}
		return sc.give(made, owner)
	})
}

// give changes the owner of what was just made. A link that was put in its
// place is not followed.
func (sc scope) give(name string, to *ids) error {
	if sc.root == nil {
		return os.Lchown(name, to.uid, to.gid)
	}
	return sc.root.Lchown(local(name), to.uid, to.gid)
}

// fill copies the content.
func (wr *writing) fill(r io.Reader) error {
	sum := sha256.New()
	buf := make([]byte, 128<<10)
	n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(wr.file, sum)}, r, buf)
	wr.size, wr.sum = n, sum.Sum(nil)
	return err
}

// commit gives the file its owner and mode and renames it into its place.
func (wr *writing) commit(mode *int, owner *ids, expected string) error {
	if owner == nil && wr.old != nil {
		if st, ok := wr.old.Sys().(*syscall.Stat_t); ok && (int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid()) {
			owner = &ids{int(st.Uid), int(st.Gid)}
		}
	}
	if owner != nil {
		// Before the mode: a change of owner takes special bits away.
		if err := wr.file.Chown(owner.uid, owner.gid); err != nil {
			return err
		}
	}
	perm, err := wr.mode(mode)
	if err != nil {
		return err
	}
	if err := wr.file.Chmod(perm); err != nil {
		return err
	}
	// Close tells of a full disk on some file systems.
	if err := wr.file.Close(); err != nil {
		return err
	}
	if err := wr.check(expected); err != nil {
		return err
	}
	if expected == execd.HashAbsent {
		err = wr.renameNew(wr.temp, wr.name)
		if errors.Is(err, fs.ErrExist) {
			err = mismatch("a file has come into being meanwhile")
		}
	} else {
		err = wr.rename(wr.temp, wr.name)
	}
	wr.placed = err == nil
	return err
}

func (wr *writing) mode(digits *int) (fs.FileMode, error) {
	switch {
	case digits != nil && *digits != 0:
		return parseMode(*digits)
	case wr.old != nil:
		return wr.old.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky), nil
	case digits != nil:
		return 0o644, nil
	}
	return 0o755, nil // OpenSandbox's default
}

// abandon removes what was not placed. It may be called after commit.
func (wr *writing) abandon() {
	if !wr.placed {
		wr.file.Close()
		wr.remove(wr.temp)
	}
}

func mismatch(format string, args ...any) error {
	return refuse(http.StatusPreconditionFailed, execd.CodeHashMismatch, format, args...)
}

// check compares what is in the place now with what the caller expects there.
func (wr *writing) check(expected string) error {
	switch {
	case expected == "":
		return nil
	case expected == execd.HashAbsent:
		if _, err := wr.lstat(wr.name); err == nil {
			return mismatch("the file exists already")
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	got, err := wr.scope.hash(wr.name)
	if errors.Is(err, fs.ErrNotExist) {
		return mismatch("the file does not exist, but its content was expected")
	}
	if err != nil {
		return err
	}
	if got == "" {
		return mismatch("the file has changed: it is longer than %d bytes", int64(execd.MaxHashed))
	}
	if !strings.EqualFold(got, expected) {
		return mismatch("the file has changed: its SHA-256 is %s, not %s", got, strings.ToLower(expected))
	}
	return nil
}

// validHash checks the form of a hash in a request.
func validHash(h string) error {
	if b, err := hex.DecodeString(h); err != nil || len(b) != sha256.Size {
		return fmt.Errorf("%q is not a SHA-256 in hexadecimal", h)
	}
	return nil
}
