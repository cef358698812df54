package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/crypto/cryptobyte"
)

// clientHello is what Go's client sends first, without its record's header.
func clientHello(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	here, there := net.Pipe()
	defer there.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(here, c).Handshake() // ends with there
	}()
	raw, _, err := readHello(there)
	if err != nil {
		t.Fatal(err)
	}
	there.Close()
	<-done
	return raw[recordHeader:]
}

// inRecords puts a message into records of at most n bytes.
func inRecords(message []byte, n int) []byte {
	var raw []byte
	for part := range slices.Chunk(message, n) {
		raw = append(raw, recordHandshake, 3, 1)
		raw = append(binary.BigEndian.AppendUint16(raw, uint16(len(part))), part...)
	}
	return raw
}

// extension is one of a ClientHello.
type extension struct {
	kind uint16
	data []byte
}

// builtHello is a ClientHello made by hand.
func builtHello(version uint16, extensions ...extension) []byte {
	var b cryptobyte.Builder
	b.AddUint8(helloClient)
	b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddUint16(version)
		b.AddBytes(make([]byte, 32))
		b.AddUint8(0)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddUint16(0x1301) })
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddUint8(0) })
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			for _, e := range extensions {
				b.AddUint16(e.kind)
				b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(e.data) })
			}
		})
	})
	return b.BytesOrPanic()
}

// named is the extension with server names of a type.
func named(kind byte, names ...string) extension {
	var b cryptobyte.Builder
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, name := range names {
			b.AddUint8(kind)
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(name)) })
		}
	})
	return extension{extServerName, b.BytesOrPanic()}
}

func TestReadHello(t *testing.T) {
	t.Parallel()
	grease := []extension{{0x0a0a, nil}, named(0, "api.example.org"), {0xfafa, []byte{0}}}
	for what, message := range map[string][]byte{
		"Go":     clientHello(t, &tls.Config{ServerName: "api.example.org"}),
		"1.2":    clientHello(t, &tls.Config{ServerName: "api.example.org", MaxVersion: tls.VersionTLS12}),
		"ALPN":   clientHello(t, &tls.Config{ServerName: "api.example.org", NextProtos: []string{"h2", "http/1.1"}}),
		"GREASE": builtHello(tls.VersionTLS12, grease...),
		"long":   builtHello(tls.VersionTLS12, named(0, "api.example.org"), extension{21, make([]byte, 12_000)}),
	} {
		for _, size := range []int{1, 3, 100, maxRecord} {
			raw := inRecords(message, size)
			const rest = "what follows"
			in := bytes.NewReader(append(slices.Clone(raw), rest...))
			got, h, err := readHello(iotest.OneByteReader(in))
			if len(raw) > maxHello {
				if !errors.Is(err, errLong) {
					t.Errorf("%s in records of %d: %v", what, size, err)
				}
				continue
			}
			left, _ := io.ReadAll(in)
			if err != nil || h.serverName != "api.example.org" || !bytes.Equal(got, raw) || string(left) != rest {
				t.Errorf("%s in records of %d: %+v, %v, %d of %d bytes, left %q", what, size, h, err, len(got), len(raw), left)
			}
			if h.offers13 != (what == "Go" || what == "ALPN") {
				t.Errorf("%s: offers 1.3: %v", what, h.offers13)
			}
		}
	}
}

func TestReadHelloRefuses(t *testing.T) {
	t.Parallel()
	good := builtHello(tls.VersionTLS12, named(0, "a.example.org"))
	edit := func(f func(b []byte) []byte) []byte { return inRecords(f(slices.Clone(good)), maxRecord) }
	const bare = 2 + 32 + 1 + 4 + 2 // without extensions
	if _, h, err := readHello(bytes.NewReader(edit(func(b []byte) []byte { b[3] = bare; return b[:helloHeader+bare] }))); err != nil || h.serverName != "" {
		t.Errorf("without extensions: %+v, %v", h, err)
	}
	wrap := func(e ...extension) []byte { return inRecords(builtHello(tls.VersionTLS12, e...), maxRecord) }
	for what, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"HTTP":                  {[]byte("GET / HTTP/1.1\r\n\r\n"), "not TLS"},
		"SSH":                   {[]byte("SSH-2.0-x\r\n"), "not TLS"},
		"SSL 2":                 {[]byte{0x80, 0x2e, 1, 3, 1, 0, 21}, "not TLS"},
		"an alert":              {[]byte{recordAlert, 3, 1, 0, 2, 1, 0}, "not TLS"},
		"a version of records":  {[]byte{recordHandshake, 4, 1, 0, 1, 1}, "not TLS"},
		"an empty record":       {append([]byte{recordHandshake, 3, 1, 0, 0}, inRecords(good, maxRecord)...), "record of 0 bytes"},
		"a long record":         {[]byte{recordHandshake, 3, 1, 0x40, 1}, "record of 16385 bytes"},
		"another message":       {edit(func(b []byte) []byte { b[0] = helloServer; return b }), "no ClientHello"},
		"a long message":        {edit(func(b []byte) []byte { b[1] = 1; return b }), "more than 16384"},
		"a message after it":    {edit(func(b []byte) []byte { return append(b, 1) }), "follows its ClientHello"},
		"trailing bytes":        {edit(func(b []byte) []byte { b[3]++; return append(b, 0) }), "do not end where it does"},
		"half a length":         {edit(func(b []byte) []byte { b[3] = bare + 1; return b[:helloHeader+bare+1] }), "do not end where it does"},
		"half a random":         {edit(func(b []byte) []byte { b[3] = 20; return b[:helloHeader+20] }), "ClientHello is malformed"},
		"SSL 3":                 {inRecords(builtHello(0x0300, named(0, "a.example.org")), maxRecord), "version 0x0300"},
		"a version 1.4":         {inRecords(builtHello(0x0405, named(0, "a.example.org")), maxRecord), "version 0x0405"},
		"two names":             {wrap(named(0, "a.example.org", "b.example.org")), "more than one server name"},
		"two lists of names":    {wrap(named(0, "a.example.org"), named(0, "a.example.org")), "extension 0 twice"},
		"GREASE twice":          {wrap(extension{0x0a0a, nil}, extension{0x0a0a, nil}), "twice"},
		"an empty name":         {wrap(named(0, "")), "server name is malformed"},
		"an empty list":         {wrap(named(0)), "server name is malformed"},
		"another type of name":  {wrap(named(1, "a.example.org")), "unknown type 1"},
		"bytes after the names": {wrap(extension{0, append(named(0, "a.example.org").data, 0)}), "server name is malformed"},
		"ECH":                   {wrap(named(0, "a.example.org"), extension{0xfe0d, []byte{0, 0, 1, 0, 1, 9, 0, 0, 0, 0}}), "hides the server's name"},
		"inner ECH":             {wrap(named(0, "a.example.org"), extension{0xfe0d, []byte{1}}), "hides the server's name"},
		"ESNI":                  {wrap(extension{0xffce, nil}), "hides the server's name"},
		"outer extensions":      {wrap(named(0, "a.example.org"), extension{0xfd00, nil}), "hides the server's name"},
		"no versions":           {wrap(extension{extVersions, []byte{0}}), "list of versions is malformed"},
		"half a version":        {wrap(extension{extVersions, []byte{3, 3, 4, 3}}), "list of versions is malformed"},
		"half an extension":     {edit(func(b []byte) []byte { b[len(b)-1-len("a.example.org")-3-2]++; return b }), "extension of its ClientHello is malformed"},
	} {
		if raw, _, err := readHello(bytes.NewReader(c.raw)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", what, err, c.want)
		} else if !bytes.HasPrefix(c.raw, raw) {
			t.Errorf("%s: what was read is lost", what)
		}
	}
	whole := inRecords(good, 20)
	for n := range whole {
		raw, _, err := readHello(bytes.NewReader(whole[:n]))
		if want := io.ErrUnexpectedEOF; n == 0 && err != io.EOF || n > 0 && err != want || len(raw) != n {
			t.Errorf("cut after %d bytes: %d, %v", n, len(raw), err)
		}
	}
}

func TestSecondHello(t *testing.T) {
	t.Parallel()
	again := append([]byte{recordHandshake, 3, 3, 0, 80, helloServer, 0, 0, 76, 3, 3}, retryRandom...)
	for n := range len(again) + 1 {
		if yes, decided := asksAgain(again[:n]); yes != (n == len(again)) || decided != yes {
			t.Errorf("after %d bytes: %v, %v", n, yes, decided)
		}
	}
	again[len(again)-1]++
	for what, first := range map[string][]byte{"another random": again, "an alert": {recordAlert}, "another message": append(slices.Clone(again[:recordHeader]), 4)} {
		if yes, decided := asksAgain(first); yes || !decided {
			t.Errorf("%s: %v, %v", what, yes, decided)
		}
	}

	early := []byte{recordCipher, 3, 3, 0, 1, 1, recordData, 3, 3, 0, 3, 'a', 'b', 'c', recordAlert, 3, 3, 0, 2, 1, 90}
	second := inRecords(builtHello(tls.VersionTLS12, named(0, "b.example.org")), 50)
	var passed bytes.Buffer
	raw, h, err := readSecondHello(iotest.HalfReader(bytes.NewReader(append(slices.Clone(early), second...))), &passed)
	if err != nil || h.serverName != "b.example.org" || !bytes.Equal(raw, second) || !bytes.Equal(passed.Bytes(), early) {
		t.Errorf("%+v, %v; passed %x", h, err, passed.Bytes())
	}
	if _, _, err := readSecondHello(bytes.NewReader([]byte{recordData, 3, 3, 0x41, 1}), io.Discard); err == nil || !strings.Contains(err.Error(), "16641") {
		t.Errorf("a record longer than any: %v", err)
	}
	if _, _, err := readSecondHello(strings.NewReader("x"), io.Discard); !errors.Is(err, errNotTLS) {
		t.Errorf("no record: %v", err)
	}
}

// What is read agrees with what Go's server reads.
func FuzzHello(f *testing.F) {
	for _, message := range [][]byte{
		clientHello(f, &tls.Config{ServerName: "api.example.org"}),
		clientHello(f, &tls.Config{ServerName: "api.example.org", MaxVersion: tls.VersionTLS12}),
		builtHello(tls.VersionTLS12, named(0, "a.example.org", "b.example.org"), extension{0xfe0d, []byte{1}}),
	} {
		f.Add(inRecords(message, maxRecord))
		f.Add(inRecords(message, 40))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, h, err := readHello(bytes.NewReader(data))
		if !bytes.HasPrefix(data, raw) || len(raw) > maxHello+recordHeader {
			t.Fatalf("read %d bytes of %d", len(raw), len(data))
		}
		if err != nil {
			return
		}
		again, same, err := readHello(iotest.OneByteReader(bytes.NewReader(raw)))
		if err != nil || same != h || !bytes.Equal(again, raw) {
			t.Fatalf("read again: %+v, %v", same, err)
		}
		seen, ok := goServerName(raw)
		if ok && !strings.EqualFold(strings.TrimSuffix(seen, "."), strings.TrimSuffix(h.serverName, ".")) {
			t.Fatalf("Go's server reads the name %q, and this is %q", seen, h.serverName)
		}
	})
}

// goServerName is what Go's server understands of a client's first bytes.
func goServerName(raw []byte) (name string, ok bool) {
	c := &replay{in: bytes.NewReader(raw)}
	_ = tls.Server(c, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = h.ServerName, true
		return nil, errors.New("that is all")
	}}).Handshake() // never succeeds
	return name, ok
}

// replay is a connection from whose peer some bytes come, and no more.
type replay struct {
	net.Conn
	in io.Reader
}

func (c *replay) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *replay) Write(p []byte) (int, error) { return len(p), nil }
func (c *replay) Close() error                { return nil }
