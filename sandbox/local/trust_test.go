package local

import (
	"bytes"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// oneCompany is a CA made with openssl req -utf8 -subj "/C=DE/O=A  Company  /CN=Its Próxy".
const oneCompany = `-----BEGIN CERTIFICATE-----
MIIBxzCCAW2gAwIBAgIUWMtVNYFlrt0O5UVw5ENx0OB7vsUwCgYIKoZIzj0EAwIw
OTELMAkGA1UEBhMCREUxFTATBgNVBAoMDEEgIENvbXBhbnkgIDETMBEGA1UEAwwK
SXRzIFByw7N4eTAeFw0yNjExMzAwODA4MTNaFw0zNjExMjcwODA4MTNaMDkxCzAJ
BgNVBAYTAkRFMRUwEwYDVQQKDAxBICBDb21wYW55ICAxEzARBgNVBAMMCkl0cyBQ
csOzeHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQLOt1FMxMbJVqtGVlJo4DZ
Lt5toBnRFG4XV+Wqh0H2FhEJ2VeovQsyu4ddA0aeQcr6jh/TGATz+U7Y3MH+ny/Q
o1MwUTAdBgNVHQ4EFgQUFvDf87tVAFhXh9eI4dhj/wrgQJ0wHwYDVR0jBBgwFoAU
FvDf87tVAFhXh9eI4dhj/wrgQJ0wDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQD
AgNIADBFAiEA5t8ONRaUmcuOLFUxKzL4ZkZRcG9xaqEWRuPBnQo88uYCIAcJNlal
1GEue2uJ03qZlJVmd1DYboTXzlVnbTqXAPCP
-----END CERTIFICATE-----
`

// TestSubjectHash checks what openssl x509 -hash says of oneCompany, and the
// names that this system's own tools gave to its certificates.
func TestSubjectHash(t *testing.T) {
	certs, err := certificates([]byte(oneCompany))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := subjectHash(certs[0].RawSubject); got != "523961a1" || err != nil {
		t.Errorf("hash %s, %v", got, err)
	}
	links, _ := filepath.Glob("/etc/ssl/certs/*.0")
	for _, link := range links {
		b, err := os.ReadFile(link)
		if err != nil {
			continue // a link to what is gone
		}
		certs, err := certificates(b)
		if err != nil {
			continue
		}
		if got, err := subjectHash(certs[0].RawSubject); got+".0" != filepath.Base(link) || err != nil {
			t.Errorf("%s is %s, %v", link, got, err)
		}
	}
}

// A directory of certificates that is a link, as on Fedora, is copied as the one
// it leads to.
func TestCopyKeptLink(t *testing.T) {
	dir := t.TempDir()
	real, from, to := filepath.Join(dir, "pki"), filepath.Join(dir, "certs"), filepath.Join(dir, "to")
	if err := errors.Join(os.Mkdir(real, 0o755), os.Mkdir(to, 0o755), os.WriteFile(filepath.Join(real, "a.pem"), []byte(oneCompany), 0o644),
		os.Symlink("a.pem", filepath.Join(real, "523961a1.0")), os.Symlink("pki", from)); err != nil {
		t.Fatal(err)
	}
	if err := copyKept(from, to); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(to, "523961a1.0")); err != nil || string(b) != oneCompany {
		t.Errorf("%q, %v", b, err)
	}
}

func TestCertificates(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":           "",
		"words":             "certificate",
		"a private key":     oneCompany + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
		"not a certificate": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
	} {
		if certs, err := certificates([]byte(text)); err == nil {
			t.Errorf("%s: %d certificates", name, len(certs))
		}
	}
	if certs, err := certificates([]byte("# the company's\n" + oneCompany + oneCompany)); err != nil || len(certs) != 2 {
		t.Errorf("%d certificates, %v", len(certs), err)
	}
	if _, err := New(Options{StateDir: t.TempDir(), Egress: Egress{CA: []byte("x")}}); err == nil {
		t.Error("a provider takes what is no certificate")
	}
}

// TestTrustInARoot checks what becomes of the files of other systems: Alpine's
// link to the bundle, a Java of its own, and a system without any.
func TestTrustInARoot(t *testing.T) {
	const old = "-----BEGIN CERTIFICATE-----\nold\n-----END CERTIFICATE-----\n"
	root := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		if err := writeFile(filepath.Join(root, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("etc/ssl/certs/ca-certificates.crt", strings.TrimSuffix(old, "\n"))
	put("etc/ssl/certs/523961a1.0", "another of this name")
	put(".rein/execd", "")
	put("opt/java/openjdk/lib/security/cacerts", "its own")
	if err := os.Symlink("certs/ca-certificates.crt", filepath.Join(root, "etc/ssl/cert.pem")); err != nil {
		t.Fatal(err)
	}
	own, err := newTrust(root, oneCompany)
	if err != nil {
		t.Fatal(err)
	}
	if err := own.install(); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	for _, name := range []string{"etc/ssl/certs/ca-certificates.crt", "etc/ssl/cert.pem", trustBundlePath} {
		if got := read(name); got != old+oneCompany {
			t.Errorf("%s is %q", name, got)
		}
	}
	for _, name := range []string{trustOwnPath, "etc/ssl/certs/523961a1.1"} {
		if got := read(name); got != oneCompany {
			t.Errorf("%s is %q", name, got)
		}
	}
	block, _ := pem.Decode([]byte(oneCompany))
	for _, name := range []string{trustStorePath, "opt/java/openjdk/lib/security/cacerts"} {
		if got := read(name); !strings.HasPrefix(got, "\xfe\xed\xfe\xed\x00\x00\x00\x02") || !strings.Contains(got, string(block.Bytes)) {
			t.Errorf("%s is no store with the certificate", name)
		}
	}

	root = t.TempDir()
	put(".rein/execd", "")
	if own, err = newTrust(root, oneCompany); err == nil {
		err = own.install()
	}
	if err != nil || read("etc/ssl/certs/ca-certificates.crt") != oneCompany {
		t.Errorf("a system without certificates: %v", err)
	}
}

func FuzzTrust(f *testing.F) {
	f.Add([]byte(oneCompany))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		certs, err := certificates(text)
		if err != nil {
			return
		}
		for _, c := range certs {
			if _, err := subjectHash(c.RawSubject); err != nil {
				t.Skip(err) // nothing is written under a name
			}
		}
		store, err := javaStore(text)
		if err != nil || bytes.Count(store, []byte("X.509")) < len(certs) {
			t.Errorf("a store of %d certificates: %v", len(certs), err)
		}
	})
}

func FuzzSubjectHash(f *testing.F) {
	for _, s := range []string{"3039310b300906035504061302444531153013060355040a0c0c412020436f6d70616e7920203113301106035504030c0a497473205072c3b37879", "3000", "30"} {
		b, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if hash, err := subjectHash(raw); (err == nil) != (len(hash) == 8) {
			t.Errorf("%q, %v", hash, err)
		}
	})
}
