package vault

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// zstdWindow bounds the memory of one decoder, in bytes (RFC 8878 recommends
// that decoders take 8 MiB).
const zstdWindow = 8 << 20

// maxWide bodies at once are unpacked whose decoders may take megabytes each: up
// to 16 MiB of br (RFC 7932 9.1), and zstdWindow.
const maxWide = 32

// encodings are the content codings that answers can be looked through in; the
// last two are wide.
var encodings = []string{"gzip", "deflate", "identity", "br", "zstd"}

// limitEncodings asks a server for nothing that could not be looked through, and
// for nothing wide while there is much of it.
func (v *Vault) limitEncodings(h http.Header) {
	var keep []string
	encodings := encodings
	if v.wide.Load() >= maxWide/2 {
		encodings = encodings[:3]
	}
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
	h.Del("Accept-Charset") // there are some in which a key would not be known
	h.Set("Accept-Encoding", strings.Join(keep, ", "))
	if len(keep) == 0 {
		h.Set("Accept-Encoding", "identity")
	}
}

// Answer takes secrets out of what a server answered: out of its fields and
// trailers, and out of a body of text, whichever host answers: one may have been
// told by another. What is left as it is: parts of a body (206), and what is no
// text.
func (g *Grant) Answer(resp *http.Response) error {
	if g == nil {
		return nil
	}
	if g.bound {
		resp.Header.Del("Set-Cookie") // it would come back in a Cookie, which is taken out
	}
	g.Mask(resp.Header)
	g.Mask(resp.Trailer) // their names
	if resp.Body == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	body := resp.Body
	resp.Body = &trailed{body, g, resp} // HTTP/2 may have trailers without a body
	if resp.StatusCode == http.StatusPartialContent || resp.ContentLength == 0 ||
		resp.Request != nil && resp.Request.Method == http.MethodHead || !isText(resp.Header.Values("Content-Type")) {
		return nil
	}
	decoded, err := g.vault.decode(resp.Header.Values("Content-Encoding"), body)
	if err != nil {
		return err
	}
	resp.Body = &trailed{&masked{g.signature.Reader(g.vault.values.Reader(decoded)), decoded}, g, resp}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.Header.Del("Digest")
	resp.Header.Del("Content-Digest")
	resp.Header.Del("Accept-Ranges")
	resp.ContentLength = -1
	return nil
}

// Mask takes secrets out of fields, also those of an answer that comes before
// the last (1xx).
func (g *Grant) Mask(fields http.Header) {
	if g == nil {
		return
	}
	for name, values := range fields {
		if g.vault.inName(name) {
			delete(fields, name)
			continue
		}
		for i, value := range values {
			values[i] = g.Text(value)
		}
	}
}

// Text is a text in which a server's words may stand, such as an error's, without
// secrets.
func (g *Grant) Text(text string) string {
	if g == nil {
		return text
	}
	return g.signature.String(g.vault.values.String(text))
}

// inName reports whether a secret is in the name of a field, of which nobody
// keeps the case.
func (v *Vault) inName(name string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.ContainsFunc(v.secrets, func(h *held) bool {
		return h.value != "" && strings.Contains(strings.ToLower(name), strings.ToLower(h.value))
	})
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
		t.grant.Mask(t.resp.Trailer)
	}
	return n, err
}

// Close masks trailers that came after what a decoder reads.
func (t *trailed) Close() error {
	err := t.ReadCloser.Close()
	t.grant.Mask(t.resp.Trailer)
	return err
}

// isText reports whether a body may be text, by any reading of its type: which
// of several clients go by, and what they make of a malformed one, differs.
func isText(types []string) bool {
	for _, list := range types {
		for one := range strings.SplitSeq(list, ",") {
			kind, parameters, _ := strings.Cut(strings.ToLower(one), ";")
			if isTextual(strings.TrimSpace(kind)) || strings.Contains(parameters, "charset") && !strings.Contains(parameters, "binary") {
				return true
			}
		}
	}
	return len(types) == 0 // servers that say nothing mostly send text
}

func isTextual(kind string) bool {
	switch kind {
	case "application/x-www-form-urlencoded", "application/xml", "application/toml", "application/sql", "application/jwt", "application/x-sh", "application/http":
		return true
	}
	top, sub, ok := strings.Cut(kind, "/")
	return !ok || top == "text" || top == "message" || top == "multipart" || // message/http is what TRACE is answered with
		strings.HasSuffix(sub, "+xml") || slices.ContainsFunc([]string{"json", "yaml", "html", "script"}, func(s string) bool { return strings.Contains(sub, s) })
}

// decode undoes content codings. A body without a byte stays one: of answers
// that have none, such as 304, the fields may speak of one.
func (v *Vault) decode(fields []string, body io.ReadCloser) (io.ReadCloser, error) {
	var open func(io.Reader) (io.Reader, error)
	wide := false
	switch coding := strings.ToLower(strings.TrimSpace(strings.Join(fields, ","))); coding {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		open = func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }
	case "deflate":
		open = inflate
	case "br":
		open, wide = func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil }, true
	case "zstd":
		open, wide = func(r io.Reader) (io.Reader, error) {
			return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		}, true
	default:
		return nil, fmt.Errorf("the answer is encoded as %s, which was not asked for and cannot be looked through", clip(coding))
	}
	l := &lazy{open: open, packed: bufio.NewReader(body), body: body}
	if wide {
		if v.wide.Add(1) > maxWide {
			v.wide.Add(-1)
			return nil, fmt.Errorf("%d answers packed as br or zstd are being unpacked, which is the most there may be: ask for gzip", maxWide)
		}
		l.release = sync.OnceFunc(func() { v.wide.Add(-1) })
	}
	return l, nil
}

// lazy is a decoder that reads its header when it is read, and not before: a
// server may send the head of an answer long before its body.
type lazy struct {
	open    func(io.Reader) (io.Reader, error)
	packed  *bufio.Reader
	body    io.Closer
	release func() // gives its place back; nil without one
	r       io.Reader
	err     error // from before r was made
}

// Close ends reads and gives back what the decoder has.
func (l *lazy) Close() error {
	if l.release != nil {
		l.release()
	}
	return l.body.Close()
}

func (l *lazy) Read(p []byte) (int, error) {
	if l.r == nil {
		if l.err == nil {
			_, l.err = l.packed.Peek(1)
		}
		if l.err != nil {
			return 0, l.err
		}
		r, err := l.open(l.packed)
		if l.err = err; err != nil {
			return 0, err
		}
		l.r = r
	}
	return l.r.Read(p)
}

// inflate undoes deflate: zlib's format, as RFC 9110 8.4.1.2 says, or what some
// servers send for it, which has no head.
func inflate(body io.Reader) (io.Reader, error) {
	b := bufio.NewReader(body)
	head, err := b.Peek(2)
	if err == nil && (head[0]&0x0f != 8 || (int(head[0])<<8|int(head[1]))%31 != 0) { // RFC 1950 2.2
		return flate.NewReader(b), nil
	}
	return zlib.NewReader(b)
}
