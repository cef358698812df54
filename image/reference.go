package image

import (
	"errors"
	"fmt"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// The names of sources that are no registry, as references begin with them.
const (
	schemeLayout  = "oci:"
	schemeArchive = "docker-archive:"
)

// maxReference bounds a reference and a pattern, in bytes.
const maxReference = 4096

// The parts of names, as the distribution specification has them.
var (
	hostPart    = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?$`)
	elementPart = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$`)
	tagPart     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	digestPart  = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// Reference names an image: in a registry (debian, ghcr.io/org/app:1,
// repo@sha256:…; docker.io and :latest where they are left out), in an OCI
// layout (oci:/DIR, oci:/DIR:TAG, oci:/DIR@sha256:…) or in a docker-archive
// (docker-archive:/FILE, docker-archive:/FILE:REFERENCE). Directories and files
// are absolute paths without colons.
type Reference struct {
	scheme string // "" for a registry
	place  string // REGISTRY/REPOSITORY, or the path
	tag    string // or the reference inside a docker-archive
	digest string
}

// ParseReference reads a reference. The error is an *Error with a hint.
func ParseReference(s string) (Reference, error) {
	r, err := parse(s, false)
	if err != nil {
		return Reference{}, failed("reference", fmt.Sprintf("%.200q", s), KindInvalid, err)
	}
	return r, nil
}

// String writes the reference out, so that it reads back as the same.
func (r Reference) String() string {
	s := r.scheme + r.place
	switch {
	case r.digest != "":
		return s + "@" + r.digest
	case r.tag != "":
		return s + ":" + r.tag
	}
	return s
}

// Digest is the digest the reference names, "" when it names none.
func (r Reference) Digest() string { return r.digest }

func bad(hint, format string, args ...any) error {
	return &fault{kind: KindInvalid, hint: hint, err: fmt.Errorf(format, args...)}
}

// parse reads a reference, or with stars a pattern of them.
func parse(s string, stars bool) (Reference, error) {
	switch {
	case s == "":
		return Reference{}, bad("such as debian:12", "it is empty")
	case len(s) > maxReference:
		return Reference{}, bad("", "it has %d bytes, more than %d", len(s), maxReference)
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return Reference{}, bad("", "a space or a control character is in it")
	case strings.Contains(s, "://"):
		return Reference{}, bad("leave out what comes before the registry's name, as in ghcr.io/org/app:1", "it is an address, not a reference")
	}
	for _, scheme := range []string{schemeLayout, schemeArchive} {
		if rest, ok := strings.CutPrefix(s, scheme); ok {
			return parsePath(scheme, rest, stars)
		}
	}
	return parseRegistry(s, stars)
}

// parsePath reads what follows the name of a source on this host.
func parsePath(scheme, rest string, stars bool) (Reference, error) {
	if !strings.HasPrefix(rest, "/") {
		return Reference{}, bad("write an absolute path; an image of this name in a registry is docker.io/library/"+scheme+"TAG",
			"%q is no absolute path", rest)
	}
	r := Reference{scheme: scheme, place: rest}
	if scheme == schemeLayout {
		if at := strings.LastIndexByte(rest, '@'); at >= 0 && (digestPart.MatchString(rest[at+1:]) || stars && rest[at+1:] == "*") {
			r.place, r.digest = rest[:at], rest[at+1:]
		}
	}
	if dir, tag, ok := strings.Cut(r.place, ":"); ok {
		if r.digest != "" || tag == "" {
			return Reference{}, bad("write PATH, PATH:NAME or PATH@sha256:DIGEST; the path has no colon", "%q cannot be told apart", rest)
		}
		r.place, r.tag = dir, tag
	}
	if clean := path.Clean(r.place); clean != r.place {
		return Reference{}, bad("write "+clean, "the path %q is not clean", r.place)
	}
	if scheme == schemeArchive && r.tag != "" && r.tag != "*" {
		inner, err := parseRegistry(r.tag, stars)
		if err != nil {
			return Reference{}, err
		}
		r.tag = inner.String()
	}
	return r, nil
}

// parseRegistry reads REGISTRY/REPOSITORY:TAG or …@DIGEST.
func parseRegistry(s string, stars bool) (Reference, error) {
	rest, digest, byDigest := strings.Cut(s, "@")
	if byDigest && !digestPart.MatchString(digest) && !(stars && digest == "*") {
		return Reference{}, bad("a digest is sha256: and 64 lower-case hexadecimal digits", "%q is no digest", digest)
	}
	if algorithm, _, _ := strings.Cut(rest, ":"); algorithm == "sha256" || algorithm == "sha512" { // else a repository of Docker Hub
		return Reference{}, bad("a digest is sha256: and 64 lower-case hexadecimal digits, behind a name and an @, or in an allow-list alone", "%.100q is no digest", rest)
	}
	host, repository, ok := strings.Cut(rest, "/")
	lower := strings.ToLower(host)
	if ok = ok && (strings.ContainsAny(host, ".:") || lower == "localhost"); ok {
		host = lower
	} else {
		host, repository = "docker.io", rest
	}
	if host == "index.docker.io" {
		host = "docker.io"
	}
	tag := ""
	if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
		repository, tag = repository[:i], repository[i+1:]
		if !tagPart.MatchString(tag) && !(stars && starredTag(tag)) {
			return Reference{}, bad("a tag is letters, digits, _, . and -, at most 128", "%q is no tag", tag)
		}
	}
	if !ok && (repository == "*" || strings.HasPrefix(repository, "*/")) {
		return Reference{}, bad("name the registry, as in docker.io/*", "a registry is never a *")
	}
	if host == "docker.io" && !strings.Contains(repository, "/") && repository != "*" {
		repository = "library/" + repository
	}
	if !hostPart.MatchString(host) {
		return Reference{}, bad("such as ghcr.io or localhost:5000", "%q is no registry", host)
	}
	if len(repository) > 255 {
		return Reference{}, bad("", "the name of the repository has %d bytes, more than 255", len(repository))
	}
	for e := range strings.SplitSeq(repository, "/") {
		if !elementPart.MatchString(e) && !(stars && e == "*") {
			return Reference{}, bad("names are lower-case letters and digits, with single separators between them", "%q is no part of a name", e)
		}
	}
	r := Reference{place: host + "/" + repository, tag: tag, digest: digest}
	switch tail := strings.HasSuffix(r.place, "/*"); {
	case byDigest:
		r.tag = "" // the digest decides
	case tag == "" && !(stars && tail):
		r.tag = "latest"
	}
	return r, nil
}

func starredTag(tag string) bool {
	prefix, ok := strings.CutSuffix(tag, "*")
	return ok && (prefix == "" || tagPart.MatchString(prefix))
}

// CheckRegistry reports whether s names a registry, as HOST or HOST:PORT. The
// error is an *Error with a hint.
func CheckRegistry(s string) error {
	if hostPart.MatchString(strings.ToLower(s)) {
		return nil
	}
	return &Error{Kind: KindInvalid, Op: "registry", Subject: fmt.Sprintf("%.200q", s), Err: errors.New("it is no HOST or HOST:PORT"),
		Hint: "such as registry.internal:5000"}
}

// remote is the reference as the registry library has it. insecure decides
// whether plain HTTP is tried.
func (r Reference) remote(insecure []string) (name.Reference, error) {
	opts := []name.Option{name.StrictValidation}
	if host, _, _ := strings.Cut(r.place, "/"); isLoopback(host) || listed(host, insecure) {
		opts = append(opts, name.Insecure)
	}
	return name.ParseReference(r.String(), opts...)
}

// bareHost is a host without its port.
func bareHost(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.Trim(host, "[]")
}

// isLoopback reports whether a host, with or without a port, is this one.
func isLoopback(host string) bool {
	bare := bareHost(host)
	ip := net.ParseIP(bare)
	return bare == "localhost" || strings.HasSuffix(bare, ".localhost") || ip != nil && ip.IsLoopback()
}

// listed reports whether a host, with or without a port, is one of insecure.
func listed(host string, insecure []string) bool {
	bare := bareHost(host)
	return slices.ContainsFunc(insecure, func(i string) bool {
		i = strings.ToLower(i)
		return i == host || i == bare
	})
}
