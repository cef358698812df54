package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/lab/leak"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// keyVariable is where a sandbox with a key has its placeholder.
const keyVariable = "LAB_KEY"

// keyring is what the ways of a sandbox with a key are tried with.
type keyring struct {
	real    string // nowhere but here, in the keeper, and at the server
	foreign string // of somebody else, in the hostile text
	server  *leak.KeyServer
}

// keys tries every way by which a key that a sandbox never holds, or another's,
// could leave it, and what installs packages could be used for.
func (d *drill) keys(ctx context.Context) {
	const under = "a key and bundles, "
	if d.env.Networked == nil {
		d.add(Step{Name: under + "every way", Expected: "a provider that takes a proxy, a resolver and an authority", Got: "not tried: this one takes none", NotTried: true})
		return
	}
	// It has characters that are escaped in one place or another.
	k := &keyring{real: "rein_" + rand.Text()[:12] + "+" + rand.Text()[:10] + "/" + rand.Text()[:6] + "=", foreign: "ghp_" + rand.Text() + d.token}
	var err error
	if k.server, err = leak.NewKeyServer(k.real); err != nil {
		d.step(under+"server", "a server on loopback", func() (string, bool) { return err.Error(), false })
		return
	}
	defer k.server.Close()
	p, done, err := d.env.Networked(Network{Resolver: k.server.Resolver, Proxy: k.server.Proxy, CA: k.server.CA})
	if err != nil {
		d.step(under+"provider", "a provider with a proxy, a resolver and an authority", func() (string, bool) { return err.Error(), false })
		return
	}
	if done != nil {
		defer done()
	}
	spec := d.env.Spec
	spec.TTL, spec.Network, spec.Secrets = time.Minute, keyedDocument(), k.secrets()
	box, err := sandbox.Create(ctx, p, spec, sandbox.Options{Log: d.log, Masker: d.env.Masker})
	if err != nil {
		d.step(under+"create", "a sandbox with a key", func() (string, bool) { return err.Error() + "; " + sandbox.HintOf(err), false })
		return
	}
	defer func() {
		if err := errors.Join(box.Kill(context.WithoutCancel(ctx)), box.Close()); err != nil {
			d.step(under+"clean up", "nothing is left", func() (string, bool) { return err.Error(), false })
		}
	}()
	var placeholder bytes.Buffer
	if _, err := box.Run(ctx, sandbox.Command{Tool: "lab", Shell: `printf %s "$` + keyVariable + `"`, Stdout: &placeholder}); err != nil || placeholder.Len() != len(k.real) || placeholder.String() == k.real {
		d.step(under+"placeholder", "a placeholder of the key's length, which is another", func() (string, bool) { return fmt.Sprintf("%d bytes, %v", placeholder.Len(), err), false })
		return
	}
	aim := d.aim(nil)
	aim.Keys = &leak.Keys{Placeholder: placeholder.String(), Sum: fmt.Sprintf("%x", sha256.Sum256([]byte(k.real))), Foreign: k.foreign}
	if d.tryAim(ctx, box, under, aim) {
		d.keysRecorded(ctx, p, box.ID(), under)
		d.judgeKeyServer(k, aim.Keys.Placeholder)
	}
	d.silent("after every way, where there is a key")
}

// secrets bind the key to two hosts.
func (k *keyring) secrets() []vault.Secret {
	return []vault.Secret{{Name: "lab", Value: secret.New("lab", k.real), Variable: keyVariable,
		Use: []vault.Binding{{Host: leak.KeyName, As: vault.Bearer}, {Host: leak.OldKeyName, As: vault.Bearer}}}}
}

// keyedDocument opens the hosts with a key, one without, and registries to read
// from. The range is where they all are.
func keyedDocument() policy.Document {
	d := policy.Document{Bundles: []string{"npm", "pypi", "github:rein-lab/hello"}, Rules: []policy.Rule{{CIDR: leak.KeyedRange.String(), Ports: []int{443}, Proto: "tls"}}}
	for _, host := range []string{leak.KeyName, leak.OldKeyName, leak.OtherName} {
		d.Rules = append(d.Rules, policy.Rule{Host: host, Proto: "https"})
	}
	return d
}

// keysRecorded asks the provider what it saw.
func (d *drill) keysRecorded(ctx context.Context, p sandbox.Provider, id, under string) {
	want := []string{vault.RuleLeak, vault.RuleForeign, "bundles.npm", "bundles.pypi", "bundles.github:rein-lab/hello", "http.host", "http.framing", "tls.name", policy.RuleDefault}
	d.step(under+"recorded", "the network record has refusals by each of these rules: "+strings.Join(want, ", "), func() (string, bool) {
		log, err := sandbox.NetworkRecords(ctx, p, id, 0)
		if err != nil {
			return err.Error(), false
		}
		counts := map[string]int{}
		for _, r := range log.Records {
			if r.Verdict == "deny" {
				counts[r.Rule] += r.Count
			}
		}
		missing := slices.DeleteFunc(slices.Clone(want), func(rule string) bool { return counts[rule] > 0 })
		return fmt.Sprintf("%v in %d records, missing %v", counts, len(log.Records), missing), len(missing) == 0
	})
}

// judgeKeyServer asks the server what it was sent.
func (d *drill) judgeKeyServer(k *keyring, placeholder string) {
	sent := k.server.Sent()
	d.step("control: the server that wants a key", "it was sent the key by its hosts alone, and neither a placeholder, another's key nor what was smuggled, fronted or published", func() (string, bool) {
		keys := 0
		for _, s := range sent {
			reads := strings.HasPrefix(s.Head, http.MethodGet+" ") || strings.HasPrefix(s.Head, http.MethodHead+" ") || strings.HasSuffix(s.Path, "/git-upload-pack")
			own := s.Name == leak.KeyName || s.Name == leak.OldKeyName
			fault := ""
			switch {
			case strings.Contains(s.Head, placeholder):
				fault = "the placeholder"
			case strings.Contains(s.Head, k.foreign), strings.Contains(s.Head, k.foreign[4:]):
				fault = "another's key"
			case strings.Contains(s.Head, k.real) && !own:
				fault = "the key, by " + s.Name
			case strings.Contains(s.Path+s.Head, "smuggled"), strings.Contains(s.Path, "fronted"):
				fault = "a hidden request"
			case strings.Contains(s.Head, d.token) && !strings.HasPrefix(s.Path, "/redirect"):
				fault = "data"
			case !own && s.Name != leak.OtherName && !reads:
				fault = "what is no reading"
			}
			if fault != "" {
				return fmt.Sprintf("it was sent %s: %.300q", fault, s.Head), false
			}
			if strings.Contains(s.Head, k.real) {
				keys++
			}
		}
		return fmt.Sprintf("%d requests, %d of them with the key", len(sent), keys), keys > 0
	})
}
