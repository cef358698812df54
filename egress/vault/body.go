package vault

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/rein-sh/rein/secret"
)

// guard has the body of an outgoing request end with an error before a
// placeholder in it is passed on, after those that are bound to it were exchanged.
func (g *Grant) guard(out *http.Request) {
	if out.Body == nil || out.Body == http.NoBody || g.looked {
		return
	}
	var r io.Reader = out.Body
	for _, e := range g.replace {
		r = newReplacer(r, e)
		if len(e.placeholder) != len(e.value) || len(url.QueryEscape(e.placeholder)) != len(url.QueryEscape(e.value)) {
			out.ContentLength = -1
			out.Header.Del("Content-Length")
		}
	}
	r = g.vault.placeholders.Guard(r)
	out.Body = &guarded{r, out.Body, g.Found}
}

// guarded is a body that is looked through.
type guarded struct {
	io.Reader
	io.Closer
	found func(*Refusal)
}

// Read turns what is found into a *Refusal.
func (b *guarded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if _, ok := errors.AsType[*secret.FoundError](err); ok {
		refused := leaked()
		if b.found != nil {
			refused.Told = true
			b.found(refused)
			b.found = nil
		}
		err = refused
	}
	return n, err
}

// replacer exchanges placeholders in what it reads, as they are and as forms
// encode them. It holds back no more than a placeholder's length.
type replacer struct {
	src  io.Reader
	from [][]byte
	to   [][]byte
	most int // the longest of from

	in  []byte // read and not looked through
	out []byte // to be yielded
	err error
}

func newReplacer(src io.Reader, e exchange) *replacer {
	r := &replacer{src: src, from: [][]byte{[]byte(e.placeholder)}, to: [][]byte{[]byte(e.value)}}
	if form := url.QueryEscape(e.placeholder); form != e.placeholder {
		r.from, r.to = append(r.from, []byte(form)), append(r.to, []byte(url.QueryEscape(e.value)))
	}
	for _, f := range r.from {
		r.most = max(r.most, len(f))
	}
	return r
}

const replaceBuffer = 32 << 10

func (r *replacer) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		buf := make([]byte, replaceBuffer)
		n, err := r.src.Read(buf)
		r.in, r.err = append(r.in, buf[:n]...), err
		r.scan(err != nil)
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// scan moves to out what is certain: all of it when that is the end.
func (r *replacer) scan(end bool) {
	for {
		at, which := -1, 0
		for i, f := range r.from {
			if k := bytes.Index(r.in, f); k >= 0 && (at < 0 || k < at) {
				at, which = k, i
			}
		}
		if at < 0 {
			break
		}
		r.out = append(append(r.out, r.in[:at]...), r.to[which]...)
		r.in = r.in[at+len(r.from[which]):]
	}
	keep := 0
	for _, f := range r.from {
		for n := min(len(f)-1, len(r.in)); n > keep && !end; n-- {
			if bytes.HasSuffix(r.in, f[:n]) {
				keep = n
			}
		}
	}
	r.out = append(r.out, r.in[:len(r.in)-keep]...)
	r.in = bytes.Clone(r.in[len(r.in)-keep:])
}
