package mcpserver_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rein-sh/rein/internal/mcpserver"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/tool"
)

const token = "a-token-of-some-length"

// bearer adds the token to requests.
type bearer struct{ next http.RoundTripper }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return b.next.RoundTrip(r)
}

// web serves a host over HTTP until the test ends.
func web(t *testing.T, h *host) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h.Handler(mcpserver.HTTPOptions{Token: secret.New("token", token), Hosts: []string{"tools.example.org"}, Origins: []string{"https://example.org"}}))
	t.Cleanup(func() { // what streams are open ends with the clients
		h.Close()
		s.Close()
	})
	return s
}

// dial is a client over HTTP.
func dial(t *testing.T, s *httptest.Server, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "tester", Version: "1"}, o).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: s.URL + mcpserver.Path, HTTPClient: &http.Client{Transport: bearer{s.Client().Transport}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Clients over HTTP have sandboxes of their own, which end with their sessions.
func TestHTTP(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	s := web(t, h)
	a, b := dial(t, s, nil), dial(t, s, nil)
	ra := call(t, a, tool.RunCommand, map[string]any{"command": "touch mine; pwd"})
	rb := call(t, b, tool.RunCommand, map[string]any{"command": "test ! -e mine"})
	if !ra.OK || !rb.OK || ra.SandboxID == rb.SandboxID {
		t.Errorf("%+v, %+v", ra, rb)
	}
	if err := a.Close(); err != nil { // which ends the session
		t.Error(err)
	}
	if r := call(t, b, tool.RunCommand, map[string]any{"command": "true"}); !r.OK {
		t.Errorf("%+v", r)
	}
	_ = b.Close()
	h.Close()
	if reports := h.reports(); len(reports) != 2 || reports[0].Reason != run.Done || !reports[0].Cleanup.OK || !reports[1].Cleanup.OK {
		t.Errorf("%+v", reports)
	}
}

// Who may not ask reaches nothing.
func TestHTTPRefuses(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	s := web(t, h)
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	for what, c := range map[string]struct {
		host, origin, auth string
		path               string
		want               int
	}{
		"all that is needed":     {"", "", "Bearer " + token, mcpserver.Path, 200},
		"any case":               {"", "", "bearer " + token, mcpserver.Path, 200},
		"a name that may be":     {"tools.example.org:80", "", "Bearer " + token, mcpserver.Path, 200},
		"by name":                {"localhost", "", "Bearer " + token, mcpserver.Path, 200},
		"an origin that may be":  {"", "https://example.org", "Bearer " + token, mcpserver.Path, 200},
		"no token":               {"", "", "", mcpserver.Path, 401},
		"another token":          {"", "", "Bearer " + token + "x", mcpserver.Path, 401},
		"a part of it":           {"", "", "Bearer " + token[1:], mcpserver.Path, 401},
		"another scheme":         {"", "", "Basic " + token, mcpserver.Path, 401},
		"another name":           {"rebound.example.org", "", "Bearer " + token, mcpserver.Path, 403},
		"a name like it":         {"localhost.example.org", "", "Bearer " + token, mcpserver.Path, 403},
		"an address":             {"192.0.2.1", "", "Bearer " + token, mcpserver.Path, 403},
		"another origin":         {"", "https://example.org.example.com", "Bearer " + token, mcpserver.Path, 403},
		"no origin":              {"", "null", "Bearer " + token, mcpserver.Path, 403},
		"the origin's http":      {"", "http://example.org", "Bearer " + token, mcpserver.Path, 403},
		"another path":           {"", "", "Bearer " + token, "/other", 404},
		"another path, no token": {"", "", "", "/other", 401},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+c.path, strings.NewReader(hello))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for name, value := range map[string]string{"Origin": c.origin, "Authorization": c.auth} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", what, resp.StatusCode, c.want)
		}
	}
}

// A client whose connection breaks goes on in its sandbox, by its session's id.
func TestHTTPAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t, nil)
	s := web(t, h)
	c := dial(t, s, nil)
	first := call(t, c, tool.RunCommand, map[string]any{"command": "echo kept >f"})
	s.CloseClientConnections()
	read := &mcp.CallToolParams{Name: tool.RunCommand, Arguments: map[string]any{"command": "cat f"}}
	res, err := c.CallTool(t.Context(), read)
	if err != nil { // on the connection that was broken
		res, err = c.CallTool(t.Context(), read)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := resultOf(t, res); r.Stdout != "kept\n" || r.SandboxID != first.SandboxID {
		t.Errorf("%+v", r)
	}
	_ = c.Close()
}
