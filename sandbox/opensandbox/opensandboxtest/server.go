// Package opensandboxtest is an OpenSandbox server to test against, and an
// execd like the one that it puts into its sandboxes. Both follow what the
// originals do, not what their descriptions say: states and shapes that clients
// do not expect, errors of three kinds, a second of silence after every command.
// Faults that happen between a client and a server are made on request.
//
// The sandboxes of the server are those of another provider, such as
// sandboxtest.Memory.
package opensandboxtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// Server is the lifecycle API with everything behind it. It is safe for
// concurrent use. The exported fields are set before it serves, but for those
// that say otherwise.
type Server struct {
	// Machines makes what runs in the sandboxes. Required.
	Machines sandbox.Provider
	// Key is the API key; empty: none is asked for.
	Key string
	// Prefix is the path below which the endpoints of sandboxes lie, as behind a
	// gateway. They also want a header then, which the endpoint names.
	Prefix string
	// ExecdToken is asked for by the execd of every sandbox; empty: none is, as
	// with the original server.
	ExecdToken string
	// Enforcement is what sidecars say of themselves; empty is "dns+nft".
	Enforcement string
	// NoPolicy refuses network policies, as with Docker's host network.
	NoPolicy bool
	// DropPolicy takes policies and enforces none, as with pools.
	DropPolicy bool
	// NoPause refuses to pause, as some runtimes do.
	NoPause bool
	// MaxTimeout bounds the time to live at creation; 0: it is not bounded.
	MaxTimeout time.Duration
	// Skew is how far this server's clock is ahead.
	Skew time.Duration
	// Slow is how many times a sandbox is still on its way when it is asked for
	// after its creation and its end: "Pending" and "Stopping".
	Slow int
	// State replaces "Running".
	State string
	// Tail is how long the execd keeps a stream open after its last event.
	Tail time.Duration
	// Machine is what uname -m says in the sandboxes; empty is "x86_64".
	Machine string
	// NoExec says that no directory of the sandboxes takes programs.
	NoExec bool
	// Pods has sidecars reached by addresses of their own, as with Kubernetes, and
	// not through execd, as with Docker.
	Pods bool
	// Vault is what the sidecars of sandboxes made with credentialProxy have; nil:
	// they know of none. All share it: give one to a server with one sandbox.
	Vault *Vault
	// Deaf has every rein-execd start and never answer.
	Deaf bool

	mux   sync.Once
	serve http.Handler

	mu      sync.Mutex
	boxes   map[string]*box
	once    map[string][]Fault
	counts  map[string]int
	leaked  []string
	planted int
}

// box is one sandbox of the server.
type box struct {
	id, inner  string
	created    time.Time
	timeout    time.Duration
	ends       time.Time
	image      string
	labels     map[string]string
	entrypoint []string
	policy     json.RawMessage
	proxy      bool   // credentialProxy was asked for
	token      string // of the sidecar
	generation int    // of its endpoints
	paused     bool
	pending    int // answers until it runs
	stopping   int // answers until it is gone; -1: it is not on its way
	own        map[int]*ownExecd
}

// A Fault answers one request in place of the server; next is what the server
// would do.
type Fault func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc)

// The names of routes, for Once and Count.
const (
	Create   = "create"
	Get      = "get"
	List     = "list"
	Delete   = "delete"
	Renew    = "renew"
	Pause    = "pause"
	Resume   = "resume"
	Endpoint = "endpoint"
	Policy   = "policy"
	Keys     = "keys" // of the credential vault
	Command  = "command"
	Upload   = "upload"
)

// Once has the next request of a route meet a fault. Those of one route queue.
func (s *Server) Once(route string, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.once == nil {
		s.once = map[string][]Fault{}
	}
	s.once[route] = append(s.once[route], f)
}

// Clear forgets the faults that have not come true.
func (s *Server) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.once)
}

// Count is how many requests of a route came.
func (s *Server) Count(route string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[route]
}

// Leaked lists the requests towards sandboxes that carried the API key.
func (s *Server) Leaked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.leaked...)
}

// Alive is how many sandboxes there are.
func (s *Server) Alive() int {
	s.mu.Lock()
	boxes := make([]*box, 0, len(s.boxes))
	for _, b := range s.boxes {
		boxes = append(boxes, b)
	}
	s.mu.Unlock()
	n := 0
	for _, b := range boxes {
		if _, err := s.Machines.Get(context.Background(), b.inner); err == nil {
			n++
		}
	}
	return n
}

// Lose answers a request and has the answer lost on the way.
func Lose(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	next(&nowhere{}, r)
	Cut(w, r, next)
}

// Cut closes the connection of a request that is not looked at.
func Cut(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		conn.Close()
	}
}

// Gateway answers a request, of which the client gets a gateway's own page.
func Gateway(status int) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		next(&nowhere{}, r)
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<html><body><h1>%d %s</h1></body></html>", status, http.StatusText(status))
	}
}

// Refuse answers with an error of the server's own; header may be nil.
func Refuse(status int, code, message string, header http.Header) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		for k, v := range header {
			w.Header()[k] = v
		}
		fail(w, status, code, message)
	}
}

// Answer replaces the answer by a body of any kind.
func Answer(status int, contentType, body string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// Delay answers after a while.
func Delay(d time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		time.Sleep(d)
		next(w, r)
	}
}

// nowhere is where lost answers go.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header {
	if n.header == nil {
		n.header = http.Header{}
	}
	return n.header
}
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}

// faulty counts a request and lets it meet the next fault of its route.
func (s *Server) faulty(route string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		if s.counts == nil {
			s.counts = map[string]int{}
		}
		s.counts[route]++
		var f Fault
		if q := s.once[route]; len(q) > 0 {
			f, s.once[route] = q[0], q[1:]
		}
		s.mu.Unlock()
		if f != nil {
			f(w, r, h)
			return
		}
		h(w, r)
	}
}

// ServeHTTP serves the API, the endpoints of sandboxes and the proxy to them.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mux.Do(func() { s.serve = s.routes() })
	s.serve.ServeHTTP(w, r)
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /health": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, map[string]string{"status": "healthy"})
		},
		"POST /v1/sandboxes":                            s.faulty(Create, s.create),
		"GET /v1/sandboxes":                             s.faulty(List, s.list),
		"GET /v1/sandboxes/{id}":                        s.faulty(Get, s.get),
		"DELETE /v1/sandboxes/{id}":                     s.faulty(Delete, s.remove),
		"POST /v1/sandboxes/{id}/renew-expiration":      s.faulty(Renew, s.renew),
		"POST /v1/sandboxes/{id}/pause":                 s.faulty(Pause, s.pause),
		"POST /v1/sandboxes/{id}/resume":                s.faulty(Resume, s.resume),
		"GET /v1/sandboxes/{id}/endpoints/{port}":       s.faulty(Endpoint, s.endpoint),
		"/sandboxes/{id}/proxy/{port}/{path...}":        s.proxied,
		"/direct/{id}/{generation}/{path...}":           s.direct,
		"/pods/{id}/{port}/{path...}":                   s.pod,
		"/gateway/{prefix}/{id}/{generation}/{path...}": s.direct,
	} {
		mux.HandleFunc(pattern, h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(s.Skew).UTC().Format(http.TimeFormat))
		id := r.Header.Get("X-Request-ID")
		if id == "" {
			id = newID(16)
		}
		w.Header().Set("X-Request-ID", id)
		if s.Key != "" && strings.HasPrefix(r.URL.Path, "/v1/") {
			switch r.Header.Get("OPEN-SANDBOX-API-KEY") {
			case "":
				fail(w, http.StatusUnauthorized, "MISSING_API_KEY", "Authentication credentials are missing.")
				return
			case s.Key:
			default:
				fail(w, http.StatusUnauthorized, "INVALID_API_KEY", "Authentication credentials are invalid.")
				return
			}
		} else if r.Header.Get("OPEN-SANDBOX-API-KEY") != "" {
			s.mu.Lock()
			s.leaked = append(s.leaked, r.Method+" "+r.URL.Path)
			s.mu.Unlock()
		}
		mux.ServeHTTP(w, r)
	})
}

func newID(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}

func fail(w http.ResponseWriter, status int, code, message string) {
	answer(w, status, map[string]string{"code": code, "message": message})
}

func nothing(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
}
