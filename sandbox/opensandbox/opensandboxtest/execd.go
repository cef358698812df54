package opensandboxtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/rein-sh/rein/execd"
)

// Execd makes of rein's daemon one like OpenSandbox's: without rein's additions,
// and with what the original does differently.
type Execd struct {
	// Daemon is rein's; requests to it need no token.
	Daemon http.Handler
	// Token is asked for on every route; empty: none is.
	Token string
	// Tail is how long a stream stays open after its last event: a second with
	// the original.
	Tail time.Duration
	// Port is what listens on a local port, for /proxy; nil: nothing.
	Port func(port int) http.Handler
	// Run, when set, may run a command in place of the daemon, under an id: it
	// returns its output, and whether it did. End ends what goes on afterwards,
	// and reports whether there was anything.
	Run func(id string, req execd.RunRequest) (string, bool)
	End func(id string) bool
	// Wrapped, when set, is given the handlers of Command and Upload.
	Wrapped func(route string, h http.HandlerFunc) http.HandlerFunc
}

// ServeHTTP serves OpenSandbox's routes.
func (e Execd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if e.Token != "" && r.Header.Get(execd.TokenHeader) != e.Token {
		answer(w, http.StatusUnauthorized, map[string]string{"error": "Unauthorized: invalid or missing header X-EXECD-ACCESS-TOKEN"})
		return
	}
	wrapped := e.Wrapped
	if wrapped == nil {
		wrapped = func(_ string, h http.HandlerFunc) http.HandlerFunc { return h }
	}
	switch p := r.URL.Path; {
	case strings.HasPrefix(p, "/proxy/"):
		e.proxy(w, r)
	case p == "/ping":
		e.pass(w, r, nil)
	case p == "/command" && r.Method == http.MethodPost:
		wrapped(Command, e.run)(w, r)
	case p == "/command" && r.Method == http.MethodDelete:
		e.interrupt(w, r)
	case strings.HasPrefix(p, "/command/"):
		e.ask(w, r)
	case p == "/session" && r.Method == http.MethodPost:
		e.createSession(w, r)
	case strings.HasPrefix(p, "/session/") && strings.HasSuffix(p, "/run") && r.Method == http.MethodPost:
		e.runInSession(w, r)
	case strings.HasPrefix(p, "/session/") && r.Method == http.MethodDelete:
		e.pass(w, r, nil)
	case p == "/pty" && r.Method == http.MethodPost:
		e.createTerminal(w, r)
	case strings.HasPrefix(p, "/pty/"):
		e.terminal(w, r)
	case p == "/files/upload":
		wrapped(Upload, e.upload)(w, r)
	case p == "/files" && r.Method == http.MethodDelete, p == "/files/mv", p == "/directories" && r.Method == http.MethodPost:
		e.pass(w, r, map[int]int{http.StatusConflict: http.StatusInternalServerError, http.StatusBadRequest: http.StatusInternalServerError})
	case strings.HasPrefix(p, "/files/"), strings.HasPrefix(p, "/directories"), strings.HasPrefix(p, "/metrics"):
		e.pass(w, r, nil)
	default:
		http.Error(w, "404 page not found", http.StatusNotFound)
	}
}

// proxy reaches other ports of the sandbox, and this one.
func (e Execd) proxy(w http.ResponseWriter, r *http.Request) {
	text, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/proxy/"), "/")
	if text == "" {
		http.Error(w, "port is required", http.StatusBadRequest)
		return
	}
	port, _ := strconv.Atoi(text)
	r2 := r.Clone(r.Context())
	r2.URL.Path, r2.URL.RawPath = "/"+rest, ""
	r2.RequestURI = ""
	if port == execd.Port {
		e.ServeHTTP(w, r2)
		return
	}
	var h http.Handler
	if e.Port != nil {
		h = e.Port(port)
	}
	if h == nil {
		http.Error(w, "Bad Gateway", http.StatusBadGateway)
		return
	}
	h.ServeHTTP(w, r2)
}

// daemon makes a request of rein's daemon and returns its whole answer.
func (e Execd) daemon(r *http.Request, body io.Reader) *recorded {
	r2 := r.Clone(r.Context())
	q := r2.URL.Query()
	for _, added := range []string{"root", "hash", "sha256", "limit"} {
		if added != "limit" || strings.HasPrefix(r.URL.Path, "/command/") {
			q.Del(added)
		}
	}
	r2.URL.RawQuery = q.Encode()
	if body != nil {
		r2.Body, r2.ContentLength = io.NopCloser(body), -1
	}
	rec := &recorded{header: http.Header{}, status: http.StatusOK}
	e.Daemon.ServeHTTP(rec, r2)
	return rec
}

type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header         { return r.header }
func (r *recorded) WriteHeader(status int)      { r.status = status }
func (r *recorded) Write(b []byte) (int, error) { return r.body.Write(b) }

// send passes an answer on. Errors of the daemon that the original has under
// another status are given that one.
func (r *recorded) send(w http.ResponseWriter, statuses map[int]int) {
	for k, v := range r.header {
		if !strings.HasPrefix(k, "X-Rein-") {
			w.Header()[k] = v
		}
	}
	if s, ok := statuses[r.status]; ok {
		r.status = s
	}
	if r.status == http.StatusOK && r.body.Len() == 0 {
		w.Header().Set("Content-Length", "0")
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body.Bytes())
}

// pass passes a request through, without rein's parameters.
func (e Execd) pass(w http.ResponseWriter, r *http.Request, statuses map[int]int) {
	e.daemon(r, nil).send(w, statuses)
}

// upload takes rein's members out of the metadata, and says nothing of what was
// written.
func (e Execd) upload(w http.ResponseWriter, r *http.Request) {
	r2 := r.Clone(r.Context()) // before its reader is taken, which is noted in it
	parts, err := r.MultipartReader()
	if err != nil {
		fail(w, http.StatusBadRequest, "INVALID_FILE", err.Error())
		return
	}
	in, out := io.Pipe()
	mw := multipart.NewWriter(out)
	go func() { out.CloseWithError(copyParts(mw, parts)) }()
	r2.Header.Set("Content-Type", mw.FormDataContentType())
	rec := e.daemon(r2, in)
	in.CloseWithError(io.ErrClosedPipe)
	if rec.status == http.StatusOK {
		rec.body.Reset()
	}
	rec.header.Del("Content-Length")
	rec.send(w, nil)
}

func copyParts(mw *multipart.Writer, parts *multipart.Reader) error {
	for {
		p, err := parts.NextRawPart()
		if err == io.EOF {
			return mw.Close()
		}
		if err != nil {
			return err
		}
		h := textproto.MIMEHeader{}
		for k, v := range p.Header {
			h[k] = v
		}
		w, err := mw.CreatePart(h)
		if err != nil {
			return err
		}
		if p.FormName() != "metadata" {
			if _, err := io.Copy(w, p); err != nil {
				return err
			}
			continue
		}
		var meta map[string]any
		if err := json.NewDecoder(p).Decode(&meta); err != nil {
			return err
		}
		delete(meta, "rein")
		if err := json.NewEncoder(w).Encode(meta); err != nil {
			return err
		}
	}
}

// ask is the status or the log of a command.
func (e Execd) ask(w http.ResponseWriter, r *http.Request) {
	rec := e.daemon(r, nil)
	logs := strings.HasSuffix(r.URL.Path, "/logs")
	switch {
	case rec.status == http.StatusNotFound && logs, rec.status == http.StatusConflict:
		fail(w, http.StatusBadRequest, execd.CodeInvalidBody, "command not found or not running in the background")
		return
	case rec.status == http.StatusNotFound:
		fail(w, http.StatusNotFound, execd.CodeInvalidBody, "command not found")
		return
	case rec.status == http.StatusOK && !logs:
		var st map[string]any
		if json.Unmarshal(rec.body.Bytes(), &st) == nil {
			delete(st, "rein")
			rec.body.Reset()
			_ = json.NewEncoder(&rec.body).Encode(st)
			rec.header.Del("Content-Length")
		}
	}
	rec.send(w, nil)
}

// interrupt has one answer for what is not known and what has ended.
func (e Execd) interrupt(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("id") == "" {
		fail(w, http.StatusBadRequest, execd.CodeMissingQuery, "missing query parameter 'id'")
		return
	}
	if e.End != nil && e.End(r.URL.Query().Get("id")) {
		nothing(w, http.StatusOK)
		return
	}
	rec := e.daemon(r, nil)
	if rec.status == http.StatusNotFound || rec.status == http.StatusConflict {
		fail(w, http.StatusInternalServerError, execd.CodeRuntime, "no such process")
		return
	}
	rec.send(w, nil)
}

// run streams a command.
func (e Execd) run(w http.ResponseWriter, r *http.Request) {
	var req execd.RunRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		fail(w, http.StatusBadRequest, execd.CodeInvalidBody, err.Error())
		return
	}
	req.Rein = nil
	if e.Run != nil {
		id := newID(16)
		if out, ok := e.Run(id, req); ok {
			ran(w, id, out)
			return
		}
	}
	b, err := json.Marshal(req)
	if err != nil {
		panic(err) // plain strings and numbers
	}
	// A client that goes away ends nothing.
	r2 := r.Clone(context.WithoutCancel(r.Context()))
	r2.Body, r2.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	e.Daemon.ServeHTTP(&events{ResponseWriter: w}, r2)
	t := time.NewTimer(e.Tail)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
}

// ran is the stream of a command that another has run.
func ran(w http.ResponseWriter, id, out string) {
	w.Header().Set("Content-Type", "text/event-stream")
	now := time.Now().UnixMilli()
	send := func(kind, text string) {
		b, _ := json.Marshal(execd.Event{Type: kind, Text: text, Timestamp: now})
		fmt.Fprintf(w, "%s\n\n", b)
	}
	send(execd.EventInit, id)
	for line := range strings.Lines(out) {
		send(execd.EventStdout, strings.TrimSuffix(line, "\n"))
	}
	send(execd.EventComplete, "")
}

// events takes rein's members out of the events of a stream.
type events struct {
	http.ResponseWriter
	rest []byte
}

func (e *events) Write(b []byte) (int, error) {
	e.rest = append(e.rest, b...)
	end := bytes.LastIndexByte(e.rest, '\n') + 1
	var out []byte
	for line := range bytes.Lines(e.rest[:end]) {
		out = append(out, plain(line)...)
	}
	e.rest = append(e.rest[:0], e.rest[end:]...)
	if _, err := e.ResponseWriter.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Flush passes on what there is.
func (e *events) Flush() { _ = http.NewResponseController(e.ResponseWriter).Flush() }

// words takes from rein's reasons what the original does not say: why it ended a
// command.
func words(traceback any) []string {
	var out []string
	list, _ := traceback.([]any)
	for _, line := range list {
		text, _, _ := strings.Cut(fmt.Sprint(line), " (")
		out = append(out, text)
	}
	return out
}

func plain(line []byte) []byte {
	if !bytes.Contains(line, []byte(`"rein"`)) && !bytes.Contains(line, []byte(`"error"`)) {
		return line
	}
	var ev map[string]any
	if json.Unmarshal(line, &ev) != nil || ev["type"] == nil {
		return line
	}
	if fault, ok := ev["error"].(map[string]any); ok && fault["evalue"] == "-1" {
		fault["traceback"] = words(fault["traceback"])
	}
	delete(ev, "rein")
	b, err := json.Marshal(ev)
	if err != nil {
		return line
	}
	return append(b, '\n')
}
