package image_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/rein-sh/rein/image"
)

// bearer makes a registry want a token, from a token server that wants a
// password.
func bearer(t testing.TB, f *fake, user, password string) {
	t.Helper()
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
			w.WriteHeader(401)
			return
		}
		json.NewEncoder(w).Encode(map[string]string{"token": "let-me-in"})
	}))
	t.Cleanup(tokens.Close)
	// A name, because the library refuses private addresses but the registry's own.
	realm := strings.Replace(tokens.URL, "127.0.0.1", "localhost", 1)
	f.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "Bearer let-me-in" {
			return false
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="test",scope="repository:org/app:pull"`, realm))
		w.WriteHeader(401)
		return true
	})
}

func basic(f *fake, user, password string) {
	f.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if u, p, ok := r.BasicAuth(); ok && u == user && p == password {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(401)
		return true
	})
}

// keys is a keychain of one registry.
type keys struct{ host, user, password string }

func (k keys) Resolve(r authn.Resource) (authn.Authenticator, error) {
	if r.RegistryStr() != k.host {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(authn.AuthConfig{Username: k.user, Password: k.password}), nil
}

func TestAuthentication(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for name, lock := range map[string]func(testing.TB, *fake){
			"basic":  func(_ testing.TB, f *fake) { basic(f, "me", "open sesame") },
			"bearer": func(t testing.TB, f *fake) { bearer(t, f, "me", "open sesame") },
		} {
			t.Run(fmt.Sprintf("%s, TLS %v", name, secure), func(t *testing.T) {
				f := newFake(t, secure)
				var config *tls.Config
				if secure {
					config = f.Client().Transport.(*http.Transport).TLSClientConfig
				}
				m := made(t, []entry{file("a", "1")})
				m.pushWith(f.Client(), f.URL, "org/app", "1", m.manifest())
				lock(t, f)
				ref := f.host + "/org/app:1"
				o := image.Options{Allow: []string{ref}, Transport: transport(t, "", config), Keychain: keys{f.host, "me", "open sesame"}}
				if secure && name == "bearer" { // its token server has no TLS
					_, err := open(t, o).Get(t.Context(), ref)
					if err == nil || !strings.Contains(err.Error(), "realm") {
						t.Errorf("got %v, want the plain token server refused", err)
					}
					return
				}
				if img := get(t, open(t, o), ref); !img.Fetched {
					t.Error("it was not fetched")
				}
				for _, k := range []authn.Keychain{nil, keys{f.host, "me", "wrong"}} {
					o.Keychain, o.Dir = k, ""
					_, err := open(t, o).Get(t.Context(), ref)
					if image.KindOf(err) != image.KindUnauthorized || strings.Contains(fmt.Sprint(err), "wrong") {
						t.Errorf("with %v: %v, want it unauthorized", k, err)
					}
					if sent := strings.Contains(fmt.Sprint(err), "it was sent the credentials"); sent != (k != nil) {
						t.Errorf("with %v: %v; that credentials were refused is said: %v", k, err, sent)
					}
				}
			})
		}
	}
}

// What a token server is asked with stays with it: a redirect of the request that
// carries it ends there.
func TestTokenRedirect(t *testing.T) {
	f := newFake(t, false)
	var asked, followed atomic.Int32
	third := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { followed.Add(1); w.WriteHeader(401) }))
	defer third.Close()
	f.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" && r.Method == http.MethodPost {
			asked.Add(1)
			http.Redirect(w, r, strings.Replace(third.URL, "127.0.0.1", "localhost", 1)+"/token", http.StatusTemporaryRedirect)
			return true
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="test"`, f.host))
		w.WriteHeader(401)
		return true
	})
	o := image.Options{Allow: []string{f.host + "/*"}, Transport: transport(t, "", nil), Keychain: tokenKeys{}}
	_, err := open(t, o).Get(t.Context(), f.host+"/org/app:1")
	if image.KindOf(err) != image.KindRefused || asked.Load() == 0 || followed.Load() != 0 {
		t.Errorf("got %v; asked %d times, followed %d; want it refused", err, asked.Load(), followed.Load())
	}
	if strings.Contains(fmt.Sprint(err), "a-refresh-token") {
		t.Errorf("%v says the token", err)
	}
}

// tokenKeys is a keychain of one registry, of which docker login has kept a
// refresh token.
type tokenKeys struct{}

func (tokenKeys) Resolve(authn.Resource) (authn.Authenticator, error) {
	return authn.FromConfig(authn.AuthConfig{IdentityToken: "a-refresh-token"}), nil
}
