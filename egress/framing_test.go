package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// sent is a connection on which a client has sent something and waits.
type sent struct {
	net.Conn
	in io.Reader
}

func (c sent) Read(p []byte) (int, error)       { return c.in.Read(p) }
func (c sent) SetReadDeadline(time.Time) error  { return nil }
func (c sent) SetWriteDeadline(time.Time) error { return nil }

// frameAll reads everything that is yielded, and returns what was wrong with it.
func frameAll(in io.Reader) (out string, heads int, faults []string, err error) {
	f := newFramed(sent{in: in}, func(err error) { faults = append(faults, err.Error()) })
	b, err := io.ReadAll(f)
	return string(b), f.heads, faults, err
}

// lines ends each line as HTTP does.
func lines(s ...string) string { return strings.Join(s, "\r\n") + "\r\n\r\n" }

func TestFramed(t *testing.T) {
	t.Parallel()
	get := lines("GET /a?b HTTP/1.1", "Host: a.example")
	for what, c := range map[string]struct {
		in    string
		heads int
	}{
		"a request":              {get, 1},
		"two":                    {get + get, 2},
		"HTTP/1.0":               {lines("GET / HTTP/1.0", "Host: a.example"), 1},
		"a body":                 {lines("POST / HTTP/1.1", "Host: a.example", "Content-Length: 5") + "a\nb\x00c" + get, 2},
		"an empty body":          {lines("POST / HTTP/1.1", "Host: a.example", "Content-Length: 0") + get, 2},
		"chunks":                 {lines("POST / HTTP/1.1", "Host: a.example", "Transfer-Encoding: chunked") + "3\r\na\r\n\r\n00A\r\n0123456789\r\n0\r\n\r\n" + get, 2},
		"trailers":               {lines("POST / HTTP/1.1", "Host: a.example", "Trailer: x-sum", "Transfer-Encoding: Chunked") + "1\r\na\r\n0\r\nx-sum: 1\r\n\r\n" + get, 2},
		"values":                 {lines("GET / HTTP/1.1", "hOST:a.example:80", "x:", "y: \xc3\xa9\t\"", "cookie: a", "cookie: b"), 1},
		"absolute":               {lines("GET http://a.example/ HTTP/1.1", "Host: a.example"), 1},
		"absolute with port":     {lines("GET http://A.example:80/ HTTP/1.1", "Host: a.example"), 1},
		"absolute, port in Host": {lines("GET http://A.example/ HTTP/1.1", "Host: a.example:80"), 1},
		"asterisk":               {lines("OPTIONS * HTTP/1.1", "Host: a.example"), 1},
		"expectation":            {lines("POST / HTTP/1.1", "Host: a.example", "Expect: 100-continue", "Content-Length: 1") + "a", 1},
		"CONNECT":                {lines("CONNECT a.example:443 HTTP/1.1", "Host: a.example:443") + "\x16\x03\x01 raw\n", 1},
		"CONNECT of old":         {lines("CONNECT a.example:443 HTTP/1.0") + "\x16", 1},
		"WebSocket":              {lines("GET / HTTP/1.1", "Host: a.example", "Connection: keep-alive, Upgrade", "Upgrade: WebSocket") + "\x81\x00\n", 1},
		"another upgrade":        {lines("GET / HTTP/1.1", "Host: a.example", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAA") + get, 2},
		"a long line":            {lines("GET /"+strings.Repeat("a", 30_000)+" HTTP/1.1", "Host: a.example"), 1},
		"nothing":                {"", 0},
		"upgrade without end":    {lines("GET / HTTP/1.1", "Host: a.example", "Connection: close", "Upgrade: websocket") + get, 2},
	} {
		for _, in := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in))} {
			if out, heads, faults, err := frameAll(in); out != c.in || heads != c.heads || faults != nil || err != nil {
				t.Errorf("%s: %d heads, faults %q, error %v, yielded\n%q", what, heads, faults, err, out)
			}
		}
	}
}

func TestFramedRefusesHeads(t *testing.T) {
	t.Parallel()
	good := lines("GET /first HTTP/1.1", "Host: a.example")
	for what, c := range map[string]struct{ in, want string }{
		"TLS":                       {"\x16\x03\x01\x02\x00\x01", "not HTTP"},
		"an empty line":             {"\r\n" + good, "not HTTP"},
		"SSH":                       {"SSH-2.0-OpenSSH\r\n", "malformed"},
		"HTTP/2":                    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "not of HTTP/1.1"},
		"HTTP/0.9":                  {lines("GET /"), "malformed"},
		"HTTP/1.2":                  {lines("GET / HTTP/1.2", "Host: a.example"), "not of HTTP/1.1"},
		"two spaces":                {lines("GET  / HTTP/1.1", "Host: a.example"), "malformed"},
		"a tab":                     {lines("GET\t/ HTTP/1.1", "Host: a.example"), "malformed"},
		"a byte in the target":      {lines("GET /\x80 HTTP/1.1", "Host: a.example"), "0x80"},
		"bare LF":                   {"GET / HTTP/1.1\nHost: a.example\n\n", "does not end in CR LF"},
		"bare LF in a field":        {"GET / HTTP/1.1\r\nHost: a.example\nX: y\r\n\r\n", "does not end in CR LF"},
		"bare CR":                   {"GET / HTTP/1.1\r\nHost: a.example\rX: y\r\n\r\n", "CR elsewhere"},
		"CR CR LF":                  {"GET / HTTP/1.1\r\nHost: a.example\r\r\n\r\n", "CR elsewhere"},
		"a NUL":                     {lines("GET / HTTP/1.1", "Host: a.example", "x: a\x00b"), "control character"},
		"a space before the colon":  {lines("GET / HTTP/1.1", "Host: a.example", "Content-Length : 5"), "malformed"},
		"a folded line":             {lines("GET / HTTP/1.1", "Host: a.example", " b.example"), "malformed"},
		"a field without a name":    {lines("GET / HTTP/1.1", "Host: a.example", ": x"), "malformed"},
		"a field without a colon":   {lines("GET / HTTP/1.1", "Host: a.example", "x"), "malformed"},
		"no Host":                   {lines("GET / HTTP/1.1"), "no Host"},
		"no Host in 1.0":            {lines("GET / HTTP/1.0"), "no Host"},
		"two Hosts":                 {lines("GET / HTTP/1.1", "Host: a.example", "host: b.example"), "2 Host"},
		"the same Host twice":       {lines("GET / HTTP/1.1", "Host: a.example", "Host: a.example"), "2 Host"},
		"two Hosts of CONNECT":      {lines("CONNECT a.example:443 HTTP/1.1", "Host: a.example", "Host: a.example"), "2 Host"},
		"a Host with a byte":        {lines("GET / HTTP/1.1", "Host: a.example/b"), "Host of a request is malformed"},
		"both lengths":              {lines("POST / HTTP/1.1", "Host: a.example", "Content-Length: 5", "Transfer-Encoding: chunked"), "both Content-Length and"},
		"two lengths":               {lines("POST / HTTP/1.1", "Host: a.example", "Content-Length: 5", "Content-Length: 5"), "more than once"},
		"a list of lengths":         {lines("POST / HTTP/1.1", "Host: a.example", "Content-Length: 5, 5"), "Content-Length of a request is malformed"},
		"a signed length":           {lines("POST / HTTP/1.1", "Host: a.example", "Content-Length: +5"), "malformed"},
		"a hex length":              {lines("POST / HTTP/1.1", "Host: a.example", "Content-Length: 0x5"), "malformed"},
		"an empty length":           {lines("POST / HTTP/1.1", "Host: a.example", "Content-Length:"), "malformed"},
		"a huge length":             {lines("POST / HTTP/1.1", "Host: a.example", "Content-Length: 9223372036854775808"), "malformed"},
		"another coding":            {lines("POST / HTTP/1.1", "Host: a.example", "Transfer-Encoding: gzip, chunked"), "coding \"gzip, chunked\""},
		"a coding with a byte":      {lines("POST / HTTP/1.1", "Host: a.example", "Transfer-Encoding: \x0bchunked"), "control character"},
		"identity":                  {lines("POST / HTTP/1.1", "Host: a.example", "Transfer-Encoding: identity"), "coding"},
		"chunked twice":             {lines("POST / HTTP/1.1", "Host: a.example", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), "more than once"},
		"chunked in 1.0":            {lines("POST / HTTP/1.0", "Host: a.example", "Transfer-Encoding: chunked"), "HTTP/1.0 has a transfer coding"},
		"a length by underscore":    {lines("POST / HTTP/1.1", "Host: a.example", "Content_Length: 5"), "is named Content_Length"},
		"a coding by underscore":    {lines("POST / HTTP/1.1", "Host: a.example", "Transfer_encoding: chunked", "Content-Length: 5"), "is named Transfer_encoding"},
		"another expectation":       {lines("POST / HTTP/1.1", "Host: a.example", "Expect: x"), "expects"},
		"an absolute URL elsewhere": {lines("GET http://b.example/ HTTP/1.1", "Host: a.example"), "is at \"b.example\", and its Host is \"a.example\""},
		"another port in the URL":   {lines("GET http://a.example:81/ HTTP/1.1", "Host: a.example"), "is at \"a.example:81\""},
		"a long coding":             {lines("GET / HTTP/1.1", "Host: a.example", "Transfer-Encoding: "+strings.Repeat("x", 9000)), "xxx…"},
		"a user in the URL":         {lines("GET http://a.example@b.example/ HTTP/1.1", "Host: b.example"), "target of a request is malformed"},
		"an opaque URL":             {lines("GET mailto:a HTTP/1.1", "Host: a.example"), "target of a request is malformed"},
		"a relative path":           {lines("GET a HTTP/1.1", "Host: a.example"), "cannot be read"},
		"an asterisk":               {lines("GET * HTTP/1.1", "Host: a.example"), "for OPTIONS"},
		"CONNECT to a path":         {lines("CONNECT /a HTTP/1.1", "Host: a.example"), "not a host with a port"},
		"CONNECT with a user":       {lines("CONNECT u@a.example:443 HTTP/1.1", "Host: a.example:443"), "not a host with a port"},
		"CONNECT with a body":       {lines("CONNECT a.example:443 HTTP/1.1", "Host: a.example:443", "Content-Length: 1"), "tunnel has a body"},
		"WebSocket with a body":     {lines("GET / HTTP/1.1", "Host: a.example", "Connection: upgrade", "Upgrade: websocket", "Transfer-Encoding: chunked"), "tunnel has a body"},
		"a malformed escape":        {lines("GET /%zz HTTP/1.1", "Host: a.example"), "cannot be read"},
		"a long line":               {"GET /" + strings.Repeat("a", maxLine), "more than 32768 bytes"},
		"a long head":               {"GET / HTTP/1.1\r\n" + strings.Repeat("x: "+strings.Repeat("y", 1000)+"\r\n", 70), "more than 65536 bytes"},
	} {
		for _, before := range []string{"", good} {
			f := newFramed(sent{in: strings.NewReader(before + c.in)}, func(error) {})
			out, err := io.ReadAll(f)
			n := 1
			if before != "" {
				n = 2
			}
			fault := f.stands(n)
			if fault == nil || !strings.Contains(fault.Error(), c.want) {
				t.Errorf("%s: fault %v, want %q", what, fault, c.want)
			}
			if string(out) != before+stand || err != nil || n == 2 && f.stands(1) != nil {
				t.Errorf("%s: %v, yielded %q", what, err, out)
			}
		}
	}
}

func TestFramedRefusesBodies(t *testing.T) {
	t.Parallel()
	head := lines("POST / HTTP/1.1", "Host: a.example", "Transfer-Encoding: chunked")
	for what, c := range map[string]struct{ body, want string }{
		"no size":             {"\r\n", "size of a chunk"},
		"a sign":              {"+1\r\na\r\n", "size of a chunk"},
		"0x":                  {"0x1\r\na\r\n", "size of a chunk"},
		"an underscore":       {"1_0\r\na\r\n", "size of a chunk"},
		"a space before":      {" 1\r\na\r\n", "size of a chunk"},
		"a huge size":         {"ffffffffffffffff\r\n", "size of a chunk"},
		"many zeros":          {"000000001\r\na\r\n", "size of a chunk"},
		"bare LF":             {"1\na\r\n0\r\n\r\n", "does not end in CR LF"},
		"an extension":        {"1;a=b\r\na\r\n", "size of a chunk"},
		"a space after":       {"1 \r\na\r\n", "size of a chunk"},
		"CR in an extension":  {"1;a\rb\r\na\r\n", "CR elsewhere"},
		"NUL in an extension": {"1;a\x00\r\na\r\n", "size of a chunk"},
		"a longer chunk":      {"1\r\nab\r\n0\r\n\r\n", "longer than it says"},
		"LF after a chunk":    {"1\r\na\n0\r\n\r\n", "does not end in CR LF"},
		"a trailer Host":      {"0\r\nhost: b.example\r\n\r\n", "trailer is named host"},
		"a trailer length":    {"0\r\nContent-Length: 3\r\n\r\n", "trailer is named"},
		"a trailer malformed": {"0\r\nGET / HTTP/1.1\r\n\r\n", "malformed"},
		"long trailers":       {"0\r\n" + strings.Repeat("x: "+strings.Repeat("y", 1000)+"\r\n", 20), "trailers of a request have more"},
	} {
		_, heads, faults, err := frameAll(strings.NewReader(head + c.body))
		var bad *framingError
		if heads != 1 || len(faults) != 1 || !strings.Contains(faults[0], c.want) || !errors.As(err, &bad) {
			t.Errorf("%s: %d heads, faults %q, error %v; want %q", what, heads, faults, err, c.want)
		}
	}
	for what, in := range map[string]string{
		"a head":  "GET / HTTP/1.1\r\nHost: a.exa",
		"a body":  lines("POST / HTTP/1.1", "Host: a.example", "Content-Length: 5") + "abc",
		"a chunk": head + "5\r\nabc",
		"chunks":  head + "3\r\nabc\r\n",
	} {
		if _, _, faults, err := frameAll(strings.NewReader(in)); !errors.Is(err, io.ErrUnexpectedEOF) || faults != nil {
			t.Errorf("%s that is cut: %v, faults %q", what, err, faults)
		}
	}
}

// A server may answer a request whose body was found to be none, once it sees that no
// more of it comes. That is not passed on.
func TestFramedAnswerOfABadBody(t *testing.T) {
	t.Parallel()
	in := newFramed(nil, func(error) {})
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	resp := &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r.WithContext(context.WithValue(r.Context(), framedKey{}, in))}
	if err := (&web{}).modify(resp); err != nil {
		t.Fatal(err)
	}
	_, _ = in.broken(faulty("a chunk is longer than it says"))
	var bad *framingError
	if err := (&web{}).modify(resp); !errors.As(err, &bad) {
		t.Errorf("the answer is passed on: %v", err)
	}
}

// A head that comes too slowly is given up, however long the connection may
// otherwise be idle.
func TestSlowHead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		var wg sync.WaitGroup
		defer wg.Wait()
		defer there.Close()
		wg.Go(func() {
			time.Sleep(time.Minute) // it is not the connection that must not be idle
			for _, b := range []byte("GET / HTTP/1.1\r\nHost: a.example\r\n") {
				if _, err := there.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		f := newFramed(here, func(error) {})
		if err := f.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		out, err := io.ReadAll(f)
		if fault := f.stands(1); fault == nil || !strings.Contains(fault.Error(), "not complete after 10s") || string(out) != stand || err != nil {
			t.Errorf("fault %v, %v, yielded %q", fault, err, out)
		}
		if d := time.Since(begin); d != time.Minute+headTimeout {
			t.Errorf("after %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		f := newFramed(here, func(error) {})
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { there.Write([]byte("G")) })
		if err := f.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		var ne net.Error
		if _, err := f.Read(make([]byte, 1)); !errors.As(err, &ne) || !ne.Timeout() || f.stands(1) != nil {
			t.Errorf("%v; the deadline that was set comes first", err)
		}
	})
}

// What is yielded is read by net/http without an error, to the same ends of
// requests and with the same bodies.
func FuzzFramed(f *testing.F) {
	get := lines("GET /a HTTP/1.1", "Host: a.example")
	for _, s := range []string{
		get + get,
		lines("POST / HTTP/1.1", "Host: a.example", "Content-Length: 3") + "abc" + get,
		lines("POST / HTTP/1.1", "Host: a.example", "Transfer-Encoding: chunked") + "3\r\nabc\r\n0\r\nx: y\r\n\r\n" + get,
		lines("CONNECT a.example:443 HTTP/1.1", "Host: a.example:443") + "raw",
		lines("GET http://a.example/ HTTP/1.1", "Host: a.example", "Upgrade: websocket", "Connection: upgrade") + "raw",
		lines("POST / HTTP/1.1", "Host: a.example", "Content-Length: 3", "Transfer-Encoding: chunked"),
		"GET / HTTP/1.1\nHost: a\n\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		framed := newFramed(sent{in: bytes.NewReader(data)}, func(error) {})
		r := bufio.NewReader(framed)
		for n := 1; ; n++ {
			req, err := http.ReadRequest(r)
			if err != nil {
				if framed.end == nil || err != io.EOF && !errors.Is(err, framed.end) && framed.end != io.EOF {
					t.Fatalf("request %d of %d: %v; what framed says: %v", n, framed.heads, err, framed.end)
				}
				if framed.end == io.EOF && (err != io.EOF || n != framed.heads+1) {
					t.Fatalf("request %d of %d: %v", n, framed.heads, err)
				}
				return
			}
			if framed.stands(n) != nil {
				return
			}
			if req.Method == http.MethodConnect || isWebSocket(req.Header) {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				if framed.end == nil {
					t.Fatalf("the body of request %d: %v, and framed found nothing", n, err)
				}
				return
			}
		}
	})
}

// A request of any length takes the same memory.
func BenchmarkFramed(b *testing.B) {
	const size = 1 << 20
	head := lines("POST / HTTP/1.1", "Host: a.example", "Content-Length: "+strconv.Itoa(size))
	body := bytes.NewReader(make([]byte, size))
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		body.Seek(0, io.SeekStart)
		f := newFramed(sent{in: io.MultiReader(strings.NewReader(head), body)}, func(error) {})
		if n, err := io.Copy(io.Discard, f); err != nil || n != size+int64(len(head)) {
			b.Fatal(n, err)
		}
	}
}
