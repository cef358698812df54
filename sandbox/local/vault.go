package local

import (
	"cmp"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// keyFile is the file in StateDir that has the key by which a host's sandboxes
// know each other's placeholders.
const keyFile = "placeholders.key"

// vaultConfig is what the keeper is told of secrets, which sandbox.Spec has
// without their values.
type vaultConfig struct {
	Key    vault.Key         `json:"key"`
	Values map[string]string `json:"values,omitempty"` // by name
}

// vaultConfig reads the host's key and the values of secrets.
func (p *Provider) vaultConfig(spec sandbox.Spec) (vaultConfig, error) {
	if len(spec.Secrets) == 0 {
		return vaultConfig{}, nil
	}
	c := vaultConfig{Values: map[string]string{}}
	key, err := placeholderKey(filepath.Join(p.opts.StateDir, keyFile))
	if err != nil {
		return c, hostError("create", keyFile, err)
	}
	c.Key = key
	for _, s := range spec.Secrets {
		c.Values[s.Name] = s.Value.Reveal()
	}
	return c, nil
}

// placeholderKey reads a key, or makes it. It appears complete.
func placeholderKey(path string) (key vault.Key, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, _ = rand.Read(key[:]) // never fails
		tmp := path + "." + rand.Text()
		if err := os.WriteFile(tmp, key[:], 0o600); err != nil {
			return key, errors.Join(err, os.Remove(tmp))
		}
		err = os.Link(tmp, path) // never in the place of one that somebody made meanwhile
		if err = errors.Join(unlessExists(err), os.Remove(tmp)); err != nil {
			return key, err
		}
		b, err = os.ReadFile(path)
	}
	if err == nil && len(b) != len(key) {
		err = fmt.Errorf("%s has %d bytes, not %d: remove it while no sandbox lives", path, len(b), len(key))
	}
	copy(key[:], b)
	return key, err
}

func unlessExists(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// prepareVault makes what the gateway needs where TLS ends in it: the sandbox is
// told of it when it begins.
func (k *keeper) prepareVault() error {
	c := k.cfg.Vault
	k.cfg.Vault.Values = nil
	doc := k.cfg.Spec.Network
	doc.Origin = k.cfg.Origin
	compiled, err := policy.Compile(doc)
	if err != nil {
		return sandbox.InvalidNetwork("create", err)
	}
	if len(k.cfg.Spec.Secrets) == 0 && len(k.cfg.Spec.Models) == 0 && !compiled.EndsTLS() {
		k.trusted = k.cfg.Egress.CA
		return nil
	}
	for i, s := range k.cfg.Spec.Secrets {
		k.cfg.Spec.Secrets[i].Value = secret.New(s.Name, c.Values[s.Name])
	}
	if len(k.cfg.Spec.Secrets) > 0 {
		v, faults := vault.New(c.Key, k.cfg.Spec.Secrets)
		if len(faults) > 0 {
			f := faults[0]
			return &sandbox.Error{Kind: sandbox.KindInvalid, Op: "create", Subject: k.cfg.Info.ID, Err: fmt.Errorf("secrets.%s: %s", f.Path, f.Message),
				Hint: cmp.Or(f.Hint, "docs/vault.md says what a key must look like to have a placeholder")}
		}
		k.vault = v
		for i := range k.cfg.Spec.Secrets {
			k.cfg.Spec.Secrets[i].Value = secret.Value{}
		}
	}
	if k.authority, err = egress.NewAuthority("rein " + k.cfg.Info.ID); err != nil {
		return &sandbox.Error{Kind: sandbox.KindHost, Op: "create", Err: err}
	}
	k.trusted = string(join(k.cfg.Egress.CA, k.authority.PEM()))
	return nil
}

// roots are whom the gateway trusts: the host's stores, and the certificates of
// the company. They are read while files still may be opened.
func (k *keeper) roots() (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, &sandbox.Error{Kind: sandbox.KindHost, Op: "read the certificates that this host trusts", Err: err}
	}
	pool.AppendCertsFromPEM([]byte(k.cfg.Egress.CA)) // checked by Egress.check
	return pool, nil
}

// Placeholders returns what knows the placeholders of these secrets that sandboxes
// of this state directory have. Its key is read when it is first asked: sandboxes
// that come later may have made it.
func Placeholders(stateDir string, secrets []vault.Secret) func(text []byte) bool {
	known := sync.OnceValue(func() func([]byte) bool {
		key, err := placeholderKey(filepath.Join(stateDir, keyFile))
		if err != nil {
			return func([]byte) bool { return false } // masked like anything else that looks so
		}
		return vault.Recognize(key, secrets)
	})
	return func(text []byte) bool { return len(secrets) > 0 && known()(text) }
}
