package clients_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/internal/clients"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// key is what the servers want, and is nowhere in a sandbox.
const key = "rein_RealRealRealRealRealReal01234567"

// signing is the secret key with which requests to the bucket are signed.
const signing = "RealRealRealRealRealReal/Real+Real012345"

// toolsDir is where scripts/test-vault.sh has put programs that are to be brought
// along.
var toolsDir = flag.String("tools", "", "a directory of programs to bring along")

// mayKeyed is allowed, and the hosts that only have keys. git pushes, too.
var mayKeyed = policy.Document{Bundles: append(slices.Clone(allowed.Bundles), "crates"), Rules: append(slices.Clone(allowed.Rules),
	policy.Rule{Host: clients.GitHub, Proto: "https"}, policy.Rule{Host: clients.Bucket, Proto: "https"}, policy.Rule{Host: clients.GRPC, Proto: "https"})}

// secrets bind the key to every server, in the form that its clients send.
func secrets() []vault.Secret {
	s := vault.Secret{Name: "key", Value: secret.New("key", key), Variable: "KEY"}
	for _, host := range []string{clients.PyPI, clients.PyPIFiles, clients.Site} {
		s.Use = append(s.Use, vault.Binding{Host: host, As: vault.Basic})
	}
	for _, host := range []string{clients.NPM, clients.Crates, clients.CratesFiles, clients.GRPC} {
		s.Use = append(s.Use, vault.Binding{Host: host, As: vault.Bearer})
	}
	s.Use = append(s.Use, vault.Binding{Host: clients.GitHub, As: vault.Basic, User: "x-access-token"})
	return []vault.Secret{s, {Name: "signing", Value: secret.New("signing", signing), Variable: "AWS_SECRET_ACCESS_KEY",
		Use: []vault.Binding{{Host: clients.Bucket, As: vault.AWS4, AccessKey: clients.AccessKey}}}}
}

// Real clients use a key that they never see, and are refused another one.
func TestVault(t *testing.T) {
	registry, err := clients.NewGuarded(t.TempDir(), key, signing)
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("ports 443 and 80 are root's: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(registry.Close)
	runtimes, program := []string{"runc"}, []byte(nil)
	if *all {
		runtimes, program = []string{"gvisor", "runc"}, goProgram(t)
	}
	if *toolsDir != "" {
		if err := registry.ServeGRPC(t.TempDir(), filepath.Join(*toolsDir, "grpc"), key); err != nil {
			t.Fatal(err)
		}
	}
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) { tryKeys(t, registry, runtime, program) })
	}
}

func tryKeys(t *testing.T, registry *clients.Registry, runtime string, program []byte) {
	p := provider(t, registry, runtime)
	with, without := createWith(t, p, secrets()), createWith(t, p, nil)
	if program != nil {
		bring(t, with, *toolsDir, program)
		bring(t, without, *toolsDir, program)
	}
	for _, c := range keyedClients {
		if !c.short && !*all {
			continue
		}
		if r := run(t, with, c.needs+" --version || "+c.needs+" version"); !r.OK() {
			t.Logf("%-22s not tried: %s is not installed", c.name, c.needs)
			continue
		}
		r := run(t, with, c.command)
		said := string(r.Stdout.Head) + string(r.Stderr.Head)
		if !r.OK() || !strings.Contains(string(r.Stdout.Head), clients.Greeting) || strings.Contains(said, key) || strings.Contains(said, signing) {
			t.Errorf("%s, with the right to: %s %+v", c.name, said, r.Network)
		} else {
			t.Logf("%-22s %-20s %6d ms  it was served", c.name, "with the right to:", r.DurationMS)
		}
		refusedKey(t, c, "without a secret:", without, "export KEY=none AWS_SECRET_ACCESS_KEY=none; "+c.command, "")
		if c.asked {
			continue
		}
		refusedKey(t, c, "another's key:", with, "export KEY=rein_AnotherAnotherAnotherAn01234567 AWS_SECRET_ACCESS_KEY=AnotherAnother/AnotherAnother+Another0123; "+c.command, vault.RuleForeign)
	}
}

// refusedKey judges a client that must not be served. rule is the gateway's; where
// it has none, the server refuses.
func refusedKey(t *testing.T, c keyed, what string, box *sandbox.Sandbox, command, rule string) {
	t.Helper()
	r := run(t, box, command)
	said := strings.Join(strings.Fields(string(r.Stdout.Head)+string(r.Stderr.Head)), " ")
	if r.OK() && strings.Contains(said, clients.Greeting) {
		t.Errorf("%s, %s it was served: %s", c.name, what, said)
	}
	if strings.Contains(said, "Traceback") && len(said) > 100 { // Python says last what it is
		said = "…" + strings.ToValidUTF8(said[len(said)-100:], "")
	}
	t.Logf("%-22s %-20s %6d ms  %.103s", c.name, what, r.DurationMS, said)
	if rule != "" && !slices.ContainsFunc(r.Network, func(n sandbox.NetworkRecord) bool { return n.Verdict == "deny" && n.Rule == rule }) {
		t.Errorf("%s, %s %s %+v, want %s", c.name, what, said, r.Network, rule)
	}
}

// createWith makes a sandbox with secrets.
func createWith(t *testing.T, p sandbox.Provider, list []vault.Secret) *sandbox.Sandbox {
	t.Helper()
	return made(t, p, sandbox.Spec{TTL: 10 * time.Minute, Network: mayKeyed, Secrets: list}, sandbox.Options{Log: audit.New(discard{}, audit.Options{})})
}
