package vault

import (
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// zstdWindow bounds the memory of one decoder, in bytes (RFC 8878 recommends
// that decoders take 8 MiB).
const zstdWindow = 8 << 20

// encodings are the content codings that answers can be looked through in.
var encodings = []string{"gzip", "deflate", "br", "zstd", "identity"}

// limitEncodings asks a server for nothing that could not be looked through.
func limitEncodings(h http.Header) {
	var keep []string
	for _, field := range h.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(field, ",") {
			name, _, _ := strings.Cut(part, ";")
			for _, known := range encodings {
				if strings.EqualFold(strings.TrimSpace(name), known) {
					keep = append(keep, strings.TrimSpace(part))
				}
			}
		}
	}
	h.Set("Accept-Encoding", strings.Join(keep, ", "))
	if len(keep) == 0 {
		h.Set("Accept-Encoding", "identity")
	}
}

// Answer takes secrets out of what a server answered: out of its fields, and out
// of a body of text. What is left as it is: parts of a body (206), what is no
// text, and answers of hosts that no secret is bound to.
func (g *Grant) Answer(resp *http.Response) error {
	if g == nil || !g.bound {
		return nil
	}
	resp.Header.Del("Set-Cookie") // it would come back in a Cookie, which is taken out
	g.mask(resp.Header)
	if resp.Body == nil || resp.StatusCode == http.StatusSwitchingProtocols || resp.StatusCode == http.StatusPartialContent ||
		resp.ContentLength == 0 && len(resp.Trailer) == 0 || resp.Request != nil && resp.Request.Method == http.MethodHead {
		return nil
	}
	if !isText(resp.Header.Get("Content-Type")) {
		resp.Body = &trailed{resp.Body, g, resp}
		return nil
	}
	decoded, err := decode(resp.Header.Values("Content-Encoding"), resp.Body)
	if err != nil {
		return err
	}
	resp.Body = &trailed{&masked{g.vault.values.Reader(decoded), resp.Body}, g, resp}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.Header.Del("Digest")
	resp.Header.Del("Content-Digest")
	resp.Header.Del("Accept-Ranges")
	resp.ContentLength = -1
	return nil
}

// mask takes secrets out of fields.
func (g *Grant) mask(fields http.Header) {
	for _, values := range fields {
		for i, value := range values {
			values[i] = g.vault.values.String(value)
		}
	}
}

type masked struct {
	io.Reader
	io.Closer
}

// trailed is a body with whose end its trailers come, which are masked, too.
type trailed struct {
	io.ReadCloser
	grant *Grant
	resp  *http.Response
}

func (t *trailed) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err == io.EOF {
		t.grant.mask(t.resp.Trailer)
	}
	return n, err
}

// isText reports whether a body is text.
func isText(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return contentType == "" // servers that say nothing mostly send text
	}
	switch kind {
	case "application/json", "application/xml", "application/javascript", "application/x-www-form-urlencoded", "application/x-ndjson",
		"application/graphql-response+json", "application/yaml", "application/toml", "application/sql", "application/jwt", "application/x-sh":
		return true
	}
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") || strings.HasSuffix(kind, "+yaml")
}

// decode undoes content codings.
func decode(fields []string, body io.Reader) (io.Reader, error) {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(fields, ",")))
	switch coding {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		return &lazy{open: func() (io.Reader, error) { return gzip.NewReader(body) }}, nil
	case "deflate":
		return &lazy{open: func() (io.Reader, error) { return zlib.NewReader(body) }}, nil
	case "br":
		return brotli.NewReader(body), nil
	case "zstd":
		return &lazy{open: func() (io.Reader, error) {
			return zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
		}}, nil
	}
	return nil, fmt.Errorf("the answer is encoded as %s, which was not asked for and cannot be looked through", clip(coding))
}

// lazy is a decoder that reads its header when it is read, and not before: a
// server may send the head of an answer long before its body.
type lazy struct {
	open func() (io.Reader, error)
	r    io.Reader
}

func (l *lazy) Read(p []byte) (int, error) {
	if l.r == nil {
		var err error
		if l.r, err = l.open(); err != nil {
			return 0, err
		}
	}
	return l.r.Read(p)
}
