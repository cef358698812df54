package egress

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/inference"
)

// FuzzDoor checks that what the door takes is a request to a host of models with the
// path as it was sent, whatever the target is.
func FuzzDoor(f *testing.F) {
	m, err := newModels([]inference.Host{{Name: "models.example.com"}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, target := range []string{"/models.example.com/v1/a?b=c", "/models.example.com//a", "/models.example.com", "//models.example.com/", "http://10.88.0.1:3129/models.example.com/%2e%2e/a",
		"/models.example.com/http://other/", "/models.example.com/a#b", "*", "/other/"} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		h, inner, err := m.through(&http.Request{Method: "POST", URL: u, RequestURI: target, Header: http.Header{}, Host: "10.88.0.1:3129"})
		if err != nil {
			return
		}
		path, _, _ := strings.Cut(inner.RequestURI, "?")
		if h.Name != "models.example.com" || inner.Host != h.Name || inner.URL.Host != "" || !strings.HasPrefix(path, "/") {
			t.Errorf("%q leads to %s with Host %s and %q", target, h.Name, inner.Host, inner.RequestURI)
		}
		if strings.HasPrefix(target, "/") && target != "/"+h.Name+inner.RequestURI {
			t.Errorf("%q becomes %q", target, inner.RequestURI)
		}
	})
}
