package mcpserver

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rein-sh/rein/secret"
)

// Path is where the protocol is spoken over HTTP.
const Path = "/mcp"

// HTTPOptions say who may come over HTTP. Token is required.
type HTTPOptions struct {
	// Token is what each request has to carry (RFC 6750).
	Token secret.Value
	// Hosts are names, besides those of this host's loopback, by which requests may
	// ask for the server; without a port each port is meant.
	Hosts []string
	// Origins are those of web pages that may make requests, such as
	// https://example.org; requests of programs have none.
	Origins []string
}

// maxRequest bounds what a client may send at once, in bytes: write_file takes 1 MiB,
// which JSON may make six times as long.
const maxRequest = 8 << 20

// Handler serves the protocol at Path. A connection is a session of the protocol's: it
// ends when the client says so, or sends nothing for Options.Idle. Until then a client
// that has lost its connection finds what it made by the session's id.
func (s *Server) Handler(o HTTPOptions) http.Handler {
	streamable := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.mcp }, &mcp.StreamableHTTPOptions{
		DisableLocalhostProtection: true, // names are looked at below
		SessionTimeout:             s.o.Idle, EventStore: mcp.NewMemoryEventStore(nil), MaxRequestBodyBytes: maxRequest, Logger: s.o.Log,
	})
	mux := http.NewServeMux()
	mux.Handle(Path, streamable)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !o.host(r.Host):
			http.Error(w, "this server is not asked for by that name; --http-host allows one", http.StatusForbidden)
		case !o.origin(r.Header.Values("Origin"), r.Host):
			http.Error(w, "web pages of that origin may not ask this server; --http-origin allows one", http.StatusForbidden)
		case !o.token(r.Header.Values("Authorization")):
			w.Header().Set("WWW-Authenticate", `Bearer realm="rein mcp"`)
			http.Error(w, "the token of rein mcp is missing or wrong", http.StatusUnauthorized)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// host reports whether a request may be for that host: a page that has its name
// resolved to this one's address is not let in by that.
func (o HTTPOptions) host(asked string) bool {
	name, _, err := net.SplitHostPort(asked)
	if err != nil {
		name = asked
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if addr, err := netip.ParseAddr(name); name == "localhost" || err == nil && addr.Unmap().IsLoopback() {
		return true
	}
	return slices.ContainsFunc(o.Hosts, func(h string) bool {
		h = strings.ToLower(h)
		return h == name || h == strings.ToLower(asked)
	})
}

// origin reports whether the page that makes a request, if one does, may: it is one of
// Origins, or of the server asked, which serves none.
func (o HTTPOptions) origin(of []string, asked string) bool {
	switch {
	case len(of) == 0:
		return true
	case len(of) > 1:
		return false
	}
	u, err := url.Parse(of[0])
	return err == nil && u.Host != "" && (strings.EqualFold(u.Host, asked) || slices.ContainsFunc(o.Origins, func(allowed string) bool { return strings.EqualFold(allowed, of[0]) }))
}

// token reports whether a request has it.
func (o HTTPOptions) token(fields []string) bool {
	if len(fields) != 1 || o.Token.Reveal() == "" {
		return false
	}
	scheme, given, ok := strings.Cut(fields[0], " ")
	return ok && strings.EqualFold(scheme, "Bearer") &&
		subtle.ConstantTimeCompare([]byte(strings.TrimSpace(given)), []byte(o.Token.Reveal())) == 1
}
