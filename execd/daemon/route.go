package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"sync"

	"github.com/rein-sh/rein/execd"
)

// route answers one kind of request to a server.
type route func(*Server, http.ResponseWriter, *http.Request)

// serverKey is the key of a request's server in its context.
type serverKey struct{}

func (f route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f(r.Context().Value(serverKey{}).(*Server), w, r)
}

// routes are the same for every server, and as large as all else of an idle one.
var routes = sync.OnceValue(func() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, f := range map[string]route{
		"GET /ping":               (*Server).ping,
		"POST /command":           (*Server).runCommand,
		"DELETE /command":         (*Server).interruptCommand,
		"GET /command/{a}/{b}":    (*Server).askCommand,
		"POST /session":           changes((*Server).createSession),
		"POST /session/{id}/run":  (*Server).runInSession,
		"DELETE /session/{id}":    (*Server).deleteSession,
		"POST /pty":               (*Server).createPTY,
		"GET /pty/{id}":           (*Server).ptyStatus,
		"DELETE /pty/{id}":        (*Server).deletePTY,
		"GET /pty/{id}/ws":        (*Server).servePTY,
		"GET /rein/features":      (*Server).features,
		"GET /rein/port":          (*Server).portOwner,
		"POST /rein/ports":        (*Server).portOwners,
		"POST /rein/pause":        (*Server).pause,
		"POST /rein/resume":       (*Server).resume,
		"POST /rein/clear":        (*Server).clear,
		"GET /metrics":            (*Server).metrics,
		"GET /metrics/watch":      (*Server).watchMetrics,
		"GET /files/info":         (*Server).fileInfo,
		"GET /files/search":       (*Server).searchFiles,
		"GET /files/download":     (*Server).download,
		"POST /files/upload":      changes((*Server).upload),
		"DELETE /files":           changes((*Server).removeFiles),
		"POST /files/mv":          changes((*Server).moveFiles),
		"POST /files/permissions": changes((*Server).setPermissions),
		"POST /files/replace":     changes((*Server).replaceContents),
		"POST /directories":       changes((*Server).makeDirectories),
		"GET /directories/list":   (*Server).listDirectory,
		"DELETE /directories":     changes((*Server).removeDirectories),
	} {
		mux.Handle(pattern, f)
	}
	return mux
})

func (s *Server) ping(w http.ResponseWriter, _ *http.Request) { done(w) }

// Handler returns the HTTP handler. Every route, also an unknown one, needs
// the token.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	// Hashes have one length, so that the comparison tells nothing of the
	// token, not even that.
	got := sha256.Sum256([]byte(r.Header.Get(execd.TokenHeader)))
	if subtle.ConstantTimeCompare(got[:], s.token[:]) != 1 {
		fail(w, refuse(http.StatusUnauthorized, execd.CodeUnauthorized, "the header %s is missing or wrong", execd.TokenHeader))
		return
	}
	if s.paused.Load() && r.URL.Path != "/rein/resume" && r.URL.Path != "/rein/pause" {
		fail(w, isPaused())
		return
	}
	h, pattern := routes().Handler(r)
	if pattern != "" {
		routes().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), serverKey{}, s)))
		return
	}
	var probe statusWriter
	h.ServeHTTP(&probe, r)
	if allow := probe.Header().Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		fail(w, refuse(http.StatusMethodNotAllowed, execd.CodeNotAllowed, "%s does not answer %s, only %s", r.URL.Path, r.Method, allow))
		return
	}
	fail(w, refuse(http.StatusNotFound, execd.CodeNotFound, "no such route: %s", r.URL.Path))
}

// statusWriter keeps only the header of an answer.
type statusWriter struct{ header http.Header }

func (p *statusWriter) Header() http.Header {
	if p.header == nil {
		p.header = make(http.Header)
	}
	return p.header
}
func (p *statusWriter) Write(b []byte) (int, error) { return len(b), nil }
func (p *statusWriter) WriteHeader(int)             {}
