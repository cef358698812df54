// Package modelserver serves a script as a model over HTTP, on the vendors'
// wire formats, faults included. It is what `rein model-server` runs, and what
// model clients are tested against.
package modelserver

import (
	"net/http"

	"github.com/rein-sh/rein/model/script"
	"github.com/rein-sh/rein/secret"
)

// Options configure a server. The zero value asks for no key.
type Options struct {
	// Key, when set, must be presented by every request; others get 401.
	Key secret.Value
}

// Server answers requests from a script. Safe for concurrent use.
type Server struct{}

// New returns a server playing s.
func New(s *script.Script, opts Options) *Server { return &Server{} }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

// Close ends stalled replies, so that a shutdown does not wait for them.
func (s *Server) Close() {}

// Seen is what a server was asked.
type Seen struct {
	Count int    // requests for a reply, refused ones included
	Body  []byte // the last one's body
}

// Seen returns what the server was asked so far.
func (s *Server) Seen() Seen { return Seen{} }
