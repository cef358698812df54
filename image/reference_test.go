package image_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rein-sh/rein/image"
)

var (
	someDigest  = "sha256:" + strings.Repeat("0123456789abcdef", 4)
	otherDigest = "sha256:" + strings.Repeat("f", 64)
)

func TestParseReference(t *testing.T) {
	for in, want := range map[string]string{
		"debian":                                "docker.io/library/debian:latest",
		"debian:12":                             "docker.io/library/debian:12",
		"org/app":                               "docker.io/org/app:latest",
		"docker.io/debian":                      "docker.io/library/debian:latest",
		"index.docker.io/library/debian":        "docker.io/library/debian:latest",
		"GHCR.io/org/app:V1":                    "ghcr.io/org/app:V1",
		"localhost/app":                         "localhost/app:latest",
		"localhost:5000/app:1":                  "localhost:5000/app:1",
		"[::1]:5000/app":                        "[::1]:5000/app:latest",
		"ghcr.io/org/app@" + someDigest:         "ghcr.io/org/app@" + someDigest,
		"ghcr.io/org/app:1@" + someDigest:       "ghcr.io/org/app@" + someDigest,
		"oci:/srv/images/base":                  "oci:/srv/images/base",
		"oci:/srv/images/base:stable":           "oci:/srv/images/base:stable",
		"oci:/srv/a@b@" + someDigest:            "oci:/srv/a@b@" + someDigest,
		"docker-archive:/srv/a.tar":             "docker-archive:/srv/a.tar",
		"docker-archive:/srv/a.tar:app":         "docker-archive:/srv/a.tar:docker.io/library/app:latest",
		"docker-archive:/srv/a.tar:ghcr.io/x:1": "docker-archive:/srv/a.tar:ghcr.io/x:1",
		"oci:" + "/srv/x:weird/name:1":          "oci:/srv/x:weird/name:1",
	} {
		r, err := image.ParseReference(in)
		if err != nil || r.String() != want {
			t.Errorf("%q reads as %q (%v), want %q", in, r, err, want)
		}
	}
	for in, says := range map[string]string{
		"":                         "empty",
		"docker://debian":          "an address",
		"https://ghcr.io/a":        "an address",
		"Debian":                   "no part of a name",
		"debian:":                  "is no tag",
		"debian:a b":               "a space",
		"debian:\x1b[31m":          "control character",
		"debian@sha256:12":         "is no digest",
		"sha256:12":                "is no digest",
		"sha512:" + someDigest[7:]: "is no digest",
		"debian@md5:00":            "is no digest",
		"../etc":                   "is no registry",
		"ghcr.io/":                 "no part of a name",
		"ghcr.io/a//b":             "no part of a name",
		"a.b:70000000/x":           "is no registry",
		"oci:relative":             "no absolute path",
		"oci:/a/../b":              "not clean",
		"oci:/a/:x":                "not clean",
		"oci:/a:":                  "cannot be told apart",
		"oci:/a:x@" + someDigest:   "cannot be told apart",
		"docker-archive:/a.tar:B":  "no part of a name",
		"ghcr.io/org/*":            "no part of a name",
		"debian:*":                 "is no tag",
		strings.Repeat("a/", 3000): "more than 4096",
		strings.Repeat("a/", 200):  "more than 255",
	} {
		r, err := image.ParseReference(in)
		if image.KindOf(err) != image.KindInvalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q reads as %q (%v), want an error with %q", in, r, err, says)
		}
	}
}

func TestParsePattern(t *testing.T) {
	for _, bad := range []string{"", "*", "*:1", "*/app", "*/*", "ghcr.io/org*", "ghcr.io/*x/y", "gh*.io/x", "debian:1*2", "debian@sha256:*", "sha256:12", "sha256:*", "sha512", "oci:/srv/base*", "oci:x", "docker.io"} {
		if p, err := image.ParsePattern(bad); bad != "docker.io" && image.KindOf(err) != image.KindInvalid {
			t.Errorf("%q reads as %q (%v), want it refused", bad, p, err)
		}
	}
}

// What is not on the list is refused, with the line to add, before anybody is
// asked.
func TestAllow(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"debian", []string{"debian", "docker.io/library/debian:latest"}, []string{"debian:12", "org/debian", "ghcr.io/library/debian", "debian@" + someDigest}},
		{"debian:*", []string{"debian", "debian:12"}, []string{"debian-slim:12", "debian@" + someDigest, "debian/x"}},
		{"debian:12*", []string{"debian:12", "debian:12.1"}, []string{"debian", "debian:11"}},
		{"debian@*", []string{"debian@" + someDigest}, []string{"debian:12"}},
		{"debian@" + someDigest, []string{"debian@" + someDigest}, []string{"debian@" + otherDigest, "ubuntu@" + someDigest}},
		{someDigest, []string{"debian@" + someDigest, "oci:/x@" + someDigest}, []string{"debian@" + otherDigest}},
		{"ghcr.io/org/*", []string{"ghcr.io/org/a", "ghcr.io/org/a/b:2", "ghcr.io/org/a@" + someDigest}, []string{"ghcr.io/organisation/a", "ghcr.io/org", "quay.io/org/a"}},
		{"ghcr.io/*/app:1", []string{"ghcr.io/a/app:1"}, []string{"ghcr.io/a/b/app:1", "ghcr.io/a/app:2", "ghcr.io/app:1"}},
		{"ghcr.io/*", []string{"ghcr.io/a", "ghcr.io/a/b:2"}, []string{"docker.io/a"}},
		{"docker.io/*", []string{"debian", "org/x:1"}, []string{"ghcr.io/library/debian"}},
		{"oci:/srv/*", []string{"oci:/srv/a", "oci:/srv/a/b:1", "oci:/srv/a@" + someDigest}, []string{"oci:/srv", "oci:/srv2/a", "docker-archive:/srv/a"}},
		{"oci:/srv/a:*", []string{"oci:/srv/a:1"}, []string{"oci:/srv/a", "oci:/srv/ab:1"}},
		{"oci:/srv/a", []string{"oci:/srv/a", "oci:/srv/a:1", "oci:/srv/a@" + someDigest}, []string{"oci:/srv/ab:1", "oci:/srv/a/b:1"}},
		{"oci:/srv/a:1", []string{"oci:/srv/a:1"}, []string{"oci:/srv/a", "oci:/srv/a:2", "oci:/srv/a@" + someDigest}},
		{"docker-archive:/srv/*/a.tar", []string{"docker-archive:/srv/x/a.tar", "docker-archive:/srv/x/a.tar:b"}, []string{"docker-archive:/srv/x/y/a.tar"}},
	} {
		s := open(t, image.Options{Allow: []string{c.pattern}, Transport: transport(t, "0.0.0.0:0", nil)})
		for _, ref := range c.yes {
			if _, err := s.Get(t.Context(), ref); err == nil || image.KindOf(err) == image.KindDenied {
				t.Errorf("%s: %s is denied (%v)", c.pattern, ref, err)
			}
		}
		for _, ref := range c.no {
			_, err := s.Get(t.Context(), ref)
			e, ok := errors.AsType[*image.Error](err)
			if strings.HasPrefix(c.pattern, "debian@sha") && strings.HasPrefix(ref, "debian:") { // has to be asked for
				continue
			}
			if !ok || e.Kind != image.KindDenied {
				t.Errorf("%s: %s is not denied (%v)", c.pattern, ref, err)
				continue
			}
			r, err := image.ParseReference(ref)
			if line := fmt.Sprintf("\nimages: {allow: [%q]}", r); err != nil || !strings.HasSuffix(e.Hint, line) {
				t.Errorf("%s: the hint %q does not end with %q", ref, e.Hint, line)
			}
		}
	}
	if _, err := open(t, image.Options{}).Get(t.Context(), "debian"); image.KindOf(err) != image.KindDenied {
		t.Errorf("an empty list: %v, want it denied", err)
	}
}

// A tag that leads to an allowed digest may be used, also from the cache, and
// no longer when it leads elsewhere.
func TestAllowDigest(t *testing.T) {
	f := newFake(t, false)
	ref, digest := pushed(t, f)
	for _, pattern := range []string{digest, f.host + "/org/app@" + digest} {
		s := open(t, image.Options{Allow: []string{pattern}, Transport: transport(t, "", nil)})
		get(t, s, ref)
		if img := get(t, s, ref); img.Fetched {
			t.Error("it was fetched twice")
		}
		m := made(t, []entry{file("evil", "")})
		m.push(f.URL, "org/app", "1", m.manifest())
		if _, err := s.Get(t.Context(), ref); image.KindOf(err) != image.KindDenied {
			t.Errorf("%s: the tag leads elsewhere and is used: %v", pattern, err)
		}
		if n := f.count("/blobs/sha256"); n > 6 {
			t.Errorf("layers of what is denied were fetched: %q", f.asked)
		}
		pushed(t, f)
	}
}
