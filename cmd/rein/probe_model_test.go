package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// probeOf runs "rein probe --model" and returns what it prints as JSON.
func probeOf(t *testing.T, environ []string, args ...string) (modelProbe, int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := execute(t.Context(), append([]string{"probe", "--json"}, args...), strings.NewReader(""), &stdout, &stderr, append(environ, "HOME="+t.TempDir()))
	var p modelProbe
	if err := json.Unmarshal(stdout.Bytes(), &p); err != nil {
		t.Fatalf("exit code %d: %v\n%s%s", code, err, &stdout, &stderr)
	}
	return p, code
}

// saying is a server that answers everything with one response.
func saying(t *testing.T, status int, mediaType, body string, header http.Header) string {
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Type", mediaType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(ts.Close)
	return ts.URL
}

const goodStream = `data: {"id":"r","model":"m1-2026","choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}` + "\n\ndata: [DONE]\n\n"

func TestProbeExplains(t *testing.T) {
	tests := []struct {
		name, url     string
		problem, hint string
	}{
		{"a web page", saying(t, 200, "text/html", "<html>welcome</html>", nil), "does not speak this vendor's protocol: the server answered with a web page", "is not that of an API"},
		{"a page that is not there", saying(t, 404, "text/html", "<html>404</html>", nil), "this is not the API", "openai's own is https://api.openai.com/v1"},
		{"another path", saying(t, 404, "application/json", `{"detail":"Not Found"}`, nil), "this is not the API", "openai's own is https://api.openai.com/v1"},
		{"a model that is not there", saying(t, 404, "application/json", `{"error":"model 'm1' not found"}`, nil), `knows no model "m1"`, "lists the names"},
		{"another protocol", saying(t, 200, "text/event-stream", "data: hello\n\n", nil), "does not speak this vendor's protocol", "belong together"},
		{"plain JSON", saying(t, 200, "application/json", "{}", nil), "plain JSON", "does not stream"},
		{"a redirect", saying(t, 307, "text/plain", "", http.Header{"Location": {"/elsewhere"}}), "redirects", "set the base URL"},
		{"an old server", saying(t, 400, "application/json", `{"error":{"message":"unknown field max_completion_tokens"}}`, nil), "does not take the request", "max_tokens only"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, code := probeOf(t, nil, "--model", "openai/m1", "--base-url", tt.url)
			if code != exitModel || p.OK || !strings.Contains(p.Problem, tt.problem) || !strings.Contains(p.Hint, tt.hint) {
				t.Errorf("exit code %d, %+v", code, p)
			}
		})
	}
}

// Each vendor's address is its own.
func TestProbeNotTheAPI(t *testing.T) {
	url := saying(t, 404, "text/html", "<html>404</html>", nil)
	for vendor, address := range map[string]string{
		"openai-responses": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com", "gemini": "https://generativelanguage.googleapis.com",
	} {
		p, code := probeOf(t, nil, "--model", vendor+"/m1", "--base-url", url)
		if code != exitModel || p.Hint != "check the base URL; "+vendor+"'s own is "+address {
			t.Errorf("exit code %d, %+v", code, p)
		}
	}
}

// The Date of a response has whole seconds: nothing is made of less.
func TestSkew(t *testing.T) {
	date := time.Date(2026, 5, 5, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct{ sent, got, want time.Duration }{
		{0, 0, 0},
		{900 * time.Millisecond, 990 * time.Millisecond, 0},  // the same clock, late in its second
		{900 * time.Millisecond, 1700 * time.Millisecond, 0}, // a slow answer
		{-time.Minute, time.Minute, 0},
		{3 * time.Second, 3 * time.Second, 3 * time.Second},
		{-2 * time.Second, -2 * time.Second, -3 * time.Second},
		{time.Hour, time.Hour, time.Hour},
	} {
		got := skewOf(date, date.Add(tt.sent), date.Add(tt.got))
		if d := got - tt.want; d > time.Second || d < -time.Second || (got == 0) != (tt.want == 0) {
			t.Errorf("sent after %s, answered after %s: %s, want about %s", tt.sent, tt.got, got, tt.want)
		}
	}
}

func TestProbeNearestModel(t *testing.T) {
	url := saying(t, 404, "application/json", `{"error":{"message":"The model does not exist","code":"model_not_found"}}`, nil)
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "models:\n  a: {vendor: openai, model: gtp-5, base_url: " + url + "}\n  b: {vendor: openai, model: gpt-5}\n  c: {vendor: gemini, model: gtp-4}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, code := probeOf(t, nil, "--config", file, "--model", "a"); code != exitModel || p.Hint != "did you mean gpt-5?" {
		t.Errorf("exit code %d, %+v", code, p)
	}
}

func TestProbeClock(t *testing.T) {
	for _, tt := range []struct {
		ahead time.Duration
		says  string
	}{{time.Hour, "ahead of the server's"}, {-time.Hour, "behind the server's"}, {10 * time.Second, ""}} {
		url := saying(t, 200, "text/event-stream", goodStream, http.Header{"Date": {time.Now().Add(-tt.ahead).UTC().Format(http.TimeFormat)}})
		p, code := probeOf(t, nil, "--model", "openai/m1", "--base-url", url)
		if code != exitOK || !p.OK || p.Answered != "m1-2026" || p.Usage.Input != 9 || p.ClockSkew == nil || (*p.ClockSkew-tt.ahead.Seconds()) > 2 || (tt.ahead.Seconds()-*p.ClockSkew) > 2 {
			t.Errorf("exit code %d, %+v", code, p)
		}
		var stdout bytes.Buffer
		code = execute(t.Context(), []string{"probe", "--model", "openai/m1", "--base-url", url}, strings.NewReader(""), &stdout, io.Discard, []string{"HOME=" + t.TempDir()})
		if code != exitOK || strings.Contains(stdout.String(), "clock ") != (tt.says != "") || !strings.Contains(stdout.String(), tt.says) {
			t.Errorf("exit code %d\n%s", code, &stdout)
		}
	}
}

// certified serves with a certificate for a time and a name.
func certified(t *testing.T, from, until time.Time, name string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until}
	if ip := net.ParseIP(name); ip != nil {
		c.IPAddresses = []net.IP{ip}
	} else {
		c.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewUnstartedServer(nil)
	ts.Config.ErrorLog = log.New(io.Discard, "", 0)
	ts.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	ts.StartTLS()
	t.Cleanup(ts.Close)
	return ts.URL
}

func TestProbeTLS(t *testing.T) {
	now := time.Now()
	plain := saying(t, 200, "text/plain", "", nil)
	tests := []struct{ name, url, problem, hint string }{
		{"unknown authority", certified(t, now.Add(-time.Hour), now.Add(time.Hour), "127.0.0.1"), "the server's certificate is refused", "a proxy that opens TLS"},
		{"not yet valid", certified(t, now.Add(time.Hour), now.Add(2*time.Hour), "127.0.0.1"), "is valid from ", "clock is behind"},
		{"not valid any more", certified(t, now.Add(-2*time.Hour), now.Add(-time.Hour), "127.0.0.1"), "was valid until ", "clock ahead"},
		{"no TLS", strings.Replace(plain, "http", "https", 1), "gave no response", "is the base URL http"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, code := probeOf(t, nil, "--model", "anthropic/m1", "--base-url", tt.url)
			if code != exitModel || !strings.Contains(p.Problem, tt.problem) || !strings.Contains(p.Hint, tt.hint) {
				t.Errorf("exit code %d, %+v", code, p)
			}
		})
	}
}

// A key is read from a variable, a file or a command, goes to the server and
// is shown nowhere.
func TestProbeKeys(t *testing.T) {
	const key = "sk-from-somewhere"
	var given string
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given = r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"message":"Incorrect API key provided: `+key+`"}}`)
	}))
	defer ts.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for from, place := range map[string]string{
		"environment variable MY_KEY": "{env: MY_KEY}", "file " + dir + "/key": "{file: " + dir + "/key}", "output of /bin/cat": "{command: [/bin/cat, " + dir + "/key]}",
	} {
		file := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(file, []byte("models:\n  m: {vendor: openai, model: m1, base_url: "+ts.URL+", key: "+place+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p, code := probeOf(t, []string{"MY_KEY=" + key}, "--config", file, "--model", "m")
		if code != exitModel || p.KeyFrom != from || given != "Bearer "+key || !strings.Contains(p.Problem, "the key was refused") || !strings.Contains(p.Hint, from) {
			t.Errorf("%s: exit code %d, %+v", place, code, p)
		}
		if strings.Contains(p.Problem+p.Hint, key) {
			t.Errorf("%s: the key is shown: %+v", place, p)
		}
	}
}

// A proxy is what the configuration says.
func TestProbeProxy(t *testing.T) {
	proxy := saying(t, 200, "text/event-stream", goodStream, nil)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("models:\n  m: {vendor: openai, model: m1, base_url: \"http://models.invalid/v1\", proxy: \""+proxy+"\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, code := probeOf(t, nil, "--config", file, "--model", "m"); code != exitOK || !p.OK {
		t.Errorf("exit code %d, %+v", code, p)
	}
}
