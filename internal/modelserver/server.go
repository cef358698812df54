// Package modelserver serves a script as a model over HTTP, in the formats of
// vendors, faults included. It is what `rein model-server` runs, and what the
// model clients are tested against.
//
// The script decides; a file for each vendor's protocol says it in that
// protocol.
package modelserver

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/secret"
)

// MaxBody is the largest request a server reads, in bytes.
const MaxBody = 64 << 20

// Options configure a server. The zero value asks for no key.
type Options struct {
	// Key, when set, must be presented by every request; others get 401.
	Key secret.Value
}

// Server answers requests from a script. Safe for concurrent use. It must be
// served by a net/http.Server: a cut stream is made by aborting the handler
// with http.ErrAbortHandler.
type Server struct {
	script *script.Script
	player *script.Player
	key    secret.Value
	mux    *http.ServeMux
	done   chan struct{}
	close  func()

	mu   sync.Mutex
	seen Seen
}

// Seen is what a server was asked.
type Seen struct {
	Count int    // requests for a reply, refused ones included
	Body  []byte // the last one's body
}

var _ http.Handler = (*Server)(nil)

// New returns a server playing s.
func New(s *script.Script, opts Options) *Server {
	srv := &Server{script: s, player: s.Play(), key: opts.Key, mux: http.NewServeMux(), done: make(chan struct{})}
	srv.close = sync.OnceFunc(func() { close(srv.done) })
	for _, prefix := range []string{"/v1", ""} {
		srv.mux.HandleFunc("POST "+prefix+"/chat/completions", srv.chat)
		srv.mux.HandleFunc("GET "+prefix+"/models", srv.models)
	}
	srv.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, refusal{http.StatusNotFound, "invalid_request_error", "", "there is no " + r.Method + " " + r.URL.Path + " here"}, 0)
	})
	return srv
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.key.IsZero() {
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(given), []byte(s.key.Reveal())) != 1 {
			s.note(nil)
			refuse(w, refusals[model.KindAuth], 0)
			return
		}
	}
	s.mux.ServeHTTP(w, r)
}

// Close ends stalled replies, so that a shutdown does not wait for them.
func (s *Server) Close() { s.close() }

// Seen returns what the server was asked so far.
func (s *Server) Seen() Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func (s *Server) note(body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Count++
	s.seen.Body = body
}

// body reads a request for a reply. It has answered when ok is false.
func (s *Server) body(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	s.note(body)
	if err == nil {
		return body, true
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		refuse(w, refusal{http.StatusRequestEntityTooLarge, "invalid_request_error", "request_too_large", err.Error()}, 0)
	} else {
		refuse(w, refusal{http.StatusBadRequest, "invalid_request_error", "", err.Error()}, 0)
	}
	return nil, false
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{
		"id": s.script.Name(), "object": "model", "created": 0, "owned_by": "rein",
	}}})
}

// wait lasts d, or until the client is gone when d is 0. It reports whether
// the reply goes on.
func (s *Server) wait(r *http.Request, d time.Duration) bool {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
		return true
	case <-r.Context().Done():
	case <-s.done:
	}
	return false
}

// refusal is an error as OpenAI words it.
type refusal struct {
	status              int
	kind, code, message string
}

// refusals are the errors of faults. The codes are those of
// platform.openai.com/docs/guides/error-codes where it has one.
var refusals = map[model.Kind]refusal{
	model.KindRateLimit:   {429, "rate_limit_error", "rate_limit_exceeded", "Rate limit reached."},
	model.KindOverloaded:  {503, "server_error", "overloaded", "The engine is currently overloaded."},
	model.KindUnavailable: {500, "server_error", "server_error", "The server had an error."},
	model.KindAuth:        {401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."},
	model.KindForbidden:   {403, "invalid_request_error", "unsupported_country_region_territory", "Not allowed."},
	model.KindQuota:       {429, "insufficient_quota", "insufficient_quota", "You exceeded your current quota."},
	model.KindNotFound:    {404, "invalid_request_error", "model_not_found", "The model does not exist."},
	model.KindContext:     {400, "invalid_request_error", "context_length_exceeded", "The input exceeds this model's context length."},
	model.KindInvalid:     {400, "invalid_request_error", "invalid_value", "The request is invalid."},
}

func refuse(w http.ResponseWriter, e refusal, retryAfter time.Duration) {
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retryAfter.Seconds()))))
		if retryAfter%time.Second != 0 {
			w.Header().Set("Retry-After-Ms", strconv.FormatInt(retryAfter.Milliseconds(), 10))
		}
	}
	var code any
	if e.code != "" {
		code = e.code
	}
	writeJSON(w, e.status, map[string]any{"error": map[string]any{
		"message": e.message, "type": e.kind, "code": code, "param": nil,
	}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error means the client is gone, which is for it to notice.
	_ = json.NewEncoder(w).Encode(v)
}

// failed words an error of the script.
func failed(err error) refusal {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return refusal{http.StatusInternalServerError, "server_error", "", err.Error()}
	}
	return refusal{http.StatusBadRequest, "invalid_request_error", e.Code, e.Message}
}

// invalid is a request that is not of the protocol.
func invalid(format string, args ...any) refusal {
	return refusal{http.StatusBadRequest, "invalid_request_error", "invalid_value", fmt.Sprintf(format, args...)}
}
