package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rein-sh/rein/image"
)

// registryCommand is "registry VARIABLE [USER PASSWORD]": it starts a registry
// on loopback that has the image org/app:1, wants the password if there is one,
// and ends with the script. The variable gets its address, VARIABLE_DIGEST the
// image's digest. The same image is in the file app.tar as docker save writes it.
func registryCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 && len(args) != 3 {
		ts.Fatalf("usage: registry VARIABLE [USER PASSWORD]")
	}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); len(args) == 3 && (!ok || u != args[1] || p != args[2]) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	ts.Defer(server.Close)
	host := server.Listener.Addr().String()
	img, err := random.Image(3000, 2)
	ts.Check(err)
	tag, err := name.NewTag(host + "/org/app:1")
	ts.Check(err)
	auth := authn.Anonymous
	if len(args) == 3 {
		auth = authn.FromConfig(authn.AuthConfig{Username: args[1], Password: args[2]})
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	ts.Check(remote.Write(tag, img, remote.WithAuth(auth), remote.WithTransport(tr), remote.WithContext(context.Background())))
	saved, err := name.NewTag("app:1")
	ts.Check(err)
	ts.Check(tarball.WriteToFile(ts.MkAbs("app.tar"), saved, img))
	digest, err := img.Digest()
	ts.Check(err)
	ts.Setenv(args[0], host)
	ts.Setenv(args[0]+"_DIGEST", digest.String())
}

// On a terminal there is one bar over all layers, which goes away.
func TestPullBar(t *testing.T) {
	var screen bytes.Buffer
	a := &app{err: &output{Writer: &screen, terminal: true, width: 100}}
	p := a.newPullProgress()
	at := time.Unix(0, 0)
	p.now = func() time.Time { at = at.Add(time.Second); return at }
	const mib = 1 << 20
	for _, e := range []image.Progress{
		{Stage: image.StageFetch, Layer: 1, Total: mib}, {Stage: image.StageFetch, Layer: 2, Total: 3 * mib},
		{Stage: image.StageFetch, Layer: 1, Done: mib, Total: mib}, {Stage: image.StageFetch, Layer: 2, Done: mib, Total: 3 * mib},
		{Stage: image.StageUnpack, Layer: 1, Done: mib, Total: mib}, {Stage: image.StageUnpack, Layer: 2, Done: 3 * mib, Total: 3 * mib},
	} {
		p.event(e)
	}
	p.end()
	p.event(image.Progress{Stage: image.StageFetch, Layer: 3, Total: mib})
	p.end()
	lines := strings.Split(screen.String(), "\r\x1b[K")
	var want []string
	for _, l := range []struct {
		full int
		text string
	}{{0, "0 B of 1.0 MiB · 0 of 1"}, {0, "0 B of 4.0 MiB · 0 of 2"}, {3, "1.0 MiB of 4.0 MiB · 0 of 2"}, {6, "2.0 MiB of 4.0 MiB · 0 of 2"},
		{9, "2.0 MiB of 4.0 MiB · 1 of 2"}, {24, "4.0 MiB of 4.0 MiB · 2 of 2"}} {
		want = append(want, fmt.Sprintf("%s%s %s layers unpacked", strings.Repeat("█", l.full), strings.Repeat("░", 24-l.full), l.text))
	}
	if got, want := strings.Join(lines, "\n"), "\n"+strings.Join(want, "\n")+"\n"; got != want {
		t.Errorf("the screen showed\n%s\nwant\n%s", got, want)
	}
	screen.Reset()
	a.err.width = 20
	narrow := a.newPullProgress()
	narrow.event(image.Progress{Stage: image.StageFetch, Layer: 1, Total: mib})
	if line := strings.TrimPrefix(screen.String(), "\r\x1b[K"); len([]rune(line)) > 19 {
		t.Errorf("%q is wider than the terminal", line)
	}
}

// An image that a sandbox needs and that cannot be had leaves no bar behind, on
// which the error would stand.
func TestPullBarOfFailure(t *testing.T) {
	var screen bytes.Buffer
	a := &app{err: &output{Writer: &screen, terminal: true, width: 100}}
	told := a.pullEvents()
	told(image.Progress{Stage: image.StageFetch, Layer: 1, Total: 100})
	if !strings.Contains(screen.String(), "layers unpacked") {
		t.Fatalf("no bar: %q", screen.String())
	}
	told(image.Progress{Stage: image.StageFailed, Layers: 1})
	if !strings.HasSuffix(screen.String(), "\r\x1b[K") {
		t.Errorf("the bar stays: %q", screen.String())
	}
}
