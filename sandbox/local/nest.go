package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	goruntime "runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/sandbox"
)

// Descriptors the nest inherits from its keeper. Standard input, output and
// error belong to execd and are passed on untouched.
const (
	// A unix socket: in comes nestConfig, with the descriptor of the cgroup's
	// memory event counter where there is one; out goes nestReply, with the
	// link's.
	nestControlFD = 3
	nestRuntimeFD = 4 // the OCI runtime's binary, which the nest's user may not be able to open by path
	nestExecdFD   = 5 // execd's binary
	nestSelfFD    = 6 // the nest's own binary, for the same reason
)

// nestRoot is the private tmpfs on which the nest builds everything. It is
// mounted over a directory that exists everywhere, in the nest's own mount
// namespace.
const nestRoot = "/run"

// nestConfig is what the keeper tells its nest.
type nestConfig struct {
	ID        string            `json:"id"`
	Runtime   ociRuntime        `json:"runtime"`
	Link      linkConfig        `json:"link"`
	Resources sandbox.Resources `json:"resources"`
	Mounts    []sandbox.Mount   `json:"mounts,omitempty"`
	Cwd       string            `json:"cwd"`
	Image     *nestImage        `json:"image,omitempty"` // nil: the host's
	Trust     string            `json:"trust,omitempty"` // PEM to be trusted besides the system's
	SameUser  bool              `json:"same_user"`       // one mapped id, and a runtime that cannot invent others
	// LowerDisk is set when the runtime bounds the writable layer itself, so
	// that the root below it stays read-only and small.
	LowerDisk bool `json:"lower_disk"`

	// OOMCounter, Image.Mapped and Closed say which descriptors come with this, in
	// this order.
	OOMCounter bool   `json:"oom_counter"`
	Closed     []bool `json:"closed,omitempty"` // for each mount, whether the keeper sends it (closedTrees)
	oomCounter int    // or -1
	closed     []int  // for each mount, or -1

	covered []string // files shown of the host that trustStorePath takes the place of
}

// nestReply is the nest's one message: the link is up, or what went wrong.
type nestReply struct {
	LinkType string `json:"link_type,omitempty"` // "tap" or "packet"
	Op       string `json:"op,omitempty"`
	Error    string `json:"error,omitempty"`
	Hint     string `json:"hint,omitempty"`
}

// Nest is the body of the command "rein-keep nest": the first process of a
// sandbox's namespaces. It prepares the network and the root file system and
// then becomes the OCI runtime; it returns only when that failed, after it has
// told the keeper why.
func Nest() error {
	if os.Getpid() != 1 { // what follows changes the mounts of whatever namespace this is
		return errors.New("the nest is started by its keeper, not by hand: it is not the first process of namespaces of its own")
	}
	// The kernel ties a thread to its parent, not a process: the one that is
	// tied is the one that becomes the runtime.
	goruntime.LockOSThread()
	control := os.NewFile(nestControlFD, "control")
	unix.CloseOnExec(nestControlFD)
	conn, err := net.FileConn(control)
	control.Close()
	if err != nil {
		return fmt.Errorf("the nest is started by its keeper, not by hand: %w", err)
	}
	uc := conn.(*net.UnixConn)
	defer uc.Close()
	err = nest(uc)
	reply := nestReply{Op: "prepare the sandbox", Error: err.Error()}
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		reply.Op, reply.Hint = e.Op, e.Hint
		if e.Err != nil {
			reply.Error = e.Err.Error()
		}
	}
	if e := sendReply(uc, reply, -1); e != nil && !errors.Is(e, unix.EPIPE) { // once it has the link, the keeper reads our standard error
		err = errors.Join(err, e)
	}
	return err
}

// nest does it. It returns only with an error.
func nest(control *net.UnixConn) error {
	// The keeper may have died before the kernel was told to take the nest
	// with it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("tie the nest to its keeper: %w", err)
	}
	cfg, err := receiveConfig(control)
	if err != nil {
		return fmt.Errorf("read the nest's configuration: %w", err)
	}
	if err := unix.Sethostname([]byte("sandbox")); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	link, linkType, err := setUpLink(cfg.Link)
	if err != nil {
		return err
	}
	if err := sendReply(control, nestReply{LinkType: linkType}, link); err != nil {
		return err
	}
	unix.Close(link)
	sources, err := openMounts(&cfg)
	if err != nil {
		return err
	}
	if err := cfg.Image.openTree(); err != nil {
		return err
	}
	if err := setUpMounts(); err != nil {
		return err
	}
	if cfg.Runtime.Kind == kindRunc {
		if err := forbidUserNamespaces(); err != nil {
			return err
		}
	}
	bundle, err := buildBundle(&cfg, sources)
	if err != nil {
		return err
	}
	if cfg.Runtime.Kind == kindRunc { // gVisor's kernel has no others
		if err := refuseForeignCalls(); err != nil {
			return err
		}
	}
	return becomeRuntime(&cfg, bundle)
}

// forbidUserNamespaces keeps every process of the sandbox from making a user
// namespace of its own (namespaces(7), /proc/sys/user). In one, any program has
// every capability: it mounts file systems of any size, so that the disk limit
// is none, and reaches the parts of the host's kernel that only root is meant
// to. The seccomp profile cannot refuse it where execd itself needs
// CAP_SYS_ADMIN. gVisor makes user namespaces for itself; inside it, rein-runsc
// refuses them.
func forbidUserNamespaces() error {
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		return &sandbox.Error{Kind: sandbox.KindHost, Op: "forbid user namespaces inside", Err: err}
	}
	return nil
}

// maxDescriptors is the most that one message carries (unix(7), SCM_MAX_FD).
const maxDescriptors = 253

// receiveConfig reads the configuration and the descriptors that may come with
// its first bytes.
func receiveConfig(c *net.UnixConn) (nestConfig, error) {
	cfg := nestConfig{oomCounter: -1}
	buf, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(maxDescriptors*4))
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err == nil && n == 0 {
		err = errors.New("the keeper is gone")
	}
	if err != nil {
		return cfg, err
	}
	fds := descriptorsIn(oob[:oobn])
	if err := json.NewDecoder(io.MultiReader(bytes.NewReader(buf[:n]), c)).Decode(&cfg); err != nil {
		return cfg, err
	}
	next := func() (fd int, err error) {
		if len(fds) == 0 {
			return -1, errors.New("a descriptor is missing")
		}
		fd, fds = fds[0], fds[1:]
		return fd, nil
	}
	if cfg.OOMCounter {
		if cfg.oomCounter, err = next(); err != nil {
			return cfg, err
		}
	}
	if cfg.Image != nil && cfg.Image.Mapped {
		if cfg.Image.tree, err = next(); err != nil {
			return cfg, err
		}
	}
	cfg.closed = make([]int, len(cfg.Mounts))
	for i := range cfg.closed {
		cfg.closed[i] = -1
		if i < len(cfg.Closed) && cfg.Closed[i] {
			if cfg.closed[i], err = next(); err != nil {
				return cfg, err
			}
		}
	}
	return cfg, nil
}

// descriptorsIn are the descriptors in a control message.
func descriptorsIn(oob []byte) []int {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return nil
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return fds
}

// sendReply sends one reply, with a descriptor when fd is not negative.
func sendReply(c *net.UnixConn, r nestReply, fd int) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	if err := c.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	_, _, err = c.WriteMsgUnix(append(b, '\n'), oob, nil)
	return err
}

// becomeRuntime replaces the nest by the OCI runtime, which so becomes the
// first process of the pid namespace: when it ends, all of the sandbox ends.
func becomeRuntime(cfg *nestConfig, bundle string) error {
	args := cfg.Runtime.args(cfg, bundle)
	// Descriptors past those of the runtime must not reach it.
	first := uint(nestRuntimeFD)
	if err := unix.CloseRange(first, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	if err := passOOMCounter(cfg.oomCounter); err != nil {
		return fmt.Errorf("pass the memory event counter: %w", err)
	}
	if err := os.Chdir(bundle); err != nil {
		return err
	}
	if cfg.Runtime.Kind == kindGVisor {
		if err := setSlack(defaultSlack); err != nil {
			return fmt.Errorf("set the timer slack: %w", err)
		}
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + nestRoot, "XDG_RUNTIME_DIR=" + nestRoot}
	// By descriptor: the path may lie in a directory this user cannot enter.
	path := "/proc/self/fd/" + strconv.Itoa(nestRuntimeFD)
	err := syscall.Exec(path, args, env)
	return &sandbox.Error{Kind: sandbox.KindHost, Op: "start", Subject: "runtime " + cfg.Runtime.Name, Err: err,
		Hint: "check that " + cfg.Runtime.Path + " is a program every user may execute"}
}

// passOOMCounter moves the counter to where "--preserve-fds 1" finds it. The
// control socket that was there has done its work.
func passOOMCounter(fd int) error {
	switch fd {
	case -1:
		return nil
	case nestControlFD:
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
		return err
	}
	return unix.Dup3(fd, nestControlFD, 0)
}

// args is the runtime's command line.
func (r ociRuntime) args(cfg *nestConfig, bundle string) []string {
	state := nestRoot + "/state"
	if r.Kind == kindGVisor {
		args := []string{"runsc", "--root", state, "--platform=systrap", "--network=sandbox",
			"--ignore-cgroups", "--in-sandbox-cgroup=v2", "--host-settings=ignore",
			"--overlay2=root:memory,size=" + strconv.FormatInt(cfg.Resources.Disk, 10)}
		return append(args, "run", "--bundle", bundle, cfg.ID)
	}
	args := []string{r.Name, "--root", state, "run", "--bundle", bundle}
	if cfg.oomCounter >= 0 {
		args = append(args, "--preserve-fds", "1")
	}
	return append(args, cfg.ID)
}
