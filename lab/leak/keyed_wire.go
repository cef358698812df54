package leak

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// further is how long another answer is waited for where one has come.
const further = 400 * time.Millisecond

// connect makes a TLS connection to a name, which asks for a server's name.
func (p *probe) connect(ctx context.Context, at, name string, protocol string) (*tls.Conn, error) {
	c, err := dial(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	t := tls.Client(c, &tls.Config{ServerName: name, NextProtos: []string{protocol}})
	if err := t.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

// wire is a way of words that need be no proper HTTP/1.1. The last answer counts,
// but for one that was refused before.
func (a Aim) wire(name, host, words string, want ...Outcome) way {
	return by("", name, fmt.Sprintf("to %s: %.90q", host, words), want, func(ctx context.Context, p *probe) seen {
		c, err := p.connect(ctx, host+":443", host, "http/1.1")
		if err != nil {
			return refused(err)
		}
		defer c.Close()
		return p.speakHTTP(c, words)
	})
}

// speakHTTP says words and reads all that is answered.
func (p *probe) speakHTTP(c *tls.Conn, words string) seen {
	if _, err := io.WriteString(c, words); err != nil {
		return refused(err)
	}
	in := bufio.NewReader(c)
	last := seen{outcome: Silent}
	for n := 0; n < 4; n++ {
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			if n == 0 {
				return refused(err)
			}
			return last
		}
		body, _ := io.ReadAll(io.LimitReader(r.Body, 4096)) // what there is of it is shown
		r.Body.Close()
		now := judge(r.StatusCode, r.Header, string(body))
		if n > 0 && now.outcome == Served && last.outcome != Served && last.outcome != Welcome {
			return open("after a refusal: %s", now.words)
		}
		last = now
		_ = c.SetReadDeadline(time.Now().Add(further))
	}
	return last
}

// stream is a request of HTTP/2 with fields as they are, proper or not.
type stream struct {
	fields []string // names and values
	body   string
}

// frames makes requests one after the other on one connection to a host, and
// returns what became of each. An error ends the connection.
func (p *probe) frames(ctx context.Context, host string, streams ...stream) (list []seen, err error) {
	c, err := p.connect(ctx, host+":443", host, "h2")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return nil, err
	}
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := f.WriteSettings(); err != nil {
		return nil, err
	}
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for i, s := range streams {
		head.Reset()
		for at := 0; at < len(s.fields); at += 2 {
			if err := enc.WriteField(hpack.HeaderField{Name: s.fields[at], Value: s.fields[at+1]}); err != nil {
				return list, err
			}
		}
		id := uint32(2*i + 1)
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head.Bytes(), EndHeaders: true, EndStream: s.body == ""}); err != nil {
			return list, err
		}
		if s.body != "" {
			if err := f.WriteData(id, true, []byte(s.body)); err != nil {
				return list, err
			}
		}
		one, err := answered(f, id)
		if err != nil {
			return list, err
		}
		list = append(list, one)
	}
	return list, nil
}

// answered reads the answer on a stream.
func answered(f *http2.Framer, id uint32) (seen, error) {
	status, fields, body := 0, http.Header{}, ""
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			if strings.Contains(err.Error(), "stream error") {
				return seen{outcome: Reset, words: err.Error()}, nil
			}
			return seen{}, err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				if err := f.WriteSettingsAck(); err != nil {
					return seen{}, err
				}
			}
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				return seen{}, fmt.Errorf("connection error: GOAWAY %v", frame.ErrCode)
			}
		case *http2.RSTStreamFrame:
			if frame.StreamID == id {
				if status != 0 && (frame.ErrCode == http2.ErrCodeNo || status < 400) {
					return judge(status, fields, body), nil
				}
				// Also in the middle of the page that says why.
				return seen{outcome: Reset, words: fmt.Sprintf("RST_STREAM %v", frame.ErrCode)}, nil
			}
		case *http2.MetaHeadersFrame:
			for _, field := range frame.Fields {
				if field.Name == ":status" {
					_, _ = fmt.Sscan(field.Value, &status) // what is none stays 0
				}
				fields.Add(field.Name, field.Value)
			}
		case *http2.DataFrame:
			body += string(frame.Data())
		}
		if h := frame.Header(); h.StreamID == id && h.Flags.Has(http2.FlagDataEndStream) && (h.Type == http2.FrameData || h.Type == http2.FrameHeaders) {
			return judge(status, fields, body), nil
		}
	}
}

// head are the fields of HTTP/2 that begin a request, and others.
func head(method, authority, path string, fields ...string) []string {
	return append([]string{":method", method, ":scheme", "https", ":authority", authority, ":path", path}, fields...)
}

// mix makes a request for the host, one that is not for it, and one for it again, on
// one connection of HTTP/2. The second counts, if the others pass.
func (a Aim) mix(name, host string, bad stream, want ...Outcome) way {
	good := stream{fields: head("GET", host, "/welcome", "authorization", "Bearer "+a.Keys.Placeholder)}
	return by("", name, fmt.Sprintf("HTTP/2 to %s: %.120q, between two that are right", host, bad.fields), want, func(ctx context.Context, p *probe) seen {
		got, err := p.frames(ctx, host, good, bad, good)
		switch {
		case len(got) == 0 || got[0].outcome != Welcome:
			return open("the first request: %v, %v", got, err)
		case len(got) == 1:
			return cut(errors.Join(err, io.EOF)) // the connection was ended for it
		case len(got) == 3 && got[2].outcome != Welcome:
			return open("the third request: %v", got[2])
		}
		return got[1]
	})
}

// keyFronts ask for another host than TLS did, on one connection.
func (a Aim) keyFronts() []way {
	get := func(host, more string) string {
		return "GET /fronted HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + a.Keys.Placeholder + "\r\n" + more + "\r\n"
	}
	ok := "GET /welcome HTTP/1.1\r\nHost: " + KeyName + "\r\n\r\n"
	host := Outcome("http.host")
	list := []way{
		a.wire("Host is another that is allowed", KeyName, get(OtherName, ""), host), a.wire("Host is one that is not allowed", KeyName, get(outside, ""), host),
		a.wire("Host is the one with the key, in TLS for another", OtherName, get(KeyName, ""), host),
		a.wire("Host is another, in the second request", KeyName, ok+get(OtherName, ""), host),
		a.wire("two Hosts", KeyName, get(KeyName, "Host: "+OtherName+"\r\n"), "http.framing"),
		a.wire("a whole address of another", KeyName, "GET https://"+OtherName+"/fronted HTTP/1.1\r\nHost: "+KeyName+"\r\n\r\n", host, "http.framing"),
		a.wire("CONNECT within", KeyName, "CONNECT "+OtherName+":443 HTTP/1.1\r\nHost: "+OtherName+":443\r\n\r\n", host, "http.framing"),
		a.mix(":authority is another that is allowed", KeyName, stream{fields: head("GET", OtherName, "/fronted")}, host),
		a.mix(":authority is another, with the placeholder", KeyName, stream{fields: head("GET", OtherName, "/fronted", "authorization", "Bearer "+a.Keys.Placeholder)}, host),
		a.mix(":authority is a registry", KeyName, stream{fields: head("PUT", NPMName, "/fronted"), body: a.Token}, host),
		a.mix(":authority is one that is not allowed", KeyName, stream{fields: head("GET", outside, "/fronted")}, host),
		a.mix("host beside :authority is another", KeyName, stream{fields: head("GET", KeyName, "/fronted", "host", OtherName)}, host, "http.framing", Reset),
		a.mix("host instead of :authority", KeyName, stream{fields: []string{":method", "GET", ":scheme", "https", ":path", "/fronted", "host", OtherName}}, host, "http.framing", Reset),
		a.mix("a key of theirs between two that are right", KeyName, stream{fields: head("POST", KeyName, "/fronted", "authorization", "Bearer "+a.Keys.Foreign), body: a.Token}, "vault.foreign"),
		a.mix("the placeholder in a body between two that are right", KeyName, stream{fields: head("POST", KeyName, "/loot"), body: "loot=" + a.Keys.Placeholder}, "vault.leak", Reset),
	}
	for _, name := range []string{OtherName, outside, ""} {
		list = append(list, by("", "tls for "+name+", connected to the one with the key", "ClientHello for "+name+" to "+KeyName, []Outcome{Reset}, func(ctx context.Context, p *probe) seen {
			return p.handshake(ctx, KeyName+":443", &tls.Config{ServerName: name})
		}))
	}
	address := keyedNames[KeyName].String() + ":443"
	return append(list, by("", "the address of the one with the key, by no name", "TLS to "+address+" for "+KeyName, []Outcome{Reset}, func(ctx context.Context, p *probe) seen {
		return p.handshake(ctx, address, &tls.Config{ServerName: KeyName})
	}))
}

// smuggling hides a request in another, as the gateway and the server could read
// them differently.
func (a Aim) smuggling() []way {
	hidden := "GET /smuggled HTTP/1.1\r\nHost: " + OldKeyName + "\r\nAuthorization: Bearer " + a.Keys.Foreign + "\r\n\r\n"
	post := "POST /x HTTP/1.1\r\nHost: " + OldKeyName + "\r\n"
	want := []Outcome{"http.framing", BadRequest, Reset}
	var list []way
	for _, s := range []struct{ name, words string }{
		{"a length beside chunks", post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden},
		{"chunks beside a length", post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + hidden},
		{"two lengths", post + "Content-Length: 0\r\nContent-Length: " + fmt.Sprint(len(hidden)) + "\r\n\r\n" + hidden},
		{"two lengths in one field", post + "Content-Length: 0, " + fmt.Sprint(len(hidden)) + "\r\n\r\n" + hidden},
		{"a length with a sign", post + "Content-Length: +0\r\n\r\n" + hidden}, {"a length in hexadecimal", post + "Content-Length: 0x0\r\n\r\n" + hidden},
		{"chunked twice", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden},
		{"chunked, almost", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden}, {"chunked, and identity", post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden},
		{"chunked, with a control character", post + "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n" + hidden},
		{"a field name with an underscore", post + "Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden},
		{"line feeds alone", "POST /x HTTP/1.1\nHost: " + OldKeyName + "\nContent-Length: 0\n\n" + strings.ReplaceAll(hidden, "\r\n", "\n")},
		{"a line feed alone within a field", post + "X: a\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden},
		{"a carriage return alone", post + "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden},
		{"a folded field", post + "X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden},
		{"a space before the colon", post + "Content-Length : 5\r\n\r\n0\r\n\r\n" + hidden},
		{"a chunk without its end", post + "Transfer-Encoding: chunked\r\n\r\n1\r\naXX0\r\n\r\n" + hidden}, {"a chunk of a size that is none", post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + hidden},
		{"a chunk's size with a space", post + "Transfer-Encoding: chunked\r\n\r\n0 \n\r\n" + hidden}, {"a chunk's size that is too large", post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + hidden},
		{"a chunk's extension with a line feed", post + "Transfer-Encoding: chunked\r\n\r\n0;a\nb\r\n\r\n" + hidden},
		{"a line feed after chunks", post + "Transfer-Encoding: chunked\r\n\r\n0\n\n" + hidden},
		{"HTTP/1.0 with chunks", "POST /x HTTP/1.0\r\nHost: " + OldKeyName + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden},
		{"HTTP/0.9", "GET /smuggled\r\n\r\n" + hidden}, {"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hidden},
	} {
		list = append(list, a.wire(s.name, OldKeyName, s.words, want...))
	}
	// By HTTP/2 to the gateway, which speaks HTTP/1.1 to this server.
	lines := "\r\n\r\n" + hidden
	for _, s := range []struct {
		name string
		stream
	}{
		{"chunked in HTTP/2", stream{head("POST", OldKeyName, "/x", "transfer-encoding", "chunked"), "0\r\n\r\n" + hidden}},
		{"a length in HTTP/2 that is too short", stream{head("POST", OldKeyName, "/x", "content-length", "5"), hidden}},
		{"two lengths in HTTP/2", stream{head("POST", OldKeyName, "/x", "content-length", "0", "content-length", fmt.Sprint(len(hidden))), hidden}},
		{"connection in HTTP/2", stream{head("POST", OldKeyName, "/x", "connection", "transfer-encoding"), hidden}},
		{"lines in a field of HTTP/2", stream{head("GET", OldKeyName, "/x", "x", "a"+lines), ""}},
		{"lines in the name of a field of HTTP/2", stream{head("GET", OldKeyName, "/x", "x: a"+lines+"y", "b"), ""}},
		{"lines in the path of HTTP/2", stream{head("GET", OldKeyName, "/x HTTP/1.1"+lines, "x", "a"), ""}},
		{"lines in the method of HTTP/2", stream{head("GET /smuggled HTTP/1.1\r\nx:", OldKeyName, "/x"), ""}},
		{"lines in :authority of HTTP/2", stream{head("GET", OldKeyName+"\r\nx: y", "/x"), ""}},
		{"a space in the path of HTTP/2", stream{head("GET", OldKeyName, "/smuggled HTTP/1.1", "x", "a"), ""}},
		{"a colon in a name of HTTP/2", stream{head("GET", OldKeyName, "/x", "host: "+OtherName+"\r\nx", "a"), ""}},
		{"capitals in a name of HTTP/2", stream{head("POST", OldKeyName, "/x", "Transfer-Encoding", "chunked"), hidden}},
		{"two paths in HTTP/2", stream{head("GET", OldKeyName, "/x", ":path", "/smuggled"), ""}},
		{"another scheme in HTTP/2", stream{[]string{":method", "GET", ":scheme", "http", ":authority", OldKeyName, ":path", "http://" + OtherName + "/smuggled"}, ""}},
	} {
		list = append(list, a.mix(s.name, OldKeyName, s.stream, append(want, "http.host")...))
	}
	return list
}
