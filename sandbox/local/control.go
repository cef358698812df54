package local

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/sandbox"
)

// The control protocol: HTTP/1.1 over a Unix socket that only its owner and
// root may use.
//
//	GET  /info              sandbox.Info
//	GET  /token             execd's access token
//	POST /renew             {"until": RFC 3339} → {"expires_at"}
//	POST /kill              204; the keeper's end is the proof
//	POST /pause             {"hold": nanoseconds} → 204
//	POST /resume            204
//	GET  /network?after=N   sandbox.NetworkLog
//	POST /network           networkRequest → networkReply
//	POST /secret            secretRequest → 204
//	GET  /attach            101, then questions and answers (see attachProtocol)
//	GET  /dial?port=N       101, then the raw connection to that port
const dialProtocol = "rein-tcp"

// controlServer serves one keeper's socket.
type controlServer struct {
	listener net.Listener
	http     *http.Server
	running  sync.WaitGroup // the server and its tunnels
	keeper   *keeper
	stop     context.CancelFunc
	ctx      context.Context
}

// listen makes the socket. Nothing is answered before serve.
func (k *keeper) listen() (*controlServer, error) {
	dir, err := os.Open(k.cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	old := unix.Umask(0o177)
	l, err := net.Listen("unix", socketPath(dir))
	unix.Umask(old)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // Kill and Sweep remove the directory
	s := &controlServer{listener: peerListener{l.(*net.UnixListener), uint32(os.Getuid())}, keeper: k}
	s.ctx, s.stop = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) { reply(w, k.info()) })
	mux.HandleFunc("GET /token", func(w http.ResponseWriter, _ *http.Request) { reply(w, tokenReply{k.cfg.Token}) })
	mux.HandleFunc("POST /renew", s.renew)
	mux.HandleFunc("POST /kill", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		k.requestKill()
	})
	mux.HandleFunc("POST /pause", s.pause)
	mux.HandleFunc("POST /resume", s.resume)
	mux.HandleFunc("GET /network", s.network)
	mux.HandleFunc("POST /network", s.setNetwork)
	mux.HandleFunc("POST /secret", s.rotateSecret)
	mux.HandleFunc("GET /attach", s.attach)
	mux.HandleFunc("GET /dial", s.dial)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	return s, nil
}

// socketPath names the socket through its directory's descriptor, because a
// socket's own path may not be longer than 107 bytes.
func socketPath(dir *os.File) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + socketFile
}

func (s *controlServer) serve() {
	s.running.Go(func() { s.http.Serve(s.listener) }) // ends by Close
}

// Close ends the server, its connections and tunnels.
func (s *controlServer) Close() {
	s.stop()
	s.listener.Close()
	s.http.Close()
	s.running.Wait()
}

type tokenReply struct {
	Token string `json:"token"`
}

type renewRequest struct {
	Until time.Time `json:"until"`
}

type renewReply struct {
	ExpiresAt time.Time `json:"expires_at"`
}

// controlError is the body of every answer that is not a success.
type controlError struct {
	Kind  sandbox.Kind `json:"kind"`
	Error string       `json:"error"`
	Hint  string       `json:"hint,omitempty"`
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // a caller that went away has no use for it
}

func refuse(w http.ResponseWriter, status int, kind sandbox.Kind, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	text := err.Error()
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Err != nil {
		text = e.Err.Error() // the caller names operation and subject
	}
	json.NewEncoder(w).Encode(controlError{kind, text, sandbox.HintOf(err)})
}

func (s *controlServer) renew(w http.ResponseWriter, r *http.Request) {
	var req renewRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, 4096)).Decode(&req); err != nil || req.Until.IsZero() {
		refuse(w, http.StatusBadRequest, sandbox.KindInvalid, errors.New("until is not a time"))
		return
	}
	if err := s.keeper.deadline.Move(req.Until); err != nil {
		refuse(w, http.StatusGone, sandbox.KindNotFound, err)
		return
	}
	reply(w, renewReply{s.keeper.deadline.Time()})
}

func (s *controlServer) network(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		refuse(w, http.StatusBadRequest, sandbox.KindInvalid, errors.New("after is not a number"))
		return
	}
	if gateway, err := s.keeper.running("read"); err == nil {
		gateway.Flush() // what was folded so far counts too
	}
	log, err := s.keeper.network.since(after)
	if err != nil {
		refuse(w, http.StatusInternalServerError, sandbox.KindHost, err)
		return
	}
	reply(w, log)
}

// dial joins the caller's connection to a port of the sandbox.
func (s *controlServer) dial(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.ParseUint(r.URL.Query().Get("port"), 10, 16)
	if err != nil || port == 0 {
		refuse(w, http.StatusBadRequest, sandbox.KindInvalid, errors.New("port is not between 1 and 65535"))
		return
	}
	gateway, err := s.keeper.running("reach")
	if err != nil {
		answer(w, err)
		return
	}
	inside, err := gateway.DialContext(r.Context(), int(port))
	if err != nil {
		refuse(w, http.StatusBadGateway, sandbox.KindUnavailable, err)
		return
	}
	// Hijacked before the answer: afterwards the server might take the first
	// bytes of the tunnel for itself.
	outside, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		inside.Close()
		return
	}
	_, err = io.WriteString(outside, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+dialProtocol+"\r\n\r\n")
	if err != nil || buf.Reader.Buffered() > 0 { // nothing may follow the request before our answer
		inside.Close()
		outside.Close()
		return
	}
	s.running.Go(func() { tunnel(s.ctx, outside, inside) })
}

// tunnel copies both ways until both ends have finished, passing half-closes
// on, or until ctx ends.
func tunnel(ctx context.Context, a, b net.Conn) {
	stop := context.AfterFunc(ctx, func() { a.Close(); b.Close() })
	defer stop()
	var wg sync.WaitGroup
	copyHalf := func(dst, src net.Conn) {
		_, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, 64<<10))
		if hc, ok := dst.(interface{ CloseWrite() error }); ok && err == nil {
			hc.CloseWrite()
			return
		}
		a.Close()
		b.Close()
	}
	wg.Go(func() { copyHalf(a, b) })
	wg.Go(func() { copyHalf(b, a) })
	wg.Wait()
	a.Close()
	b.Close()
}

// peerListener accepts connections of the socket's owner and root only. The
// socket's mode says the same; this also holds where the mode was changed.
type peerListener struct {
	*net.UnixListener
	owner uint32
}

func (l peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := peerUID(c); err == nil && (uid == l.owner || uid == 0) {
			return c, nil
		}
		c.Close()
	}
}

func peerUID(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	return cred.Uid, nil
}
