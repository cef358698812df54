package daemon

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rein-sh/rein/execd"
)

// A stop that cannot be finished is undone, and a failed Continue leaves
// everything as it was.
func TestStopAndContinueFail(t *testing.T) {
	m, err := NewOS(OSOptions{Warden: []string{"/proc/self/exe", "warden"}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	dir := t.TempDir()
	p, err := m.Start(Spec{ID: "beat", Command: "while :; do echo >>beat; sleep 0.01; done", Dir: dir, Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	beats := func() int64 {
		info, err := os.Stat(dir + "/beat")
		if err != nil {
			return 0
		}
		return info.Size()
	}
	goesOn := func() {
		t.Helper()
		before := beats()
		for end := time.Now().Add(20 * time.Second); beats() < before+3; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it stands still")
			}
		}
	}
	goesOn()
	broken := errors.New("no more files")
	var calls, good atomic.Int64
	m.processes = func() ([]procStat, error) {
		if calls.Add(1) > good.Load() {
			return nil, broken
		}
		return processes()
	}
	for n := range int64(3) {
		calls.Store(0)
		good.Store(n)
		if err := m.Stop(t.Context()); n < 2 && !errors.Is(err, broken) {
			t.Fatalf("after %d lists: %v", n, err)
		} else if err == nil {
			if err := m.Continue(); !errors.Is(err, broken) {
				t.Fatal(err)
			}
			good.Store(1 << 40)
			if err := m.Continue(); err != nil {
				t.Fatal(err)
			}
		}
		goesOn()
	}
	good.Store(1 << 40)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Stop(ctx); err == nil {
		if err := m.Continue(); err != nil {
			t.Fatal(err)
		}
	}
	goesOn()
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	good.Store(0)
	if err := m.Continue(); !errors.Is(err, broken) {
		t.Fatalf("continue: %v", err)
	}
	m.mu.Lock()
	watched := m.watch != nil
	m.mu.Unlock()
	if !watched {
		t.Error("what wakes up is not stopped any more")
	}
	// Also when the pause came after the request had been let in.
	refused := Spec{ID: "refused", Command: "true", Dir: "/"}
	_, err = m.Start(refused)
	_, other := m.StartInteractive(refused, nil)
	for _, err := range []error{err, other} {
		if e, ok := errors.AsType[*execd.Error](err); !ok || e.Code != execd.CodeConflict {
			t.Errorf("a command that was asked for meanwhile: %v", err)
		}
	}
	good.Store(1 << 40)
	if err := m.Continue(); err != nil {
		t.Fatal(err)
	}
	goesOn()
}

// slowMachine starts nothing before it may.
type slowMachine struct {
	*OS
	asked, may chan struct{}
}

func (m *slowMachine) Start(s Spec) (Process, error) {
	close(m.asked)
	<-m.may
	return m.OS.Start(s)
}

// A session whose deletion was given up by its caller takes its command along,
// also one that is only being started.
func TestSessionDeletedWhileItsCommandStarts(t *testing.T) {
	dir := t.TempDir()
	own, err := NewOS(OSOptions{Warden: []string{"/proc/self/exe", "warden"}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	m := &slowMachine{own, make(chan struct{}), make(chan struct{})}
	s, err := New(Config{Token: "token", Machine: m, StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	in, err := s.newSession(execd.SessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context, method, route, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, method, route, strings.NewReader(body))
		r.Header.Set(execd.TokenHeader, "token")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w
	}
	ran, deleted := make(chan string, 1), make(chan struct{})
	go func() {
		ran <- ask(t.Context(), http.MethodPost, "/session/"+in.id+"/run", `{"command":"sleep 1000","rein":{"id":"c"}}`).Body.String()
	}()
	<-m.asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	go func() {
		defer close(deleted)
		ask(ctx, http.MethodDelete, "/session/"+in.id, "")
	}()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		s.sessions.mu.Lock()
		left := len(s.sessions.byID)
		s.sessions.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the session is still there")
		}
	}
	close(m.may)
	select {
	case out := <-ran:
		if !strings.Contains(out, execd.KilledByInterrupt) {
			t.Errorf("it ended otherwise: %s", out)
		}
	case <-time.After(20 * time.Second):
		t.Error("the command runs on")
	}
	<-deleted
}
