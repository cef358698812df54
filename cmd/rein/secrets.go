package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox/local"
	"github.com/rein-sh/rein/secret"
)

// Bounds of reading a secret.
const (
	keyTimeout = 30 * time.Second
	maxKeySize = 64 << 10
)

// readKey reads a secret from where the configuration says the host has it.
// Only this process ever sees it.
func (a *app) readKey(ctx context.Context, name string, k config.Key) (secret.Value, error) {
	return a.readSecret(ctx, name, "key:", k)
}

// readSecret is readKey of what the configuration has under another key.
func (a *app) readSecret(ctx context.Context, name, under string, k config.Key) (secret.Value, error) {
	return a.readFrom(ctx, name, configured(under), config.Secret{Env: k.Env, File: k.File, Command: k.Command}, false)
}

// naming is where a user says where a secret is, in the words of hints.
type naming struct{ another, file string }

// configured is a secret that the configuration has under a key.
func configured(under string) naming {
	return naming{"name another place under " + under + " in the configuration", "check the path under file: in the configuration"}
}

// flagged is a secret that flags name.
func flagged(flags string) naming {
	return naming{"name another with " + flags, "check the path of --key-file"}
}

// readFrom reads a secret. alone: nobody may be asked anything.
func (a *app) readFrom(ctx context.Context, name string, n naming, s config.Secret, alone bool) (secret.Value, error) {
	k := s.Key()
	var text string
	switch {
	case a.keyless:
		return secret.Value{}, nil
	case k.Env != "":
		text = a.env.get(k.Env)
		if text == "" {
			return secret.Value{}, usage("export "+k.Env+"=..., or "+n.another,
				"no key for %s: the environment variable %s is not set", name, k.Env)
		}
	case k.File != "":
		var err error
		if text, err = readKeyFile(k.File); err != nil {
			return secret.Value{}, usage(hintOr(err, n.file), "no key for %s: %s", name, err)
		}
	case len(k.Command) > 0:
		var err error
		if text, err = a.made(ctx, name, s, alone); err != nil {
			return secret.Value{}, usage(hintOr(err, "run the command by hand to see what it says"), "no key for %s: %s: %s", name, k.Command[0], err)
		}
	default:
		return secret.Value{}, nil
	}
	value := trimmed(text)
	if why := notAKey(text, value); why != "" {
		return secret.Value{}, usage("the "+k.String()+" must be the key alone", "no key for %s: the %s %s", name, k, why)
	}
	return secret.New(name, value), nil
}

// trimmed is a key without the space around it.
func trimmed(text string) string { return strings.TrimSpace(text) }

// notAKey says what keeps a text, trimmed to value, from being a key; "" is
// nothing. It shows none of it.
func notAKey(text, value string) string {
	switch {
	case len(text) > maxKeySize:
		return fmt.Sprintf("is larger than %d bytes", maxKeySize)
	case value == "":
		return "is empty"
	case strings.ContainsRune(value, 0):
		return "has a NUL byte"
	case strings.ContainsRune(value, '\n'):
		return fmt.Sprintf("has %d lines", strings.Count(value, "\n")+1)
	}
	return ""
}

// readKeyFile reads a regular file that not everybody can write. It reads one
// byte more than a key may have.
func readKeyFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold us
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !st.Mode().IsRegular():
		return "", withHint(fmt.Errorf("%s is not a regular file", path), "name a file; what a program prints is read with command:")
	case st.Mode().Perm()&0o002 != 0:
		return "", withHint(fmt.Errorf("anyone may write to %s", path), "chmod o-w "+path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeySize+1))
	return string(data), err
}

// made is what the command of a secret prints.
func (a *app) made(ctx context.Context, name string, s config.Secret, alone bool) (string, error) {
	if len(s.Revoke) > 0 {
		return a.mint(ctx, name, s, alone)
	}
	var out bytes.Buffer
	err := a.keyCommand(ctx, s.Command, &out, alone)
	return out.String(), err
}

// keyCommand runs the host's own program for a secret. Its standard error goes
// to the user, since it may ask for a password there; not of one that is alone.
func (a *app) keyCommand(ctx context.Context, argv []string, to io.Writer, alone bool) error {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	for k, v := range a.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stdout = to
	if !alone {
		cmd.Stdin, cmd.Stderr = a.in, a.err.Writer
	}
	err := cmd.Run()
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", keyTimeout)
	}
	return err
}

// vaultSecrets reads the secrets of a target. They are masked from then on.
func (a *app) vaultSecrets(ctx context.Context, c config.Config, t config.Target) ([]vault.Secret, error) {
	list := c.SecretsOf(t)
	for i, s := range list {
		value, err := a.vaultSecret(ctx, c, s.Name, false)
		if err != nil {
			return nil, err
		}
		list[i].Value = value
		a.providerKeys = append(a.providerKeys, value)
	}
	return list, nil
}

// vaultSecret reads one secret that sandboxes have placeholders of.
func (a *app) vaultSecret(ctx context.Context, c config.Config, name string, alone bool) (secret.Value, error) {
	n := configured("secrets: " + name + ":")
	if name == a.flagKey {
		n = flagged(keyFlags)
	}
	return a.readFrom(ctx, name, n, c.Secrets[name], alone)
}

// secretsOf is where a run has its secrets from.
func (a *app) secretsOf(c config.Config, t config.Target) run.Secrets {
	refresh := map[string]time.Duration{}
	for _, name := range t.Secrets {
		if every := c.Secrets[name].Refresh; every > 0 {
			refresh[name] = time.Duration(every)
		}
	}
	return run.Secrets{Refresh: refresh, Revoke: a.minted.withdraw, RevokeOne: a.minted.withdrawOne, Read: func(ctx context.Context, name string) (secret.Value, error) {
		if c.Secrets[name].Env != "" {
			return secret.Value{}, usage(a.rotated(name),
				"the secret %s is of the environment variable %s, which is the same for as long as rein runs", name, c.Secrets[name].Env)
		}
		return a.vaultSecret(ctx, c, name, true)
	}}
}

// rotated is how a secret that a variable has can be another while rein runs.
func (a *app) rotated(name string) string {
	if name == a.flagKey {
		return "rein runs rotate --stdin, or begin with --key-file"
	}
	return "rein runs rotate --stdin, or name a file: or command: in the configuration"
}

// secrets are those of a target, and the masker that knows them and more.
func (a *app) secrets(ctx context.Context, c config.Config, t config.Target, more ...secret.Value) ([]vault.Secret, *secret.Masker, error) {
	list, err := a.vaultSecrets(ctx, c, t)
	if err != nil {
		return nil, nil, err
	}
	m, err := a.masker(ctx, c, more...)
	if err != nil {
		return nil, nil, err
	}
	dir, err := a.env.stateDir()
	if err != nil {
		return nil, nil, err
	}
	m.MaskShapes(local.Placeholders(dir, list)) // what the sandbox has is no key
	return list, m, nil
}

// masker knows every secret of this host that rein was told of: the model's
// key, the provider's, and those the configuration lists; and the shapes of others.
func (a *app) masker(ctx context.Context, c config.Config, more ...secret.Value) (*secret.Masker, error) {
	m := secret.NewMasker()
	for _, s := range c.Redaction.Secrets {
		v, err := a.readSecret(ctx, s.Name, "redaction: secrets:", s.Key())
		if err != nil {
			return nil, err
		}
		m.Add(v)
	}
	// Also those of sandboxes that others have made, where reading them makes nothing.
	for _, name := range slices.Sorted(maps.Keys(c.Secrets)) {
		if k := c.Secrets[name]; len(k.Command) == 0 {
			if v, err := a.readFrom(ctx, name, naming{}, k, true); err == nil {
				m.Add(v)
			}
		}
	}
	for _, v := range append(more, a.providerKeys...) {
		if !v.IsZero() {
			m.Add(v)
		}
	}
	m.MaskShapes(nil)
	return m, nil
}
