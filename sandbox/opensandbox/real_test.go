package opensandbox_test

import (
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/secret"
)

// The tests below are against a real server, which scripts/test-opensandbox.sh
// starts.

func realServer(t *testing.T, variable string, change func(*opensandbox.Options)) *opensandbox.Provider {
	t.Helper()
	url := os.Getenv(variable)
	if url == "" {
		t.Skip("make test-opensandbox starts a server for this")
	}
	return providerOf(t, opensandbox.Options{URL: url, Key: secret.New("key", os.Getenv("REIN_OPENSANDBOX_KEY"))}, change)
}

func realImage() string { return os.Getenv("REIN_OPENSANDBOX_IMAGE") }

func withOwn(o *opensandbox.Options) { o.Execd = os.Getenv("REIN_OPENSANDBOX_REIN_EXECD") }

// imaged gives specs without an image the server's.
type imaged struct{ *opensandbox.Provider }

func (i imaged) Create(ctx ctx, spec sandbox.Spec) (sandbox.Info, error) {
	if spec.Image == "" {
		spec.Image = realImage()
	}
	return i.Provider.Create(ctx, spec)
}

var always = []sandbox.Capability{sandbox.CapExec, sandbox.CapFiles, sandbox.CapBackground, sandbox.CapLabels, sandbox.CapRenew,
	sandbox.CapPause, sandbox.CapNetworkDeny, sandbox.CapProcesses, sandbox.CapLimitCPU, sandbox.CapLimitMemory}

func TestRealSuiteWithServersExecd(t *testing.T) {
	realServer(t, "REIN_OPENSANDBOX_URL", nil)
	sandboxtest.Run(t, sandboxtest.Harness{
		New:     func(t *testing.T) sandbox.Provider { return imaged{realServer(t, "REIN_OPENSANDBOX_URL", nil)} },
		Must:    always,
		Factor:  3,
		Summary: sandboxtest.SaveSummary(t, os.Getenv("REIN_VERIFIED"), "opensandbox-real", os.Getenv("REIN_OPENSANDBOX_WITH")),
	})
}

func TestRealSuiteWithOwnExecd(t *testing.T) {
	realServer(t, "REIN_OPENSANDBOX_URL", nil)
	sandboxtest.Run(t, sandboxtest.Harness{
		New:     func(t *testing.T) sandbox.Provider { return imaged{realServer(t, "REIN_OPENSANDBOX_URL", withOwn)} },
		Must:    append(always, sandbox.CapCallIDs, sandbox.CapCaps, sandbox.CapSpill, sandbox.CapConfine, sandbox.CapPipeStatus),
		Factor:  3,
		Summary: sandboxtest.SaveSummary(t, os.Getenv("REIN_VERIFIED"), "opensandbox-real-own", os.Getenv("REIN_OPENSANDBOX_WITH")),
	})
}

// Through the server's proxy, for where sandboxes cannot be reached.
func TestRealServerProxy(t *testing.T) {
	p := realServer(t, "REIN_OPENSANDBOX_URL", func(o *opensandbox.Options) { withOwn(o); o.UseServerProxy = true })
	sb := create(t, p, sandbox.Spec{TTL: 2 * time.Minute, Image: realImage(), Require: []sandbox.Capability{sandbox.CapCallIDs}})
	r, err := sb.Run(t.Context(), sandbox.Command{Shell: "echo out; echo err >&2; exit 3"})
	if err != nil || r.ExitCode == nil || *r.ExitCode != 3 || string(r.Stdout.Head)+string(r.Stderr.Head) != "out\nerr\n" {
		t.Errorf("result %+v, error %v", r, err)
	}
}

// A server whose policy stops names only is refused, and used when that is
// accepted.
func TestRealWeakEgress(t *testing.T) {
	p := realServer(t, "REIN_OPENSANDBOX_WEAK_URL", nil)
	mine := map[string]string{"test": strings.ToLower(rand.Text())} // Docker's engine is shared
	_, err := p.Create(t.Context(), sandbox.Spec{TTL: 2 * time.Minute, Image: realImage(), Labels: mine})
	wantRefusal(t, err, sandbox.KindUnsupported, "accept_weak_egress")
	if left, err := p.List(t.Context(), mine); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	p = realServer(t, "REIN_OPENSANDBOX_WEAK_URL", func(o *opensandbox.Options) { o.AcceptWeakEgress = true })
	sb := create(t, p, sandbox.Spec{TTL: 2 * time.Minute, Image: realImage()})
	if got := sb.Info().Network; got != "dns" {
		t.Errorf("enforced by %q", got)
	}
}

// A server that takes no network policy is refused.
func TestRealHostNetwork(t *testing.T) {
	p := realServer(t, "REIN_OPENSANDBOX_HOST_URL", nil)
	_, err := p.Create(t.Context(), sandbox.Spec{TTL: 2 * time.Minute, Image: realImage()})
	wantRefusal(t, err, sandbox.KindUnsupported, `network_mode = "bridge"`)
}

// Secrets reach the vault of a sidecar that the server has made, which says that
// it has them; there is no other way to it than through the execd inside. One
// that was asked for no credential proxy, or stops names only, gets none.
func TestRealSecrets(t *testing.T) {
	weak := func(o *opensandbox.Options) { withOwn(o); o.AcceptWeakVault = true }
	p := realServer(t, "REIN_OPENSANDBOX_URL", weak)
	sp := sandbox.Spec{TTL: 2 * time.Minute, Image: realImage(), Network: rules(policy.Rule{Host: "a.example"}, policy.Rule{Host: "b.example"}),
		Secrets: []vault.Secret{github(bearer("a.example")), other(vault.Binding{Host: "b.example", As: vault.Basic, User: "me"}, vault.Binding{Host: "a.example", As: vault.Header, Name: "X-Key"})}}
	sb := create(t, p, sp)
	r, err := sb.Run(t.Context(), sandbox.Command{Shell: "echo $GITHUB_TOKEN; env; cat /proc/*/environ /proc/*/cmdline 2> /dev/null; true"})
	out := string(r.Stdout.Head) + string(r.Stdout.Tail)
	if err != nil || !strings.HasPrefix(out, "ghp_") {
		t.Errorf("%q, %v", out, err)
	}
	hides(t, "what can be read inside", []byte(out))
	if err := p.Pause(t.Context(), sb.ID(), sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Resume(t.Context(), sb.ID()); err != nil {
		t.Errorf("resumed: %v", err)
	}
	_, err = realServer(t, "REIN_OPENSANDBOX_URL", func(o *opensandbox.Options) { o.StateDir = t.TempDir() }).Create(t.Context(), withImage(withSecrets(github(bearer("a.example")))))
	wantRefusal(t, err, sandbox.KindUnsupported, "accept_weak_vault")
	_, err = realServer(t, "REIN_OPENSANDBOX_WEAK_URL", weak).Create(t.Context(), withImage(withSecrets(github(bearer("a.example")))))
	wantRefusal(t, err, sandbox.KindUnsupported, "dns+nft")
}

func withImage(s sandbox.Spec) sandbox.Spec {
	s.Image, s.TTL = realImage(), 2*time.Minute
	return s
}

// A wrong key is refused with a hint.
func TestRealWrongKey(t *testing.T) {
	p := realServer(t, "REIN_OPENSANDBOX_URL", func(o *opensandbox.Options) { o.Key = secret.New("key", "not the key") })
	_, err := p.List(t.Context(), nil)
	wantRefusal(t, err, sandbox.KindDenied, "key")
	report, err := p.Probe(t.Context())
	if err != nil || report.Usable || len(report.Problems) == 0 {
		t.Errorf("report %+v, error %v", report.Problems, err)
	}
}
