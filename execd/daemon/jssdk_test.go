package daemon_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/execd"
)

// TestJavaScriptSDK has OpenSandbox's own SDK from npm run commands and files
// against the daemon, through a lifecycle server that is as small as it lets
// it be.
func TestJavaScriptSDK(t *testing.T) {
	for _, p := range []string{"node", "npm"} {
		if _, err := exec.LookPath(p); err != nil {
			missing(t, "needs %s", p)
		}
	}
	dir := t.TempDir()
	for _, f := range []string{"package.json", "package-lock.json", "drive.mjs"} {
		b, err := os.ReadFile(filepath.Join("testdata/jssdk", f))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", filepath.Join(dir, "cache"))
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		missing(t, "npm cannot install the SDK here: %v\n%s", err, out)
	}
	r := serve(t, bestUser())
	lifecycle, killed := stubLifecycle(t, strings.TrimPrefix(r.url, "http://"))
	node := exec.CommandContext(ctx, "node", "drive.mjs", strings.TrimPrefix(lifecycle, "http://"), r.work)
	node.Dir = dir
	out, err := node.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "the SDK is content") {
		t.Errorf("node: %v\n%s", err, out)
	}
	select {
	case <-killed:
	default:
		t.Error("the sandbox was not deleted")
	}
}

// stubLifecycle answers what the SDK asks of OpenSandbox's control plane.
func stubLifecycle(t *testing.T, endpoint string) (url string, killed chan struct{}) {
	killed = make(chan struct{}, 1)
	answer := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sandboxes", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusAccepted, map[string]any{"id": "s1", "status": map[string]any{"state": "Running"},
			"createdAt": time.Now().UTC().Format(time.RFC3339), "expiresAt": time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "entrypoint": []string{"true"}})
	})
	mux.HandleFunc("GET /v1/sandboxes/s1/endpoints/{port}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"endpoint": endpoint, "headers": map[string]string{execd.TokenHeader: testToken}})
	})
	mux.HandleFunc("DELETE /v1/sandboxes/s1", func(w http.ResponseWriter, _ *http.Request) {
		killed <- struct{}{}
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /v1/metrics/events", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL, killed
}
