package vault

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// AWS Signature Version 4, as the client has made it with the placeholder: it is
// checked with that, and made again with the secret. See "Create a signed AWS API
// request" in AWS's IAM User Guide, and "Authenticating Requests (AWS Signature
// Version 4)" in the API Reference of S3.
const (
	awsAlgorithm = "AWS4-HMAC-SHA256"
	awsUnsigned  = "UNSIGNED-PAYLOAD"

	// maxSignedBody is how much of a body is kept to compute its hash, in bytes,
	// where the request does not say it.
	maxSignedBody = 16 << 20
	// maxSignedBodies is how much is kept at once of all.
	maxSignedBodies = 64 << 20
)

// spelling is how a path stands in what is signed: as it is sent, which is S3's
// way, or encoded once more, which is that of all others, of which some clear
// empty and dot segments away first.
type spelling int

const (
	asSent spelling = iota
	encoded
	cleared
	spellings
)

func (s spelling) of(p string) string {
	if s == asSent {
		return p
	}
	if s == cleared {
		clean := path.Clean("/" + p)
		if strings.HasSuffix(p, "/") && clean != "/" {
			clean += "/"
		}
		p = clean
	}
	return awsEscape(p, true)
}

// signing is a request's signature.
type signing struct {
	scope     []string // date, region, service, aws4_request
	date      string
	signed    []string // names of fields, in lower case
	signature string
	inQuery   bool
	payload   string // hash of the body, or what stands for it
	host      string
	spelling  spelling // of the path

	keyID  string
	secret string
}

// signature judges the signature of a request to a target to which a secret of
// that form is bound. One without is as it is: nothing is signed for it.
func (q *request) signature(r *http.Request, b *bound) error {
	s, err := parseSignature(r, q.header.Get("Authorization"))
	if err != nil || s == nil {
		return err
	}
	if s.keyID != b.AccessKey {
		return refuse(RuleForeign, "the request is signed with another access key than that of %s", b.of.name)
	}
	if s.payload, err = q.vault.payloadOf(r, s.inQuery, s.scope[2]); err != nil {
		return err
	}
	if !s.matches(r, q.path, b.of.placeholder) {
		return refuse(RuleForeign, "the request is not signed with this sandbox's placeholder of %s", b.of.name)
	}
	if s.secret, err = q.vault.value(b.of); err != nil {
		return err
	}
	q.header.Del("Authorization")
	q.grant.sign = s
	return nil
}

// signed reports whether a parameter is part of a signature that is made again.
func (q *request) signed(name string) bool {
	s := q.grant.sign
	return s != nil && s.inQuery && slices.Contains([]string{"X-Amz-Credential", "X-Amz-Signature"}, name)
}

// parseSignature reads the signature of a request; nil when it has none.
func parseSignature(r *http.Request, field string) (*signing, error) {
	bad := refuse(RuleForeign, "Authorization is not a signature of AWS, version 4")
	s := &signing{host: r.Host}
	var credential, names string
	if field != "" {
		rest, ok := strings.CutPrefix(field, awsAlgorithm+" ")
		if !ok {
			return nil, bad
		}
		for part := range strings.SplitSeq(rest, ",") {
			key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			switch key {
			case "Credential":
				credential = value
			case "SignedHeaders":
				names = value
			case "Signature":
				s.signature = value
			default:
				return nil, bad
			}
		}
		s.date = r.Header.Get("X-Amz-Date")
	} else {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil || !query.Has("X-Amz-Signature") {
			return nil, nil // parameters judges what else there is
		}
		s.inQuery = true
		credential, names, s.signature, s.date = query.Get("X-Amz-Credential"), query.Get("X-Amz-SignedHeaders"), query.Get("X-Amz-Signature"), query.Get("X-Amz-Date")
		if query.Get("X-Amz-Algorithm") != awsAlgorithm {
			return nil, bad
		}
	}
	parts := strings.Split(credential, "/")
	if len(parts) < 5 || parts[len(parts)-1] != "aws4_request" || len(s.signature) != 64 || names == "" || s.date == "" {
		return nil, bad
	}
	s.keyID = strings.Join(parts[:len(parts)-4], "/")
	s.scope, s.signed = parts[len(parts)-4:], strings.Split(names, ";")
	if !s.wellFormed() {
		return nil, bad
	}
	return s, nil
}

var (
	awsDate  = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z$`)
	awsScope = regexp.MustCompile(`^[A-Za-z0-9._-]*$`)
	awsField = regexp.MustCompile("^[a-z0-9!#$%&'*+.^_`|~-]+$")
)

// wellFormed reports whether nothing in a signature can stand for more than one
// line or part of what is signed. What is in a query can have any byte.
func (s *signing) wellFormed() bool {
	for i, name := range s.signed {
		if !awsField.MatchString(name) || i > 0 && s.signed[i-1] >= name {
			return false
		}
	}
	return slices.Contains(s.signed, "host") && awsDate.MatchString(s.date) && s.scope[0] == s.date[:len("20060102")] &&
		!slices.ContainsFunc(s.scope, func(part string) bool { return !awsScope.MatchString(part) })
}

// payloadOf is what a signature has of the body. Where the request does not say
// it, it is the hash of the body, which is kept meanwhile.
func (v *Vault) payloadOf(r *http.Request, inQuery bool, service string) (string, error) {
	if said := r.Header.Get("X-Amz-Content-Sha256"); said != "" {
		if strings.HasPrefix(said, "STREAMING-"+awsAlgorithm) {
			return "", refuse(RuleForm, "the chunks of the body are signed one by one, which cannot be made again: have the client send an unsigned payload")
		}
		return said, nil
	}
	if inQuery && strings.HasPrefix(service, "s3") { // for others it is the body's, which is mostly empty
		return awsUnsigned, nil
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = v.keep(r); err != nil {
			return "", fmt.Errorf("read the body to be signed: %w", err)
		}
		r.Body = &kept{bytes.NewReader(body), r.Body}
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:]), nil
}

// keep reads the body of a request, which counts until the request's context ends.
func (v *Vault) keep(r *http.Request) ([]byte, error) {
	c := &counted{src: r.Body, of: &v.kept}
	body, err := io.ReadAll(io.LimitReader(c, maxSignedBody+1))
	if err == nil && len(body) > maxSignedBody {
		err = refuse(RuleForm, "the body has more than %d bytes, and the request does not say its hash", maxSignedBody)
	}
	if err != nil {
		v.kept.Add(-c.n)
		return nil, err
	}
	context.AfterFunc(r.Context(), func() { v.kept.Add(-c.n) })
	return body, nil
}

// counted is a body whose bytes count.
type counted struct {
	src io.Reader
	of  *atomic.Int64
	n   int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.src.Read(p)
	c.n += int64(n)
	if c.of.Add(int64(n)) > maxSignedBodies {
		return 0, refuse(RuleForm, "the bodies of requests that are to be signed have more than %d bytes at once", maxSignedBodies)
	}
	return n, err
}

type kept struct {
	io.Reader
	io.Closer
}

// matches reports whether the signature was made with a key, and learns how the
// client encodes paths.
func (s *signing) matches(r *http.Request, path, key string) bool {
	for s.spelling = range spellings {
		made, err := s.make(r, path, r.URL.RawQuery, key)
		if err == nil && hmac.Equal([]byte(made), []byte(s.signature)) {
			return true
		}
	}
	return false
}

// make signs a request.
func (s *signing) make(r *http.Request, path, query, key string) (string, error) {
	canonical, err := s.canonical(r, path, query)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{awsAlgorithm, s.date, strings.Join(s.scope, "/"), hex.EncodeToString(sum[:])}, "\n")
	k := []byte("AWS4" + key)
	for _, part := range append(slices.Clone(s.scope), text) {
		mac := hmac.New(sha256.New, k)
		mac.Write([]byte(part))
		k = mac.Sum(nil)
	}
	return hex.EncodeToString(k), nil
}

// canonical is the text of a request that is signed.
func (s *signing) canonical(r *http.Request, path, query string) (string, error) {
	path = s.spelling.of(path)
	q, err := s.canonicalQuery(query)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, part := range []string{r.Method, path, q} {
		b.WriteString(part + "\n")
	}
	for _, name := range s.signed {
		var values []string
		switch name {
		case "host":
			values = []string{s.host}
		case "content-length":
			values = []string{strconv.FormatInt(max(r.ContentLength, 0), 10)}
		default:
			values = r.Header.Values(name)
		}
		for i, v := range values {
			values = slices.Clone(values)
			values[i] = strings.Join(strings.Fields(v), " ")
		}
		b.WriteString(name + ":" + strings.Join(values, ",") + "\n")
	}
	b.WriteString("\n" + strings.Join(s.signed, ";") + "\n" + s.payload)
	return b.String(), nil
}

// canonicalQuery is a query in the order and encoding in which it is signed,
// without the signature.
func (s *signing) canonicalQuery(query string) (string, error) {
	if query == "" {
		return "", nil
	}
	var parts [][2]string
	for part := range strings.SplitSeq(query, "&") {
		if part == "" {
			continue
		}
		rawName, rawValue, _ := strings.Cut(part, "=")
		name, err1 := url.PathUnescape(strings.ReplaceAll(rawName, "+", " "))
		value, err2 := url.PathUnescape(strings.ReplaceAll(rawValue, "+", " "))
		if err := errors.Join(err1, err2); err != nil {
			return "", err
		}
		if s.inQuery && name == "X-Amz-Signature" {
			continue
		}
		parts = append(parts, [2]string{awsEscape(name, false), awsEscape(value, false)})
	}
	slices.SortFunc(parts, func(a, b [2]string) int { return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1])) })
	pairs := make([]string, len(parts))
	for i, p := range parts {
		pairs[i] = p[0] + "=" + p[1]
	}
	return strings.Join(pairs, "&"), nil
}

// awsEscape percent-encodes all but unreserved characters (RFC 3986 2.3), and
// slashes of a path.
func awsEscape(s string, path bool) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if kindOf(c) != 0 || strings.IndexByte("-._~", c) >= 0 || path && c == '/' {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// apply signs the request that goes out, whose path and query are in their raw
// forms, and returns the signature.
func (s *signing) apply(out *http.Request, path string) (string, error) {
	if s == nil {
		return "", nil
	}
	if !s.inQuery { // what was taken out of the request is not signed; a query has its names from before
		s.signed = slices.DeleteFunc(s.signed, func(name string) bool {
			return name != "host" && name != "content-length" && len(out.Header.Values(name)) == 0
		})
	}
	made, err := s.make(out, path, out.URL.RawQuery, s.secret)
	if err != nil {
		return "", err
	}
	if s.inQuery {
		out.URL.RawQuery = s.exchange(out.URL.RawQuery, made)
		return made, nil
	}
	out.Header.Set("Authorization", fmt.Sprintf("%s Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		awsAlgorithm, s.keyID, strings.Join(s.scope, "/"), strings.Join(s.signed, ";"), made))
	return made, nil
}

// exchange puts a signature in the place of the one in a query.
func (s *signing) exchange(query, made string) string {
	parts := strings.Split(query, "&")
	for i, part := range parts {
		rawName, _, _ := strings.Cut(part, "=")
		if name, err := url.QueryUnescape(rawName); err == nil && name == "X-Amz-Signature" { // once: parameters saw to that
			parts[i] = rawName + "=" + made
		}
	}
	return strings.Join(parts, "&")
}
