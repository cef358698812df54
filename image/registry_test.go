package image_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/rein-sh/rein/image"
)

// fake is a registry on loopback. What it is asked passes through before, which
// may answer itself by returning true.
type fake struct {
	*httptest.Server
	host string

	mu     sync.Mutex
	asked  []string // METHOD PATH
	before func(http.ResponseWriter, *http.Request) bool
}

func newFake(t testing.TB, secure bool) *fake {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	f := &fake{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked = append(f.asked, r.Method+" "+r.URL.Path)
		before := f.before
		f.mu.Unlock()
		if before == nil || !before(w, r) {
			inner.ServeHTTP(w, r)
		}
	})
	f.Server = httptest.NewUnstartedServer(handler)
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	if secure {
		f.StartTLS()
	} else {
		f.Start()
	}
	t.Cleanup(f.Close)
	f.host = f.Listener.Addr().String()
	return f
}

// intercept sets what comes before the registry, and forgets what was asked.
func (f *fake) intercept(before func(http.ResponseWriter, *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.asked = before, nil
}

// count says how often a path with this part was asked for.
func (f *fake) count(part string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, a := range f.asked {
		if strings.Contains(a, part) {
			n++
		}
	}
	return n
}

// transport is one of the test's own, so that no connection outlives it. It
// dials to, whatever the name.
func transport(t testing.TB, to string, config *tls.Config) *http.Transport {
	tr := &http.Transport{TLSClientConfig: config, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if to != "" {
			addr = to
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// pushed is an image in a registry as app:1, and its manifest's digest.
func pushed(t testing.TB, f *fake) (ref, digest string) {
	t.Helper()
	m := made(t, []entry{file("a", "1")}, []entry{file("b", "2")})
	root := m.manifest()
	m.push(f.URL, "org/app", "1", root)
	f.intercept(nil)
	return f.host + "/org/app:1", root["digest"].(string)
}

// A tag is asked for each time with one HEAD, a digest never again.
func TestRevalidate(t *testing.T) {
	f := newFake(t, false)
	ref, digest := pushed(t, f)
	s := open(t, image.Options{Allow: []string{f.host + "/org/*"}, Transport: transport(t, "", nil)})
	if img := get(t, s, ref); !img.Fetched || img.Digest != digest {
		t.Errorf("fetched %v as %s, want true as %s", img.Fetched, img.Digest, digest)
	}
	f.intercept(nil)
	if img := get(t, s, ref); img.Fetched || f.count("HEAD") != 1 || f.count("GET /v2/org") != 0 {
		t.Errorf("the second time: fetched %v, asked %q", img.Fetched, f.asked)
	}
	f.intercept(nil)
	if img := get(t, s, f.host+"/org/app@"+digest); img.Fetched || len(f.asked) != 0 {
		t.Errorf("by digest: fetched %v, asked %q", img.Fetched, f.asked)
	}

	// What another place has says nothing of this one.
	if _, err := s.Get(t.Context(), f.host+"/org/other@"+digest); image.KindOf(err) != image.KindNotFound {
		t.Errorf("the digest elsewhere: %v, want it not found", err)
	}

	m := made(t, []entry{file("c", "3")})
	m.push(f.URL, "org/app", "1", m.manifest())
	img := get(t, s, ref)
	if !img.Fetched || img.Digest == digest || listing(t, img.Root)["c"] != "3" {
		t.Errorf("after a push: fetched %v, still %s", img.Fetched, img.Digest)
	}

	for name, answer := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"unavailable": func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(503); return true },
		"too many":    func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(429); return true },
	} {
		f.intercept(answer)
		if img := get(t, s, ref); img.Fetched || len(img.Notes) != 1 || !strings.Contains(img.Notes[0], "did not answer") {
			t.Errorf("%s: fetched %v, notes %q", name, img.Fetched, img.Notes)
		}
	}
	f.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/v2/" {
			return false
		}
		w.WriteHeader(404)
		return true
	})
	if _, err := s.Get(t.Context(), ref); image.KindOf(err) != image.KindNotFound {
		t.Errorf("a tag that is gone: %v, want it not found", err)
	}
	f.Close()
	if img := get(t, s, ref); len(img.Notes) != 1 {
		t.Errorf("without a registry: notes %q", img.Notes)
	}
	if _, err := s.Get(t.Context(), f.host+"/org/other"); image.KindOf(err) != image.KindUnavailable {
		t.Errorf("another image: %v, want it unavailable", err)
	}
}

// The manifest for the platform is found in indexes; attestations are none.
func TestIndex(t *testing.T) {
	f := newFake(t, false)
	m := made(t, []entry{file("ours", "1")})
	ours := m.manifest()
	m.arch = "s390x"
	theirs := forPlatform(m.manifest(), "linux", "s390x")
	forPlatform(ours, "linux", newImage(t).arch)
	root := m.index(m.index(theirs, forPlatform(m.json(ociManifest, map[string]any{"schemaVersion": 2, "layers": nil}), "unknown", "unknown"), ours))
	m.push(f.URL, "app", "1", root)
	s := open(t, image.Options{Allow: []string{f.host + "/app@" + root["digest"].(string)}, Transport: transport(t, "", nil)})
	img := get(t, s, f.host+"/app:1")
	if img.Digest != ours["digest"] || listing(t, img.Root)["ours"] != "1" {
		t.Errorf("got %s, want %s", img.Digest, ours["digest"])
	}
	f.intercept(nil)
	if get(t, s, f.host+"/app@"+root["digest"].(string)); len(f.asked) != 0 {
		t.Errorf("the index's digest was asked for again: %q", f.asked)
	}
	other := open(t, image.Options{Allow: []string{f.host + "/app:1"}, Platform: "linux/riscv64", Transport: transport(t, "", nil)})
	if _, err := other.Get(t.Context(), f.host+"/app:1"); image.KindOf(err) != image.KindNotFound || !strings.Contains(err.Error(), "linux/s390x") {
		t.Errorf("for riscv64: %v, want it not found and what there is", err)
	}
}

// A certificate that nobody vouches for is no registry.
func TestUnknownAuthority(t *testing.T) {
	f := newFake(t, true)
	s := open(t, image.Options{Allow: []string{"registry.test/*"}, Transport: transport(t, f.host, nil)})
	_, err := s.Get(t.Context(), "registry.test/app:1")
	if image.KindOf(err) != image.KindUnavailable || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v, want the certificate refused", err)
	}
}

// Nothing leaves without TLS but to loopback and what is listed.
func TestPlain(t *testing.T) {
	f := newFake(t, false)
	pushed(t, f)
	for _, host := range []string{"registry.test", "10.1.2.3:5000", "192.168.1.1"} {
		o := image.Options{Allow: []string{host + "/org/*"}, Transport: transport(t, f.host, nil)}
		_, err := open(t, o).Get(t.Context(), host+"/org/app:1")
		if err == nil || f.count("GET /v2/") != 0 {
			t.Errorf("%s: %v, want it refused without asking; asked %q", host, err, f.asked)
		}
		if e, ok := err.(*image.Error); !ok || !strings.Contains(e.Hint, fmt.Sprintf("images: {insecure: [%q]}", host)) {
			t.Errorf("%s: no hint to name it: %#v", host, err)
		}
		o.Insecure = []string{host}
		get(t, open(t, o), host+"/org/app:1")
		f.intercept(nil)
	}
}

// Nor does it by a redirect of somebody with TLS, who may not have this host's own
// servers asked either.
func TestPlainRedirect(t *testing.T) {
	m := made(t, []entry{file("a", "1")})
	secure := newFake(t, true)
	m.pushWith(secure.Client(), secure.URL, "org/app", "1", m.manifest())
	var followed atomic.Int32
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer plain.Close()
	tr := transport(t, "", secure.Client().Transport.(*http.Transport).TLSClientConfig)
	dial := tr.DialContext
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		switch host, _, _ := net.SplitHostPort(addr); host {
		case "blobs.test", "localhost":
			addr = plain.Listener.Addr().String()
		case "example.com": // which the test's certificate names
			addr = secure.host
		}
		return dial(ctx, network, addr)
	}
	for _, to := range []string{"http://blobs.test/x", "http://localhost:8080/x"} {
		secure.intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			return true
		})
		_, err := open(t, image.Options{Allow: []string{"example.com/*"}, Transport: tr}).Get(t.Context(), "example.com/org/app:1")
		if image.KindOf(err) != image.KindRefused || followed.Load() != 0 {
			t.Errorf("%s: %v, followed %d times; want it refused", to, err, followed.Load())
		}
	}
}

// Answers that do not end, or are not what was asked for, are errors; a
// connection that breaks is tried again.
func TestBadAnswers(t *testing.T) {
	endless := func(w http.ResponseWriter) {
		b := make([]byte, 64<<10)
		for {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}
	var cuts atomic.Int32
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request) bool
		kind   image.Kind // "" is success
	}{
		"an endless greeting": {func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/v2/" {
				endless(w)
				return true
			}
			return false
		}, ""},
		"an endless manifest": {func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			w.Header().Set("Content-Type", ociManifest)
			endless(w)
			return true
		}, image.KindTooLarge},
		"an endless refusal": {func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			w.WriteHeader(403)
			endless(w)
			return true
		}, image.KindUnavailable},
		"an endless layer": {func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			endless(w)
			return true
		}, image.KindCorrupt},
		"another layer": {func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			io.WriteString(w, "something else")
			return true
		}, image.KindCorrupt},
		"a page": {func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<html>")
			return true
		}, image.KindCorrupt},
		"a cut layer, twice": {func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") || cuts.Add(1) > 2 {
				return false
			}
			w.Header().Set("Content-Length", "1000")
			w.Write(make([]byte, 10))
			panic(http.ErrAbortHandler)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, false)
			ref, _ := pushed(t, f)
			f.intercept(c.answer)
			s, dir := storeIn(t, image.Options{Allow: []string{ref}, Transport: transport(t, "", nil)})
			img, err := s.Get(t.Context(), ref)
			if image.KindOf(err) != c.kind {
				t.Errorf("got %v (%s), want %q", err, image.KindOf(err), c.kind)
			}
			if err != nil {
				leftNothing(t, dir)
				return
			}
			if err := img.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A registry that stops sending is given up, also when another attempt does not
// help; and with its caller.
func TestStalled(t *testing.T) {
	f := newFake(t, false)
	ref, _ := pushed(t, f)
	f.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") || f.count("blobs") == 1 { // the first is the configuration
			return false
		}
		w.Header().Set("Content-Length", "1000")
		w.Write(make([]byte, 10))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	})
	var last image.Progress
	s, dir := storeIn(t, image.Options{Allow: []string{ref}, Transport: transport(t, "", nil), Progress: func(p image.Progress) { last = p }})
	s.SetStall(100 * time.Millisecond)
	if _, err := s.Get(t.Context(), ref); image.KindOf(err) != image.KindUnavailable || !strings.Contains(err.Error(), "sent nothing for 100ms") {
		t.Errorf("got %v, want it given up", err)
	}
	leftNothing(t, dir)
	if last.Stage != image.StageFailed {
		t.Errorf("the last that was told: %+v, want that it failed", last)
	}
	if n := f.count("GET /v2/org/app/blobs/"); n < 1+3 {
		t.Errorf("%d blobs were asked for, want three attempts", n)
	}
	s.SetStall(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Get(ctx, ref); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	leftNothing(t, dir)
}

// A configuration that does not end is given up, too.
func TestStalledConfiguration(t *testing.T) {
	f := newFake(t, false)
	ref, _ := pushed(t, f)
	f.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		w.Write([]byte("{"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	})
	s, dir := storeIn(t, image.Options{Allow: []string{ref}, Transport: transport(t, "", nil)})
	s.SetAnswer(500 * time.Millisecond)
	if _, err := s.Get(t.Context(), ref); image.KindOf(err) != image.KindUnavailable || !strings.Contains(err.Error(), "did not answer within 500ms") {
		t.Errorf("got %v, want it given up", err)
	}
	leftNothing(t, dir)
}
