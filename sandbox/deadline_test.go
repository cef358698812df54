package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
)

var _ sandbox.Pauser = silent{}

// silent is a provider, and the daemon in its sandboxes, that stop answering.
type silent struct {
	mute bool   // the daemon answers nothing, rather than what it is
	run  string // answers POST /command, after a minute
}

func (silent) Name() string                                      { return "silent" }
func (silent) Probe(context.Context) (r sandbox.Report, _ error) { return r, nil }
func (silent) Create(context.Context, sandbox.Spec) (sandbox.Info, error) {
	return sandbox.Info{ID: "s", State: sandbox.StateRunning, Cwd: "/w"}, nil
}
func (silent) Get(context.Context, string) (sandbox.Info, error) {
	return sandbox.Info{ID: "s", State: sandbox.StateRunning, Cwd: "/w"}, nil
}
func (silent) List(context.Context, map[string]string) ([]sandbox.Info, error) { return nil, nil }
func (silent) Renew(ctx context.Context, _ string, _ time.Time) (t time.Time, _ error) {
	<-ctx.Done()
	return t, ctx.Err()
}
func (s silent) Pause(ctx context.Context, _ string, _ sandbox.PauseOptions) error {
	<-ctx.Done()
	return ctx.Err()
}
func (s silent) Resume(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
func (s silent) Kill(ctx context.Context, _ string) error   { <-ctx.Done(); return ctx.Err() }

func (s silent) Endpoint(context.Context, string, int) (sandbox.Endpoint, error) {
	return sandbox.Endpoint{BaseURL: "http://sandbox", DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go s.serve(server)
		return client, nil
	}}, nil
}

// serve answers the requests of one connection, until one that it does not.
func (s silent) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		body := ""
		switch {
		case req.URL.Path == "/rein/features" && !s.mute:
			body = `{"call_ids":true,"capture":true}`
		case req.URL.Path == "/command" && s.run != "":
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n", len(s.run))
			time.Sleep(time.Minute)
			io.WriteString(conn, s.run)
			continue
		default:
			io.Copy(io.Discard, in) // until the other end gives up
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
}

// Whatever is asked of a sandbox that does not answer, with a context without a
// deadline, has an end.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	var none sandbox.Access
	for name, op := range map[string]func(context.Context, *sandbox.Sandbox) error{
		"stat": func(ctx context.Context, s *sandbox.Sandbox) error { _, err := s.Stat(ctx, "f", none); return err },
		"list": func(ctx context.Context, s *sandbox.Sandbox) error { _, err := s.List(ctx, "d", 1, none); return err },
		"search": func(ctx context.Context, s *sandbox.Sandbox) error {
			_, err := s.Search(ctx, "d", "*", none)
			return err
		},
		"inventory": func(ctx context.Context, s *sandbox.Sandbox) error {
			_, err := s.Inventory(ctx, "d", 1, none)
			return err
		},
		"links": func(ctx context.Context, s *sandbox.Sandbox) error {
			_, err := s.Links(ctx, "f", sandbox.Access{Root: "/w"})
			return err
		},
		"mkdir":  func(ctx context.Context, s *sandbox.Sandbox) error { return s.Mkdir(ctx, "d", 0, none) },
		"remove": func(ctx context.Context, s *sandbox.Sandbox) error { return s.Remove(ctx, "f", none) },
		"move":   func(ctx context.Context, s *sandbox.Sandbox) error { return s.Move(ctx, "f", "g", none) },
		"read": func(ctx context.Context, s *sandbox.Sandbox) error {
			_, err := s.ReadFile(ctx, "f", sandbox.ReadOptions{})
			return err
		},
		"read lines": func(ctx context.Context, s *sandbox.Sandbox) error {
			_, err := s.ReadFile(ctx, "f", sandbox.ReadOptions{Line: 1})
			return err
		},
		"write": func(ctx context.Context, s *sandbox.Sandbox) error {
			_, err := s.WriteFile(ctx, "f", []byte("x"), sandbox.WriteOptions{})
			return err
		},
		"status":    func(ctx context.Context, s *sandbox.Sandbox) error { _, err := s.Status(ctx, "c"); return err },
		"wait":      func(ctx context.Context, s *sandbox.Sandbox) error { _, err := s.Wait(ctx, "c"); return err },
		"logs":      func(ctx context.Context, s *sandbox.Sandbox) error { _, _, err := s.Logs(ctx, "c", 0); return err },
		"interrupt": func(ctx context.Context, s *sandbox.Sandbox) error { return s.Interrupt(ctx, "c") },
		"metrics":   func(ctx context.Context, s *sandbox.Sandbox) error { _, err := s.Metrics(ctx); return err },
		"renew":     func(ctx context.Context, s *sandbox.Sandbox) error { _, err := s.Renew(ctx, time.Now()); return err },
		"pause":     func(ctx context.Context, s *sandbox.Sandbox) error { return s.Pause(ctx, sandbox.PauseOptions{}) },
		"resume":    func(ctx context.Context, s *sandbox.Sandbox) error { return s.Resume(ctx) },
		"kill":      func(ctx context.Context, s *sandbox.Sandbox) error { return s.Kill(ctx) },
		"create": func(ctx context.Context, s *sandbox.Sandbox) error {
			_, err := sandbox.Create(ctx, silent{mute: true}, sandbox.Spec{TTL: time.Minute}, sandbox.Options{Log: audit.New(io.Discard, audit.Options{})})
			return err
		},
		"attach": func(ctx context.Context, s *sandbox.Sandbox) error {
			_, err := sandbox.Attach(ctx, silent{mute: true}, "s", sandbox.Options{Log: audit.New(io.Discard, audit.Options{})})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := silentSandbox(t, silent{})
				defer s.Close()
				start := time.Now()
				err := op(context.Background(), s)
				if k := sandbox.KindOf(err); k != sandbox.KindTimeout && k != sandbox.KindUnavailable {
					t.Errorf("error %v", err)
				}
				if took, most := time.Since(start), sandbox.DefaultOpTimeout+sandbox.KillTimeout; took == 0 || took > most {
					t.Errorf("it took %v, want at most %v", took, most)
				}
			})
		})
	}
}

// A daemon that gives no progress does not hold up the command's end.
func TestProgressDoesNotHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := silentSandbox(t, silent{run: strings.Join([]string{
			`data: {"type":"init","text":"c","timestamp":1}`,
			`data: {"type":"execution_complete","timestamp":2,"rein":{"outcome":{"exit_code":0}}}`, ""}, "\n\n")})
		defer s.Close()
		start := time.Now()
		r, err := s.Run(context.Background(), sandbox.Command{CallID: "c", Shell: "true", Progress: func(int64) {}})
		if err != nil || !r.OK() {
			t.Errorf("result %+v, error %v", r, err)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

func silentSandbox(t *testing.T, p silent) *sandbox.Sandbox {
	t.Helper()
	s, err := sandbox.Create(context.Background(), p, sandbox.Spec{TTL: time.Minute}, sandbox.Options{Log: audit.New(io.Discard, audit.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
