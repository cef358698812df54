package opensandbox_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox"
	"github.com/rein-sh/rein/sandbox/opensandbox/opensandboxtest"
	"github.com/rein-sh/rein/secret"
)

const (
	githubKey = "ghp_f4Kq81ZtRw02LmNxPa7uVy3Bd5Ce6Gh9JkQs"
	otherKey  = "k-0d9f8e7c6b5a4f3e2d1c-Other"
)

func github(use ...vault.Binding) vault.Secret {
	return vault.Secret{Name: "github", Value: secret.New("github", githubKey), Variable: "GITHUB_TOKEN", Use: use}
}

func other(use ...vault.Binding) vault.Secret {
	return vault.Secret{Name: "other", Value: secret.New("other", otherKey), Variable: "OTHER_KEY", Use: use}
}

func bearer(host string) vault.Binding { return vault.Binding{Host: host, As: vault.Bearer} }

// withSecrets is a spec with secrets whose network allows their hosts.
func withSecrets(secrets ...vault.Secret) sandbox.Spec {
	s := spec()
	s.Secrets = secrets
	seen := map[string]bool{}
	for _, one := range secrets {
		for _, use := range one.Use {
			if !seen[use.Host] {
				seen[use.Host] = true
				s.Network.Rules = append(s.Network.Rules, policy.Rule{Host: use.Host})
			}
		}
	}
	return s
}

func weakVault(o *opensandbox.Options) { o.AcceptWeakVault = true }

// Secrets are what OpenSandbox's vault gives to requests to their hosts, and to
// no others.
func TestSecretsTranslated(t *testing.T) {
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("x-access-token:"+githubKey))
	for name, c := range map[string]struct {
		secrets            []vault.Secret
		host, method, path string
		want               map[string]string
	}{
		"bearer":           {[]vault.Secret{github(bearer("Api.Example.com"))}, "api.example.com", "OPTIONS", "/x", map[string]string{"Authorization": "Bearer " + githubKey}},
		"another host":     {[]vault.Secret{github(bearer("api.example.com"))}, "www.example.com", "GET", "/x", map[string]string{}},
		"basic":            {[]vault.Secret{github(vault.Binding{Host: "git.example.com", As: vault.Basic, User: "x-access-token"})}, "git.example.com", "GET", "/", map[string]string{"Authorization": basic}},
		"header":           {[]vault.Secret{github(vault.Binding{Host: "a.example", As: vault.Header, Name: "x-key"})}, "a.example", "GET", "/", map[string]string{"X-Key": githubKey}},
		"another method":   {[]vault.Secret{github(vault.Binding{Host: "a.example", As: vault.Bearer, Methods: []string{"GET"}})}, "a.example", "POST", "/", map[string]string{}},
		"another path":     {[]vault.Secret{github(vault.Binding{Host: "a.example", As: vault.Bearer, Paths: []string{"/v1"}})}, "a.example", "GET", "/v1/x", map[string]string{}},
		"paths by prefix":  {[]vault.Secret{github(vault.Binding{Host: "a.example", As: vault.Bearer, Paths: []string{"/v1/*"}})}, "a.example", "GET", "/v1/x", map[string]string{"Authorization": "Bearer " + githubKey}},
		"two in one":       {[]vault.Secret{github(vault.Binding{Host: "a.example", As: vault.Header, Name: "Dd-Api-Key"}), other(bearer("a.example"))}, "a.example", "GET", "/", map[string]string{"Dd-Api-Key": githubKey, "Authorization": "Bearer " + otherKey}},
		"two hosts":        {[]vault.Secret{github(bearer("a.example"), bearer("b.example")), other(vault.Binding{Host: "b.example", As: vault.Header, Name: "X-Key"})}, "a.example", "GET", "/", map[string]string{"Authorization": "Bearer " + githubKey}},
		"two of one value": {[]vault.Secret{github(bearer("a.example"), vault.Binding{Host: "b.example", As: vault.Header, Name: "X-Key"})}, "b.example", "GET", "/", map[string]string{"X-Key": githubKey}},
	} {
		t.Run(name, func(t *testing.T) {
			v := &opensandboxtest.Vault{}
			p := open(t, serve(t, &opensandboxtest.Server{Vault: v}), weakVault)
			info, err := p.Create(t.Context(), withSecrets(c.secrets...))
			if err != nil {
				t.Fatalf("%v (hint: %s)", err, sandbox.HintOf(err))
			}
			got, _ := v.Sent(c.host, c.method, c.path)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("what the request is given:\n%s", d)
			}
			if notes := strings.Join(info.Notes, "\n"); !strings.Contains(notes, "credential vault") || !strings.Contains(notes, "accept_weak_vault") {
				t.Errorf("what a person should know: %q", info.Notes)
			}
		})
	}
}

// A placeholder is in the variable inside, and what the vault replaces.
func TestSecretsPlaceholder(t *testing.T) {
	v := &opensandboxtest.Vault{}
	p := open(t, serve(t, &opensandboxtest.Server{Vault: v, Pods: true}), nil)
	sb := create(t, p, withSecrets(github(vault.Binding{Host: "a.example", As: vault.Substitute, In: []vault.Place{vault.InBody, vault.InQuery}})))
	r, err := sb.Run(t.Context(), sandbox.Command{Shell: "echo $GITHUB_TOKEN"})
	if err != nil {
		t.Fatal(err)
	}
	placeholder := strings.TrimSpace(string(r.Stdout.Head))
	if len(placeholder) != len(githubKey) || !strings.HasPrefix(placeholder, "ghp_") || placeholder == githubKey {
		t.Errorf("inside it is %q", placeholder)
	}
	fields, replaced := v.Sent("a.example", "POST", "/")
	if d := cmp.Diff(map[string]string{placeholder: githubKey + " in body,query"}, replaced); d != "" || len(fields) > 0 {
		t.Errorf("replaced:\n%s\nand set: %v", d, fields)
	}
}

// What OpenSandbox's vault cannot hold to is refused by the name of the secret,
// before anything is made.
func TestSecretsRefused(t *testing.T) {
	s := &opensandboxtest.Server{Vault: &opensandboxtest.Vault{}, Pods: true}
	h := serve(t, s)
	use := func(b vault.Binding) sandbox.Spec {
		b.Host = "a.example"
		return withSecrets(github(b))
	}
	also := func(r ...policy.Rule) sandbox.Spec {
		sp := withSecrets(github(bearer("a.example")))
		sp.Network.Rules = append(sp.Network.Rules, r...)
		return sp
	}
	bundled := withSecrets(github(bearer("a.example")))
	bundled.Network.Bundles = []string{"pypi"}
	unreached := withSecrets(github(bearer("a.example")))
	unreached.Network = policy.Document{}
	for name, c := range map[string]struct {
		spec   sandbox.Spec
		change func(*opensandbox.Options)
		says   string
	}{
		"signing again":        {use(vault.Binding{As: vault.AWS4, AccessKey: "AKIDEXAMPLE"}), nil, "secrets.github.use[0]: OpenSandbox's vault has nothing like as: aws4"},
		"a parameter":          {use(vault.Binding{As: vault.Query, Name: "key"}), nil, "secrets.github.use[0]: OpenSandbox's vault adds no parameter"},
		"any user":             {use(vault.Binding{As: vault.Basic}), nil, "secrets.github.use[0]: OpenSandbox's vault sends one user"},
		"another port":         {use(vault.Binding{As: vault.Bearer, Ports: []int{8443}}), nil, "looks at port 443 alone"},
		"a field of its own":   {use(vault.Binding{As: vault.Header, Name: "Forwarded"}), nil, "sets no field Forwarded"},
		"paths by prefix":      {use(vault.Binding{As: vault.Bearer, Paths: []string{"/v1/*"}}), nil, "compares paths as they are sent"},
		"no variable":          {withSecrets(vault.Secret{Name: "github", Value: secret.New("github", githubKey), Use: []vault.Binding{{Host: "a.example", As: vault.Substitute, In: []vault.Place{vault.InBody}}}}), nil, "without a variable"},
		"no domain":            {withSecrets(github(bearer("localserver"))), nil, "no host without a dot"},
		"not allowed":          {unreached, nil, "no rule of the network allows a.example"},
		"denied":               {also(policy.Rule{Host: "a.example", Action: "deny"}), nil, "no rule of the network allows a.example"},
		"another host":         {also(policy.Rule{Host: "b.example"}), nil, "secrets.github: network.rules[1] also allows b.example"},
		"many hosts":           {also(policy.Rule{Host: "*.a.example"}), nil, "secrets.github: network.rules[1] also allows *.a.example"},
		"addresses":            {also(policy.Rule{CIDR: "192.0.2.0/24"}), nil, "secrets.github: network.rules[1] also allows 192.0.2.0/24"},
		"a bundle":             {bundled, nil, "network.bundles[0]: a bundle lets nothing but reading through"},
		"another's host":       {withSecrets(github(bearer("a.example")), other(bearer("b.example"))), nil, "secrets.github: network.rules[1] also allows b.example"},
		"one host of fewer":    {withSecrets(github(bearer("a.example"), vault.Binding{Host: "b.example", As: vault.Bearer, Paths: []string{"/v1"}})), nil, "secrets.github.use[1]: OpenSandbox's vault goes by the Host field"},
		"two for one request":  {withSecrets(github(vault.Binding{Host: "a.example", As: vault.Bearer, Methods: []string{"GET"}}), other(vault.Binding{Host: "a.example", As: vault.Header, Name: "X-Key"})), weakVault, "one binding, and github-0 and other-1"},
		"names only":           {withSecrets(github(bearer("a.example"))), func(o *opensandbox.Options) { o.AcceptWeakEgress = true }, "accept_weak_egress"},
		"one rule of the rest": {also(policy.Rule{Host: "a.example", Proto: "https", Methods: []string{"GET"}}), nil, "network.rules[1]: OpenSandbox does not tell protocols apart"},
		"a rule's methods":     {also(policy.Rule{Host: "a.example", Proto: "http", Paths: []string{"/x"}}), nil, "network.rules[1]: OpenSandbox does not tell protocols apart"},
		"no value of a key":    {withSecrets(vault.Secret{Name: "github", Value: secret.New("github", "short"), Use: []vault.Binding{bearer("a.example")}}), nil, "secrets.github: it has 5 letters"},
	} {
		_, err := open(t, h, c.change).Create(t.Context(), c.spec)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (strings.Contains(err.Error(), githubKey) || strings.Contains(err.Error(), otherKey)) {
			t.Errorf("%s: the error shows a key", name)
		}
	}
	if n := s.Count(opensandboxtest.Create); n != 0 {
		t.Errorf("%d sandboxes were asked for", n)
	}
}

// A rule that denies takes nothing away from a secret's guarantee.
func TestSecretsBesideDenials(t *testing.T) {
	v := &opensandboxtest.Vault{}
	p := open(t, serve(t, &opensandboxtest.Server{Vault: v, Pods: true}), nil)
	sp := withSecrets(github(bearer("a.example")))
	sp.Network.Rules = append(sp.Network.Rules, policy.Rule{Host: "*.b.example", Action: "deny"})
	info, err := p.Create(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(info.Notes, "\n"); strings.Contains(notes, "accept_weak_vault") || !strings.Contains(notes, "credential vault") {
		t.Errorf("what a person should know: %q", info.Notes)
	}
}

// A proxy that is still starting is waited for.
func TestSecretsOfASlowProxy(t *testing.T) {
	v := &opensandboxtest.Vault{}
	s := &opensandboxtest.Server{Vault: v, Pods: true}
	p := open(t, serve(t, s), nil)
	s.Once(opensandboxtest.Keys, opensandboxtest.Answer(http.StatusPreconditionFailed, "text/plain", "credential proxy is not ready"))
	if _, err := p.Create(t.Context(), withSecrets(github(bearer("a.example")))); err != nil || len(v.Names()) != 1 {
		t.Errorf("%v; in the vault: %q", err, v.Names())
	}
}

// A sandbox whose secrets are not seen in the vault is not used, and no message
// of its server's shows them.
func TestSecretsNotTaken(t *testing.T) {
	echo := func(status int) opensandboxtest.Fault {
		return func(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
			w.WriteHeader(status)
			_, _ = io.Copy(w, r.Body)
		}
	}
	for name, c := range map[string]struct {
		server *opensandboxtest.Server
		fault  opensandboxtest.Fault
		change func(*opensandbox.Options)
		hint   string
	}{
		"no vault":          {&opensandboxtest.Server{Pods: true}, nil, nil, "v1.1.1 or later"},
		"TLS alone":         {&opensandboxtest.Server{Pods: true, Vault: &opensandboxtest.Vault{NeedsTLS: true}}, nil, nil, "REQUIRE_TLS"},
		"no substitutions":  {&opensandboxtest.Server{Pods: true, Vault: &opensandboxtest.Vault{NoSubstitutions: true}}, nil, nil, "substitute needs"},
		"no enforcement":    {&opensandboxtest.Server{Pods: true, Enforcement: "dns", Vault: &opensandboxtest.Vault{}}, nil, nil, "dns+nft"},
		"through execd":     {&opensandboxtest.Server{Vault: &opensandboxtest.Vault{}}, nil, nil, "accept_weak_vault"},
		"an echo":           {&opensandboxtest.Server{Pods: true, Vault: &opensandboxtest.Vault{}}, echo(400), nil, "what the sidecar says"},
		"an echo elsewhere": {&opensandboxtest.Server{Pods: true, Vault: &opensandboxtest.Vault{}}, echo(500), nil, ""},
		"a lie":             {&opensandboxtest.Server{Pods: true, Vault: &opensandboxtest.Vault{}}, opensandboxtest.Answer(201, "application/json", `{"revision":1}`), nil, "v1.1.1"},
		"a cut connection":  {&opensandboxtest.Server{Pods: true, Vault: &opensandboxtest.Vault{}}, opensandboxtest.Cut, nil, "reachable"},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, serve(t, c.server), c.change)
			if c.fault != nil {
				c.server.Once(opensandboxtest.Keys, c.fault)
			}
			sub := vault.Binding{Host: "a.example", As: vault.Substitute, In: []vault.Place{vault.InBody}}
			_, err := p.Create(t.Context(), withSecrets(github(sub), other(vault.Binding{Host: "a.example", As: vault.Basic, User: "me"})))
			if err == nil || !strings.Contains(sandbox.HintOf(err), c.hint) {
				t.Errorf("%v (hint: %s), want %q", err, sandbox.HintOf(err), c.hint)
			}
			hides(t, "the error", []byte(fmt.Sprintf("%v %+v %s", err, err, sandbox.HintOf(err))))
			if n := c.server.Alive(); n != 0 {
				t.Errorf("%d sandboxes are left", n)
			}
		})
	}
}

// hides fails if a text shows one of the keys, as it is or in base64.
func hides(t *testing.T, what string, b []byte) {
	t.Helper()
	for _, key := range []string{githubKey, otherKey} {
		for shift := range 3 {
			text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + key))[4 : len(key)-4]
			if bytes.Contains(b, []byte(key)) || bytes.Contains(b, []byte(text)) {
				t.Errorf("%s shows a key: %q", what, b)
				return
			}
		}
	}
}

// recorder keeps what a server was sent, by method and path.
type recorder struct {
	mu   sync.Mutex
	sent map[string][]byte
}

// Values go to the vault and nowhere else: not into the request that makes the
// sandbox, not into files, and out of the vault when the sandbox ends.
func TestSecretsStayInTheVault(t *testing.T) {
	v := &opensandboxtest.Vault{}
	s := &opensandboxtest.Server{Vault: v, Pods: true}
	h := serve(t, s)
	rec := &recorder{sent: map[string][]byte{}}
	inner := h.Config.Handler
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		rec.mu.Lock()
		rec.sent[r.Method+" "+r.URL.Path] = append(rec.sent[r.Method+" "+r.URL.Path], b...)
		rec.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(b))
		inner.ServeHTTP(w, r)
	})
	dir := ""
	p := open(t, h, func(o *opensandbox.Options) { dir, o.Execd = o.StateDir, program(t) })
	info, err := p.Create(t.Context(), withSecrets(github(bearer("a.example")), other(vault.Binding{Host: "a.example", As: vault.Header, Name: "X-Key"})))
	if err != nil {
		t.Fatal(err)
	}
	hides(t, "what is said of the sandbox", []byte(fmt.Sprintf("%+v", info)))
	if err := p.Pause(t.Context(), info.ID, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Resume(t.Context(), info.ID); err != nil {
		t.Errorf("with its secrets in the vault: %v", err)
	}
	rec.mu.Lock()
	posted := 0
	for what, b := range rec.sent {
		if strings.HasPrefix(what, "POST /pods/") && strings.HasSuffix(what, "/credential-vault") {
			posted++
			if !bytes.Contains(b, []byte(otherKey)) {
				t.Error("the vault was not sent the keys: this test sees nothing")
			}
			continue
		}
		hides(t, what, b)
	}
	rec.mu.Unlock()
	if posted != 1 {
		t.Errorf("keys were sent to %d places", posted)
	}
	files := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files++
		hides(t, path, b)
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files, %v", files, err)
	}
	if err := p.Kill(t.Context(), info.ID); err != nil {
		t.Fatal(err)
	}
	if left := v.Names(); left != nil {
		t.Errorf("after its end the vault has %q", left)
	}
}

// A sandbox whose secrets are gone when it is resumed is paused again, and one
// with secrets gets no hosts besides.
func TestSecretsOfALiveSandbox(t *testing.T) {
	v := &opensandboxtest.Vault{}
	p := open(t, serve(t, &opensandboxtest.Server{Vault: v, Pods: true}), nil)
	sp := withSecrets(github(bearer("a.example")))
	info, err := p.Create(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	wider := rules(append(sp.Network.Rules, policy.Rule{Host: "b.example"})...)
	_, err = p.SetNetwork(t.Context(), info.ID, wider)
	wantRefusal(t, err, sandbox.KindUnsupported, "accept_weak_vault")
	if _, err := p.SetNetwork(t.Context(), info.ID, sp.Network); err != nil {
		t.Errorf("the policy that it has: %v", err)
	}
	wantRefusal(t, sandbox.RotateSecret(t.Context(), p, info.ID, "github", secret.New("github", otherKey)), sandbox.KindUnsupported, "new sandbox")
	if err := p.Pause(t.Context(), info.ID, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	v.Lose()
	if err := p.Resume(t.Context(), info.ID); err == nil || !strings.Contains(err.Error(), "paused again") || !strings.Contains(err.Error(), "secrets") {
		t.Errorf("resumed without its secrets: %v", err)
	}
	if now, err := p.Get(t.Context(), info.ID); err != nil || now.State != sandbox.StatePaused {
		t.Errorf("it is %s, %v", now.State, err)
	}
}

// Keys are not sent over a network as they are.
func TestSecretsInTheClear(t *testing.T) {
	s := &opensandboxtest.Server{Vault: &opensandboxtest.Vault{}, Pods: true}
	p := open(t, serve(t, s), weakVault)
	s.Once(opensandboxtest.Endpoint, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { next(w, r) }) // execd's
	away := func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		if strings.HasSuffix(r.URL.Path, "/18080") && s.Count(opensandboxtest.Policy) > 0 {
			opensandboxtest.Answer(200, "application/json", `{"endpoint":"192.0.2.7:18080"}`)(w, r, next)
			return
		}
		next(w, r)
	}
	for range 8 {
		s.Once(opensandboxtest.Endpoint, away)
	}
	_, err := p.Create(t.Context(), withSecrets(github(bearer("a.example"))))
	wantRefusal(t, err, sandbox.KindUnsupported, "https")
	if n := s.Count(opensandboxtest.Keys); n != 0 {
		t.Errorf("the vault was asked %d times", n)
	}
}
