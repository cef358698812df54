package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"time"
)

const (
	// authorityLife is how long an authority is good for: longer than any
	// sandbox may live. Clocks inside may be behind by authoritySkew.
	authorityLife = 30 * 24 * time.Hour
	authoritySkew = 24 * time.Hour
	// leafLife is how long a certificate is, which is made anew when half of
	// it has passed.
	leafLife = 24 * time.Hour
	// maxLeaves are kept.
	maxLeaves = 1024
)

// Authority is a certificate authority that one sandbox trusts, and nobody else:
// its key is made with it, and is nowhere but in memory. Its methods may be
// called concurrently.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey // of the authority
	own  *ecdsa.PrivateKey // of all that it signs
	now  func() time.Time

	mu     sync.Mutex
	leaves map[string]*leaf
}

type leaf struct {
	cert  *tls.Certificate
	renew time.Time
}

// NewAuthority makes an authority, with a name by which people find it in a list
// of those a sandbox trusts.
func NewAuthority(name string) (*Authority, error) {
	a := &Authority{now: time.Now, leaves: map[string]*leaf{}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	if a.own, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	now := a.now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name, Organization: []string{"rein"}},
		NotBefore: now.Add(-authoritySkew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate authority: %w", err)
	}
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

// serial is a serial number (RFC 5280 4.1.2.2): positive, at most 20 bytes.
func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[0] &= 0x7f
	b[15] |= 1
	return new(big.Int).SetBytes(b)
}

// PEM is the certificate of the authority.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Certificate returns a certificate for a name, which may be one that was made
// before.
func (a *Authority) Certificate(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if l := a.leaves[name]; l != nil && now.Before(l.renew) {
		return l.cert, nil
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{Organization: []string{"rein"}},
		NotBefore: now.Add(-authoritySkew), NotAfter: now.Add(leafLife), DNSNames: []string{name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.own.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for %s: %w", name, err)
	}
	made := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.own}
	if made.Leaf, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if len(a.leaves) >= maxLeaves {
		for other := range a.leaves { // any
			delete(a.leaves, other)
			break
		}
	}
	a.leaves[name] = &leaf{made, now.Add(leafLife / 2)}
	return made, nil
}
