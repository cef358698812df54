package local_test

import (
	"archive/tar"
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/internal/clients"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
)

// company is a CA of a company and a server on loopback with a certificate of
// it for yes.test.
func company(t *testing.T) (ca []byte, port int) {
	t.Helper()
	authority, err := clients.NewAuthority(pkix.Name{Organization: []string{"A  Company"}, CommonName: "Its Proxy"})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Certify("yes.test")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "over TLS\n") }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return authority.PEM, s.Listener.Addr().(*net.TCPAddr).Port
}

// tlsClients are programs that look for certificates where each is used to, by
// the shell text that fetches the URL in $URL.
var tlsClients = []struct{ program, shell string }{
	{"curl", `curl -sS "$URL"`},
	{"curl", `env -i /usr/bin/curl -sS "$URL"`}, // without the variables, from the system's files
	{"openssl", `printf 'GET / HTTP/1.0\r\n\r\n' | openssl s_client -quiet -verify_return_error -servername yes.test -connect "yes.test:$PORT" 2>/dev/null`},
	{"openssl", `printf 'GET / HTTP/1.0\r\n\r\n' | env -i openssl s_client -quiet -verify_return_error -CApath /etc/ssl/certs -servername yes.test -connect "yes.test:$PORT" 2>/dev/null`},
	{"wget", `wget -qO- "$URL"`},
	{"git", `git ls-remote "$URL" 2>&1 | grep -v 'not found' | grep -q -i 'certificate\|ssl' && exit 1; echo over TLS`},
	{"python3", `python3 -c 'import os, urllib.request; print(urllib.request.urlopen(os.environ["URL"]).read().decode(), end="")'`},
	{"node", `node -e 'fetch(process.env.URL).then(r => r.text()).then(t => process.stdout.write(t))'`},
	{"java", `mkdir -p /tmp/j && cat > /tmp/j/Get.java <<'EOF'
public class Get { public static void main(String[] a) throws Exception {
	System.out.write(new java.net.URL(System.getenv("URL")).openStream().readAllBytes()); System.out.flush(); } }
EOF
java -XX:TieredStopAtLevel=1 /tmp/j/Get.java 2>/dev/null`},
}

// What a company's proxy signs is trusted by the programs inside, without
// anybody's doing; without the certificate by none.
func TestTrustsACompany(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			ca, port := company(t)
			d := policy.Document{Rules: []policy.Rule{{CIDR: "127.0.0.1", Ports: []int{port}, Proto: "tls"}, {Host: "yes.test", Ports: []int{port}, Proto: "tls"}}}
			for _, trusting := range []bool{true, false} {
				p := providerWith(t, runtime, func(o *local.Options) {
					o.Egress.Resolvers = []netip.AddrPort{names(t)}
					if trusting {
						o.Egress.CA = ca
					}
				})
				s := connected(t, p, d, nil)
				programs := tlsClients
				if !trusting {
					programs = programs[:3] // these fail for the one reason
				}
				for _, c := range programs {
					if r := run(t, s, "command -v "+c.program); !r.OK() {
						t.Logf("there is no %s here", c.program)
						continue
					}
					r, err := s.Run(t.Context(), sandbox.Command{Shell: fmt.Sprintf("export PORT=%d; export URL=https://yes.test:$PORT/; %s", port, c.shell), Timeout: time.Minute})
					if err != nil {
						t.Fatal(err)
					}
					if got := strings.Contains(string(r.Stdout.Head), "over TLS"); got != trusting {
						t.Errorf("trusting: %v, %.40s: %q %q", trusting, c.shell, r.Stdout.Head, r.Stderr.Head)
					}
				}
				if err := s.Kill(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// In an image, too, and whatever the image says of its own.
func TestTrustsACompanyInAnImage(t *testing.T) {
	ca, _ := company(t)
	file := func(name, body string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, PAXRecords: map[string]string{"body": body}}
	}
	ref := system(t, v1.Config{Env: []string{"SSL_CERT_FILE=/nowhere", "OTHER=kept"}}, layerWith(t,
		file("etc/ssl/certs/ca-certificates.crt", "the image's\n"), file("usr/local/share/ca-certificates/own.crt", "x"),
		tar.Header{Typeflag: tar.TypeSymlink, Name: "etc/ssl/cert.pem", Linkname: "certs/ca-certificates.crt", Mode: 0o777}))
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			p := imagesWith(t, runtime, t.TempDir(), func(o *local.Options) { o.Egress.CA = ca })
			s, err := sandbox.Create(t.Context(), p, sandbox.Spec{Image: ref, TTL: time.Minute, Env: map[string]string{"PIP_CERT": "/mine"}}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for _, name := range []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem", "$SSL_CERT_FILE"} {
				if got := string(run(t, s, "cat "+name).Stdout.Head); got != "the image's\n"+string(ca) {
					t.Errorf("%s is %q", name, got)
				}
			}
			for _, name := range []string{"$NODE_EXTRA_CA_CERTS", "/usr/local/share/ca-certificates/rein-upstream.crt", "/etc/ssl/certs/*.0"} {
				if got := string(run(t, s, "cat "+name).Stdout.Head); got != string(ca) {
					t.Errorf("%s is %q", name, got)
				}
			}
			if got := string(run(t, s, "echo $OTHER $PIP_CERT").Stdout.Head); got != "kept /mine\n" {
				t.Errorf("variables of the image and of the target: %q", got)
			}
			if err := s.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
