package local

import (
	"bytes"
	"crypto/sha1" // #nosec: names of files and a checksum, as OpenSSL and Java have them
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf16"
)

// What a sandbox trusts besides what its image does: the certificates of a
// company whose proxy opens TLS. Everything here is done only where there are
// some, and in the sandbox's own files: nothing of the host or of an image
// changes.

// Where the certificates are inside, for programs that are told so.
const (
	trustOwnPath    = "/.rein/ca.pem"        // those alone
	trustBundlePath = "/.rein/ca-bundle.pem" // with those of the system
	trustStorePath  = "/.rein/cacerts"       // the same for Java
)

// trustEnvironment tells the programs that look nowhere else, or not in the
// system's files.
func trustEnvironment() map[string]string {
	env := map[string]string{"NODE_EXTRA_CA_CERTS": trustOwnPath, "DENO_CERT": trustOwnPath}
	for _, name := range []string{
		"SSL_CERT_FILE", // OpenSSL, Go, Python's ssl, httpx, uv, Ruby, rustls
		"CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE",
		"HTTPLIB2_CA_CERTS", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", // Google's clients in Python, gRPC of C++ and Python
	} {
		env[name] = trustBundlePath
	}
	return env
}

// trustBundles are the files in which systems keep the certificates that they
// trust, as Go's crypto/x509 (root_linux.go) knows them; links among them are
// replaced by files.
var trustBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Arch, Gentoo, Alpine
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora
	"/etc/ssl/ca-bundle.pem",                            // openSUSE
	"/etc/pki/tls/cacert.pem",                           // OpenELEC
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // CentOS
	"/etc/ssl/cert.pem",                                 // Alpine
}

// trustDirs are OpenSSL's directories of one certificate a file, found by the
// hash of its subject.
var trustDirs = []string{"/etc/ssl/certs", "/etc/pki/tls/certs"}

// trustSources are where the programs that make the files above look for more.
var trustSources = []string{"/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors"}

// trustStores are where Java keeps what it trusts.
var trustStores = []string{
	"/etc/ssl/certs/java/cacerts", "/etc/pki/ca-trust/extracted/java/cacerts", "/etc/pki/java/cacerts",
	"/usr/lib/jvm/*/lib/security/cacerts", "/usr/lib/jvm/*/jre/lib/security/cacerts", "/usr/java/*/lib/security/cacerts",
	"/usr/local/openjdk-*/lib/security/cacerts", "/opt/java/*/lib/security/cacerts", "/opt/*/lib/security/cacerts",
}

// certificates reads PEM that holds certificates and nothing else.
func certificates(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for rest := text; len(bytes.TrimSpace(rest)) > 0; {
		block, after := pem.Decode(rest)
		switch {
		case block == nil && len(out) == 0:
			return nil, errors.New("no certificate in PEM is there")
		case block == nil:
			return out, nil // words after the last
		case block.Type != "CERTIFICATE":
			return nil, fmt.Errorf("besides certificates there is a %.40q, which no sandbox may have", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(out)+1, err)
		}
		out, rest = append(out, cert), after
	}
	if len(out) == 0 {
		return nil, errors.New("it is empty")
	}
	return out, nil
}

// trust makes the root file system at root, which is "/" where it is the calling
// thread's own, trust the certificates.
type trust struct {
	root  string
	text  []byte // PEM
	certs []*x509.Certificate
	roots string   // PEM of what the host trusts, for a Java that has nothing of its own
	shown []string // stores of Java in what is shown of the host, to be covered by trustStorePath
}

func newTrust(root, text string) (*trust, error) {
	certs, err := certificates([]byte(text))
	if err != nil {
		return nil, err
	}
	t := &trust{root: root, text: []byte(strings.TrimSpace(text) + "\n"), certs: certs}
	for _, name := range trustBundles {
		if t.roots, err = readBounded(name); err == nil {
			break
		}
	}
	return t, nil
}

// trust is what the configuration asks for; nil: nothing.
func (c *nestConfig) trust(root string) (*trust, error) {
	if c.Trust == "" {
		return nil, nil
	}
	return newTrust(root, c.Trust)
}

// trustKept are the directories of /etc (see hostEtcDirs) that are copied and
// not shown, where they are to have more in them.
var trustKept = []string{"ssl/certs", "pki/tls/certs", "pki/ca-trust/extracted"}

// maxKept bounds what is copied of one of them, in bytes.
const maxKept = 16 << 20

// copyKept copies a directory of certificates, to which from may be a link: files,
// and links as they are.
func copyKept(from, to string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	left := int64(maxKept)
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside := filepath.Join(to, strings.TrimPrefix(name, from))
		switch {
		case d.IsDir():
			return os.MkdirAll(inside, 0o755)
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return os.Symlink(target, inside)
		case !d.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrPermission) {
			return nil // no program inside could read it, either
		}
		if left -= int64(len(b)); err == nil && left < 0 {
			err = fmt.Errorf("%s holds more than %d bytes", from, maxKept)
		}
		if err != nil {
			return err
		}
		return os.WriteFile(inside, b, 0o644)
	})
}

func (t *trust) path(name string) string { return filepath.Join(t.root, name) }

// install does it.
func (t *trust) install() error {
	var system string
	files := map[string][]byte{} // read before any is written: one may be a link to another
	for _, name := range trustBundles {
		if old, err := readBounded(t.path(name)); err == nil {
			if system == "" {
				system = old
			}
			files[name] = join(old, t.text)
		}
	}
	if len(files) == 0 {
		files[trustBundles[0]] = t.text
	}
	files[trustOwnPath], files[trustBundlePath] = t.text, join(system, t.text)
	for name, content := range files {
		if err := t.replace(name, content); err != nil {
			return err
		}
	}
	if err := t.addByHash(); err != nil {
		return err
	}
	if system == "" {
		system = t.roots
	}
	return t.replaceStores(join(system, t.text))
}

// join puts PEM after PEM.
func join(old string, more []byte) []byte {
	if old != "" && !strings.HasSuffix(old, "\n") {
		old += "\n"
	}
	return append([]byte(old), more...)
}

// replace writes a file in the place of whatever is there.
func (t *trust) replace(name string, content []byte) error {
	p := t.path(name)
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeFile(p, string(content), 0o644)
}

// addByHash puts each certificate where OpenSSL and the makers of bundles look
// for them.
func (t *trust) addByHash() error {
	for _, dir := range trustDirs {
		if st, err := os.Stat(t.path(dir)); err != nil || !st.IsDir() {
			continue
		}
		for _, c := range t.certs {
			hash, err := subjectHash(c.RawSubject)
			if err != nil {
				return err
			}
			if err := t.addNumbered(path.Join(dir, hash), encode(c)); err != nil {
				return err
			}
		}
	}
	for _, dir := range trustSources {
		if st, err := os.Stat(t.path(dir)); t.root == "/" && err == nil && st.IsDir() {
			if err := t.replace(dir+"/rein-upstream.crt", t.text); err != nil {
				return err
			}
		}
	}
	return nil
}

// addNumbered writes the first of name.0, name.1 and so on that is free.
func (t *trust) addNumbered(name string, content []byte) error {
	for i := range 16 {
		f, err := os.OpenFile(t.path(fmt.Sprintf("%s.%d", name, i)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = f.Write(content)
		return errors.Join(err, f.Close())
	}
	return fmt.Errorf("%s: too many certificates of one name", name)
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// replaceStores gives every Java a store of the certificates in roots.
func (t *trust) replaceStores(roots []byte) error {
	store, err := javaStore(roots)
	if err != nil {
		return err
	}
	if err := t.replace(trustStorePath, store); err != nil {
		return err
	}
	for _, pattern := range trustStores {
		found, _ := filepath.Glob(t.path(pattern)) // the patterns are ours and valid
		for _, name := range found {
			inside, ok := strings.CutPrefix(name, strings.TrimSuffix(t.root, "/"))
			if st, err := os.Stat(name); err != nil || !ok || !st.Mode().IsRegular() {
				continue
			}
			if err := t.replace(inside, store); err != nil {
				return err
			}
		}
		if t.root != "/" && strings.HasPrefix(pattern, "/usr/") {
			found, _ = filepath.Glob(pattern)
			for _, name := range found {
				if real, err := filepath.EvalSymlinks(name); err == nil && strings.HasPrefix(real, "/usr/") {
					t.shown = append(t.shown, real)
				}
			}
		}
	}
	return nil
}

// maxTrusted bounds the certificates of one store.
const maxTrusted = 4096

// javaStore is a store of trusted certificates in Java's own format, which every
// version reads under the default password: magic and version, the number of
// entries, each with its name, time and certificate, and a checksum that begins
// with the password (sun.security.provider.JavaKeyStore).
func javaStore(text []byte) ([]byte, error) {
	var entries bytes.Buffer
	count := 0
	for rest := text; count < maxTrusted; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			continue // Java would refuse the whole store
		}
		count++
		entries.Write(binary.BigEndian.AppendUint32(nil, 2)) // a trusted certificate
		writeText(&entries, fmt.Sprintf("rein-%d", count))
		entries.Write(make([]byte, 8)) // made in 1970
		writeText(&entries, "X.509")
		entries.Write(binary.BigEndian.AppendUint32(nil, uint32(len(block.Bytes))))
		entries.Write(block.Bytes)
	}
	if count == 0 {
		return nil, errors.New("no certificate for Java")
	}
	store := binary.BigEndian.AppendUint32(nil, 0xFEEDFEED)
	store = binary.BigEndian.AppendUint32(store, 2)
	store = binary.BigEndian.AppendUint32(store, uint32(count))
	store = append(store, entries.Bytes()...)
	h := sha1.New()
	for _, c := range utf16.Encode([]rune("changeit")) {
		h.Write(binary.BigEndian.AppendUint16(nil, c))
	}
	h.Write([]byte("Mighty Aphrodite"))
	h.Write(store)
	return h.Sum(store), nil
}

// writeText writes ASCII as Java's DataOutput.writeUTF does.
func writeText(b *bytes.Buffer, s string) {
	b.Write(binary.BigEndian.AppendUint16(nil, uint16(len(s))))
	b.WriteString(s)
}

// attribute and the SET of them are a subject's parts (RFC 5280 4.1.2.4).
type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

type attributeSET []attribute

// subjectHash is the name under which OpenSSL looks for a certificate in a
// directory (X509_NAME_hash_ex): of SHA-1 over its subject's parts, each text in
// UTF-8, lower case and with single spaces, the first four bytes.
func subjectHash(raw []byte) (string, error) {
	var sets []attributeSET
	if rest, err := asn1.Unmarshal(raw, &sets); err != nil || len(rest) > 0 {
		return "", fmt.Errorf("the subject of a certificate: %w", errors.Join(err, errors.New("not a list of names")))
	}
	h := sha1.New()
	for _, set := range sets {
		for i := range set {
			set[i].Value = canonical(set[i].Value)
		}
		b, err := asn1.Marshal(set)
		if err != nil {
			return "", fmt.Errorf("the subject of a certificate: %w", err)
		}
		h.Write(b)
	}
	return fmt.Sprintf("%08x", binary.LittleEndian.Uint32(h.Sum(nil))), nil
}

// canonical is a text as OpenSSL compares it; what is no text stays.
func canonical(v asn1.RawValue) asn1.RawValue {
	text := v.Bytes
	switch v.Tag {
	case asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagT61String, asn1.TagIA5String, 26: // VisibleString
	case asn1.TagBMPString:
		units := make([]uint16, len(text)/2)
		for i := range units {
			units[i] = binary.BigEndian.Uint16(text[2*i:])
		}
		text = []byte(string(utf16.Decode(units)))
	default:
		return v
	}
	words := bytes.FieldsFunc(text, func(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' })
	text = bytes.Join(words, []byte(" "))
	for i, c := range text {
		if 'A' <= c && c <= 'Z' { // ASCII only, as there
			text[i] = c + 'a' - 'A'
		}
	}
	return asn1.RawValue{Class: asn1.ClassUniversal, Tag: asn1.TagUTF8String, Bytes: text}
}
