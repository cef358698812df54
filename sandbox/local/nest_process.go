package local

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// idRange is how many ids a rootful sandbox's user namespace maps.
const idRange = 65536

// nestProcess is the nest as its keeper sees it.
type nestProcess struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser // execd's
	ready chan struct{}  // closed when execd listens
	gone  chan struct{}  // closed when the nest, and so all of the sandbox, has ended
	log   *boundedLog
}

// startNest starts the nest, hands it its configuration and execd's boot
// message, and returns the descriptor of the sandbox's link.
func (k *keeper) startNest() (link int, err error) {
	if err := os.MkdirAll(k.cfg.Records, 0o700); err != nil {
		return -1, err
	}
	if k.network, err = newNetworkLog(k.cfg.Records); err != nil {
		return -1, err
	}
	if k.cgroup, err = newCgroup(k.cfg.Cgroup, k.cfg.Info.ID, k.cfg.Runtime, k.cfg.Spec.Resources); err != nil {
		return -1, err
	}
	if k.cgroup != nil {
		k.cfg.Info.CgroupPaths = k.cgroup.paths
	}
	// What is to be removed later is on disk before it exists.
	if err := writeJSON(k.path(infoFile), k.cfg.Info); err != nil {
		return -1, err
	}
	log, err := newBoundedLog(k.path(logFile))
	if err != nil {
		return -1, err
	}
	k.nest = &nestProcess{ready: make(chan struct{}), gone: make(chan struct{}), log: log}
	control, err := k.spawnNest()
	if err != nil {
		return -1, err
	}
	defer control.Close()
	// Before the nest has read its configuration it has no children, so the
	// cgroup holds all of the sandbox.
	if err := k.cgroup.enter(k.nest.cmd.Process.Pid); err != nil {
		return -1, err
	}
	if err := k.sendBoot(); err != nil {
		return -1, err
	}
	tree, err := mappedTree(k.cfg.Image, k.cfg.Info.IDBase, k.nest.cmd.Process.Pid)
	if err != nil {
		return -1, err
	}
	defer tree.Close() // of nil an error that nobody needs
	closed, err := closedTrees(k.cfg.Spec.Mounts, k.cfg.Runtime.Kind, k.cfg.Info.IDBase)
	for _, f := range closed {
		defer f.Close() // of nil an error that nobody needs
	}
	if err != nil {
		return -1, err
	}
	if err := k.sendConfig(control, tree, closed); err != nil {
		return -1, fmt.Errorf("configure the nest: %w", err)
	}
	return receiveLink(control, k.cfg.StartTimeout)
}

// spawnNest starts the process. Its end ends every process of the sandbox,
// and it ends with this thread.
func (k *keeper) spawnNest() (*net.UnixConn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer ours.Close()
	defer theirs.Close()
	open := os.Open
	if k.cfg.Runtime.Kind == kindRunc {
		open = sealedCopy // else runc makes one itself
	}
	runtimeBin, err := open(k.cfg.Runtime.Path)
	if err != nil {
		return nil, err
	}
	defer runtimeBin.Close()
	execdBin, err := os.Open(k.cfg.Execd)
	if err != nil {
		return nil, err
	}
	defer execdBin.Close()

	self, err := os.Open(k.cfg.Keep)
	if err != nil {
		return nil, err
	}
	defer self.Close()

	cmd := exec.Command("/proc/self/fd/"+strconv.Itoa(nestSelfFD), "nest")
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs, runtimeBin, execdBin, self}
	if k.cfg.Runtime.Kind == kindGVisor {
		cmd.ExtraFiles = withRoom(cmd.ExtraFiles, theirs)
	}
	cmd.SysProcAttr = nestAttributes(k.cfg.Info.IDBase)
	cmd.Stderr = k.nest.log
	k.nest.stdin, err = cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	back, err := k.cgroup.lend()
	if err != nil {
		return nil, err
	}
	started := cmd.Start()
	err = back()
	if started != nil {
		return nil, errors.Join(namespaceError(started), err)
	}
	k.nest.cmd = cmd
	go k.nest.watch(stdout)
	if err != nil {
		return nil, err
	}
	nest, err := identify(cmd.Process.Pid)
	if err == nil {
		err = writeJSON(k.path(nestFile), nest)
	}
	if err != nil {
		return nil, err
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// roomyFD is above every descriptor that gVisor's sentry uses while it starts.
const roomyFD = 300

// withRoom gives the new process a table of descriptors that is large enough
// from the beginning. The sentry moves its standard streams to 253 and above;
// to enlarge the table of a process with threads, the kernel waits until every
// CPU has been idle or switched (expand_fdtable in fs/file.c): 5 to 10 ms of a
// sandbox's start. A process that has just been forked does not wait, and what
// it starts inherits the table's size together with an open descriptor.
func withRoom(files []*os.File, any *os.File) []*os.File {
	last := make([]*os.File, roomyFD-3+1)
	copy(last, files)
	last[roomyFD-3] = any
	return last
}

// oomCounter reports whether execd is given the cgroup's counter. gVisor's
// execd cannot tell which process ran out of memory.
func (k *keeper) oomCounter() bool {
	return k.cgroup != nil && k.cgroup.oom != nil && k.cfg.Runtime.Kind == kindRunc
}

// sendConfig tells the nest what to make, with the mount of its image if there
// is one, and those of the directories that are closed.
func (k *keeper) sendConfig(control *net.UnixConn, tree *os.File, closed []*os.File) error {
	cfg := k.nestConfig(tree != nil)
	for _, f := range closed {
		cfg.Closed = append(cfg.Closed, f != nil)
	}
	b, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	var fds []int
	if k.oomCounter() {
		fds = append(fds, int(k.cgroup.oom.Fd()))
	}
	if tree != nil {
		fds = append(fds, int(tree.Fd()))
	}
	for _, f := range closed {
		if f != nil {
			fds = append(fds, int(f.Fd()))
		}
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err = control.WriteMsgUnix(b, oob, nil)
	return err
}

// nestAttributes puts the nest into new namespaces of everything. As root the
// user namespace maps a range of ids that belong to nobody; otherwise it maps
// the user's own id alone.
func nestAttributes(idBase int) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Credential:  &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
		Pdeathsig:   syscall.SIGKILL,
		Setsid:      true,
	}
	if idBase != 0 {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: idBase, Size: idRange}}
		attr.UidMappings, attr.GidMappings = ids, ids
		attr.GidMappingsEnableSetgroups = true
		attr.Credential.NoSetGroups = false
	}
	return attr
}

// namespaceError says what to do when the kernel refuses the namespaces.
func namespaceError(err error) error {
	e := &sandbox.Error{Kind: sandbox.KindHost, Op: "make the sandbox's namespaces", Err: err}
	for _, p := range namespaceProblems(err) {
		if p.Fatal { // others make less of a sandbox, not none
			if e.Hint = p.Remedy; !strings.Contains(p.What, err.Error()) {
				e.Err = fmt.Errorf("%w (%s)", err, p.What)
			}
			break
		}
	}
	return e
}

func (k *keeper) nestConfig(mapped bool) nestConfig {
	var img *nestImage
	if k.cfg.Image != nil {
		img = &nestImage{Root: k.cfg.Image.Root, Mapped: mapped, User: k.cfg.Image.User}
	}
	return nestConfig{
		Image: img, OOMCounter: k.oomCounter(),
		ID: k.cfg.Info.ID, Runtime: k.cfg.Runtime, Resources: k.cfg.Spec.Resources, Mounts: k.cfg.Spec.Mounts,
		Cwd: k.cfg.Spec.Cwd, SameUser: k.cfg.SameUser, Trust: k.trusted,
		LowerDisk: k.cfg.Runtime.Kind == kindGVisor,
		Link: linkConfig{
			MTU: egress.MTU, MAC: egress.SandboxMAC, GatewayMAC: egress.GatewayMAC,
			Addresses: []string{fmt.Sprintf("%s/%d", egress.Sandbox4, egress.Bits4), fmt.Sprintf("%s/%d", egress.Sandbox6, egress.Bits6)},
			Gateways:  []string{egress.Gateway4, egress.Gateway6},
		},
	}
}

// maxBoot is what a pipe holds without a reader (pipe(7)): execd reads only
// after the nest has been configured.
const maxBoot = 64 << 10

// sendBoot gives execd its boot message.
func (k *keeper) sendBoot() error {
	b, err := json.Marshal(k.boot())
	if err == nil && len(b) > maxBoot {
		return &sandbox.Error{Kind: sandbox.KindTooLarge, Op: "create", Subject: "env",
			Err:  fmt.Errorf("the environment of commands is too large: with it, execd would be told %d bytes, more than %d", len(b), maxBoot),
			Hint: "put into files what is large"}
	}
	if err == nil {
		_, err = k.nest.stdin.Write(b)
	}
	if err = errors.Join(err, k.nest.stdin.Close()); err != nil {
		return fmt.Errorf("give execd its boot message: %w", err)
	}
	return nil
}

// boot is what execd is told. The token goes this way and no other.
func (k *keeper) boot() execd.Boot {
	b := execd.Boot{
		Token: k.cfg.Token, Listen: fmt.Sprintf("%s:%d", egress.Sandbox4, execd.Port), AllowFrom: egress.Gateway4,
		UID: userID, GID: userID, SameUser: k.cfg.SameUser,
		Home: userHome, Cwd: k.cfg.Spec.Cwd, Env: map[string]string{}, Owned: []string{k.cfg.Spec.Cwd, userHome},
		MemoryLimit: k.cfg.Spec.Resources.Memory, CPULimit: k.cfg.Spec.Resources.CPU, MaxProcesses: k.cfg.Spec.Resources.PIDs,
	}
	if img := k.cfg.Image; img != nil {
		b.UID, b.GID, b.Home, b.Owned = img.User.UID, img.User.GID, img.User.Home, []string{k.cfg.Spec.Cwd, img.User.Home}
		maps.Copy(b.Env, img.Env)
	}
	if k.trusted != "" {
		maps.Copy(b.Env, trustEnvironment())
	}
	maps.Copy(b.Env, k.cfg.Spec.Env)
	maps.Copy(b.Env, k.vault.Environment())
	if k.cfg.Runtime.Kind == kindGVisor {
		b.Cgroup = insideCgroup
	}
	if k.cfg.SameUser {
		b.UID, b.GID = 0, 0
	}
	if k.oomCounter() {
		b.OOMEventsFD = nestControlFD
	}
	return b
}

// receiveLink waits for the nest's reply and the descriptor that comes with it.
func receiveLink(c *net.UnixConn, timeout time.Duration) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return -1, err
	}
	buf, oob := make([]byte, 16<<10), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil || n == 0 {
		return -1, fmt.Errorf("the nest ended before its network was up: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	fd := -1
	if fds := descriptorsIn(oob[:oobn]); len(fds) == 1 {
		fd = fds[0]
	}
	var reply nestReply
	if err := json.Unmarshal(buf[:n], &reply); err != nil {
		return fd, fmt.Errorf("the nest's reply: %w", err)
	}
	if reply.Error != "" || fd < 0 {
		return -1, &sandbox.Error{Kind: sandbox.KindHost, Op: reply.Op, Err: errors.New(reply.Error), Hint: reply.Hint}
	}
	return fd, nil
}

// watch follows execd's standard output until the nest has ended.
func (n *nestProcess) watch(stdout io.Reader) {
	r := bufio.NewReaderSize(stdout, 4096)
	for waiting := true; ; {
		line, err := r.ReadSlice('\n')
		if waiting && strings.TrimSpace(string(line)) == execd.ReadyLine {
			waiting = false
			close(n.ready)
		} else {
			n.log.Write(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	err := n.cmd.Wait()
	n.log.finish(err)
	close(n.gone)
}

// explain is the end of what the runtime and execd said.
func (n *nestProcess) explain() string {
	tail := n.log.tail()
	if tail == "" {
		return "it said nothing"
	}
	return tail
}

// boundedLog keeps the first 64 KiB in a file and the last 2 KiB in memory.
type boundedLog struct {
	mu   sync.Mutex
	file *os.File
	left int
	last []byte
}

func newBoundedLog(path string) (*boundedLog, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &boundedLog{file: f, left: 64 << 10}, nil
}

// Write never fails: nothing depends on this log.
func (l *boundedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if keep := min(len(p), l.left); keep > 0 {
		l.file.Write(p[:keep])
		l.left -= keep
	}
	l.last = append(l.last, p...)
	if over := len(l.last) - 2<<10; over > 0 {
		l.last = append(l.last[:0], l.last[over:]...)
	}
	return len(p), nil
}

// finish notes how the process ended and closes the file.
func (l *boundedLog) finish(err error) {
	if err != nil {
		fmt.Fprintln(l, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file.Close()
}

func (l *boundedLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(string(l.last))
}
