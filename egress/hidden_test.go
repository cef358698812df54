package egress_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// Where TLS ends in the gateway, a first message that may hide another name is one
// for the name in sight, as browsers mean it: theirs hides nothing. Who means another
// is told that nobody here has a key for it, and has reached nobody.
func TestEndedWithHiddenName(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	e := endsTo(t, httpsTo("api.example.com", "other.example.com"), true, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	for public, reached := range map[string]bool{"api.example.com": true, "other.example.com": false, "leak.example.org": false} {
		c := tls.Client(mustReach(t, e.ns, "api.example.com", 443), &tls.Config{RootCAs: e.trust.RootCAs, ServerName: "leak.example.org", MinVersion: tls.VersionTLS13,
			EncryptedClientHelloConfigList: echConfig(t, public)})
		c.SetDeadline(time.Now().Add(20 * time.Second))
		err := c.Handshake()
		if _, told := errors.AsType[*tls.ECHRejectionError](err); err == nil || told != reached {
			t.Errorf("%s in sight: %v", public, err)
		}
		c.Close()
	}
	if asked.Load() > 0 {
		t.Errorf("the server was asked %d times", asked.Load())
	}
	e.rec.wait(t, verdictOf("deny", "api.example.com"))
}

// echConfig is a list with one ECHConfig (RFC 9849 4) for a public name.
func echConfig(t *testing.T, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pub := key.PublicKey().Bytes()
	body := append(binary.BigEndian.AppendUint16([]byte{1, 0, 0x20}, uint16(len(pub))), pub...)
	body = append(body, 0, 4, 0, 1, 0, 1, 32, byte(len(public)))
	body = append(append(body, public...), 0, 0)
	config := append(binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body))), body...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}
