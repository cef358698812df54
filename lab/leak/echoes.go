package leak

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/coder/websocket"
	"github.com/klauspost/compress/zstd"
)

// forms are the ways in which a server writes the credential that it was sent.
var forms = map[string]func(string) string{
	"plain":    func(s string) string { return s },
	"base64":   func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64-1": func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x" + s)) },
	"base64-2": func(s string) string { return base64.URLEncoding.EncodeToString([]byte("xy" + s)) },
	"url":      url.QueryEscape,
	"hex":      func(s string) string { return hex.EncodeToString([]byte(s)) },
}

// codings are the content codings of answers.
var codings = map[string]func(io.Writer) io.WriteCloser{
	"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"br":      func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
	"zstd": func(w io.Writer) io.WriteCloser {
		e, err := zstd.NewWriter(w)
		if err != nil {
			panic(err) // it has no options
		}
		return e
	},
}

// echo sends the credential back, where and as the path says: PLACE/FORM/CODING.
func (s *KeyServer) echo(w http.ResponseWriter, path, field string) {
	parts := append(strings.Split(path, "/"), "plain", "")
	place, form, pack := parts[0], forms[parts[1]], codings[parts[2]]
	if form == nil {
		form = forms["plain"]
	}
	text := form(field)
	w.Header().Set("Content-Type", "application/json")
	switch place {
	case "field":
		w.Header().Set("Lab-Echo", text)
	case "early":
		w.Header().Set("Link", "</"+text+">")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
	case "trailer":
		w.Header().Set("Trailer", "Lab-Echo")
		defer w.Header().Set("Lab-Echo", text)
	case "error":
		w.WriteHeader(http.StatusInternalServerError)
	case "events":
		w.Header().Set("Content-Type", "text/event-stream")
	case "untyped":
		w.Header()["Content-Type"] = nil
	}
	whole := fmt.Sprintf("{\"said\":%q}\n", "you sent "+text+", thank you")
	if pack != nil {
		var b bytes.Buffer
		p := pack(&b)
		_, _ = io.WriteString(p, whole) // memory takes everything
		_ = p.Close()
		w.Header().Set("Content-Encoding", parts[2])
		whole = b.String()
	}
	if place == "pieces" { // of a few bytes each
		for len(whole) > 0 {
			n := min(7, len(whole))
			_, _ = io.WriteString(w, whole[:n]) // who asked may have gone
			w.(http.Flusher).Flush()
			whole = whole[n:]
		}
		return
	}
	_, _ = io.WriteString(w, whole)
}

// socket sends the credential back as the first message, and then what it is told.
func (s *KeyServer) socket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // it has been answered
	}
	defer c.CloseNow()
	said := []byte("you sent " + r.Header.Get("Authorization"))
	for {
		if err := c.Write(r.Context(), websocket.MessageText, said); err != nil {
			return
		}
		if _, said, err = c.Read(r.Context()); err != nil {
			return
		}
		s.add(Sent{Name: r.TLS.ServerName, Path: r.URL.Path, Head: string(said)})
	}
}
