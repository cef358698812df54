package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"strings"
)

// page is the answer to a request that was not carried.
type page struct {
	Error  string `json:"error"` // for programs: "refused", "malformed" or "unreachable"
	Host   string `json:"host,omitempty"`
	Port   uint16 `json:"port,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason"`
}

// writePage answers with p: in JSON when the client asked for it, in text else.
func writePage(rw http.ResponseWriter, r *http.Request, status int, p page) {
	what := "this request was refused"
	switch p.Error = "refused"; status {
	case http.StatusBadRequest:
		p.Error, what = "malformed", "this request was refused, because it is not proper HTTP"
	case http.StatusBadGateway:
		p.Error, what = "unreachable", "this request is allowed, and the server could not be reached"
	}
	h := rw.Header()
	clear(h)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodConnect || isWebSocket(r.Header) {
		h.Set("Connection", "close") // what follows the request is no HTTP
	}
	if asksForJSON(r) {
		h.Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		_ = json.NewEncoder(rw).Encode(p) // fails only when the client has gone
		return
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	rw.WriteHeader(status)
	text := "rein: " + what + "\n"
	if p.Host != "" {
		text += fmt.Sprintf("target: %s port %d\n", p.Host, p.Port)
	}
	if p.Rule != "" {
		text += "rule:   " + p.Rule + "\n"
	}
	_, _ = fmt.Fprintf(rw, "%sreason: %s\n", text, p.Reason) // fails only when the client has gone
}

// asksForJSON reports whether a client says that it takes JSON, and not that it
// takes pages for people.
func asksForJSON(r *http.Request) bool {
	json := false
	for _, accept := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(accept, ",") {
			switch kind, _, err := mime.ParseMediaType(part); {
			case err != nil:
			case kind == "text/html":
				return false
			case kind == "application/json", strings.HasSuffix(kind, "+json"):
				json = true
			}
		}
	}
	return json
}

// unreached is why the host's side of a connection was not made. Its text is for
// the record alone: it may name the host's resolvers and its proxy.
type unreached struct {
	told string // what the sandbox is told
	err  error
}

func (u *unreached) Error() string { return u.err.Error() }
func (u *unreached) Unwrap() error { return u.err }

// unresolved is the *unreached of a name.
func unresolved(err error) error {
	if errors.Is(err, errNoAddress) {
		return &unreached{"its name has no address", err}
	}
	return &unreached{"its name could not be resolved", err}
}

// toldOf is what the sandbox is told of an error: nothing of the host's addresses.
func toldOf(err error) string {
	if u, ok := errors.AsType[*unreached](err); ok {
		return u.told
	}
	if o, ok := errors.AsType[*net.OpError](err); ok {
		return o.Op + ": " + o.Err.Error()
	}
	return err.Error()
}
