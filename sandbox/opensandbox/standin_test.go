package opensandbox_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/execd/daemon"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
)

// TestMain makes the test binary usable as what an OpenSandbox server puts into
// its sandboxes and beside them, for where the originals cannot be had: under
// the name execd it is that daemon, under the name egress the sidecar. See
// scripts/test-opensandbox.sh.
func TestMain(m *testing.M) {
	var err error
	switch name := filepath.Base(os.Args[0]); {
	case len(os.Args) == 2 && os.Args[1] == "warden":
		if err = daemon.RunWarden(); errors.Is(err, io.EOF) {
			return
		}
	case name == "execd":
		err = standInExecd()
	case name == "egress":
		err = standInEgress()
	default:
		goleak.VerifyTestMain(m)
		return
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// standInExecd serves rein's daemon as OpenSandbox's is. Commands run as its
// own user, with its environment, and the file in EXECD_ENVS over it.
func standInExecd() error {
	state := "/opt/opensandbox/state"
	if err := os.MkdirAll(state+"/cmd", 0o711); err != nil {
		return err
	}
	machine, err := daemon.NewOS(daemon.OSOptions{Warden: []string{"/proc/self/exe", "warden"}, Dir: state + "/cmd"})
	if err != nil {
		return err
	}
	env := map[string]string{}
	for _, kv := range append(os.Environ(), variables(os.Getenv("EXECD_ENVS"))...) {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "_" {
			env[k] = v
		}
	}
	token := rand.Text()
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	d, err := daemon.New(daemon.Config{Token: token, Machine: machine, StateDir: state, Home: os.Getenv("HOME"), Cwd: cwd, Env: env})
	if err != nil {
		return err
	}
	h := d.Handler()
	return http.ListenAndServe(":44772", opensandboxtest.Execd{
		Daemon: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set(execd.TokenHeader, token)
			h.ServeHTTP(w, r)
		}),
		Token: os.Getenv("EXECD_ACCESS_TOKEN"),
		Tail:  time.Second,
		Port: func(port int) http.Handler {
			p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))})
			p.FlushInterval = 200 * time.Millisecond
			return p
		},
	})
}

func variables(file string) []string {
	b, _ := os.ReadFile(file) // it need not be there
	return strings.Split(string(b), "\n")
}

// onlyAnswers lets a network namespace answer and talk to itself, and nothing
// else: the rules of the original for a policy that denies all, without its
// sets. (nftables/manager.go)
const onlyAnswers = `table inet opensandbox {
	chain egress {
		type filter hook output priority 0; policy drop;
		ct state established,related accept
		oifname "lo" accept
	}
}
`

// standInEgress denies all, also what it is told to allow, as it knows no names,
// and tells what it was given; it judges secrets and gives them to nobody: what is allowed is reached in the tests of the
// original only. It refuses to start with a policy that does not deny the rest.
func standInEgress() error {
	rules, enforcement := os.Getenv("OPENSANDBOX_EGRESS_RULES"), os.Getenv("OPENSANDBOX_EGRESS_MODE")
	var policy struct {
		DefaultAction string
	}
	if err := json.Unmarshal([]byte(rules), &policy); err != nil {
		return err
	}
	if policy.DefaultAction != "deny" {
		return fmt.Errorf("this stand-in denies all, and can do no other than that: %s", rules)
	}
	if enforcement == "dns+nft" {
		nft := exec.Command("nft", "-f", "-")
		nft.Stdin = strings.NewReader(onlyAnswers)
		if out, err := nft.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
	}
	keys, token := &opensandboxtest.Vault{}, os.Getenv("OPENSANDBOX_EGRESS_TOKEN")
	return http.ListenAndServe(":18080", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/credential-vault" && r.Header.Get("OPENSANDBOX-EGRESS-AUTH") == token {
			keys.Serve(w, r, os.Getenv("OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT") == "true", json.RawMessage(rules))
			return
		}
		opensandboxtest.ServePolicy(w, r, token, func() (json.RawMessage, string) {
			return json.RawMessage(rules), enforcement
		}, nil)
	}))
}
