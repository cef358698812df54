package opensandboxtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// timeFormat is how the server writes times.
const timeFormat = "2006-01-02T15:04:05.999999Z07:00"

func (s *Server) now() time.Time { return time.Now().Add(s.Skew) }

// invalid is an error of the framework beneath the server.
func invalid(w http.ResponseWriter, message string, loc ...any) {
	answer(w, http.StatusUnprocessableEntity, map[string]any{"detail": []any{
		map[string]any{"loc": append([]any{"body"}, loc...), "msg": message, "type": "value_error"}}})
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Image          *struct{ URI string }
		Entrypoint     []string
		Timeout        *int64
		ResourceLimits map[string]string
		Env            map[string]string
		Metadata       map[string]string
		NetworkPolicy  json.RawMessage

		CredentialProxy struct{ Enabled bool }
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		invalid(w, "JSON decode error")
		return
	}
	bad := func(code, message string) { fail(w, http.StatusBadRequest, code, message) }
	switch {
	case req.Image == nil || req.Image.URI == "":
		invalid(w, "Exactly one of image or snapshotId must be provided.")
	case len(req.Entrypoint) == 0:
		invalid(w, "entrypoint is required when image is provided.", "entrypoint")
	case req.ResourceLimits == nil:
		invalid(w, "Field required", "resourceLimits")
	case req.Timeout != nil && *req.Timeout < 60:
		invalid(w, "Input should be greater than or equal to 60", "timeout")
	case s.MaxTimeout > 0 && req.Timeout != nil && time.Duration(*req.Timeout)*time.Second > s.MaxTimeout:
		bad("SANDBOX::INVALID_PARAMETER", fmt.Sprintf("Sandbox timeout %ds exceeds the maximum of %ds.", *req.Timeout, int(s.MaxTimeout.Seconds())))
	case s.NoPolicy && req.NetworkPolicy != nil:
		bad("SANDBOX::INVALID_PARAMETER", "networkPolicy is not supported when docker network_mode=host.")
	case req.CredentialProxy.Enabled && s.Enforcement == "dns":
		bad("SANDBOX::INVALID_PARAMETER", `credentialProxy.enabled requires server [egress].mode = "dns+nft".`)
	case reserved(req.Metadata):
		bad("SANDBOX::INVALID_METADATA_LABEL", "Metadata keys under opensandbox.io/ are reserved.")
	default:
		b := &box{id: newID(16), created: s.now(), image: req.Image.URI, labels: req.Metadata, entrypoint: req.Entrypoint,
			policy: req.NetworkPolicy, proxy: req.CredentialProxy.Enabled, token: newID(12), pending: s.Slow, stopping: -1, own: map[int]*ownExecd{}}
		if req.Timeout != nil {
			b.timeout = time.Duration(*req.Timeout) * time.Second
		}
		s.made(w, b, req.Env)
	}
}

func reserved(labels map[string]string) bool {
	for k := range labels {
		if strings.HasPrefix(k, "opensandbox.io/") {
			return true
		}
	}
	return false
}

// made starts the machine of a sandbox and answers.
func (s *Server) made(w http.ResponseWriter, b *box, env map[string]string) {
	ttl := b.timeout
	if ttl == 0 {
		ttl = 24 * time.Hour
	}
	// Not the request's context: a client that goes away changes nothing.
	info, err := s.Machines.Create(context.Background(), sandbox.Spec{TTL: ttl, Env: env, Cwd: "/root"})
	if err != nil {
		fail(w, http.StatusInternalServerError, "DOCKER::SANDBOX_START_FAILED", err.Error())
		return
	}
	b.inner, b.ends = info.ID, info.ExpiresAt
	s.mu.Lock()
	if s.boxes == nil {
		s.boxes = map[string]*box{}
	}
	s.boxes[b.id] = b
	s.mu.Unlock()
	view := s.view(b)
	delete(view, "image")
	answer(w, http.StatusAccepted, view)
}

// box finds a live sandbox, or answers that there is none.
func (s *Server) box(w http.ResponseWriter, r *http.Request) *box {
	id := r.PathValue("id")
	s.mu.Lock()
	b := s.boxes[id]
	s.mu.Unlock()
	if b != nil {
		if _, err := s.Machines.Get(context.Background(), b.inner); err == nil || b.stopping >= 0 {
			return b
		}
	}
	fail(w, http.StatusNotFound, "DOCKER::SANDBOX_NOT_FOUND", "Sandbox "+id+" not found.")
	return nil
}

// view is a sandbox as it is sent.
func (s *Server) view(b *box) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, reason := cmp.Or(s.State, "Running"), "CONTAINER_RUNNING"
	inner, err := s.Machines.Get(context.Background(), b.inner)
	switch {
	case b.stopping >= 0:
		state, reason = "Stopping", "DELETING"
	case b.pending > 0:
		state, reason = "Pending", "POD_SCHEDULED"
	case b.paused:
		state, reason = "Paused", "CONTAINER_PAUSED"
	case err == nil && inner.State == sandbox.StateLost:
		state, reason = "Failed", "CONTAINER_EXITED_ERROR"
	}
	v := map[string]any{
		"id": b.id, "createdAt": b.created.UTC().Format(timeFormat), "entrypoint": b.entrypoint, "metadata": b.labels,
		"image":  map[string]string{"uri": b.image},
		"status": map[string]string{"state": state, "reason": reason, "message": "Sandbox container is " + strings.ToLower(state) + "."},
		"future": []int{1}, // unknown to every client
	}
	if b.timeout > 0 {
		v["expiresAt"] = b.ends.Add(s.Skew).UTC().Format(timeFormat)
	}
	return v
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	b := s.box(w, r)
	if b == nil {
		return
	}
	s.mu.Lock()
	if b.pending > 0 {
		b.pending--
	}
	gone := b.stopping == 0
	if gone {
		delete(s.boxes, b.id)
	} else if b.stopping > 0 {
		b.stopping--
	}
	s.mu.Unlock()
	if gone {
		fail(w, http.StatusNotFound, "KUBERNETES::SANDBOX_NOT_FOUND", "Sandbox "+b.id+" not found.")
		return
	}
	answer(w, http.StatusOK, s.view(b))
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	filter, err := url.ParseQuery(q.Get("metadata"))
	if err != nil {
		fail(w, http.StatusBadRequest, "INVALID_METADATA_FORMAT", "malformed metadata filter")
		return
	}
	n, size := number(q.Get("page"), 1), number(q.Get("pageSize"), 20)
	if n < 1 || size < 1 || size > 200 {
		invalid(w, "Input should be less than or equal to 200", "query", "pageSize")
		return
	}
	s.mu.Lock()
	var all []*box
	for _, b := range s.boxes {
		match := true
		for k, v := range filter {
			match = match && b.labels[k] == v[0]
		}
		if _, err := s.Machines.Get(context.Background(), b.inner); match && err == nil && b.stopping < 0 {
			all = append(all, b)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *box) int { return b.created.Compare(a.created) })
	items := []any{}
	for i, b := range all {
		if i >= (n-1)*size && i < n*size {
			items = append(items, s.view(b))
		}
	}
	answer(w, http.StatusOK, map[string]any{"items": items, "pagination": map[string]any{"page": n, "pageSize": size,
		"totalItems": len(all), "totalPages": (len(all) + size - 1) / size, "hasNextPage": n*size < len(all)}})
}

func number(text string, otherwise int) int {
	if text == "" {
		return otherwise
	}
	n, _ := strconv.Atoi(text)
	return n
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	b := s.box(w, r)
	if b == nil {
		return
	}
	if err := s.Machines.Kill(context.Background(), b.inner); err != nil {
		fail(w, http.StatusInternalServerError, "DOCKER::SANDBOX_DELETE_FAILED", err.Error())
		return
	}
	s.mu.Lock()
	clear(b.own)
	if b.stopping < 0 {
		b.stopping = s.Slow
	}
	if s.Slow == 0 {
		delete(s.boxes, b.id)
	}
	s.mu.Unlock()
	nothing(w, http.StatusNoContent)
}

func (s *Server) renew(w http.ResponseWriter, r *http.Request) {
	b := s.box(w, r)
	if b == nil {
		return
	}
	var req struct{ ExpiresAt time.Time }
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		invalid(w, "Input should be a valid datetime", "expiresAt")
		return
	}
	until := req.ExpiresAt.Add(-s.Skew)
	if b.timeout == 0 {
		fail(w, http.StatusConflict, "DOCKER::INVALID_EXPIRATION", "Sandbox does not have automatic expiration enabled.")
		return
	}
	end, err := s.Machines.Renew(context.Background(), b.inner, until)
	switch {
	case sandbox.KindOf(err) == sandbox.KindNotFound:
		fail(w, http.StatusNotFound, "DOCKER::SANDBOX_NOT_FOUND", "Sandbox "+b.id+" not found.")
	case err != nil:
		fail(w, http.StatusBadRequest, "DOCKER::INVALID_EXPIRATION", "New expiration time must be in the future.")
	default:
		s.mu.Lock()
		b.ends = end
		s.mu.Unlock()
		answer(w, http.StatusOK, map[string]string{"expiresAt": end.Add(s.Skew).UTC().Format(timeFormat)})
	}
}

func (s *Server) pause(w http.ResponseWriter, r *http.Request) {
	b := s.box(w, r)
	if b == nil {
		return
	}
	s.mu.Lock()
	was := b.paused
	b.paused = b.paused || !s.NoPause
	s.mu.Unlock()
	switch {
	case s.NoPause:
		fail(w, http.StatusBadRequest, "KUBERNETES::INVALID_STATE", "Pause is not supported by this workload provider.")
	case was: // a defect of the original
		fail(w, http.StatusInternalServerError, "DOCKER::SANDBOX_PAUSE_FAILED", "Container is already paused")
	default:
		nothing(w, http.StatusAccepted)
	}
}

// resume gives the ports new addresses.
func (s *Server) resume(w http.ResponseWriter, r *http.Request) {
	b := s.box(w, r)
	if b == nil {
		return
	}
	s.mu.Lock()
	was := b.paused
	if was {
		b.paused = false
		b.generation++
	}
	s.mu.Unlock()
	if !was {
		fail(w, http.StatusConflict, "DOCKER::SANDBOX_NOT_PAUSED", "Sandbox is not in a paused state.")
		return
	}
	nothing(w, http.StatusAccepted)
}

// ingress is the header that endpoints behind a gateway want.
const ingress = "OpenSandbox-Ingress-To"

// endpoint gives the address of a port: below execd's own proxy, as with
// Docker, or through the server.
func (s *Server) endpoint(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil || port < 1 || port > 65535 {
		fail(w, http.StatusBadRequest, "DOCKER::INVALID_PORT", "Port must be between 1 and 65535.")
		return
	}
	b := s.box(w, r)
	if b == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	headers := map[string]string{}
	if port == egressPort {
		headers["OPENSANDBOX-EGRESS-AUTH"] = b.token
	}
	if s.ExecdToken != "" {
		headers["X-EXECD-ACCESS-TOKEN"] = s.ExecdToken
	}
	address := fmt.Sprintf("%s/sandboxes/%s/proxy/%d", r.Host, b.id, port)
	if r.URL.Query().Get("use_server_proxy") != "true" {
		address = fmt.Sprintf("%s/direct/%s/%d/proxy/%d", r.Host, b.id, b.generation, port)
		if s.Prefix != "" {
			address = fmt.Sprintf("%s/gateway/%s/%s/%d/proxy/%d", r.Host, s.Prefix, b.id, b.generation, port)
			headers[ingress] = fmt.Sprintf("%s-%d", b.id, port)
		}
	}
	if s.Pods && port == egressPort {
		address = fmt.Sprintf("%s/pods/%s/%d", r.Host, b.id, port)
	}
	answer(w, http.StatusOK, map[string]any{"endpoint": address, "headers": headers})
}
