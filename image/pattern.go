package image

import (
	"fmt"
	"strings"
)

// Pattern is one line of an allow-list.
type Pattern struct {
	digest string // a bare digest: from wherever it comes
	ref    Reference
	text   string
}

// ParsePattern reads a line of an allow-list. It is a reference, written as
// [ParseReference] reads it and meaning exactly that one (debian is
// docker.io/library/debian:latest), with these liberties:
//
//	ghcr.io/org/*         everything beneath, with every tag and digest
//	ghcr.io/*/app:1       * is one part of the path
//	debian:*, debian:12*  every tag, every tag that begins so
//	debian@*              every digest
//	debian@sha256:…       that digest, also when a tag leads to it
//	sha256:…              that digest, from wherever it comes
//	oci:/srv/images/*     every layout beneath; the same for docker-archive:
//	oci:/srv/images/a     that layout, with every name and digest; the same
//
// A registry is never a *, nor is a part of a name: ghcr.io/org* would also be
// somebody else's ghcr.io/organisation.
func ParsePattern(s string) (Pattern, error) {
	if digestPart.MatchString(s) {
		return Pattern{digest: s, text: s}, nil
	}
	r, err := parse(s, true)
	if err == nil && r.scheme != "" {
		err = pathStars(r.place)
	}
	if err != nil {
		return Pattern{}, failed("pattern", fmt.Sprintf("%.200q", s), KindInvalid, err)
	}
	return Pattern{ref: r, text: r.String()}, nil
}

// pathStars checks that every * of a path is a whole element.
func pathStars(p string) error {
	for e := range strings.SplitSeq(p, "/") {
		if e != "*" && strings.Contains(e, "*") {
			return bad("* stands for a whole element, or for all that follows, as in /srv/images/*", "%q has a * within", e)
		}
	}
	return nil
}

// String is the pattern, written out.
func (p Pattern) String() string { return p.text }

// match reports whether the pattern allows r, which led to digests. Without
// digests it judges the name alone.
func (p Pattern) match(r Reference, digests []string) bool {
	has := func(d string) bool {
		if d == r.digest {
			return true
		}
		for _, known := range digests {
			if known == d {
				return true
			}
		}
		return false
	}
	if p.digest != "" {
		return has(p.digest)
	}
	if p.ref.scheme != r.scheme {
		return false
	}
	tail := strings.HasSuffix(p.ref.place, "/*") && p.ref.tag == "" && p.ref.digest == ""
	if !matchPath(p.ref.place, r.place, tail) {
		return false
	}
	switch {
	case tail, p.ref.scheme != "" && p.ref.tag == "" && p.ref.digest == "": // who trusts a file trusts all that is in it
		return true
	case p.ref.digest == "*":
		return r.digest != ""
	case p.ref.digest != "":
		return has(p.ref.digest)
	case r.digest != "":
		return false
	case strings.HasSuffix(p.ref.tag, "*"):
		return r.tag != "" && strings.HasPrefix(r.tag, strings.TrimSuffix(p.ref.tag, "*"))
	}
	return p.ref.tag == r.tag
}

// matchPath compares element by element; with tail, the last * is all that
// follows.
func matchPath(pattern, place string, tail bool) bool {
	want, got := strings.Split(pattern, "/"), strings.Split(place, "/")
	if tail {
		want = want[:len(want)-1]
		if len(got) <= len(want) {
			return false
		}
		got = got[:len(want)]
	}
	if len(want) != len(got) {
		return false
	}
	for i, w := range want {
		if w != "*" && w != got[i] {
			return false
		}
	}
	return true
}

// digestOnly reports whether the digest a name leads to decides whether the
// pattern allows it, so that r has to be resolved first.
func (p Pattern) digestOnly(r Reference) bool {
	if r.digest != "" {
		return false
	}
	if p.digest != "" {
		return true
	}
	return p.ref.scheme == r.scheme && p.ref.digest != "" && p.ref.digest != "*" && matchPath(p.ref.place, r.place, false)
}

// allowed judges a reference that led to digests.
func (s *Store) allowed(r Reference, digests []string) bool {
	for _, p := range s.allow {
		if p.match(r, digests) {
			return true
		}
	}
	return false
}

// mayBeAllowed reports whether it is worth finding out the digest of r.
func (s *Store) mayBeAllowed(r Reference) bool {
	for _, p := range s.allow {
		if p.match(r, nil) || p.digestOnly(r) {
			return true
		}
	}
	return false
}

// Check judges a name as far as that can be done without asking anybody: an error
// of KindInvalid or KindDenied says that Get refuses it.
func (s *Store) Check(name string) error {
	r, err := ParseReference(name)
	if err == nil && !s.mayBeAllowed(r) {
		err = denied(r)
	}
	return err
}

func denied(r Reference) error {
	return &Error{Kind: KindDenied, Op: "image", Subject: r.String(), Err: fmt.Errorf("it is not on the list of allowed images"),
		Hint: "if it is trusted, add it to the list in the configuration:\n" + fmt.Sprintf("images: {allow: [%q]}", r)}
}
