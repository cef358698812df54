package clients

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// s3 is a bucket of S3 as far as its clients need it to put, get and list objects,
// whole and in parts. It believes nobody: it computes each request's signature
// itself (AWS Signature Version 4, in a field or in the query), and the hash of
// the body where that is signed.
type s3 struct {
	secret string

	mu      sync.Mutex
	objects map[string][]byte
	parts   map[string]map[int][]byte // of uploads, by id
}

// maxObject bounds what is kept of one request, in bytes.
const maxObject = 32 << 20

func newS3(secret string) *s3 {
	return &s3{secret: secret, objects: map[string][]byte{}, parts: map[string]map[int][]byte{}}
}

func (s *s3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/xml")
	payload, err := s.verify(r)
	if err != nil {
		denied(w, http.StatusForbidden, "SignatureDoesNotMatch", err)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxObject))
	if err == nil {
		body, err = unpack(body, payload)
	}
	if err != nil {
		denied(w, http.StatusBadRequest, "BadDigest", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve(w, r, body)
}

func denied(w http.ResponseWriter, status int, code string, err error) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%v</Message></Error>", code, err)
}

// serve does what is asked for. The lock is held.
func (s *s3) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	key, query := strings.TrimPrefix(r.URL.Path, "/"), r.URL.Query()
	upload := query.Get("uploadId")
	switch {
	case r.Method == http.MethodPost && query.Has("uploads"):
		id := fmt.Sprint(len(s.parts) + 1)
		s.parts[id] = map[int][]byte{}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>%s</Key><UploadId>%s</UploadId></InitiateMultipartUploadResult>", key, id)
	case r.Method == http.MethodPut && s.parts[upload] != nil:
		n, _ := strconv.Atoi(query.Get("partNumber")) // 0 is one like others
		s.parts[upload][n] = body
		w.Header().Set("ETag", etag(body))
	case r.Method == http.MethodPost && s.parts[upload] != nil:
		var whole []byte
		for _, n := range slices.Sorted(maps.Keys(s.parts[upload])) {
			whole = append(whole, s.parts[upload][n]...)
		}
		s.objects[key] = whole
		fmt.Fprintf(w, "<CompleteMultipartUploadResult><Key>%s</Key><ETag>%s</ETag></CompleteMultipartUploadResult>", key, etag(whole))
	case r.Method == http.MethodPut:
		s.objects[key] = body
		w.Header().Set("ETag", etag(body))
	case r.Method == http.MethodGet && key == "":
		fmt.Fprint(w, "<ListBucketResult>")
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>", name, len(s.objects[name]))
		}
		fmt.Fprint(w, "</ListBucketResult>")
	case (r.Method == http.MethodGet || r.Method == http.MethodHead) && s.objects[key] != nil:
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("ETag", etag(s.objects[key]))
		http.ServeContent(w, r, "", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), bytes.NewReader(s.objects[key]))
	default:
		denied(w, http.StatusNotFound, "NoSuchKey", fmt.Errorf("%s %s", r.Method, r.URL))
	}
}

func etag(b []byte) string { return fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum(b))) }

// verify returns what the signature says of the body.
func (s *s3) verify(r *http.Request) (payload string, err error) {
	query := r.URL.Query()
	given, date, inQuery := map[string]string{}, r.Header.Get("X-Amz-Date"), query.Has("X-Amz-Signature")
	if inQuery {
		given = map[string]string{"Credential": query.Get("X-Amz-Credential"), "SignedHeaders": query.Get("X-Amz-SignedHeaders"), "Signature": query.Get("X-Amz-Signature")}
		date = query.Get("X-Amz-Date")
	} else {
		rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
		if !ok {
			return "", fmt.Errorf("no signature")
		}
		for part := range strings.SplitSeq(rest, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			given[name] = value
		}
	}
	id, scope, _ := strings.Cut(given["Credential"], "/")
	if id != AccessKey || strings.Count(scope, "/") != 3 {
		return "", fmt.Errorf("no such access key")
	}
	payload = cmp.Or(r.Header.Get("X-Amz-Content-Sha256"), "UNSIGNED-PAYLOAD")
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n%s\n%s\n", r.Method, r.URL.EscapedPath(), sortedQuery(query))
	for name := range strings.SplitSeq(given["SignedHeaders"], ";") {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.FormatInt(r.ContentLength, 10)
		}
		fmt.Fprintf(&text, "%s:%s\n", name, strings.Join(strings.Fields(value), " "))
	}
	fmt.Fprintf(&text, "\n%s\n%s", given["SignedHeaders"], payload)
	key := []byte("AWS4" + s.secret)
	for part := range strings.SplitSeq(scope, "/") {
		key = sign(key, part)
	}
	want := sign(key, fmt.Sprintf("AWS4-HMAC-SHA256\n%s\n%s\n%x", date, scope, sha256.Sum256([]byte(text.String()))))
	if got, err := hex.DecodeString(given["Signature"]); err != nil || !hmac.Equal(got, want) {
		return "", fmt.Errorf("the signature is another")
	}
	return payload, nil
}

func sign(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// sortedQuery is the query as it is signed.
func sortedQuery(query url.Values) string {
	query.Del("X-Amz-Signature")
	return strings.ReplaceAll(query.Encode(), "+", "%20")
}

// unpack is the body that a request brings: as it is, with its hash proved, or in
// chunks with a checksum after them, which are not signed.
func unpack(body []byte, payload string) ([]byte, error) {
	switch payload {
	case "UNSIGNED-PAYLOAD":
		return body, nil
	case "STREAMING-UNSIGNED-PAYLOAD-TRAILER":
		var whole []byte
		for {
			head, rest, ok := strings.Cut(string(body), "\r\n")
			n, err := strconv.ParseUint(head, 16, 31)
			if !ok || err != nil || int(n)+2 > len(rest) && n > 0 {
				return nil, fmt.Errorf("a chunk begins with %.20q", head)
			}
			if n == 0 {
				return whole, nil
			}
			whole, body = append(whole, rest[:n]...), []byte(rest[n+2:])
		}
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != payload {
		return nil, fmt.Errorf("the body is not the one that is signed")
	}
	return body, nil
}
