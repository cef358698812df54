package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/secret"
)

// Bounds of a server.
const (
	maxClients = 32               // at once; more are told to come back
	idle       = 60 * time.Second // without a request; and of a request on its way
	sending    = 10 * time.Second // of an answer
)

// ErrServed is returned by Serve when another process serves the run already.
var ErrServed = errors.New("another process serves this run")

// Server answers the clients of one run.
type Server struct {
	handler  Handler
	listener *net.UnixListener
	path     string
	ctx      context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

// Serve makes the socket in dir, a directory that only the user can enter, and
// answers until Close. A socket that a process left behind when it died is
// replaced; one that somebody answers is ErrServed.
func Serve(dir string, h Handler) (*Server, error) {
	l, err := listen(dir)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	s := &Server{handler: h, listener: l, path: filepath.Join(dir, File), conns: map[net.Conn]bool{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.running.Go(s.accept)
	return s, nil
}

// listen binds the socket. It is named through its directory's descriptor: a
// socket's own path may not be longer than 107 bytes (unix(7)).
func listen(dir string) (*net.UnixListener, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	addr := &net.UnixAddr{Net: "unix", Name: through(d)}
	for try := 0; ; try++ {
		l, err := net.ListenUnix("unix", addr)
		if err == nil {
			// The directory keeps others out while this has not been done.
			if err := unix.Fchmodat(int(d.Fd()), File, 0o600, 0); err != nil {
				return nil, errors.Join(err, l.Close())
			}
			l.SetUnlinkOnClose(false) // its name is gone with the descriptor
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || try > 0 {
			return nil, err
		}
		c, err := net.DialUnix("unix", nil, addr)
		if err == nil {
			c.Close()
			return nil, ErrServed
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, err
		}
		if err := unix.Unlinkat(int(d.Fd()), File, 0); err != nil && !errors.Is(err, syscall.ENOENT) {
			return nil, err
		}
	}
}

func through(dir *os.File) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + File
}

// Close removes the socket, ends every connection and waits for the answers
// under way, whose context ends.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for c := range s.conns {
		c.SetReadDeadline(time.Now()) // an answer may still be written
	}
	s.mu.Unlock()
	s.stop()
	err := os.Remove(s.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	err = errors.Join(err, s.listener.Close())
	s.running.Wait()
	return err
}

func (s *Server) accept() {
	for {
		c, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: those who wait are served later
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		peer, err := peerOf(c)
		if err != nil || !admitted(peer) || !s.take(c) {
			c.Close()
			continue
		}
		s.running.Go(func() {
			defer s.drop(c)
			s.serve(c, peer)
		})
	}
}

// admitted reports whether a peer may ask: the user whose run it is, and root.
func admitted(p Peer) bool { return p.UID == uint32(os.Geteuid()) || p.UID == 0 }

func peerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var fault error
	if err := raw.Control(func(fd uintptr) { cred, fault = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return Peer{}, err
	}
	if fault != nil {
		return Peer{}, fault
	}
	return Peer{UID: cred.Uid, PID: cred.Pid}, nil
}

func (s *Server) take(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxClients {
		if !s.closed {
			s.send(c, answer(nil, &Error{Code: CodeBusy, Message: fmt.Sprintf("%d others are asking this run", maxClients), Advice: "try again"}))
		}
		return false
	}
	s.conns[c] = true
	return true
}

func (s *Server) drop(c net.Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	c.Close()
}

// serve answers one client, request by request, until it says something that is
// none: where the next one would begin is not known then.
func (s *Server) serve(c *net.UnixConn, peer Peer) {
	in := bufio.NewReaderSize(c, MaxRequest)
	for {
		s.mu.Lock()
		if !s.closed {
			c.SetReadDeadline(time.Now().Add(idle))
		}
		s.mu.Unlock()
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			s.send(c, answer(nil, malformed("the request is longer than %d bytes", MaxRequest)))
			return
		}
		if err != nil {
			return // it is done, or slow
		}
		req, err := ParseRequest(line)
		if err != nil {
			s.send(c, answer(nil, err))
			return
		}
		if !s.send(c, answer(s.do(peer, req))) {
			return
		}
	}
}

// do has the handler do what is asked.
func (s *Server) do(by Peer, r Request) (any, error) {
	ctx, h := s.ctx, s.handler
	switch r.Method {
	case MethodStatus:
		return h.Status(ctx)
	case MethodLimit:
		return h.Limit(ctx, by, r.Limit, r.Amount)
	case MethodPending:
		list, err := h.Pending(ctx)
		return append([]Pending{}, list...), err
	case MethodApprove:
		return nil, h.Approve(ctx, by, Answer{ID: r.ID, Hash: r.Hash, Decision: r.Decision, Scope: r.Scope, Reason: r.Reason})
	case MethodStop:
		return nil, h.Stop(ctx, by, r.Reason)
	case MethodRotate:
		value := secret.Value{}
		if r.Value != "" {
			value = secret.New(r.Secret, r.Value)
		}
		return nil, h.Rotate(ctx, by, r.Secret, value)
	case MethodAllow, MethodDeny:
		return h.Network(ctx, by, r.Method, Host{Host: r.Host, Port: r.Port, Proto: r.Proto})
	}
	return nil, malformed("there is no method %q", r.Method) // ParseRequest lets no other through
}

func answer(result any, err error) []byte {
	resp := Response{V: Version, OK: err == nil}
	if err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			e = &Error{Code: CodeFailed, Message: err.Error()}
		}
		resp.Error = e
	} else if result != nil {
		data, err := json.Marshal(result)
		if err != nil || len(data) > MaxResponse-1<<10 {
			return answer(nil, &Error{Code: CodeFailed, Message: "the answer cannot be sent"})
		}
		resp.Result = data
	}
	line, err := json.Marshal(resp)
	if err != nil {
		return []byte(`{"v":1,"ok":false,"error":{"code":"failed","message":"the answer cannot be written"}}` + "\n")
	}
	return append(line, '\n')
}

func (s *Server) send(c net.Conn, line []byte) bool {
	c.SetWriteDeadline(time.Now().Add(sending))
	_, err := c.Write(line)
	return err == nil
}
