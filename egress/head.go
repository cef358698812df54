package egress

import (
	"bufio"
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

// frame is what follows a request's head.
type frame struct {
	tunnel  bool
	chunked bool
	length  int64
}

// parseFrame reads a whole head, whose lines end in CR LF, as strictly as RFC
// 9112 lets a recipient be. Errors are *framingError.
func parseFrame(head []byte) (frame, error) {
	lines := bytes.SplitAfter(head, []byte("\r\n"))
	minor, err := parseRequestLine(lines[0])
	if err != nil {
		return frame{}, err
	}
	var hosts, lengths, codings []string
	for _, line := range lines[1 : len(lines)-2] { // without the empty line, and what is after it
		name, value, err := parseField(line)
		if err != nil {
			return frame{}, err
		}
		switch strings.ToLower(name) {
		case "host":
			if hosts = append(hosts, value); !isHost(value) {
				return frame{}, faulty("the Host of a request is malformed")
			}
		case "content-length":
			lengths = append(lengths, value)
		case "transfer-encoding":
			codings = append(codings, value)
		case "content_length", "transfer_encoding":
			return frame{}, faulty("a field is named %s, which some read as one of another name", name)
		case "expect":
			if !strings.EqualFold(value, "100-continue") {
				return frame{}, faulty("it expects %q", value)
			}
		}
	}
	if len(hosts) > 1 {
		return frame{}, faulty("a request has %d Host fields", len(hosts))
	}
	f, err := parseLength(lengths, codings, minor)
	if err != nil {
		return frame{}, err
	}
	if err := f.confirm(head, hosts); err != nil {
		return frame{}, err
	}
	return f, nil
}

// confirm reads the head once more, as net/http does, which must agree.
func (f *frame) confirm(head []byte, hosts []string) error {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		return faulty("a request cannot be read: %v", err)
	}
	if r.ContentLength != f.length && !f.chunked || f.chunked != (len(r.TransferEncoding) == 1) {
		return faulty("the length of a request is not what it says")
	}
	if err := checkTarget(r, hosts); err != nil {
		return err
	}
	f.tunnel = r.Method == http.MethodConnect || isWebSocket(r.Header)
	if f.tunnel && (f.chunked || f.length > 0) {
		return faulty("a request for a tunnel has a body")
	}
	return nil
}

// maxMethod is the length of the longest method.
const maxMethod = 32

// parseRequestLine returns the minor version.
func parseRequestLine(line []byte) (minor int, err error) {
	parts := strings.Split(string(bytes.TrimSuffix(line, []byte("\r\n"))), " ")
	if len(parts) != 3 {
		return 0, faulty("the first line of a request is malformed")
	}
	method, target, version := parts[0], parts[1], parts[2]
	if !isToken(method) || len(method) > maxMethod {
		return 0, faulty("the method of a request is malformed")
	}
	for _, b := range []byte(target) {
		if b <= ' ' || b >= 0x7f {
			return 0, faulty("the target of a request has a byte %#02x", b)
		}
	}
	switch version {
	case "HTTP/1.1":
		return 1, nil
	case "HTTP/1.0":
		return 0, nil
	}
	return 0, faulty("a request is not of HTTP/1.1 or HTTP/1.0")
}

// checkTarget checks the form of the target (RFC 9112 3.2), and that its host is
// that of the Host field, which there must be. Some clients send none with
// CONNECT: Python's did until 3.12.
func checkTarget(r *http.Request, hosts []string) error {
	switch {
	case len(hosts) == 0 && r.Method != http.MethodConnect:
		return faulty("a request has no Host field")
	case r.Method == http.MethodConnect:
		if strings.ContainsAny(r.RequestURI, "/@?#") {
			return faulty("the target of CONNECT is not a host with a port")
		}
	case r.RequestURI == "*":
		if r.Method != http.MethodOptions {
			return faulty("the target * is for OPTIONS")
		}
	case strings.HasPrefix(r.RequestURI, "/"):
	case r.URL.Host == "" || r.URL.User != nil || r.URL.Opaque != "":
		return faulty("the target of a request is malformed")
	case !sameHost(r.URL.Host, hosts[0]):
		return faulty("the target of a request is at %q, and its Host is %q", r.URL.Host, hosts[0])
	}
	return nil
}

// sameHost compares hosts with a port or without one.
func sameHost(a, b string) bool {
	return strings.EqualFold(a, b) || strings.EqualFold(a+":80", b) || strings.EqualFold(a, b+":80")
}

// parseField reads one line of a head or of trailers.
func parseField(line []byte) (name, value string, err error) {
	name, value, ok := strings.Cut(string(bytes.TrimSuffix(line, []byte("\r\n"))), ":")
	if !ok || !isToken(name) { // also: continued lines, and space before the colon
		return "", "", faulty("a field of a head is malformed")
	}
	value = strings.Trim(value, " \t")
	if !isValue(value) {
		return "", "", faulty("the field %s has a control character", name)
	}
	return name, value, nil
}

// parseLength tells the length of a body, of which at most one field may speak.
func parseLength(lengths, codings []string, minor int) (frame, error) {
	switch {
	case len(lengths) > 0 && len(codings) > 0:
		return frame{}, faulty("a request has both Content-Length and Transfer-Encoding")
	case len(lengths) > 1, len(codings) > 1:
		return frame{}, faulty("a request says its length more than once")
	case len(codings) == 1:
		if !strings.EqualFold(codings[0], "chunked") {
			return frame{}, faulty("a request has the transfer coding %q", codings[0])
		}
		if minor == 0 {
			return frame{}, faulty("a request of HTTP/1.0 has a transfer coding")
		}
		return frame{chunked: true}, nil
	case len(lengths) == 1:
		n, err := strconv.ParseInt(lengths[0], 10, 64)
		if err != nil || strings.Trim(lengths[0], "0123456789") != "" {
			return frame{}, faulty("the Content-Length of a request is malformed")
		}
		return frame{length: n}, nil
	}
	return frame{}, nil
}

// isWebSocket reports whether a request asks to become a WebSocket (RFC 6455
// 4.1). Other upgrades are not offered to servers: RFC 9110 7.8 lets anyone on
// the way leave them out.
func isWebSocket(h http.Header) bool {
	if len(h["Upgrade"]) != 1 || !strings.EqualFold(h.Get("Upgrade"), "websocket") {
		return false
	}
	for _, value := range h["Connection"] {
		for option := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.Trim(option, " \t"), "upgrade") {
				return true
			}
		}
	}
	return false
}

// isToken reports whether s is a token (RFC 9110 5.6.2).
func isToken(s string) bool {
	for _, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// isHost reports whether s has only bytes that a host with a port may have; what
// it names is for the policy.
func isHost(s string) bool {
	for _, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && strings.IndexByte("-._~:[]%", c) < 0 {
			return false
		}
	}
	return true
}

// isValue reports whether s may be the value of a field: no control characters
// but tabs.
func isValue(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdefABCDEF") == "" }
