package opensandbox_test

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
)

// planted makes a sandbox that rein's execd is to be put into, and returns what
// is kept of it.
func planted(t *testing.T, s *opensandboxtest.Server, whole, start time.Duration) (*sandbox.Sandbox, string) {
	t.Helper()
	dir := t.TempDir()
	p := open(t, serve(t, s), func(o *opensandbox.Options) { o.Execd, o.StateDir = program(t), dir })
	p.SetPlanting(whole, start)
	sb := create(t, p, spec())
	b, err := os.ReadFile(filepath.Join(dir, "opensandbox", sb.ID()+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return sb, string(b)
}

// wantBare fails unless the sandbox is used through the server's execd, and
// nothing of rein's is in it.
func wantBare(t *testing.T, s *opensandboxtest.Server, sb *sandbox.Sandbox, record, why string) {
	t.Helper()
	if sb.Features().CallIDs || !strings.Contains(record, why) || strings.Contains(record, `"left"`) {
		t.Errorf("call ids %v; the record: %s", sb.Features().CallIDs, record)
	}
	if running, _ := s.Planted(); running != 0 {
		t.Errorf("%d are left running", running)
	}
	list, err := sb.List(t.Context(), "/tmp", 1, sandbox.Access{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if strings.Contains(f.Path, ".rein-") {
			t.Errorf("left: %s", f.Path)
		}
	}
	if r, err := sb.Run(t.Context(), sandbox.Command{Shell: "exit 4"}); err != nil || *r.ExitCode != 4 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A program that is started and never answers is ended before the next try, and
// after the last, also when the time for all of it is over.
func TestPlantedDeaf(t *testing.T) {
	for name, c := range map[string]struct {
		whole, start time.Duration
		tries        int
	}{"each try": {time.Minute, 100 * time.Millisecond, 3}, "all of it": {time.Second, time.Minute, 1}} {
		t.Run(name, func(t *testing.T) {
			s := &opensandboxtest.Server{Deaf: true}
			sb, record := planted(t, s, c.whole, c.start)
			wantBare(t, s, sb, record, "does not answer")
			if _, started := s.Planted(); started != c.tries {
				t.Errorf("%d were started, want %d", started, c.tries)
			}
		})
	}
}

// A program that arrives cut short is not started.
func TestPlantedShort(t *testing.T) {
	s := &opensandboxtest.Server{}
	s.Once(opensandboxtest.Upload, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil {
			t.Error(err)
		}
		parts := multipart.NewReader(r.Body, params["boundary"])
		var body bytes.Buffer
		mw := multipart.NewWriter(&body)
		for {
			part, err := parts.NextPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Error(err)
				break
			}
			b, _ := io.ReadAll(part)
			if part.FormName() == "file" {
				b = b[:len(b)/2]
			}
			to, _ := mw.CreatePart(part.Header)
			_, _ = to.Write(b)
		}
		mw.Close()
		r.Header.Set("Content-Type", mw.FormDataContentType())
		r.Body, r.ContentLength = io.NopCloser(&body), int64(body.Len())
		next(w, r)
	})
	sb, record := planted(t, s, time.Minute, time.Second)
	wantBare(t, s, sb, record, "arrived with 32 of 64 bytes")
	if _, started := s.Planted(); started != 0 {
		t.Errorf("%d were started", started)
	}
}

// A program that runs is used although its file could not be removed.
func TestPlantedNotCleaned(t *testing.T) {
	s := &opensandboxtest.Server{}
	pass := func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { next(w, r) }
	s.Once(opensandboxtest.Command, pass) // looks around
	s.Once(opensandboxtest.Command, pass) // starts it
	s.Once(opensandboxtest.Command, opensandboxtest.Refuse(500, "RUNTIME_ERROR", "no room", nil))
	sb, record := planted(t, s, time.Minute, 10*time.Second)
	if running, _ := s.Planted(); running != 1 || !sb.Features().CallIDs {
		t.Errorf("%d run, call ids %v", running, sb.Features().CallIDs)
	}
	if strings.Contains(record, `"lacks"`) || !strings.Contains(record, "no room") {
		t.Errorf("the record: %s", record)
	}
}
