package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// argv makes the request that starts Spec.Argv. No shell has a part in it.
func (m *OS) argv(spec Spec) (wardenRequest, error) {
	req := wardenRequest{Path: spec.Argv[0], Args: spec.Argv, Dir: spec.Dir, Env: slices.Clip(spec.Env), Merge: spec.MergeStderr}
	if err := m.identity(spec, &req); err != nil {
		return req, err
	}
	if !hasKey(spec.Env, "PWD") {
		req.Env = append(req.Env, "PWD="+spec.Dir)
	}
	if shell, _ := m.findShell(); shell != "" && !hasKey(spec.Env, "SHELL") {
		req.Env = append(req.Env, "SHELL="+shell)
	}
	if strings.Contains(req.Path, "/") {
		return req, nil
	}
	var doubtful []string
	for place := range strings.SplitSeq(variable(spec.Env, "PATH"), ":") {
		name := filepath.Join(place, spec.Argv[0])
		if info, err := os.Stat(name); !filepath.IsAbs(place) || err != nil || !info.Mode().IsRegular() || unix.Access(name, unix.X_OK) != nil {
			continue
		}
		if !spec.Fixed || req.fixed(name) {
			req.Path = name
			return req, nil
		}
		doubtful = append(doubtful, name)
	}
	if doubtful != nil {
		return req, &StartError{Reason: fmt.Sprintf("%s is only where the sandbox's user can change it (%s): name the program by its absolute path to use it all the same",
			spec.Argv[0], strings.Join(doubtful, ", "))}
	}
	return req, syscall.ENOENT
}

func variable(env []string, name string) string {
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// fixed reports whether the user who runs the request can change neither the
// program that an absolute name leads to nor the way there. Root can change
// anything, and what is said of root's programs would be said of none.
func (req *wardenRequest) fixed(name string) bool {
	uid, groups := uint32(os.Geteuid()), []int{os.Getegid()}
	if req.Switch {
		uid, groups = req.UID, []int{int(req.GID)}
	} else if more, err := os.Getgroups(); err == nil {
		groups = append(groups, more...)
	}
	if uid == 0 {
		return true
	}
	at, rest := "/", strings.Split(name, "/")
	for links := 0; ; {
		var st unix.Stat_t
		if unix.Lstat(at, &st) != nil {
			return false
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			target, err := os.Readlink(at)
			if links++; err != nil || links > maxLinks {
				return false
			}
			at = filepath.Dir(at)
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(strings.Split(target, "/"), rest...)
		} else if changeable(&st, uid, groups) {
			return false
		}
		if len(rest) == 0 {
			return true
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:]
	}
}

// changeable reports whether a user may write a file, or remove what others have
// in a directory.
func changeable(st *unix.Stat_t, uid uint32, groups []int) bool {
	sticky := st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&unix.S_ISVTX != 0
	return st.Uid == uid || !sticky && (st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && slices.Contains(groups, int(st.Gid)))
}

// unstarted is how a program ends that cannot be started: as a shell would have
// it, which says so and exits with 127 or 126. It is nil where the program is not
// at fault.
func (m *OS) unstarted(spec Spec, err error) Process {
	errno, ok := errors.AsType[syscall.Errno](err)
	if _, dirErr := os.Stat(spec.Dir); !ok || len(spec.Argv) == 0 || dirErr != nil {
		return nil
	}
	p := &notAProcess{ended: make(chan struct{})}
	close(p.ended)
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG:
		p.exit.Code = 127
	case syscall.EACCES, syscall.ENOEXEC, syscall.EISDIR, syscall.ETXTBSY, syscall.ELIBBAD:
		p.exit.Code = 126
	default:
		return nil
	}
	said := io.NopCloser(strings.NewReader(fmt.Sprintf("%s: cannot be started: %v\n", spec.Argv[0], errno)))
	p.stdout, p.stderr = io.NopCloser(strings.NewReader("")), said
	if spec.MergeStderr {
		p.stdout, p.stderr = p.stderr, p.stdout
	}
	return p
}

// notAProcess is what is left of a program that was not started.
type notAProcess struct {
	stdout, stderr io.ReadCloser
	exit           Exit
	ended          chan struct{} // closed
}

var _ Process = (*notAProcess)(nil)

func (p *notAProcess) Stdout() io.ReadCloser       { return p.stdout }
func (p *notAProcess) Stderr() io.ReadCloser       { return p.stderr }
func (p *notAProcess) Signal(syscall.Signal) error { return nil }
func (p *notAProcess) Kill()                       {}
func (p *notAProcess) Done() <-chan struct{}       { return p.ended }
func (p *notAProcess) Exit() Exit                  { return p.exit }
func (p *notAProcess) Gone() <-chan struct{}       { return p.ended }
