package local_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
	"github.com/rein-sh/rein/secret"
)

// turning is a server on loopback, yes.test, that says which of the keys it was
// sent, by its number, and keeps requests of /slow until release is closed.
func turning(t *testing.T, keys []string, arrived chan<- struct{}, release <-chan struct{}) (ca []byte, port int) {
	t.Helper()
	return certified(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			arrived <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		for i, key := range keys {
			if r.Header.Get("Authorization") == "Bearer "+key {
				fmt.Fprintf(w, "key %d, all: %s\n", i, strings.Join(keys[:i+1], " "))
				return
			}
		}
		fmt.Fprintln(w, "no key")
	})
}

// A key is rotated behind the same placeholder: while requests are in flight and
// while the sandbox is paused. It is there after that, and is dead with the sandbox.
func TestSecretRotates(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			keys := []string{realKey, strings.Replace(realKey, "0123", "4567", 1), strings.Replace(realKey, "0123", "8901", 1)}
			arrived, release := make(chan struct{}, 1), make(chan struct{})
			ca, port := turning(t, keys, arrived, release)
			p := providerWith(t, runtime, func(o *local.Options) {
				o.Egress.Resolvers = []netip.AddrPort{names(t)}
				o.Egress.CA = ca
			})
			var record bytes.Buffer
			s, err := sandbox.Create(t.Context(), p, keyed(port, keys[0]), sandbox.Options{Log: audit.New(&record, audit.Options{})})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			url := fmt.Sprintf("https://yes.test:%d/", port)
			run := func(s *sandbox.Sandbox, command string) string {
				r, err := s.Run(t.Context(), sandbox.Command{Shell: command, Timeout: time.Minute})
				if err != nil {
					t.Error(err)
					return ""
				}
				return string(r.Stdout.Head) + string(r.Stderr.Head)
			}
			rotate := func(key string) error { return s.RotateSecret(t.Context(), "key", secret.New("key", key)) }
			ask := `curl -sS -H "Authorization: Bearer $KEY" ` + url
			placeholder := strings.TrimSpace(run(s, "echo $KEY"))
			if got := run(s, ask); !strings.HasPrefix(got, "key 0, all: [secret:key]") {
				t.Fatalf("%q", got)
			}

			slow := make(chan string, 1)
			go func() { slow <- run(s, ask+"slow") }()
			<-arrived
			if err := rotate(keys[1]); err != nil {
				t.Fatal(err)
			}
			if got := run(s, ask); got != "key 1, all: [secret:key] [secret:key]\n" { // both are covered
				t.Errorf("rotated: %q", got)
			}
			close(release)
			if got := <-slow; !strings.HasPrefix(got, "key 0, all: [secret:key]\n") {
				t.Errorf("in flight: %q", got)
			}

			if err := s.Pause(t.Context(), sandbox.PauseOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := rotate(keys[2]); err != nil {
				t.Fatal(err)
			}
			if err := s.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := run(s, ask); !strings.HasPrefix(got, "key 2,") {
				t.Errorf("paused and resumed: %q", got)
			}
			for _, other := range []string{keys[2] + "x", "ghs_" + keys[2][4:], "", keys[2][:39] + "\n"} {
				if err := rotate(other); sandbox.KindOf(err) != sandbox.KindInvalid || other != "" && strings.Contains(err.Error(), other) {
					t.Errorf("%q: %v", other, err)
				}
			}
			if got := run(s, ask) + run(s, "echo $KEY"); !strings.HasPrefix(got, "key 2,") || !strings.HasSuffix(got, placeholder+"\n") {
				t.Errorf("after what was refused: %q, not of %q", got, placeholder)
			}
			if err := s.RotateSecret(t.Context(), "none", secret.New("none", keys[0])); sandbox.KindOf(err) != sandbox.KindInvalid {
				t.Errorf("no such secret: %v", err)
			}

			if err := s.Kill(t.Context()); err != nil {
				t.Error(err)
			}
			if n := strings.Count(record.String(), string(audit.KindSecretRotated)); n != 7 || strings.Contains(record.String(), "RealReal") {
				t.Errorf("%d rotations on record: %s", n, record.String())
			}
			if err := p.RotateSecret(t.Context(), s.ID(), "key", secret.New("key", keys[0])); sandbox.KindOf(err) != sandbox.KindNotFound {
				t.Errorf("of a sandbox that is gone: %v", err)
			}
			after := connectedTo(t, p, keyed(port, keys[0]), nil)
			if got := run(after, ask); !strings.HasPrefix(got, "key 0,") {
				t.Errorf("the next sandbox: %q", got)
			}
			if got := run(after, strings.Replace(ask, "$KEY", placeholder, 1)); !strings.Contains(got, "vault.") || strings.Contains(got, "all:") {
				t.Errorf("with the placeholder of one that is gone: %q", got)
			}
			if err := after.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
