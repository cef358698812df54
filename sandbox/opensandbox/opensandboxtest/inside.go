package opensandboxtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

const egressPort = 18080

// direct is an endpoint of a sandbox: its execd.
func (s *Server) direct(w http.ResponseWriter, r *http.Request) {
	b := s.box(w, r)
	if b == nil {
		return
	}
	s.mu.Lock()
	moved := strconv.Itoa(b.generation) != r.PathValue("generation")
	s.mu.Unlock()
	_, rest, _ := strings.Cut(r.URL.Path, b.id+"/"+r.PathValue("generation"))
	switch {
	case moved: // the address is nobody's any more
		Cut(w, r, nil)
	case r.PathValue("prefix") != s.Prefix || s.Prefix != "" && !strings.HasPrefix(r.Header.Get(ingress), b.id):
		http.Error(w, "no such route", http.StatusNotFound)
	default:
		s.inside(w, r, b, rest)
	}
}

// proxied is the server's own proxy. It asks for no key, and passes none on.
func (s *Server) proxied(w http.ResponseWriter, r *http.Request) {
	b := s.box(w, r)
	if b == nil {
		return
	}
	for _, h := range []string{"Authorization", "Cookie", "OPEN-SANDBOX-API-KEY"} {
		r.Header.Del(h)
	}
	s.inside(w, r, b, "/proxy/"+r.PathValue("port")+"/"+r.PathValue("path"))
}

// pod is a port of a sandbox by an address of its own.
func (s *Server) pod(w http.ResponseWriter, r *http.Request) {
	if b := s.box(w, r); b != nil {
		s.inside(w, r, b, "/proxy/"+r.PathValue("port")+"/"+r.PathValue("path"))
	}
}

// inside serves a path of the sandbox's execd.
func (s *Server) inside(w http.ResponseWriter, r *http.Request, b *box, path string) {
	s.mu.Lock()
	paused := b.paused
	s.mu.Unlock()
	if paused {
		fail(w, http.StatusBadGateway, "GENERAL::UNKNOWN_ERROR", "Could not connect to the backend sandbox")
		return
	}
	ep, err := s.Machines.Endpoint(r.Context(), b.inner, execd.Port)
	if err != nil {
		fail(w, http.StatusBadGateway, "GENERAL::UNKNOWN_ERROR", err.Error())
		return
	}
	e := Execd{
		Daemon: forward(ep), Token: s.ExecdToken, Tail: s.Tail,
		Port:    func(port int) http.Handler { return s.port(b, port, ep) },
		Run:     func(id string, req execd.RunRequest) (string, bool) { return s.program(b, ep, id, req) },
		End:     func(id string) bool { return s.end(b, id) },
		Wrapped: s.faulty,
	}
	r2 := r.Clone(r.Context())
	r2.URL.Path, r2.URL.RawPath = path, ""
	e.ServeHTTP(w, r2)
}

// forward is the daemon of a machine.
func forward(ep sandbox.Endpoint) http.Handler {
	u, _ := url.Parse(ep.BaseURL)
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = u.Scheme, u.Host, u.Host
			for k, v := range ep.Header {
				r.Out.Header[http.CanonicalHeaderKey(k)] = v // they are written in any way
			}
		},
		Transport:     &http.Transport{DialContext: ep.DialContext, DisableKeepAlives: true},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // cut connections are what tests are about
	}
}

// port is what listens inside a sandbox besides execd.
func (s *Server) port(b *box, port int, ep sandbox.Endpoint) http.Handler {
	if port == egressPort {
		policy := s.faulty(Policy, func(w http.ResponseWriter, r *http.Request) { s.sidecar(w, r, b) })
		keys := s.faulty(Keys, func(w http.ResponseWriter, r *http.Request) { s.keys(w, r, b) })
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/credential-vault" && s.Vault != nil {
				keys(w, r)
				return
			}
			policy(w, r)
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := b.own[port]; o != nil && !s.Deaf {
		return o.handler(forward(ep))
	}
	return nil
}

// sidecar answers for the network policy; its errors are plain text.
func (s *Server) sidecar(w http.ResponseWriter, r *http.Request, b *box) {
	enforcement := s.Enforcement
	if enforcement == "" {
		enforcement = "dns+nft"
	}
	ServePolicy(w, r, b.token, func() (json.RawMessage, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.DropPolicy {
			return nil, enforcement
		}
		return b.policy, enforcement
	}, func(policy json.RawMessage) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b.policy = policy
	})
}

// keys answers for the credential vault.
func (s *Server) keys(w http.ResponseWriter, r *http.Request, b *box) {
	if r.Header.Get("OPENSANDBOX-EGRESS-AUTH") != b.token {
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	policy := b.policy
	s.mu.Unlock()
	s.Vault.Serve(w, r, b.proxy, policy)
}

// ServePolicy serves the sidecar's GET /policy, PUT /policy when put is not nil,
// and /healthz.
func ServePolicy(w http.ResponseWriter, r *http.Request, token string, current func() (policy json.RawMessage, enforcement string), put func(json.RawMessage)) {
	switch {
	case r.URL.Path == "/healthz":
		fmt.Fprint(w, "ok")
	case token != "" && r.Header.Get("OPENSANDBOX-EGRESS-AUTH") != token:
		http.Error(w, "unauthorized", http.StatusUnauthorized)
	case r.URL.Path != "/policy":
		http.NotFound(w, r)
	case r.Method == http.MethodPut && put != nil:
		putPolicy(w, r, put)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	default:
		raw, enforcement := current()
		policy := struct {
			DefaultAction string            `json:"defaultAction"`
			Egress        []json.RawMessage `json:"egress,omitempty"`
		}{}
		if raw == nil {
			policy.DefaultAction = "allow"
		} else if json.Unmarshal(raw, &policy) != nil || policy.DefaultAction == "" {
			policy.DefaultAction = "deny"
		}
		mode := policy.DefaultAction + "_all"
		if len(policy.Egress) > 0 {
			mode = "enforcing"
		}
		answer(w, http.StatusOK, map[string]any{"status": "ok", "mode": mode, "enforcementMode": enforcement, "policy": policy})
	}
}

// putPolicy takes a policy whose actions are known, as the original does.
func putPolicy(w http.ResponseWriter, r *http.Request, put func(json.RawMessage)) {
	raw, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	var policy struct {
		Egress []struct{ Action, Target string }
	}
	if err == nil {
		err = json.Unmarshal(raw, &policy)
	}
	for _, rule := range policy.Egress {
		if rule.Action != "allow" && rule.Action != "deny" {
			err = fmt.Errorf("unsupported action %q", rule.Action)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	put(raw)
	answer(w, http.StatusOK, map[string]any{"status": "ok", "mode": "enforcing", "enforcementMode": "dns+nft"})
}

// ownExecd stands for a rein-execd that was uploaded and started in a machine
// that can run no programs: it gives the machine's daemon as it is.
type ownExecd struct {
	boot execd.Boot
	id   string // of the command that it is
}

// end ends a rein-execd by the command that it is.
func (s *Server) end(b *box, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for port, o := range b.own {
		if o.id == id {
			delete(b.own, port)
			return true
		}
	}
	return false
}

// Planted is how many rein-execds run in all sandboxes, and how many were
// started.
func (s *Server) Planted() (running, started int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		running += len(b.own)
	}
	return running, s.planted
}

func (o *ownExecd) handler(next http.Handler) http.Handler {
	token := o.boot.Token
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(execd.TokenHeader) != token {
			fail(w, http.StatusUnauthorized, execd.CodeUnauthorized, "the token is wrong")
			return
		}
		if r.Method == http.MethodPost && r.URL.Path == "/command" {
			o.begin(r)
		}
		next.ServeHTTP(w, r)
	})
}

// begin has a command start with what the boot message says.
func (o *ownExecd) begin(r *http.Request) {
	var req execd.RunRequest
	if json.NewDecoder(r.Body).Decode(&req) != nil {
		return // refused by the daemon as an empty body
	}
	if req.Cwd == "" {
		req.Cwd = o.boot.Cwd
	}
	envs := maps.Clone(o.boot.Env)
	maps.Copy(envs, req.Envs)
	req.Envs = envs
	b, err := json.Marshal(req)
	if err != nil {
		panic(err) // plain strings and numbers
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
}

// started is a command that starts a program with its boot message as input.
var started = regexp.MustCompile(`exec '(\S+)'/rein-execd; } < '(\S+)'/boot$`)

// program plays what programs do that a machine without processes cannot run:
// say what the sandbox is like, and be rein-execd.
func (s *Server) program(b *box, ep sandbox.Endpoint, id string, req execd.RunRequest) (string, bool) {
	if strings.Contains(req.Command, "uname -m") {
		machine, dir := s.Machine, "dir=/tmp\n"
		if machine == "" {
			machine = "x86_64"
		}
		if s.NoExec {
			dir = ""
		}
		// PATH=/usr/bin:/bin, IMAGE=its own
		return fmt.Sprintf("machine=%s\nuid=0\nhome=/home/user\n%srun=yes\nenv=UEFUSD0vdXNyL2JpbjovYmluAElNQUdFPWl0cyBvd24A\n", machine, dir), true
	}
	m := started.FindStringSubmatch(req.Command)
	if m == nil {
		return "", false
	}
	c := execd.NewClient(execd.Options{BaseURL: ep.BaseURL, Header: ep.Header, DialContext: ep.DialContext})
	defer c.Close()
	ctx := context.Background()
	head, err := read(ctx, c, m[1]+"/rein-execd", 4)
	if err != nil || !bytes.Equal(head, []byte("\x7fELF")) {
		return "", true // nothing starts
	}
	text, err := read(ctx, c, m[2]+"/boot", 0)
	o := &ownExecd{id: id}
	if err != nil || json.Unmarshal(text, &o.boot) != nil {
		return "", true
	}
	_ = c.Remove(ctx, "", m[2]+"/boot")
	_, port, _ := strings.Cut(o.boot.Listen, ":")
	n, err := strconv.Atoi(port)
	if err != nil || !o.boot.Guest || o.boot.Token == "" || !strings.HasPrefix(o.boot.Listen, "127.0.0.1:") {
		return "", true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.own[n] = o
	s.planted++
	return "", true
}

func read(ctx context.Context, c *execd.Client, path string, length int64) ([]byte, error) {
	d, err := c.Download(ctx, execd.DownloadRequest{Path: path, Length: length})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var buf bytes.Buffer
	_, err = buf.ReadFrom(d)
	return buf.Bytes(), err
}

// Deafen ends every rein-execd, and lets none answer again.
func (s *Server) Deafen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		clear(b.own)
	}
	s.Deaf = true
}
