// Package modelserver serves a script as a model over HTTP, in the formats of
// vendors, faults included: OpenAI's Chat Completions and Responses,
// Anthropic's Messages, Google's generateContent. It is what `rein
// model-server` runs, and what the model clients are tested against.
//
// The script decides; a file for each vendor's protocol says it in that
// protocol, and refuses what that vendor refuses.
package modelserver

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
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
	// Key, when set, must be presented by every request; others are refused as
	// the vendor refuses them.
	Key secret.Value
	// Models are the names of models that are known; others are refused as the
	// vendor refuses them. Without any, every name is known.
	Models []string
}

// Server answers requests from a script. Safe for concurrent use. It must be
// served by a net/http.Server: a cut stream is made by aborting the handler
// with http.ErrAbortHandler.
type Server struct {
	script *script.Script
	player *script.Player
	key    secret.Value
	models []string
	mux    *http.ServeMux
	done   chan struct{}
	close  func()
	signed signed

	mu   sync.Mutex
	seen Seen
}

// Seen is what a server was asked.
type Seen struct {
	Count int    // requests for a reply, refused ones included
	Body  []byte // the last one's body
	// Served has what each reply was said to have used, in order; refusals have none.
	Served []model.Usage
}

var _ http.Handler = (*Server)(nil)

// BaseURLs are the addresses of a server's protocols as clients take them,
// each with the vendor's name, given the server's own address, such as
// "http://127.0.0.1:8089".
func BaseURLs(address string) [][2]string {
	return [][2]string{{"openai", address + "/v1"}, {"anthropic", address}, {"gemini", address}}
}

// New returns a server playing s.
func New(s *script.Script, opts Options) *Server {
	srv := &Server{script: s, player: s.Play(), key: opts.Key, models: opts.Models, mux: http.NewServeMux(), done: make(chan struct{})}
	srv.close = sync.OnceFunc(func() { close(srv.done) })
	for _, prefix := range []string{"/v1", ""} {
		srv.mux.Handle("POST "+prefix+"/chat/completions", srv.reply(chat{}))
		srv.mux.Handle("POST "+prefix+"/responses", srv.reply(responses{}))
		srv.mux.Handle("POST "+prefix+"/messages", srv.reply(messages{}))
		srv.mux.Handle("POST "+prefix+"/messages/count_tokens", srv.counted(messages{}, "input_tokens"))
		srv.mux.HandleFunc("GET "+prefix+"/models", srv.list)
	}
	replies, counts := srv.reply(gemini{}), srv.counted(gemini{}, "totalTokens")
	for _, prefix := range []string{"/v1beta", "/v1"} {
		srv.mux.HandleFunc("POST "+prefix+"/models/{call}", func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.PathValue("call"), ":countTokens") {
				counts.ServeHTTP(w, r)
				return
			}
			replies.ServeHTTP(w, r)
		})
	}
	srv.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotFound, object{"error": object{
			"message": "Invalid URL (" + r.Method + " " + r.URL.Path + ")", "type": "invalid_request_error", "param": nil, "code": nil,
		}})
	})
	return srv
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close ends stalled replies, so that a shutdown does not wait for them.
func (s *Server) Close() { s.close() }

// Seen returns what the server was asked so far.
func (s *Server) Seen() Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	seen.Served = slices.Clone(seen.Served)
	return seen
}

func (s *Server) served(u model.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Served = append(s.seen.Served, u)
}

func (s *Server) note(body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Count++
	s.seen.Body = body
}

// allowed reports whether the request has the key, in any vendor's way.
func (s *Server) allowed(r *http.Request) bool {
	if s.key.IsZero() {
		return true
	}
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	for _, given := range []string{bearer, r.Header.Get("X-Api-Key"), r.Header.Get("X-Goog-Api-Key")} {
		if subtle.ConstantTimeCompare([]byte(given), []byte(s.key.Reveal())) == 1 {
			return true
		}
	}
	return false
}

// protocol is what a vendor's wire looks like.
type protocol interface {
	// read translates a request, and refuses what the vendor refuses.
	read(r *http.Request, body []byte) (*ask, *refusal)
	// events are a reply's stream; the first content of them, in number, come
	// before the reason of its end.
	events(answer) (events []event, content int)
	// whole is the reply in one piece.
	whole(answer) any
	// refuse answers with an error.
	refuse(http.ResponseWriter, refusal)
	// broken is an event that is not of the protocol.
	broken() event
}

// ask is a request for a reply.
type ask struct {
	req    *model.Request
	model  string
	stream bool
	usage  bool // a stream is to tell it
	// proofs are what came back with the assistant messages of req, by position:
	// the signatures of their thinking.
	proofs map[int]string
	// signs is false when the client wants no proof of thinking.
	signs bool
	// custom are the tools that take plain text.
	custom map[string]bool
}

// answer is a reply on its way into the protocol.
type answer struct {
	*ask
	reply   *model.Reply
	created int64
	// thought and proof are the reply's thinking and its signature; "" for none.
	thought, proof string
}

// event is one of server-sent events. Data is a string or is encoded as JSON.
type event struct {
	name string
	data any
}

type object = map[string]any

// reply answers requests for a reply in a protocol.
func (s *Server) reply(p protocol) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.allowed(r) {
			s.note(nil)
			p.refuse(w, refusal{kind: model.KindAuth})
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
		s.note(body)
		if err != nil {
			e := invalid("%s", err)
			if _, large := errors.AsType[*http.MaxBytesError](err); large {
				e.status, e.code = http.StatusRequestEntityTooLarge, "request_too_large"
			}
			p.refuse(w, *e)
			return
		}
		in, bad := p.read(r, body)
		if bad == nil && len(s.models) > 0 && !slices.Contains(s.models, in.model) {
			bad = &refusal{kind: model.KindNotFound}
		}
		if bad == nil {
			bad = s.signed.check(in)
		}
		if bad != nil {
			p.refuse(w, *bad)
			return
		}
		turn, err := s.player.Next(in.req)
		if err != nil {
			p.refuse(w, failed(err))
			return
		}
		if f := turn.Fault; f != nil {
			if kind, ok := f.Refusal(); ok {
				p.refuse(w, refusal{kind: kind, after: f.RetryAfter})
				return
			}
		}
		s.served(turn.Reply.Usage)
		a := answer{ask: in, reply: turn.Reply, created: time.Now().Unix()}
		a.thought, a.proof = s.signed.sign(in, turn)
		if in.stream {
			events, content := p.events(a)
			s.stream(w, r, p, events, content, turn.Fault)
		} else {
			s.whole(w, r, p.whole(a), turn.Fault)
		}
	})
}

// counted answers how many tokens a request has: one for every four bytes. No reply
// is given, and nothing is checked but the key.
func (s *Server) counted(p protocol, field string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.allowed(r) {
			p.refuse(w, refusal{kind: model.KindAuth})
			return
		}
		n, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, MaxBody))
		if err != nil {
			p.refuse(w, *invalid("%s", err))
			return
		}
		writeJSON(w, http.StatusOK, object{field: (n + 3) / 4})
	})
}

// list names the models that are known.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	if !s.allowed(r) {
		chat{}.refuse(w, refusal{kind: model.KindAuth})
		return
	}
	names := s.models
	if len(names) == 0 {
		names = []string{s.script.Name()}
	}
	var all []object
	for _, name := range names {
		all = append(all, object{"id": name, "object": "model", "created": 0, "owned_by": "rein"})
	}
	writeJSON(w, http.StatusOK, object{"object": "list", "data": all})
}

// refusal is an error before a vendor words it: what is empty is the vendor's
// usual for the kind.
type refusal struct {
	kind          model.Kind
	status        int
	code, message string
	after         time.Duration
}

// failed words an error of the script.
func failed(err error) refusal {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return refusal{kind: model.KindUnavailable, message: err.Error()}
	}
	return refusal{kind: model.KindInvalid, code: e.Code, message: e.Message}
}

// invalid is a request that is not of the protocol.
func invalid(format string, args ...any) *refusal {
	return &refusal{kind: model.KindInvalid, message: fmt.Sprintf(format, args...)}
}

func decode(body []byte, to any) *refusal {
	if err := json.Unmarshal(body, to); err != nil {
		return invalid("The body is not JSON of the protocol: %s", err)
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error means the client is gone, which is for it to notice.
	_ = json.NewEncoder(w).Encode(v)
}
