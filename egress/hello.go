package egress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/crypto/cryptobyte"
)

// maxHello bounds a ClientHello with the headers of its records. What clients
// send today has 300 to 2,000 bytes.
const maxHello = 16 << 10

// TLS, from RFC 8446 4 and 5.1, RFC 6066 3 and the registry of extensions.
const (
	recordHeader    = 5
	recordCipher    = 20 // change_cipher_spec
	recordAlert     = 21
	recordHandshake = 22
	recordData      = 23
	maxRecord       = 1 << 14

	helloHeader = 4
	helloClient = 1
	helloServer = 2

	extServerName = 0
	extVersions   = 43
	nameTypeHost  = 0

	tls10 = 0x0301
	tls13 = 0x0304
)

// hidden are the extensions by which a client means another server than the
// one in sight: encrypted_client_hello, its drafts that were in use, and
// ech_outer_extensions.
var hidden = []uint16{0xfe0d, 0xfe0a, 0xfe09, 0xfe08, 0xffce, 0xfd00}

var (
	errNotTLS = errors.New("it is not TLS")
	errHidden = errors.New("it hides the server's name (encrypted ClientHello), so that nobody can tell where it goes; switch that off in the client")
	errLong   = fmt.Errorf("its first message has more than %d bytes", maxHello)
)

// hello is what the gateway reads in a ClientHello.
type hello struct {
	serverName string // as it was sent; empty when there is none
	offers13   bool   // TLS 1.3, whose servers may ask for a second one
	hides      bool   // it has an extension that is hidden
}

// readHello reads the first message of a TLS client from r, not a byte more,
// and returns the bytes that it read, also with an error. The message may come
// in many records; it must end with one. An error of r is returned as it is. What is
// read is there also where the error is errHidden.
func readHello(r io.Reader) (raw []byte, h hello, err error) {
	var message []byte
	for {
		var fragment []byte
		raw, fragment, err = readRecord(r, raw)
		if err != nil {
			return raw, hello{}, err
		}
		message = append(message, fragment...)
		if message[0] != helloClient {
			return raw, hello{}, errors.New("its first message is no ClientHello")
		}
		if len(message) < helloHeader {
			continue
		}
		size := helloHeader + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
		switch {
		case size > maxHello:
			return raw, hello{}, errLong
		case len(message) > size:
			return raw, hello{}, errors.New("something follows its ClientHello in the same record")
		case len(message) == size:
			h, err = parseHello(message[helloHeader:])
			return raw, h, err
		}
	}
}

// readRecord appends the next record of r to raw, which may become maxHello
// long, and returns what it carries.
func readRecord(r io.Reader, raw []byte) (all, fragment []byte, err error) {
	begin := len(raw)
	if raw, err = readHeader(r, raw, recordHandshake); err != nil {
		return raw, nil, err
	}
	size := int(binary.BigEndian.Uint16(raw[len(raw)-2:]))
	switch {
	case size == 0 || size > maxRecord:
		return raw, nil, fmt.Errorf("it has a record of %d bytes", size)
	case len(raw)+size > maxHello:
		return raw, nil, errLong
	}
	raw, err = readMore(r, raw, size)
	return raw, raw[min(begin+recordHeader, len(raw)):], err
}

// readHeader appends the header of a record, which must be of one of the types.
func readHeader(r io.Reader, raw []byte, types ...byte) ([]byte, error) {
	raw, err := readMore(r, raw, 1)
	if err != nil {
		return raw, err
	}
	if !slices.Contains(types, raw[len(raw)-1]) {
		return raw, errNotTLS
	}
	if raw, err = readMore(r, raw, recordHeader-1); err != nil {
		return raw, err
	}
	if raw[len(raw)-recordHeader+1] != tls10>>8 {
		return raw, errNotTLS
	}
	return raw, nil
}

// readMore appends n bytes, or those that came before an error.
func readMore(r io.Reader, raw []byte, n int) ([]byte, error) {
	begin := len(raw)
	raw = slices.Grow(raw, n)[:begin+n]
	got, err := io.ReadFull(r, raw[begin:])
	if err == io.EOF && begin > 0 {
		err = io.ErrUnexpectedEOF
	}
	return raw[:begin+got], err
}

// parseHello reads the body of a ClientHello. What it does not look at is
// checked for its lengths only, and unknown extensions (which is what GREASE
// is, RFC 8701) are passed over.
func parseHello(body []byte) (hello, error) {
	var h hello
	var version uint16
	var session, ciphers, compressions cryptobyte.String
	s := cryptobyte.String(body)
	if !s.ReadUint16(&version) || !s.Skip(32) ||
		!s.ReadUint8LengthPrefixed(&session) || len(session) > 32 ||
		!s.ReadUint16LengthPrefixed(&ciphers) || len(ciphers) == 0 || len(ciphers)%2 != 0 ||
		!s.ReadUint8LengthPrefixed(&compressions) || len(compressions) == 0 {
		return h, errors.New("its ClientHello is malformed")
	}
	if version < tls10 || version>>8 != tls10>>8 {
		return h, fmt.Errorf("it speaks version %#04x, which is not TLS 1", version)
	}
	if s.Empty() {
		return h, nil // extensions are optional in TLS 1.2 and before
	}
	var extensions cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return h, errors.New("the extensions of its ClientHello do not end where it does")
	}
	seen := map[uint16]bool{}
	for !extensions.Empty() {
		var kind uint16
		var data cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&data) {
			return h, errors.New("an extension of its ClientHello is malformed")
		}
		if seen[kind] {
			return h, fmt.Errorf("its ClientHello has the extension %d twice", kind)
		}
		seen[kind] = true
		if err := h.extension(kind, data); err != nil {
			return h, err
		}
	}
	if h.hides {
		return h, errHidden
	}
	return h, nil
}

func (h *hello) extension(kind uint16, data cryptobyte.String) (err error) {
	switch {
	case slices.Contains(hidden, kind):
		h.hides = true
	case kind == extServerName:
		h.serverName, err = parseServerName(data)
	case kind == extVersions:
		h.offers13, err = parseVersions(data)
	}
	return err
}

// parseServerName reads a list that has to have exactly one name.
func parseServerName(data cryptobyte.String) (string, error) {
	var list, name cryptobyte.String
	var kind uint8
	switch {
	case !data.ReadUint16LengthPrefixed(&list) || !data.Empty() ||
		!list.ReadUint8(&kind) || !list.ReadUint16LengthPrefixed(&name) || len(name) == 0:
		return "", errors.New("its server name is malformed")
	case !list.Empty():
		return "", errors.New("it has more than one server name")
	case kind != nameTypeHost:
		return "", fmt.Errorf("its server name is of the unknown type %d", kind)
	}
	return string(name), nil
}

func parseVersions(data cryptobyte.String) (offers13 bool, err error) {
	var list cryptobyte.String
	if !data.ReadUint8LengthPrefixed(&list) || !data.Empty() || len(list) == 0 || len(list)%2 != 0 {
		return false, errors.New("its list of versions is malformed")
	}
	for !list.Empty() {
		var v uint16
		list.ReadUint16(&v)
		offers13 = offers13 || v == tls13
	}
	return offers13, nil
}

// retryRandom is the random of a ServerHello that is a HelloRetryRequest:
// SHA-256 of these words (RFC 8446 4.1.3).
var retryRandom = []byte{
	0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
	0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
}

// retryPrefix is how many bytes of a server show whether it asks for a second
// ClientHello: up to the end of the random.
const retryPrefix = recordHeader + helloHeader + 2 + 32

// asksAgain reads what a server said first. It is decided when it can no longer
// change with what comes.
func asksAgain(first []byte) (again, decided bool) {
	const at = recordHeader + helloHeader + 2
	switch {
	case len(first) > 0 && first[0] != recordHandshake,
		len(first) >= recordHeader && binary.BigEndian.Uint16(first[recordHeader-2:]) < retryPrefix-recordHeader,
		len(first) > recordHeader && first[recordHeader] != helloServer:
		return false, true
	case len(first) < retryPrefix:
		return false, false
	}
	return bytes.Equal(first[at:retryPrefix], retryRandom), true
}

// readSecondHello reads what a client sends after it was asked again: its
// ClientHello, which may come after alerts, a change_cipher_spec and data that
// was sent too early (RFC 8446 4.2.10, D.4); those go to early as they come.
// raw is what was read and did not go there.
func readSecondHello(r io.Reader, early io.Writer) (raw []byte, h hello, err error) {
	const maxProtected = maxRecord + 256 // RFC 8446 5.2
	for {
		raw, err = readHeader(r, nil, recordHandshake, recordCipher, recordAlert, recordData)
		if err != nil {
			return raw, hello{}, err
		}
		if raw[0] == recordHandshake {
			return readHello(io.MultiReader(bytes.NewReader(raw), r))
		}
		size := int(binary.BigEndian.Uint16(raw[recordHeader-2:]))
		if size > maxProtected {
			return raw, hello{}, fmt.Errorf("it has a record of %d bytes", size)
		}
		if raw, err = readMore(r, raw, size); err != nil {
			return raw, hello{}, err
		}
		if _, err = early.Write(raw); err != nil {
			return nil, hello{}, err
		}
	}
}
