// Package replay checks a vendor's client against traffic kept in files: what
// the client makes of a response, and what it sends back with the next request.
// Only tests import it.
package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/model"
)

// Secret is what no kept traffic may hold: keys of the vendors, and headers that
// carry one or name an account.
var Secret = regexp.MustCompile(`(?i)\b(sk-[a-z0-9_-]{6,}|AIza[a-z0-9_-]{8,}|ya29\.|eyJ[a-z0-9_-]{20,}|gh[pousr]_[a-z0-9]{8,})|` +
	`^(authorization|x-api-key|x-goog-api-key|set-cookie|cookie|openai-organization|openai-project|anthropic-organization-id|cf-ray):`)

// outcome is what a client made of a response, as it is kept beside it.
type outcome struct {
	Reply     *model.Reply    `json:"reply,omitempty"`
	Reasoning string          `json:"reasoning,omitempty"` // as it was shown
	Shown     string          `json:"shown,omitempty"`     // text, and [names] of calls
	Error     *failure        `json:"error,omitempty"`
	Next      json.RawMessage `json:"next,omitempty"` // the body of the next request
}

type failure struct {
	Kind       model.Kind `json:"kind"`
	Status     int        `json:"status,omitempty"`
	Code       string     `json:"code,omitempty"`
	Message    string     `json:"message"`
	RetryAfter string     `json:"retry_after,omitempty"`
}

// Run plays every NAME.http of dir, a response as it was on the wire, to the
// model that open makes for a server's address, and compares with NAME.json.
// With update it writes those instead.
func Run(t *testing.T, dir string, update bool, open func(url string) (model.Model, error)) {
	names, err := filepath.Glob(filepath.Join(dir, "*.http"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no traffic in %s: %v", dir, err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".http"), func(t *testing.T) {
			t.Parallel()
			response := read(t, name)
			got := play(t, response, open)
			path := strings.TrimSuffix(name, ".http") + ".json"
			data, err := encode(got)
			if err != nil {
				t.Fatal(err)
			}
			if update {
				if err := os.WriteFile(path, data, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(read(t, path)), string(data)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// read returns a file, which must hold no secret.
func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		if Secret.Match(line) {
			t.Errorf("%s holds what looks like a secret: %s", name, line)
		}
	}
	return data
}

// play asks twice: once for the response, once with it in the conversation.
func play(t *testing.T, response []byte, open func(url string) (model.Model, error)) outcome {
	t.Helper()
	bodies := make(chan []byte, 2)
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies <- body
		send(t, w, response)
	}))
	defer ts.Close()
	m, err := open(ts.URL)
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := m.(interface{ Close() }); ok {
		defer c.Close()
	}
	req := Request()
	var out outcome
	out.Reply, err = m.Generate(t.Context(), req, func(d model.Delta) {
		out.Reasoning += d.Reasoning
		out.Shown += d.Text
		if d.CallName != "" {
			out.Shown += "[" + d.CallName + "]"
		}
	})
	<-bodies
	if err != nil {
		e, ok := errors.AsType[*model.Error](err)
		if !ok || out.Reply != nil {
			t.Fatalf("got %v, %v", out.Reply, err)
		}
		out.Error = &failure{Kind: e.Kind, Status: e.Status, Code: e.Code, Message: e.Message}
		if e.RetryAfter > 0 {
			out.Error.RetryAfter = e.RetryAfter.Round(time.Millisecond).String()
		}
		return out
	}
	Answer(req, out.Reply)
	_, _ = m.Generate(t.Context(), req, nil) // only what it sends is asked for
	out.Next = <-bodies
	return out
}

// send writes a response as it is kept, with the line ends of HTTP in its head.
func send(t *testing.T, w http.ResponseWriter, response []byte) {
	conn, out, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	head, body, ok := bytes.Cut(response, []byte("\n\n"))
	if !ok {
		t.Error("the response has no body")
	}
	if _, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(response)), nil); err != nil {
		t.Errorf("no response of HTTP: %v", err)
	}
	parts := [][]byte{bytes.ReplaceAll(head, []byte("\n"), []byte("\r\n")), []byte("\r\nConnection: close\r\n\r\n"), body}
	_, _ = out.Write(slices.Concat(parts...)) // the client may have enough
	_ = out.Flush()
}

// Request is the question the kept responses answer.
func Request() *model.Request {
	tool := func(name, schema string) model.ToolDef {
		return model.ToolDef{Name: name, Description: "does it", Schema: json.RawMessage(schema)}
	}
	return &model.Request{
		System:   "You repair things.",
		Messages: []model.Message{{Role: model.RoleUser, Text: "Repair the test."}},
		Tools: []model.ToolDef{
			tool("run_command", `{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`),
			tool("read_file", `{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`),
		},
		MaxOutputTokens: 1024,
	}
}

// Answer appends a reply and what an agent says to it.
func Answer(req *model.Request, reply *model.Reply) {
	req.Messages = append(req.Messages, reply.Message)
	results := model.Message{Role: model.RoleTool}
	for i, c := range reply.Message.Calls {
		results.Results = append(results.Results, model.ToolResult{ID: c.ID, Name: c.Name, Content: "result of " + c.Name, IsError: i > 0})
	}
	if results.Results == nil {
		results = model.Message{Role: model.RoleUser, Text: "Go on."}
	}
	req.Messages = append(req.Messages, results)
}

func encode(o outcome) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(o)
	return b.Bytes(), err
}
